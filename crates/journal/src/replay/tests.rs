//! Replays of whole, torn and damaged journals.
