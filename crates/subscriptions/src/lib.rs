//! Subscriptions: workers are woken when streams that they follow have something new (PROTOCOL §6, §7).
//!
//! The rules are in `alluvium_protocol::subscription`. Here is who keeps to them: a [`Core`] holds every subscription and
//! decides, one at a time; each decision is an append to a stream of the engine that the subscription has for itself,
//! which no URL names, and counts once that append is durable. So state is written, synced, folded and recovered as all
//! else is. A long history is replaced by a snapshot, as in any stream.
//!
//! An append tells nobody here more than that its stream has changed, and that once for many appends. Which
//! subscriptions follow it is found on the thread of [`Service`], behind the appends and not before them.
//!
//! | Module | What happens there |
//! |---|---|
//! | [`core`] | commands, changes and time become decisions, and durable decisions effects |
//! | [`wakes`] | which decision a request, a delivery or the time leads to |
//! | [`create`], [`backfill`] | making a subscription, and what there is for it to follow |
//! | [`book`] | which subscription follows which stream, and how far it has come |
//! | [`changes`] | what has changed, and whom that concerns |
//! | [`record`], [`load`] | decisions as they are written, and read again |
//! | [`keys`] | signing keys, their rotation, and tokens of wakes |
//! | [`sender`], [`delivery`], [`target`] | webhooks, and where they may go |
//! | [`service`] | the thread that all of it runs on |
//! | [`http`] | the surface |

mod backfill;
mod book;
mod changes;
mod command;
mod core;
mod counters;
mod create;
mod delivery;
mod describe;
pub mod http;
mod keys;
mod load;
mod options;
mod record;
mod sender;
mod service;
mod subscription;
mod target;
mod wakes;
mod write;

pub use crate::command::{Answer, Command, Refusal, Request, What};
pub use crate::core::Core;
pub use crate::counters::{Counters, CountersSnapshot};
pub use crate::delivery::{Delivered, Delivery, Failure, Outcome, Transport};
pub use crate::load::LoadError;
pub use crate::options::*;
pub use crate::service::{Handle, Service};
pub use crate::target::{HttpTransport, Names, SystemNames, TargetError, check_target};
