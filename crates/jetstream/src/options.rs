//! What can be set.

use std::sync::Arc;
use std::time::Duration;

use alluvium_http::ResponseBudget;
use alluvium_jetstream_archive::PlanLimits;

/// How the surface is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How far back a live feed may begin; 36 hours. More is gathered from the archive's files. Zero: cursors are passed
    /// over, and every feed begins with what comes.
    pub lookback: Duration,
    /// Subscribers at a time, over all feeds; 10,000.
    pub subscribers_max: usize,
    /// Subscribers at a time of one address that is not of this machine, over all feeds; 100. Zero: any number.
    pub subscribers_per_address_max: usize,
    /// Of them, those that read files until they have caught up; 10. Zero: any number.
    pub replays_per_address_max: usize,
    /// Bytes of events a second that are read of files for subscribers of one address that is not of this machine; 32 MiB,
    /// and as much at once. They count as they are in the archive, whether they pass a filter or not. Zero: any number.
    pub replay_bytes_per_address_per_s: u64,
    /// Accounts that all filters of subscribers name together; 4,000,000, which are some 500 MiB. Zero: any number.
    pub filter_dids_max: usize,
    /// Bytes that wait for one subscriber in its socket's queue; 256 KiB.
    pub outgoing_bytes_max: usize,
    /// Rows that a subscriber reads at a time; 1,024.
    pub batch_rows: usize,
    /// How long a subscriber may take nothing of what is written to it; 30 s. The reference implementation gives every
    /// frame 5 s. Networks of phones are gone for longer than that and come back, and the system may tell of room in a full
    /// socket only once a third of it is free, which on a slow line takes as long. What is held meanwhile is bounded by
    /// [`Self::outgoing_bytes_max`] and the socket.
    pub write_timeout: Duration,
    /// How long a subscriber may be silent before it is asked whether it is there; 30 s.
    pub ping_interval: Duration,
    /// A subscriber this many events behind is looked at: whoever then passes fewer than [`Self::slow_events_per_s`] over
    /// [`Self::slow_window`] is dropped; 100,000.
    pub slow_lag: u64,
    /// See [`Self::slow_lag`]; 5.
    pub slow_events_per_s: u64,
    /// See [`Self::slow_lag`]; one minute.
    pub slow_window: Duration,
    /// Whether sockets may compress messages (`permessage-deflate`); yes.
    pub deflate: bool,
    /// For how long a segment may be kept without asking whether it has changed; zero: always ask.
    pub segment_max_age: Duration,
    /// Most bytes of the body of a procedure; 2 MB.
    pub body_bytes_max: usize,
    /// Most bytes of unfinished bodies; 64 MiB.
    pub bodies_bytes_max: usize,
    /// Most time for a body; one minute.
    pub body_timeout: Duration,
    /// Bounds of the plan of a download.
    pub plan: PlanLimits,
    /// Plans that are made at a time; 2. Others wait.
    pub plans_max: usize,
    /// How long a long-poll of the feed as a stream waits; 25 s.
    pub long_poll_timeout: Duration,
    /// What the server's responses hold, which says how long the pieces of an event stream are. To be the server's own.
    pub responses: Arc<ResponseBudget>,
    /// How long an event stream lasts before its client is to come again; one minute.
    pub sse_cycle: Duration,
    /// How long a quiet event stream waits before it sends a comment; 15 s.
    pub sse_heartbeat: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lookback: Duration::from_hours(36),
            subscribers_max: 10_000,
            subscribers_per_address_max: 100,
            replays_per_address_max: 10,
            replay_bytes_per_address_per_s: 32 << 20,
            filter_dids_max: 4_000_000,
            outgoing_bytes_max: 256 * 1024,
            batch_rows: 1024,
            write_timeout: Duration::from_secs(30),
            ping_interval: Duration::from_secs(30),
            slow_lag: 100_000,
            slow_events_per_s: 5,
            slow_window: Duration::from_mins(1),
            deflate: true,
            segment_max_age: Duration::ZERO,
            body_bytes_max: 2_000_000,
            bodies_bytes_max: 64 << 20,
            body_timeout: Duration::from_mins(1),
            plan: PlanLimits::default(),
            plans_max: 2,
            long_poll_timeout: Duration::from_secs(25),
            responses: Arc::new(ResponseBudget::new(256 << 20)),
            sse_cycle: Duration::from_mins(1),
            sse_heartbeat: Duration::from_secs(15),
        }
    }
}
