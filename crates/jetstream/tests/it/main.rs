//! The surface over real sockets, on an archive on a simulated disk.

mod archive;
mod bounds;
mod live;
mod long_filters;
mod manners;
mod old_cursors;
mod stream;
mod world;
