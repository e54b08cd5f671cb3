//! What workers send: claims, acknowledgements, releases (PROTOCOL §7).

use serde_json::Value;

use super::machine::Fencing;
use super::name::parse_name;
use crate::limits::{SUBSCRIPTION_NAMES_MAX, WORKER_BYTES_MAX};
use crate::{Offset, StreamPath};

/// Why a document is no request.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum InvalidRequest {
    /// Not a JSON object.
    #[error("the body must be a JSON object")]
    Json,
    /// A field is not of the kind it should be.
    #[error("`{0}` must be {1}")]
    Field(&'static str, &'static str),
    /// More acknowledgements than [`SUBSCRIPTION_NAMES_MAX`].
    #[error("more than {SUBSCRIPTION_NAMES_MAX} acknowledgements in one request")]
    TooManyAcks,
}

/// A callback, an acknowledgement or a release.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WakeRequest {
    /// Which wake it is about, as the worker has it. What it leaves out is no wake's.
    pub fencing: Option<Fencing>,
    /// How far the worker has come.
    pub acks: Vec<Ack>,
    /// Whether it is done.
    pub done: bool,
}

/// How far a worker has come in one stream: up to and with the message that ends here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The stream; `None` if the name is that of none.
    pub stream: Option<StreamPath>,
    /// The offset; `None` if it is none, such as `-1`.
    pub offset: Option<Offset>,
}

impl WakeRequest {
    /// Reads the document. Of an empty body nothing is known.
    pub fn parse(body: &[u8]) -> Result<Self, InvalidRequest> {
        if body.is_empty() {
            return Ok(Self::default());
        }
        let Ok(Value::Object(document)) = serde_json::from_slice(body) else {
            return Err(InvalidRequest::Json);
        };
        let wake_id = match document.get("wake_id") {
            None | Some(Value::Null) => None,
            Some(Value::String(wake_id)) => Some(wake_id.clone()),
            Some(_) => return Err(InvalidRequest::Field("wake_id", "a string")),
        };
        let generation = match document.get("generation") {
            None | Some(Value::Null) => None,
            Some(value) => Some(value.as_u64().ok_or(InvalidRequest::Field("generation", "an integer"))?),
        };
        let fencing = wake_id.zip(generation).map(|(wake_id, generation)| Fencing { wake_id, generation });
        let done = match document.get("done") {
            None | Some(Value::Null) => false,
            Some(value) => value.as_bool().ok_or(InvalidRequest::Field("done", "true or false"))?,
        };
        Ok(Self { fencing, acks: acks(document.get("acks"))?, done })
    }
}

fn acks(value: Option<&Value>) -> Result<Vec<Ack>, InvalidRequest> {
    let acks = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(acks)) => acks,
        Some(_) => return Err(InvalidRequest::Field("acks", "an array")),
    };
    if acks.len() > SUBSCRIPTION_NAMES_MAX {
        return Err(InvalidRequest::TooManyAcks);
    }
    let one = |ack: &Value| {
        let text = |field: &str| ack.get(field).and_then(Value::as_str);
        let name = text("stream").or_else(|| text("path"));
        let name = name.ok_or(InvalidRequest::Field("acks[].stream", "a string"))?;
        let offset = text("offset").ok_or(InvalidRequest::Field("acks[].offset", "a string"))?;
        Ok(Ack { stream: parse_name(name).ok(), offset: offset.parse().ok() })
    };
    acks.iter().map(one).collect()
}

/// The name of the worker that claims.
pub fn parse_claim(body: &[u8]) -> Result<String, InvalidRequest> {
    let Ok(Value::Object(document)) = serde_json::from_slice(body) else {
        return Err(InvalidRequest::Json);
    };
    let worker = document.get("worker").and_then(Value::as_str).unwrap_or_default();
    if worker.is_empty() || worker.len() > WORKER_BYTES_MAX {
        return Err(InvalidRequest::Field("worker", "a string of 1 to 256 bytes"));
    }
    Ok(worker.to_owned())
}
