//! The client against a server on an archive on a simulated disk, over real sockets, with whatever can come between.

mod faults;
mod front;
mod outages;
mod reading;
mod world;
