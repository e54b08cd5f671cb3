//! What can be allowed.

use std::fmt;

/// A kind of permission.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Scope {
    /// To read, follow and list.
    Read,
    /// To create, append, close and delete streams, and what belongs to them. Does not include reading.
    Write,
    /// Everything, and what only an operator does: buckets, subscriptions, the state of the server.
    Admin,
}

impl Scope {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Admin];

    /// Its name in files, tokens and answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }

    /// The scope with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.name() == name)
    }

    /// Whether whoever has this one may do what needs the other.
    pub const fn includes(self, needed: Self) -> bool {
        matches!((self, needed), (Self::Admin, _) | (Self::Read, Self::Read) | (Self::Write, Self::Write))
    }

    /// What is allowed by both.
    pub(crate) const fn both(self, other: Self) -> Option<Self> {
        if self.includes(other) {
            Some(other)
        } else if other.includes(self) {
            Some(self)
        } else {
            None
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
