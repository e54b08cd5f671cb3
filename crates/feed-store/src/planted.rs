//! Bugs that are put in on purpose, one at a time, to show that the simulation would find them. Each was made by someone.
//!
//! Only compiled under the feature `planted-bugs`, which nothing but the simulation's own tests turns on. The choice
//! is per thread: the simulation drives authority and replicas on one.

use std::cell::Cell;

/// A bug that could have been made.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Bug {
    /// A block that is already there uses up a position all the same.
    WastedPosition,
    /// The next position is one more than the highest stored one.
    HighestPlusOne,
    /// The answer to a push moves the cursor of the pull.
    CursorMovedByPush,
    /// The cursor is stored in a transaction of its own before the blocks.
    CursorBeforeBlocks,
    /// A replica doesn't look at the server's token.
    TokenIgnored,
    /// A replica looks at the token, but not at the history behind it.
    RollbackIgnored,
    /// The namespace of a feed that was subscribed to before its first block is never set.
    NamespaceLost,
    /// A query by an expired subscription gets an empty page.
    ExpiredIsEmpty,
    /// Requests of one space are under way at the same time.
    NotSerialised,
    /// A hint moves the cursor.
    HintAsData,
    /// Pushed blocks are taken before the connection has confirmed the history.
    PushedUnconfirmed,
}

impl Bug {
    /// All of them; the one that takes longest to find first.
    pub const ALL: [Self; 11] = [
        Self::PushedUnconfirmed,
        Self::WastedPosition,
        Self::HighestPlusOne,
        Self::CursorMovedByPush,
        Self::CursorBeforeBlocks,
        Self::TokenIgnored,
        Self::RollbackIgnored,
        Self::NamespaceLost,
        Self::ExpiredIsEmpty,
        Self::NotSerialised,
        Self::HintAsData,
    ];
}

thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    static DIES: Cell<bool> = const { Cell::new(false) };
}

/// Lets this thread's process die, for the sake of simulation, where a bug has made two transactions of one.
pub fn die_between(dies: bool) {
    DIES.set(dies);
}

/// Whether the process dies here.
pub fn dies_here() -> bool {
    DIES.get()
}

/// Puts a bug into everything that this thread runs from now on, in place of the one before.
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// Whether this bug is to be had.
pub fn is_planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}
