//! What a feed sent, kept as it came, and read once the clock has stopped.

use std::collections::{HashMap, HashSet};

use alluvium_jetstream_wire::Wire;
use alluvium_jetstream_wire::dictionary::{self, Decoder as ZstdDecoder};
use alluvium_websocket::{Decoder, Deflate, Event, Limits, Message, Role};
use anyhow::{Context, bail, ensure};
use bytes::{Bytes, BytesMut};
use serde_json::Value;

use super::network::{Key, commit_key, marker_key};
use crate::http::{Connection, Method, request};
use crate::target::Endpoint;

/// The longest message that is expected, in bytes.
const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// A buffer that takes a dictionary at once, in bytes.
const DICTIONARY_BYTES: usize = 256 * 1024;
const GET_DICTIONARY: &str = "xrpc/network.bsky.jetstream.getZstdDictionary";

/// Which feed, and how its messages look.
#[derive(Copy, Clone, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Form {
    /// `/subscribe`, text.
    V1,
    /// `/subscribe`, compressed by its dictionary.
    V1Zstd,
    /// `/subscribe`, compressed by the socket.
    V1Deflate,
    /// `subscribeEvents`, text.
    V2,
    /// `subscribeEvents`, compressed by the server's dictionary.
    V2Zstd,
}

impl Form {
    pub(crate) const ALL: [Self; 5] = [Self::V1, Self::V1Zstd, Self::V1Deflate, Self::V2, Self::V2Zstd];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1Zstd => "v1 zstd",
            Self::V1Deflate => "v1 deflate",
            Self::V2 => "v2",
            Self::V2Zstd => "v2 zstd",
        }
    }

    const fn wire(self) -> Wire {
        match self {
            Self::V1 | Self::V1Zstd | Self::V1Deflate => Wire::V1,
            Self::V2 | Self::V2Zstd => Wire::Events,
        }
    }

    /// What is said of a collection in the query.
    pub(super) const fn collections(self) -> &'static str {
        if matches!(self.wire(), Wire::V1) { "wantedCollections" } else { "collections" }
    }
}

/// A form as it is asked of one server.
pub(super) struct Door {
    pub(super) form: Form,
    /// Path and query, to be gone on with `&…`.
    pub(super) resource: String,
    dictionary: Option<Vec<u8>>,
}

impl Door {
    /// Asks for what the form needs.
    pub(super) async fn of(form: Form, endpoint: &Endpoint) -> anyhow::Result<Self> {
        let (resource, dictionary) = match form {
            Form::V1 | Form::V1Deflate => ("subscribe?".to_owned(), None),
            Form::V1Zstd => {
                let known = dictionary::of(Wire::V1).last().context("the dictionary of the first feed")?;
                ("subscribe?compress=true".to_owned(), Some(known.bytes.to_vec()))
            }
            Form::V2 => ("xrpc/network.bsky.jetstream.subscribeEvents?".to_owned(), None),
            Form::V2Zstd => {
                let bytes = fetch_dictionary(endpoint).await?;
                let id = dictionary::id_of(&bytes).context("the server's dictionary has no id")?;
                let resource = format!("xrpc/network.bsky.jetstream.subscribeEvents?zstdDictionary={id}");
                (resource, Some(bytes))
            }
        };
        Ok(Self { form, resource, dictionary })
    }
}

async fn fetch_dictionary(endpoint: &Endpoint) -> anyhow::Result<Vec<u8>> {
    let mut connection = Connection::open(endpoint.address, DICTIONARY_BYTES).await?;
    connection.send(&request(Method::Get, endpoint, GET_DICTIONARY, None)).await?;
    let head = connection.receive_head().await?;
    ensure!(head.status == 200, "the dictionary was answered {}", head.status);
    let mut bytes = Vec::new();
    connection.receive_body(&head, &mut |piece| bytes.extend_from_slice(piece)).await?;
    Ok(bytes)
}

