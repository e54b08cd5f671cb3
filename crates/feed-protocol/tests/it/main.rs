//! Messages from outside: golden files, what other encoders write, and properties of both encodings.

mod golden;
mod property;
mod rules;
mod strict;
