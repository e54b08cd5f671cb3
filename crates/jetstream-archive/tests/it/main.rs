//! The archive on a simulated disk.

mod crashes;
mod model;
mod planning;
mod reading;
mod times;
mod world;
