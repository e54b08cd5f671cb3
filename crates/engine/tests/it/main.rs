//! The engine over a real disk, from outside.

mod basics;
mod folding;
mod forks;
mod support;
