//! Why a request has no answer.

use std::error::Error;

/// A request that has no answer: what kind of trouble it had, in words, and the error behind that if there is one.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct CallError {
    kind: CallErrorKind,
    text: String,
    #[source]
    cause: Option<Box<dyn Error + Send + Sync>>,
}

/// What kind of trouble a request had. A refusal by the server is none: that is an answer.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum CallErrorKind {
    /// No connection came about: the host has no address, nobody listens there, or no way leads there.
    Unreachable,
    /// TLS with the server did not come about: what it shows is not to be trusted, or one side alone speaks TLS.
    Tls,
    /// The connection ended before the answer was there.
    Closed,
    /// There was no connection or no answer in time.
    Timeout,
    /// An answer that is none of a server of feeds, with this status.
    Status(u16),
    /// The answer is larger than what is read. A page is asked for with half as many blocks then.
    TooLarge,
    /// What came is no answer to the request.
    Nonsense,
    /// The server sends on to where the client doesn't go.
    SentOn,
    /// The source of tokens has none that can be sent.
    Token,
    /// The request did not leave this machine.
    Unsent,
}

impl CallError {
    /// An error of some kind. The text is shown to people.
    pub fn new(kind: CallErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), cause: None }
    }

    /// The same with the error behind it.
    #[must_use]
    pub fn because(self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { cause: Some(cause.into()), ..self }
    }

    /// What kind of trouble it is.
    pub fn kind(&self) -> CallErrorKind {
        self.kind
    }
}
