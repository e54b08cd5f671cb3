//! One connection to a live feed.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvium_jetstream_wire::dictionary::{self, Decoder};
use alluvium_websocket::{
    ConnectError, ConnectOptions, ConnectionOptions, Limits as SocketLimits, Message, Refusal, Stream,
    WebSocket, connect,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ureq::http::HeaderMap;
use ureq::http::header::AUTHORIZATION;

use crate::config::{Config, Cursor, Form, topic_name};
use crate::error::Error;
use crate::event::{Heard, hear};
use crate::events::Shared;
use crate::http::Xrpc;

/// The subprotocol of `subscribeEvents`.
const SUBPROTOCOL: &str = "xrpc.v1.json";
/// What stands as it is in a query.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');

/// A dictionary, with its number.
#[derive(Clone, Debug)]
pub(crate) struct Dictionary {
    pub(crate) id: u32,
    pub(crate) bytes: Cow<'static, [u8]>,
}

impl Dictionary {
    /// The one that this version has for a form.
    pub(crate) fn known(form: Form) -> Option<Self> {
        let found = dictionary::find(dictionary::known(form.wire()).current)?;
        Some(Self { id: found.id, bytes: Cow::Borrowed(found.bytes) })
    }
}

/// What came of asking for a live feed.
pub(crate) enum Opened {
    Feed(Box<Feed>),
    /// It begins after what was asked for.
    TooOld,
    /// The query was longer than server or proxy take one; from now on it is not.
    QueryTooLong,
    /// The server has another dictionary, and may say which.
    Dictionary(Option<u32>),
}

/// An open feed.
pub(crate) struct Feed {
    socket: WebSocket<Stream>,
    decoder: Option<Decoder>,
    form: Form,
    message_bytes_max: usize,
}

/// Opens a feed at a place.
pub(crate) async fn open(
    shared: &Shared,
    from: Cursor,
    dictionary: Option<&Dictionary>,
) -> Result<Opened, Error> {
    let config = &shared.config;
    let decoder = dictionary.map(|dictionary| Decoder::new(&dictionary.bytes)).transpose();
    let decoder = decoder.map_err(|error| Error::Answer(error.to_string()))?;
    let max = config.limits.message_bytes_max;
    let mut headers = HeaderMap::new();
    if let Some(token) = &config.token {
        headers.insert(AUTHORIZATION, token.header());
    }
    let options = ConnectOptions {
        headers,
        subprotocols: match config.form {
            Form::V2 => Vec::new(),
            Form::Events => vec![SUBPROTOCOL.to_owned()],
        },
        timeout: config.limits.connect_timeout,
        connection: ConnectionOptions {
            limits: SocketLimits { frame_bytes_max: max, message_bytes_max: max, ..SocketLimits::default() },
            ..ConnectionOptions::default()
        },
        tls: shared.tls.clone(),
        ..ConnectOptions::default()
    };
    let is_short = config.form == Form::V2 || shared.no_long_queries.load(Ordering::Relaxed);
    let query_bytes_max =
        if is_short { config.limits.query_bytes_max } else { config.limits.long_query_bytes_max };
    let (target, hello) = target(config, from, dictionary.map(|dictionary| dictionary.id), query_bytes_max);
    let url = format!("{}{target}", shared.sockets);
    match connect(&url, options, Arc::clone(&shared.env.random)).await {
        Ok(connected) => {
            let mut socket = connected.socket;
            if let Some(hello) = hello {
                socket.send(&Message::text(hello)).await?;
            }
            let form = config.form;
            Ok(Opened::Feed(Box::new(Feed { socket, decoder, form, message_bytes_max: max })))
        }
        Err(ConnectError::Refused(refusal)) => match understood(&refusal, config.form) {
            Some(opened) => Ok(opened),
            None if !is_short && target.len() > config.limits.query_bytes_max && is_for_length(&refusal) => {
                shared.no_long_queries.store(true, Ordering::Relaxed);
                Ok(Opened::QueryTooLong)
            }
            None => Err(ConnectError::Refused(refusal).into()),
        },
        Err(error) => Err(error.into()),
    }
}

/// Whether a long query was refused because it is long. Some proxies have no other status for that than the one of a query
/// that is wrong, which this server gives a name.
fn is_for_length(refusal: &Refusal) -> bool {
    match refusal.status.as_u16() {
        413 | 414 | 431 => true,
        400 => serde_json::from_slice::<Xrpc>(&refusal.body).is_err(),
        _ => false,
    }
}

/// The path and query of a feed; and what is said when it is open, if the query has no room for the filter.
fn target(
    config: &Config,
    from: Cursor,
    dictionary: Option<u32>,
    query_bytes_max: usize,
) -> (String, Option<String>) {
    let (path, dids, collections) = match config.form {
        Form::V2 => ("/subscribe-v2", "wantedDids", "wantedCollections"),
        Form::Events => ("/xrpc/network.bsky.jetstream.subscribeEvents", "dids", "collections"),
    };
    let mut query = String::new();
    match from {
        Cursor::After(after) => push(&mut query, "cursor", &after.saturating_add(1).to_string()),
        Cursor::Time(time) => push(&mut query, "cursor", &time.to_string()),
        Cursor::Now => {}
    }
    if let Some(id) = dictionary {
        push(&mut query, "zstdDictionary", &id.to_string());
    }
    if config.form == Form::Events {
        config.kinds.iter().for_each(|topic| push(&mut query, "kinds", topic_name(*topic)));
    }
    let without_filter = query.len();
    config.collections.iter().for_each(|collection| push(&mut query, collections, collection));
    let without_dids = query.len();
    config.dids.iter().for_each(|did| push(&mut query, dids, did));
    let mut hello = None;
    if query.len() > query_bytes_max {
        match config.form {
            Form::V2 => {
                query.truncate(without_filter);
                push(&mut query, "requireHello", "true");
                hello = Some(options_update(config));
            }
            // This feed takes no messages: what is sent too much is left out here.
            Form::Events => query.truncate(without_dids),
        }
    }
    let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    (target, hello)
}

/// The whole filter as the older feed takes it in a message.
fn options_update(config: &Config) -> String {
    let payload = serde_json::json!({
        "wantedCollections": config.collections,
        "wantedDids": config.dids,
    });
    serde_json::json!({ "type": "options_update", "payload": payload }).to_string()
}

fn push(query: &mut String, name: &str, value: &str) {
    let separator = if query.is_empty() { "" } else { "&" };
    // A string takes everything.
    _ = write!(query, "{separator}{name}={}", utf8_percent_encode(value, ENCODED));
}

/// What a refusal means, where it is one that the reader knows to go on from. The newer feed has names for errors; the
/// older one has marks in its text, which are part of its contract.
fn understood(refusal: &Refusal, form: Form) -> Option<Opened> {
    if refusal.status.as_u16() != 400 {
        return None;
    }
    match form {
        Form::Events => match &*serde_json::from_slice::<Xrpc>(&refusal.body).ok()?.error {
            "CursorTooOld" => Some(Opened::TooOld),
            "UnknownZstdDictionary" => Some(Opened::Dictionary(None)),
            _ => None,
        },
        Form::V2 => {
            let text = String::from_utf8_lossy(&refusal.body);
            if text.contains("cursor too old") {
                return Some(Opened::TooOld);
            }
            let (_, rest) = text.split_once("unknown zstd dictionary id")?;
            let current = rest.split_once("current dictionary id is ").map(|(_, rest)| rest);
            let digits =
                current.map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default());
            Some(Opened::Dictionary(digits.and_then(|digits| digits.parse().ok())))
        }
    }
}

