//! The authority as its callers see it, without a transport.

mod append;
mod exchanges;
mod guard;
mod model;
mod plans;
mod principal;
mod query;
mod subscribe;
mod support;
mod waiting;
