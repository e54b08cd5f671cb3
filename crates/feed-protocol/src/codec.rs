//! The two encodings: JSON, and CBOR as JavaScript's `cbor-x` reads and writes it.
//!
//! Decoding is strict about what counts and bounded in all that it makes: numbers, lengths of lists and texts, nesting.
//! Nothing may follow a message. Which message it is says `_tag`, or, over HTTP, the path.

use std::marker::PhantomData;

use serde::de::{self, DeserializeOwned};
use serde::{Deserialize, Deserializer, Serialize};

use crate::limits::NESTING_MAX;
use crate::message::Advanced;
use crate::object::{Lenient, Object};
use crate::peers::Routed;
use crate::{Id, Message, Operation, Peers, Request, RequestId, Response};

/// What stands before and after a path. No name of a field has it.
const MARK: char = '\u{1}';
/// Longest path that an error tells, in bytes.
const PATH_BYTES_MAX: usize = 100;

/// How messages are written.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash)]
pub enum Encoding {
    /// UTF-8 JSON, bytes in base64.
    Json,
    /// CBOR, bytes as byte strings.
    Cbor,
}

/// Why bytes are no message.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct DecodeError {
    /// What the sender called its request, as far as it could be read.
    pub request_id: RequestId,
    /// Between whom the message goes, as far as that could be read.
    pub peers: Peers,
    /// What is wrong, for people.
    pub message: String,
}

/// What every message may begin with.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    #[serde(default, rename = "_tag")]
    tag: Option<String>,
    #[serde(default)]
    request_id: Option<RequestId>,
    #[serde(default)]
    space_id: Option<Id>,
    #[serde(default)]
    sender_peer_id: Option<Id>,
    #[serde(default)]
    recipient_peer_id: Option<Id>,
}

/// The same where something in it can't be read: for the answer, as much of it as can.
#[derive(Default, serde::Deserialize)]
struct Remains {
    #[serde(default, rename = "requestId")]
    request: Lenient<RequestId>,
    #[serde(default, rename = "senderPeerId")]
    sender: Lenient<Id>,
    #[serde(default, rename = "recipientPeerId")]
    recipient: Lenient<Id>,
}

impl Encoding {
    /// The media type.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Cbor => "application/cbor",
        }
    }

    /// Writes a message. Fails only for what no message may hold, as a number above 2^53 - 1.
    pub fn encode<T: Serialize>(self, message: &T) -> Result<Vec<u8>, String> {
        match self {
            Self::Json => serde_json::to_vec(message).map_err(|error| error.to_string()),
            Self::Cbor => {
                let mut bytes = Vec::new();
                ciborium::into_writer(message, &mut bytes).map_err(|error| match error {
                    ciborium::ser::Error::Io(error) => error.to_string(),
                    ciborium::ser::Error::Value(message) => message,
                })?;
                Ok(bytes)
            }
        }
    }

    /// Writes a message with its peers.
    pub fn encode_routed<T: Serialize>(self, message: &T, peers: &Peers) -> Result<Vec<u8>, String> {
        if peers.is_empty() { self.encode(message) } else { self.encode(&Routed { message, peers }) }
    }

    /// Reads one value and nothing after it. The error names the field at fault.
    pub fn decode<T: DeserializeOwned>(self, bytes: &[u8]) -> Result<T, String> {
        self.decode_plain(bytes).map_err(|message| match self.path_of_fault::<T>(bytes) {
            Some(path) => format!("`{path}`: {message}"),
            None => message,
        })
    }

    /// As [`decode`](Self::decode), a value that is an object and not a list of its fields.
    fn decode_object<T: DeserializeOwned>(self, bytes: &[u8]) -> Result<T, String> {
        self.decode::<Object<T>>(bytes).map(|Object(value)| value)
    }

    /// Where in a message that can't be read the fault is; `None` for the message as a whole. Found by reading it once
    /// more, so that what can be read costs nothing.
    fn path_of_fault<T: DeserializeOwned>(self, bytes: &[u8]) -> Option<String> {
        let message = self.decode_plain::<Located<T>>(bytes).err()?;
        let path = message.split(MARK).nth(1)?;
        // How deep is too deep says nothing about a field.
        let is_field = path != "." && path.len() <= PATH_BYTES_MAX && !path.contains("][");
        is_field.then(|| path.to_owned())
    }

    fn decode_plain<T: DeserializeOwned>(self, bytes: &[u8]) -> Result<T, String> {
        match self {
            Self::Json => serde_json::from_slice(bytes).map_err(|error| error.to_string()),
            Self::Cbor => {
                let mut rest = bytes;
                let value = ciborium::de::from_reader_with_recursion_limit(&mut rest, NESTING_MAX)
                    .map_err(|error| cbor_message(&error))?;
                if rest.is_empty() { Ok(value) } else { Err("bytes follow the message".to_owned()) }
            }
        }
    }

    /// Reads a request; `path` says which one where the tag is missing.
    pub fn decode_request(self, bytes: &[u8], path: Option<Operation>) -> Result<Request, DecodeError> {
        self.decode_routed(bytes, path).map(|(request, _)| request)
    }

    /// As [`decode_request`](Self::decode_request), with the peers that the message names.
    pub fn decode_routed(
        self,
        bytes: &[u8],
        path: Option<Operation>,
    ) -> Result<(Request, Peers), DecodeError> {
        let envelope = self.envelope(bytes)?;
        let request_id = envelope.request_id.unwrap_or_default();
        let peers =
            Peers { sender_peer_id: envelope.sender_peer_id, recipient_peer_id: envelope.recipient_peer_id };
        let fail =
            |message: String| DecodeError { request_id: request_id.clone(), peers: peers.clone(), message };
        let tagged = envelope.tag.as_deref().map(operation).transpose().map_err(fail)?;
        let operation = match (path, tagged) {
            (Some(path), Some(tagged)) if path != tagged => {
                return Err(fail("`_tag` and path say different things".to_owned()));
            }
            (Some(operation), _) | (None, Some(operation)) => operation,
            (None, None) => return Err(fail("`_tag` is missing".to_owned())),
        };
        let request = match operation {
            Operation::Hello => self.decode_object(bytes).map(Request::Hello),
            Operation::Query => self.decode_object(bytes).map(Request::Query),
            Operation::Subscribe => self.decode_object(bytes).map(Request::Subscribe),
            Operation::Unsubscribe => self.decode_object(bytes).map(Request::Unsubscribe),
            Operation::Append => self.decode_object(bytes).map(Request::Append),
            Operation::ListFeeds => self.decode_object(bytes).map(Request::ListFeeds),
        }
        .map_err(fail)?;
        Ok((request, peers))
    }

    /// Reads what a server sent; `asked` says which answer it is where the tag is missing.
    pub fn decode_message(self, bytes: &[u8], asked: Option<Operation>) -> Result<Message, DecodeError> {
        let envelope = self.envelope(bytes)?;
        let request_id = envelope.request_id.unwrap_or_default();
        let fail = |message: String| DecodeError {
            request_id: request_id.clone(),
            peers: Peers::default(),
            message,
        };
        let tag = match (envelope.tag.as_deref(), asked) {
            (Some(tag), _) => tag,
            (None, Some(operation)) => response_tag(operation),
            (None, None) => return Err(fail("`_tag` is missing".to_owned())),
        };
        let response = match tag {
            "FeedAdvanced" => {
                let hint = self.decode_object(bytes).map_err(fail)?;
                return Ok(Message::Advanced(Advanced::FeedAdvanced(hint)));
            }
            "BlocksPushed" => {
                let pushed = self.decode_object(bytes).map_err(fail)?;
                return Ok(Message::Advanced(Advanced::BlocksPushed(pushed)));
            }
            "Welcome" => self.decode_object(bytes).map(Response::Welcome),
            "QueryResponse" => self.decode_object(bytes).map(Response::Query),
            "SubscribeResponse" => self.decode_object(bytes).map(Response::Subscribe),
            "UnsubscribeResponse" => self.decode_object(bytes).map(Response::Unsubscribe),
            "AppendResponse" => self.decode_object(bytes).map(Response::Append),
            "ListFeedsResponse" => self.decode_object(bytes).map(Response::ListFeeds),
            "Error" => self.decode_object(bytes).map(Response::Error),
            unknown => Err(format!("`_tag` is `{unknown}`, which no answer has")),
        };
        response.map(Message::Response).map_err(fail)
    }

    /// Reads what every message begins with, for the answer to one that is otherwise unreadable.
    fn envelope(self, bytes: &[u8]) -> Result<Envelope, DecodeError> {
        let envelope: Envelope = self.decode_object(bytes).map_err(|message| {
            let remains = self.decode_plain::<Object<Remains>>(bytes);
            let remains = remains.map(|Object(remains)| remains).unwrap_or_default();
            DecodeError {
                request_id: remains.request.0.unwrap_or_default(),
                peers: Peers { sender_peer_id: remains.sender.0, recipient_peer_id: remains.recipient.0 },
                message,
            }
        })?;
        // Checked as an identifier by being read; used where the message itself is.
        let _ = &envelope.space_id;
        Ok(envelope)
    }
}