/// The frames that came first of all subscribers. Those of one feed that began at the same place get the same bytes.
#[derive(Debug, Default)]
pub(super) struct Feed {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

/// What a feed was found to be.
#[derive(Debug)]
pub(super) struct Read {
    /// The number of the event that each message came with.
    pub(super) events: Vec<Option<usize>>,
    /// Messages that were not expected, came twice, or out of order.
    pub(super) irregular: usize,
    /// Expected ones that did not come.
    pub(super) missing: usize,
}

impl Feed {
    /// Takes the frame with this number, as one subscriber counts them. False if it is another than others got.
    pub(super) fn take(&mut self, number: usize, frame: &[u8]) -> bool {
        if number < self.ends.len() {
            let begin = number.checked_sub(1).map_or(0, |before| self.ends[before]);
            return self.bytes[begin..self.ends[number]] == *frame;
        }
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
        true
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Reads all messages and compares them with what is expected.
    pub(super) fn read(
        &self,
        door: &Door,
        deflate: Option<bool>,
        expected: &HashMap<Key, usize>,
    ) -> anyhow::Result<Read> {
        let mut seen = HashSet::with_capacity(expected.len());
        let mut read = Read { events: Vec::with_capacity(self.len()), irregular: 0, missing: 0 };
        let mut last = 0;
        for message in self.messages(door, deflate)? {
            let (seq, key) = identify(&message, door.form.wire())?;
            let event = expected.get(&key).copied();
            let is_new = seen.insert(key);
            if event.is_none() || !is_new || seq <= last {
                read.irregular += 1;
            }
            last = seq;
            read.events.push(event);
        }
        read.missing = expected.keys().filter(|key| !seen.contains(*key)).count();
        Ok(read)
    }

    fn messages(&self, door: &Door, deflate: Option<bool>) -> anyhow::Result<Vec<Bytes>> {
        let agreed = deflate.map(|alone| Deflate {
            level: 6,
            bytes_min: 0,
            server_no_context_takeover: alone,
            client_no_context_takeover: true,
            server_max_window_bits: 15,
            client_max_window_bits: 15,
        });
        let limits = Limits {
            frame_bytes_max: MESSAGE_BYTES_MAX,
            message_bytes_max: MESSAGE_BYTES_MAX,
            ..Limits::default()
        };
        let mut decoder = Decoder::new(Role::Client, limits, agreed.as_ref());
        let mut zstd = door.dictionary.as_deref().map(ZstdDecoder::new).transpose()?;
        let mut input = BytesMut::from(&self.bytes[..]);
        let mut messages = Vec::with_capacity(self.len());
        while let Some(event) = decoder.decode(&mut input)? {
            let Event::Message(message) = event else { bail!("a control frame among the messages") };
            messages.push(match (&mut zstd, message) {
                (None, Message::Text(text)) => text.into_bytes(),
                (Some(decoder), Message::Binary(frame)) => decoder.decode(&frame, MESSAGE_BYTES_MAX)?.into(),
                _ => bail!("a message is text where bytes were asked for, or bytes where text was"),
            });
        }
        Ok(messages)
    }
}

/// The server's number of an event, and what identifies it.
fn identify(message: &[u8], wire: Wire) -> anyhow::Result<(u64, Key)> {
    let value: Value = serde_json::from_slice(message).context("a message is not JSON")?;
    let event = if wire == Wire::V1 { &value } else { &value["payload"] };
    let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let did = text(event, "did");
    let seq = event[if wire == Wire::V1 { "cursor" } else { "seq" }].as_u64().context("no number")?;
    for kind in ["identity", "account"] {
        if let Some(relay_seq) = event[kind]["seq"].as_u64() {
            return Ok((seq, marker_key(&did, kind, relay_seq)));
        }
    }
    let commit = if wire == Wire::V1 { &event["commit"] } else { event };
    let [rev, collection, rkey, operation] =
        ["rev", "collection", "rkey", "operation"].map(|name| text(commit, name));
    Ok((seq, commit_key(&did, &rev, &collection, &rkey, &operation)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOOR: Door = Door { form: Form::V1, resource: String::new(), dictionary: None };

    fn frame(text: &str) -> Vec<u8> {
        alluvium_websocket::EncodedFrame::plain(&Message::text(text.to_owned())).bytes().to_vec()
    }

    fn commit(cursor: u64, rkey: &str) -> Vec<u8> {
        frame(&format!(
            r#"{{"did":"did:plc:a","cursor":{cursor},"kind":"commit","commit":{{"rev":"r","operation":"create","collection":"c.d.e","rkey":"{rkey}"}}}}"#
        ))
    }

    fn expected() -> HashMap<Key, usize> {
        let keys = ["1", "2", "3"].map(|rkey| commit_key("did:plc:a", "r", "c.d.e", rkey, "create"));
        keys.into_iter().zip(0..).collect()
    }

    #[test]
    fn subscribers_of_one_feed_are_compared_by_their_bytes() {
        let mut feed = Feed::default();
        assert!(feed.take(0, b"one") && feed.take(1, b"two"));
        assert!(feed.take(0, b"one") && !feed.take(1, b"twe") && !feed.take(1, b"tw"));
        assert_eq!((feed.len(), feed.bytes()), (2, 6));
    }

    #[test]
    fn what_is_missing_doubled_foreign_or_out_of_order_is_found() {
        let read = |frames: &[Vec<u8>]| {
            let mut feed = Feed::default();
            for (number, frame) in frames.iter().enumerate() {
                assert!(feed.take(number, frame));
            }
            let read = feed.read(&DOOR, None, &expected()).unwrap();
            (read.irregular, read.missing)
        };
        assert_eq!(read(&[commit(1, "1"), commit(5, "2"), commit(6, "3")]), (0, 0));
        assert_eq!(read(&[commit(1, "1"), commit(5, "2")]), (0, 1));
        assert_eq!(read(&[commit(1, "1"), commit(2, "1"), commit(5, "2"), commit(6, "3")]), (1, 0));
        assert_eq!(read(&[commit(1, "1"), commit(1, "2"), commit(6, "3")]), (1, 0));
        assert_eq!(read(&[commit(1, "1"), commit(2, "x"), commit(5, "2"), commit(6, "3")]), (1, 0));
    }

    #[test]
    fn an_event_is_the_same_on_every_wire() {
        let v1 = r#"{"did":"d","cursor":7,"kind":"identity","identity":{"did":"d","seq":4}}"#;
        let v2 = r#"{"$type":"message","payload":{"did":"d","seq":7,"identity":{"did":"d","seq":4}}}"#;
        let same = (7, marker_key("d", "identity", 4));
        assert_eq!(identify(v1.as_bytes(), Wire::V1).unwrap(), same);
        assert_eq!(identify(v2.as_bytes(), Wire::Events).unwrap(), same);
    }
}
