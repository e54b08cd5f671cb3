//! The store from outside.

mod batch_runner;
mod conformance;
mod crash;
mod crash_kinds;
mod damage;
mod full;
mod kill;
mod names;
mod opening;
mod pruning;
mod query_plans;
mod races;
mod same_plan;
mod world;
mod writer;
