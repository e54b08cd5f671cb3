//! What is made of a row for subscribers: whole `WebSocket` frames, one for each feed and compression, each made once.

use std::cell::RefCell;
use std::collections::HashMap;

use alluvium_jetstream_archive::{ArchivedRow, FORMS};
use alluvium_jetstream_wire::dictionary::{self, Encoder};
use alluvium_jetstream_wire::{Dictionary, Wire};
use alluvium_jss::RowRef;
use alluvium_websocket::{EncodedFrame, Header, Message, Text};
use bytes::Bytes;

/// The window of deflated frames, as a power of two: every client that takes compression at all takes this one.
pub(crate) const DEFLATE_WINDOW_BITS: u8 = 15;
/// Messages are compressed alone, so a high level has little to find.
const DEFLATE_LEVEL: u8 = 6;
/// Places in the archive's memory of forms: a text for each feed, one deflated, and each feed's dictionaries behind them.
const TEXTS: usize = 3;
const DEFLATED: usize = TEXTS;
const DICTIONARIES: usize = DEFLATED + 1;

/// How the messages of one subscriber look.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Form {
    Text,
    Deflated,
    Zstd(Dictionary),
}

/// A row as a frame.
pub(crate) enum Shown {
    /// The frame, and the bytes of its uncompressed JSON.
    Frame(EncodedFrame, usize),
    /// This feed does not show such rows.
    Hidden,
    /// The row cannot be shown.
    Broken,
}

thread_local! {
    /// Preparing a dictionary costs more than a thousand messages do.
    static ENCODERS: RefCell<HashMap<u32, Encoder>> = RefCell::new(HashMap::new());
}

const fn text_slot(wire: Wire) -> usize {
    match wire {
        Wire::V1 => 0,
        Wire::V2 => 1,
        Wire::Events => 2,
    }
}

/// Every dictionary has a place of its own for each feed.
fn zstd_slot(wire: Wire, wanted: Dictionary) -> Option<usize> {
    let of = |wire| dictionary::of(wire).iter().map(move |known| (wire, known.id));
    let mut all = [Wire::V1, Wire::V2, Wire::Events].into_iter().flat_map(of);
    let place = all.position(|known| known == (wire, wanted.id))?;
    #[cfg(feature = "planted-bugs")]
    let place =
        if alluvium_jss::planted::is_planted(alluvium_jss::planted::Bug::FormsShared) { 0 } else { place };
    Some(DICTIONARIES + place).filter(|slot| *slot < FORMS)
}

/// The payload of a plain frame that was made here.
fn payload(frame: &Bytes) -> Bytes {
    match Header::parse(frame) {
        Ok(Some((_, len))) => frame.slice(len..),
        _ => Bytes::new(),
    }
}

/// The JSON of a row on a wire, shared; none if it has none there.
pub(crate) fn json(row: &ArchivedRow, wire: Wire) -> Option<Bytes> {
    if !wire.shows(row.row().kind) {
        return None;
    }
    let frame = text(row, wire);
    (!frame.is_empty()).then(|| payload(&frame))
}

/// The row as a text frame; empty if it cannot be shown.
fn text(row: &ArchivedRow, wire: Wire) -> Bytes {
    row.form(text_slot(wire), |row: RowRef<'_>| match wire.render(&row) {
        Ok(Some(text)) => EncodedFrame::plain(&Message::text(text)).bytes().clone(),
        Ok(None) => Bytes::new(),
        Err(error) => {
            tracing::warn!(seq = row.seq, did = row.did, %error, "an event cannot be shown");
            Bytes::new()
        }
    })
}

/// The row as one subscriber gets it.
pub(crate) fn shown(row: &ArchivedRow, wire: Wire, form: Form) -> Shown {
    if !wire.shows(row.row().kind) {
        return Shown::Hidden;
    }
    let plain = text(row, wire);
    if plain.is_empty() {
        return Shown::Broken;
    }
    let json = payload(&plain);
    let len = json.len();
    let frame = match form {
        Form::Text => Some(EncodedFrame::from_parts(plain, None)),
        Form::Deflated => {
            let bytes = row.form(DEFLATED, |_| deflated(json));
            (!bytes.is_empty()).then(|| EncodedFrame::from_parts(bytes, Some(DEFLATE_WINDOW_BITS)))
        }
        Form::Zstd(dictionary) => match zstd_slot(wire, dictionary) {
            Some(slot) => {
                let bytes = row.form(slot, |_| packed(dictionary, &json).unwrap_or_default());
                (!bytes.is_empty()).then(|| EncodedFrame::from_parts(bytes, None))
            }
            None => packed(dictionary, &json).map(|bytes| EncodedFrame::from_parts(bytes, None)),
        },
    };
    frame.map_or(Shown::Broken, |frame| Shown::Frame(frame, len))
}

/// A message that is no event, in the form of a subscriber.
pub(crate) fn notice(text: String, form: Form) -> Option<EncodedFrame> {
    match form {
        Form::Text | Form::Deflated => Some(EncodedFrame::plain(&Message::text(text))),
        Form::Zstd(dictionary) => {
            packed(dictionary, text.as_bytes()).map(|bytes| EncodedFrame::from_parts(bytes, None))
        }
    }
}

fn deflated(json: Bytes) -> Bytes {
    let Some(text) = Text::new(json) else { return Bytes::new() };
    match EncodedFrame::deflated(&Message::Text(text), DEFLATE_LEVEL, DEFLATE_WINDOW_BITS) {
        Ok(frame) => frame.bytes().clone(),
        Err(error) => {
            tracing::error!(%error, "an event cannot be deflated");
            Bytes::new()
        }
    }
}

fn packed(dictionary: Dictionary, json: &[u8]) -> Option<Bytes> {
    let packed = ENCODERS.with_borrow_mut(|encoders| {
        let encoder = match encoders.entry(dictionary.id) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => new.insert(Encoder::new(dictionary)?),
        };
        Ok::<_, dictionary::DictionaryError>(encoder.encode(json)?)
    });
    match packed {
        Ok(packed) => Some(EncodedFrame::plain(&Message::binary(packed)).bytes().clone()),
        Err(error) => {
            tracing::error!(%error, "an event cannot be compressed");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is made for one feed is never sent to another, and nothing has to be made for each subscriber.
    #[test]
    fn every_form_has_a_place_of_its_own() {
        let wires = [Wire::V1, Wire::V2, Wire::Events];
        let texts = wires.map(text_slot);
        let packed = wires.into_iter().flat_map(|wire| {
            dictionary::of(wire).iter().map(move |known| zstd_slot(wire, *known).expect("a place"))
        });
        let all: Vec<usize> = texts.into_iter().chain([DEFLATED]).chain(packed).collect();
        let distinct: std::collections::BTreeSet<usize> = all.iter().copied().collect();
        assert_eq!(distinct.len(), all.len());
    }
}
