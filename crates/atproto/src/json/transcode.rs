//! From DAG-CBOR to JSON, without the document in between: what a server does with every record that it shows.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use super::write::{number, tagged, write_text};
use super::{BYTES, LINK};
use crate::cbor::{CborError, Item, Problem, Reader};

/// Appends a document as JSON: the same as [`decode_lenient`](crate::cbor::decode_lenient) and
/// [`write_json`](super::write_json) one after the other. After an error `out` is as it was.
pub fn transcode(input: &[u8], out: &mut String) -> Result<(), CborError> {
    let begin = out.len();
    let mut reader = Reader::lenient(input);
    let done = value(&mut reader, 0, out).and_then(|()| reader.finish());
    if done.is_err() {
        out.truncate(begin);
    }
    done
}

fn value(reader: &mut Reader<'_>, depth: usize, out: &mut String) -> Result<(), CborError> {
    match reader.item(depth)? {
        Item::Null => out.push_str("null"),
        Item::Bool(bool) => out.push_str(if bool { "true" } else { "false" }),
        // A string takes everything.
        Item::Integer(integer) => _ = write!(out, "{integer}"),
        Item::Float(float) => out.push_str(&number(float.get())),
        Item::Text(text) => write_text(&text, out),
        Item::Bytes(bytes) => {
            for part in ["{\"", BYTES, "\":\""] {
                out.push_str(part);
            }
            STANDARD_NO_PAD.encode_string(bytes, out);
            out.push_str("\"}");
        }
        Item::Link(cid) => tagged(LINK, &cid.to_string(), out),
        Item::List(len) => {
            out.push('[');
            for at in 0..len {
                if at > 0 {
                    out.push(',');
                }
                value(reader, depth + 1, out)?;
            }
            out.push(']');
        }
        Item::Map(len) => map(reader, len, depth + 1, out)?,
    }
    Ok(())
}

/// The order of the encoding is rarely that of JSON, so entries are written as they come and then put in order.
fn map(reader: &mut Reader<'_>, len: usize, depth: usize, out: &mut String) -> Result<(), CborError> {
    out.push('{');
    let begin = out.len();
    // Not reserved: a length may be announced and not come.
    let mut entries: Vec<(Cow<'_, str>, Range<usize>)> = Vec::with_capacity(len.min(64));
    for at in 0..len {
        if at > 0 {
            out.push(',');
        }
        let start = out.len() - begin;
        let key = reader.map_key()?;
        write_text(&key, out);
        out.push(':');
        value(reader, depth, out)?;
        entries.push((key, start..out.len() - begin));
    }
    if !entries.is_sorted_by(|(before, _), (key, _)| before < key) {
        entries.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        if entries.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(CborError { at: reader.position(), problem: Problem::KeyOrder });
        }
        let written = out.split_off(begin);
        for (at, (_, range)) in entries.into_iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            out.push_str(&written[range]);
        }
    }
    out.push('}');
    Ok(())
}