/// A value whose error is the path to the fault, between two marks.
struct Located<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Located<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let located = serde_path_to_error::deserialize::<D, T>(deserializer);
        let path = |error: serde_path_to_error::Error<D::Error>| {
            de::Error::custom(format_args!("{MARK}{}{MARK}", error.path()))
        };
        located.map(|_| Self(PhantomData)).map_err(path)
    }
}

fn operation(tag: &str) -> Result<Operation, String> {
    match tag {
        "Hello" => Ok(Operation::Hello),
        "QueryRequest" => Ok(Operation::Query),
        "SubscribeRequest" => Ok(Operation::Subscribe),
        "UnsubscribeRequest" => Ok(Operation::Unsubscribe),
        "AppendRequest" => Ok(Operation::Append),
        "ListFeedsRequest" => Ok(Operation::ListFeeds),
        unknown => Err(format!("`_tag` is `{unknown}`, which no request has")),
    }
}

fn response_tag(operation: Operation) -> &'static str {
    match operation {
        Operation::Hello => "Welcome",
        Operation::Query => "QueryResponse",
        Operation::Subscribe => "SubscribeResponse",
        Operation::Unsubscribe => "UnsubscribeResponse",
        Operation::Append => "AppendResponse",
        Operation::ListFeeds => "ListFeedsResponse",
    }
}

fn cbor_message<E: std::fmt::Debug>(error: &ciborium::de::Error<E>) -> String {
    match error {
        ciborium::de::Error::Io(_) => "the message breaks off".to_owned(),
        ciborium::de::Error::Syntax(at) => format!("no CBOR at byte {at}"),
        ciborium::de::Error::Semantic(_, message) => in_our_words(message),
        ciborium::de::Error::RecursionLimitExceeded => "nested too deep".to_owned(),
    }
}

/// What the reader of CBOR has expected, in the words of JSON's reader.
fn in_our_words(message: &str) -> String {
    let words = [("map", "an object"), ("array", "a list"), ("str", "a text"), ("string", "a text")];
    let (what, expected) = message.rsplit_once(", expected ").unwrap_or((message, ""));
    match words.iter().find(|(word, _)| *word == expected) {
        Some((_, ours)) => format!("{what}, expected {ours}"),
        None => message.to_owned(),
    }
}
