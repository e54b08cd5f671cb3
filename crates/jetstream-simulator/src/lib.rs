//! An AT Protocol network in one process, from a seed: accounts with keys and repositories, a directory, hosts, and a
//! relay whose frames are real to the byte. For tests, and for a first try of `alluvium jetstream` without a network.
//!
//! It is the model that tests compare a consumer with. A [`World`] knows what every repository truly holds and what
//! every frame says; an [`Oracle`] knows what a verifying consumer must make of each frame. Neither does I/O.
//!
//! ```
//! use alluvium_jetstream_simulator::{Act, Config, Flaw, Oracle, Outcome, World};
//!
//! let mut world = World::new(Config::small(7)).expect("a valid configuration");
//! let mut oracle = Oracle::new();
//! for emitted in world.run(20) {
//!     // `emitted.frame` are the bytes of a WebSocket message: give them to the consumer, and compare.
//!     let expected: Outcome = oracle.observe(&emitted);
//!     assert!(!matches!(expected, Outcome::Undecodable));
//! }
//! // Something that must be dropped:
//! let frames = world.act(Act::Lie { account: 0, flaw: Flaw::BadSignature }).expect("account 0 is active");
//! let last = frames.last().expect("a frame");
//! assert_eq!(oracle.observe(last), Outcome::Rejected(Flaw::BadSignature));
//! // A consumer needs the key of an account, and its repository after a break:
//! let account = world.find(&last.did).expect("an account of this world");
//! let document: String = world.document(account).expect("not tombstoned");
//! let file: Vec<u8> = world.repo(account).car();
//! // In the end, its archive folds to this:
//! let records = oracle.fold(&world);
//! # assert!(!document.is_empty() && !file.is_empty() && !records.is_empty());
//! ```
//!
//! A [`Simulator`] is the same over sockets, or, [`detached`](Simulator::detached), as a transport without any. Faults are
//! armed with a count and count how often they came:
//!
//! ```
//! use alluvium_jetstream_simulator::{Act, Config, Fault, Simulator};
//!
//! let network = Simulator::detached(Config::small(7)).expect("a valid configuration");
//! let did = network.world(|world| world.account(0).map(|account| account.did().to_string())).expect("account 0");
//! let lost = network.arm(Fault::PlcStatus { did: did.clone(), status: 500 }, 1).expect("room for a fault");
//! let document = |network: &Simulator| network.get(&format!("https://plc.test/{did}")).map(|reply| reply.status);
//! assert_eq!((document(&network), document(&network)), (Some(500), Some(200)));
//! assert_eq!(network.fired(lost), 1);
//! network.act(Act::Step { count: 10 }).expect("ten events");
//! let mut subscription = network.subscribe(Some(0));
//! assert!(network.next(&mut subscription).messages.len() >= 10);
//! ```

mod config;
mod event;
mod expect;
mod fault;
mod frame;
mod history;
mod identity;
mod random;
mod record;
mod repo;
pub mod serve;
mod subscription;
mod text;
mod world;

pub use config::{ACCOUNTS_MAX, Config, ConfigError, HOSTS_MAX, INITIAL_RECORDS_MAX, Mix, START_MICROS};
pub use event::{Action, Effect, Emitted, Event, Flaw, Op, Status};
pub use expect::{Fold, Oracle, Outcome, Row};
pub use fault::{Armed, Fault, Faults, TooManyFaults};
pub use frame::{error as error_frame, info as info_frame};
pub use history::{Gone, History};
pub use identity::DOMAIN;
pub use random::Random;
pub use repo::{Gate, Record, Repo};
pub use serve::Simulator;
pub use subscription::{Next, Subscription};
pub use world::{Account, Act, FRAME_BYTES_MAX, Host, Lie, Operation, World, WorldError};