impl Feed {
    /// What comes next. Nothing is lost if the future is dropped.
    pub(crate) async fn next(&mut self) -> Result<Heard, Error> {
        let Some(message) = self.socket.next().await? else {
            let said = self.socket.closed_by_peer();
            return Err(Error::Ended(said.map_or_else(
                || "without a reason".to_owned(),
                |close| format!("code {}, {}", close.code.get(), close.reason.as_str()),
            )));
        };
        let wrong = |what: &dyn std::fmt::Display| Error::Answer(format!("a message: {what}"));
        let line = match (message, &mut self.decoder) {
            (Message::Text(text), _) => text.as_str().to_owned(),
            (Message::Binary(frame), Some(decoder)) => {
                let text = decoder.decode(&frame, self.message_bytes_max).map_err(|error| wrong(&error))?;
                String::from_utf8(text).map_err(|error| wrong(&error))?
            }
            (Message::Binary(_), None) => return Err(wrong(&"it is compressed, and was not to be")),
        };
        hear(line, self.form).map_err(|error| wrong(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_names_of_its_feed() {
        let config = Config {
            kinds: vec![alluvium_jetstream_wire::Topic::Commit],
            dids: vec!["did:web:a.example".to_owned()],
            collections: vec!["app.example.*".to_owned()],
            ..Config::new("http://h")
        };
        assert_eq!(
            target(&config, Cursor::After(6), Some(5), 8000),
            (
                "/subscribe-v2?cursor=7&zstdDictionary=5&wantedCollections=app.example.%2A\
                 &wantedDids=did:web:a.example"
                    .to_owned(),
                None
            )
        );
        let config = Config { form: Form::Events, ..config };
        assert_eq!(
            target(&config, Cursor::Time(6), None, 8000),
            (
                "/xrpc/network.bsky.jetstream.subscribeEvents?cursor=6&kinds=commit&collections=app.example.%2A\
                 &dids=did:web:a.example"
                    .to_owned(),
                None
            )
        );
        assert_eq!(
            target(&Config::new("http://h"), Cursor::Now, None, 8000),
            ("/subscribe-v2".to_owned(), None)
        );
    }

    #[test]
    fn more_accounts_than_a_query_has_room_for_are_told_in_a_message_or_filtered_here() {
        let dids: Vec<String> = (0..10_000).map(|n| format!("did:web:a{n}.example")).collect();
        let collections = vec!["app.example.note".to_owned()];
        let config = Config { dids: dids.clone(), collections, ..Config::new("http://h") };
        let (path, hello) = target(&config, Cursor::After(0), None, 8000);
        assert_eq!(path, "/subscribe-v2?cursor=1&requireHello=true");
        let update = alluvium_jetstream_wire::Update::parse(&hello.expect("a message")).expect("an update");
        let alluvium_jetstream_wire::Update::Filter(filter) = update else { panic!("{update:?}") };
        assert_eq!(*filter, config.filter().expect("a filter"), "what is said is the filter");
        let config = Config { form: Form::Events, ..config };
        let only_collections =
            "/xrpc/network.bsky.jetstream.subscribeEvents?cursor=1&collections=app.example.note";
        assert_eq!(target(&config, Cursor::After(0), None, 8000), (only_collections.to_owned(), None));
        let (long, hello) = target(&config, Cursor::After(0), None, 1 << 20);
        assert_eq!((long.matches("&dids=").count(), hello), (10_000, None));
    }

    #[test]
    fn a_refusal_of_a_long_query_is_told_from_one_of_a_wrong_query() {
        for (status, body, expected) in [
            (414, "", true),
            (431, r#"{"error":{"code":"head_too_large","message":"x"}}"#, true),
            (400, "<html>", true),
            (400, r#"{"error":"InvalidRequest","message":"x"}"#, false),
            (401, "", false),
            (503, "", false),
        ] {
            let status = ureq::http::StatusCode::from_u16(status).unwrap();
            let refusal = Refusal { status, headers: HeaderMap::new(), body: body.as_bytes().into() };
            assert_eq!(is_for_length(&refusal), expected, "{status} {body}");
        }
    }

    #[test]
    fn refusals_are_known_by_the_marks_of_their_feed() {
        let refused = |status: u16, body: &'static str, form| {
            let status = ureq::http::StatusCode::from_u16(status).unwrap();
            let refusal = Refusal { status, headers: HeaderMap::new(), body: body.as_bytes().into() };
            match understood(&refusal, form) {
                Some(Opened::TooOld) => "old".to_owned(),
                Some(Opened::Dictionary(id)) => format!("{id:?}"),
                Some(Opened::Feed(_) | Opened::QueryTooLong) => unreachable!(),
                None => "none".to_owned(),
            }
        };
        for (status, body, form, expected) in [
            (400, r#"{"error":"CursorTooOld","message":"x"}"#, Form::Events, "old"),
            (400, r#"{"error":"InvalidRequest","message":"cursor too old"}"#, Form::Events, "none"),
            (503, r#"{"error":"CursorTooOld","message":"x"}"#, Form::Events, "none"),
            (400, r#"{"error":"UnknownZstdDictionary","message":"x"}"#, Form::Events, "None"),
            (400, "cursor too old: cursor 1 below lookback floor 5; re-backfill", Form::V2, "old"),
            (
                400,
                "unknown zstd dictionary id 4; current dictionary id is 17; fetch it",
                Form::V2,
                "Some(17)",
            ),
            (400, "unknown zstd dictionary id 4", Form::V2, "None"),
            (400, "cursor must be a number", Form::V2, "none"),
        ] {
            assert_eq!(refused(status, body, form), expected, "{body}");
        }
    }
}
