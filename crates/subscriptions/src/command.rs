//! What is asked of subscriptions, and what comes of it.

use alluvium_engine::StorageError;
use alluvium_protocol::StreamPath;
use alluvium_protocol::subscription::{Config, WakeRequest};
use bytes::Bytes;
use http::StatusCode;
use tokio::sync::oneshot;

use crate::target::TargetError;

/// A request, and who waits for its answer.
#[derive(Debug)]
pub struct Command {
    /// What is asked.
    pub request: Request,
    /// Where the answer goes. If nobody waits any more, what was decided stays decided.
    pub reply: oneshot::Sender<Result<Answer, Refusal>>,
}

/// What is asked.
#[derive(Debug)]
pub enum Request {
    /// The public keys that webhooks are signed with.
    Keys,
    /// Something about a subscription.
    About {
        /// Its id.
        id: String,
        /// What.
        what: What,
    },
}

/// What is asked about a subscription.
#[derive(Debug)]
pub enum What {
    /// That it be there.
    Put {
        /// As it is to be.
        config: Box<Config>,
        /// The URL of the server, as whoever asks reaches it.
        origin: String,
    },
    /// What it is.
    Get {
        /// The URL of the server.
        origin: String,
        /// List streams after this name only.
        after: Option<String>,
        /// List so many at most.
        limit: usize,
    },
    /// That it be gone.
    Delete,
    /// That it follow these streams.
    AddStreams(Vec<String>),
    /// That it not follow this stream by name any more.
    RemoveStream(StreamPath),
    /// A worker wants the wake.
    Claim {
        /// Its name.
        worker: String,
    },
    /// A holder of a wake tells how far it has come.
    Ack {
        /// Its token.
        token: String,
        /// What it tells.
        request: WakeRequest,
        /// Whether it was woken by webhook.
        is_callback: bool,
    },
    /// A holder gives its claim back.
    Release {
        /// Its token.
        token: String,
        /// Which wake.
        request: WakeRequest,
    },
}

/// What comes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A document.
    Json(StatusCode, Bytes),
    /// The keys.
    Keys(Bytes),
    /// Done.
    NoContent,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// A webhook must not go there.
    #[error("webhook.url is refused: {0}")]
    Target(TargetError),
    /// No such subscription.
    #[error("there is no subscription with this id")]
    NotFound,
    /// Nothing at the path.
    #[error("there is nothing at this path")]
    NoSuchResource,
    /// Not this method.
    #[error("this path takes {0}")]
    MethodNotAllowed(&'static str),
    /// Another one has this id.
    #[error("a subscription with this id and another configuration exists")]
    Exists,
    /// No token, or none that was given for this subscription.
    #[error("the request needs the token of its wake: `Authorization: Bearer ...`")]
    TokenInvalid,
    /// A token whose time is over.
    #[error("the token has expired")]
    TokenExpired,
    /// About another wake than the present one.
    #[error("the wake is not, or no longer, the subscription's")]
    Fenced,
    /// Somebody else has it.
    #[error("another worker holds the lease")]
    AlreadyClaimed {
        /// Who.
        worker: String,
        /// Under which wake.
        generation: u64,
    },
    /// There is nothing to do.
    #[error("the subscription has no pending work")]
    NoPendingWork,
    /// An acknowledgement that cannot be.
    #[error("{0}")]
    InvalidOffset(String),
    /// As many as there may be.
    #[error("the server keeps at most {0}")]
    TooMany(String),
    /// The body did not come, or is too long.
    #[error("{1}")]
    Body(StatusCode, String),
    /// Not now.
    #[error("too much is waiting; try again")]
    Busy,
    /// No room on the disk.
    #[error("no space left on the device")]
    Full,
    /// The server ends, or its store has failed.
    #[error("the server is stopping")]
    Stopped,
}

impl From<StorageError> for Refusal {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Full => Self::Full,
            StorageError::Busy => Self::Busy,
            StorageError::Stopped => Self::Stopped,
        }
    }
}

impl Refusal {
    /// The status and the code of the answer.
    pub fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Invalid(_) => (StatusCode::BAD_REQUEST, "INVALID_REQUEST"),
            Self::Target(_) => (StatusCode::BAD_REQUEST, "WEBHOOK_URL_REJECTED"),
            Self::NotFound => (StatusCode::NOT_FOUND, "SUBSCRIPTION_NOT_FOUND"),
            Self::NoSuchResource => (StatusCode::NOT_FOUND, "NO_SUCH_RESOURCE"),
            Self::MethodNotAllowed(_) => (StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED"),
            Self::Exists => (StatusCode::CONFLICT, "SUBSCRIPTION_ALREADY_EXISTS"),
            Self::TokenInvalid => (StatusCode::UNAUTHORIZED, "TOKEN_INVALID"),
            Self::TokenExpired => (StatusCode::UNAUTHORIZED, "TOKEN_EXPIRED"),
            Self::Fenced => (StatusCode::CONFLICT, "FENCED"),
            Self::AlreadyClaimed { .. } => (StatusCode::CONFLICT, "ALREADY_CLAIMED"),
            Self::NoPendingWork => (StatusCode::CONFLICT, "NO_PENDING_WORK"),
            Self::InvalidOffset(_) => (StatusCode::CONFLICT, "INVALID_OFFSET"),
            Self::TooMany(_) => (StatusCode::CONFLICT, "TOO_MANY"),
            Self::Body(status, _) => (*status, "BODY_REFUSED"),
            Self::Busy => (StatusCode::SERVICE_UNAVAILABLE, "BUSY"),
            Self::Full => (StatusCode::INSUFFICIENT_STORAGE, "STORAGE_FULL"),
            Self::Stopped => (StatusCode::SERVICE_UNAVAILABLE, "STOPPING"),
        }
    }
}
