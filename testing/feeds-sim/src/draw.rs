//! What happens next in a run.

use alluvium_env::sim::Rng;

/// What kinds of trouble a run has. Each kind in a part of all runs, so that each is also seen alone.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a kind of trouble of its own")]
pub(crate) struct Profile {
    pub(crate) clients: usize,
    pub(crate) feeds: usize,
    pub(crate) wipes: bool,
    /// The database goes back, the guard doesn't.
    pub(crate) sets_back: bool,
    /// The guard goes back as well: the token stays.
    pub(crate) sets_guard_back: bool,
    pub(crate) prunes: bool,
    pub(crate) copies: bool,
    pub(crate) changes_choice: bool,
    pub(crate) clock_jumps: bool,
    pub(crate) lost_percent: u64,
    pub(crate) doubled_percent: u64,
}

impl Profile {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let loses = rng.percent(50);
        Self {
            clients: usize::try_from(rng.within(2..6)).unwrap_or(2),
            feeds: usize::try_from(rng.within(1..6)).unwrap_or(1),
            wipes: loses && rng.percent(40),
            sets_back: loses && rng.percent(50),
            sets_guard_back: loses && rng.percent(60),
            prunes: rng.percent(25),
            copies: rng.percent(20),
            changes_choice: rng.percent(70),
            clock_jumps: rng.percent(40),
            lost_percent: *rng.pick(&[0, 5, 20]),
            doubled_percent: *rng.pick(&[0, 10]),
        }
    }
}

/// What happens.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Action {
    Append,
    Replicate,
    Stop,
    Select,
    Pass,
    PassLong,
    Cut,
    /// Some are cut off and come back at once, while others write.
    Flap,
    /// Nothing gets through one way.
    Deafen,
    /// A token is not good any more.
    Expire,
    RestartClient,
    RestartServer {
        is_clean: bool,
    },
    Snapshot,
    Wipe,
    SetBack {
        with_guard: bool,
    },
    /// The authority is set back together with its guard, by little, and everyone comes back at once with something to push.
    Relapse,
    Prune,
    SnapshotClient,
    CopyClient,
    JumpServer,
    JumpClient,
    Replay,
}

impl Action {
    pub(crate) fn draw(rng: &mut Rng, profile: &Profile) -> Self {
        let rare = |rng: &mut Rng, is_allowed: bool, action| {
            if is_allowed { action } else { Self::draw_common(rng, profile) }
        };
        match rng.below(100) {
            0 => rare(rng, profile.wipes, Self::Wipe),
            1..=2 => rare(rng, profile.sets_back, Self::SetBack { with_guard: false }),
            3..=4 => rare(rng, profile.sets_guard_back, Self::SetBack { with_guard: true }),
            5..=7 => rare(rng, profile.sets_back || profile.sets_guard_back, Self::Snapshot),
            8..=10 => rare(rng, profile.prunes, Self::Prune),
            11..=12 => rare(rng, profile.copies, Self::SnapshotClient),
            13 => rare(rng, profile.copies, Self::CopyClient),
            14 => rare(rng, profile.clock_jumps, Self::JumpServer),
            15 => rare(rng, profile.clock_jumps, Self::JumpClient),
            16..=21 => rare(rng, profile.changes_choice, Self::Replicate),
            22 => rare(rng, profile.changes_choice, Self::Stop),
            23 => rare(rng, profile.changes_choice, Self::Select),
            24..=25 => rare(rng, profile.sets_guard_back, Self::Relapse),
            _ => Self::draw_common(rng, profile),
        }
    }

    fn draw_common(rng: &mut Rng, _profile: &Profile) -> Self {
        match rng.below(100) {
            0..=44 => Self::Append,
            45..=80 => Self::Pass,
            81..=83 => Self::PassLong,
            84..=86 => Self::Cut,
            87..=89 => Self::Flap,
            90 => Self::Deafen,
            91 => Self::Expire,
            92..=94 => Self::RestartClient,
            95 => Self::RestartServer { is_clean: true },
            96..=97 => Self::RestartServer { is_clean: false },
            _ => Self::Replay,
        }
    }
}
