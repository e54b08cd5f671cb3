//! Subscriptions over a real engine, from outside.
