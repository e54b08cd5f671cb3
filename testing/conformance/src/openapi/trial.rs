//! One request of a script, and what is due.

use std::fmt;

/// One request and the status that it is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    pub(crate) method: &'static str,
    /// As the description has it.
    pub(crate) path: &'static str,
    /// What is asked for; `<name>` stands for what an earlier trial has kept.
    pub(crate) target: &'static str,
    pub(crate) headers: &'static [(&'static str, &'static str)],
    pub(crate) body: &'static [u8],
    pub(crate) status: u16,
    /// Headers of the answer, or JSON pointers into it, that are kept for later trials, with the names they are kept
    /// under.
    pub(crate) keeps: &'static [(&'static str, &'static str)],
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.method, self.target, self.status)
    }
}

impl Trial {
    /// With headers.
    pub(crate) const fn with(self, headers: &'static [(&'static str, &'static str)]) -> Self {
        Self { headers, ..self }
    }

    /// With a body.
    pub(crate) const fn body(self, body: &'static [u8]) -> Self {
        Self { body, ..self }
    }

    /// Whose answer is kept in part.
    pub(crate) const fn keep(self, keeps: &'static [(&'static str, &'static str)]) -> Self {
        Self { keeps, ..self }
    }
}

/// A request without headers and body.
pub(crate) const fn trial(
    method: &'static str,
    path: &'static str,
    target: &'static str,
    status: u16,
) -> Trial {
    Trial { method, path, target, headers: &[], body: b"", status, keeps: &[] }
}
