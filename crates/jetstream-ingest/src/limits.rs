//! What the ingest takes in and holds, in one place. Everything that strangers can make grow has its bound here.

/// Bounds. The defaults are those of the network's relays where these have one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// One message of the relay, in bytes.
    pub frame_bytes: usize,
    /// The blocks of one commit, in bytes (`com.atproto.sync.subscribeRepos`).
    pub commit_bytes: usize,
    /// Operations of one commit.
    pub commit_ops: usize,
    /// How far ahead of the clock a revision may be, in microseconds.
    pub future_us: u64,
    /// Events that may wait for one account while another one of it is verified. Beyond them the oldest is dropped and
    /// the account repaired, or the reader waits.
    pub queue_events: usize,
    /// What all waiting events together may take, in bytes. Beyond it the reader waits.
    pub queue_bytes: usize,
    /// Commits of one account that wait for its repair; beyond them the oldest is dropped.
    pub pending_commits: usize,
    /// What all commits that wait for repairs may take, in bytes; beyond it they are dropped, and the repair that is
    /// queued for their account brings what they brought.
    pub pending_bytes: usize,
    /// One repository, in bytes.
    pub repo_bytes: usize,
    /// All repositories in memory, in bytes. At least `repo_bytes`, or a large one could never be fetched.
    pub repos_bytes: usize,
    /// Records of one repository.
    pub repo_records: usize,
    /// Accounts whose state is kept in memory. Those whose changes are not durable yet are kept beyond it.
    pub accounts: usize,
    /// Accounts whose key and server are kept in memory.
    pub identities: usize,
    /// Repairs that are scheduled in memory; more stay in the store until there is room.
    pub repairs: usize,
    /// Results that wait to be appended.
    pub results: usize,
    /// What was verified and is not durable yet, in bytes, over all accounts. Beyond it nothing more is verified until the
    /// disk has caught up, so that events wait in the queues of their accounts, whose bounds then count. A larger result is
    /// taken alone.
    pub write_queue_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes: 2 << 20,
            commit_bytes: 2_000_000,
            commit_ops: 200,
            future_us: 5 * 60 * 1_000_000,
            queue_events: 64,
            queue_bytes: 128 << 20,
            pending_commits: 2048,
            pending_bytes: 128 << 20,
            repo_bytes: 512 << 20,
            repos_bytes: 1 << 30,
            repo_records: 10_000_000,
            accounts: 200_000,
            identities: 200_000,
            repairs: 1_000_000,
            results: 1024,
            write_queue_bytes: 64 << 20,
        }
    }
}
