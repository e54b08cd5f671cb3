//! Writing JSON the way existing feeds do, byte for byte.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use super::{BYTES, LINK};
use crate::cbor::Value;

/// `value` as JSON without white space.
pub fn to_json(value: &Value) -> String {
    let mut json = String::new();
    write_json(value, &mut json);
    json
}

/// Appends `value` as JSON: keys sorted by their bytes, base64 without padding, text escaped as Go's `encoding/json`
/// does it, and floats, which are outside the model, in their shortest form.
pub fn write_json(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(bool) => out.push_str(if *bool { "true" } else { "false" }),
        Value::Integer(integer) => out.push_str(&integer.to_string()),
        Value::Float(float) => out.push_str(&number(float.get())),
        Value::Text(text) => write_text(text, out),
        Value::Bytes(bytes) => {
            let bytes = STANDARD_NO_PAD.encode(bytes);
            tagged(BYTES, &bytes, out);
        }
        Value::Link(cid) => tagged(LINK, &cid.to_string(), out),
        Value::List(list) => {
            out.push('[');
            for (at, value) in list.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_json(value, out);
            }
            out.push(']');
        }
        Value::Map(map) => {
            let mut entries: Vec<(&str, &Value)> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            out.push('{');
            for (at, (key, value)) in entries.into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_text(key, out);
                out.push(':');
                write_json(value, out);
            }
            out.push('}');
        }
    }
}

/// `{"<key>":"<text>"}` of text that needs no escapes.
pub(super) fn tagged(key: &str, text: &str, out: &mut String) {
    for part in ["{\"", key, "\":\"", text, "\"}"] {
        out.push_str(part);
    }
}

/// Appends `text` as a JSON string, escaped as [`write_json`] does it.
pub fn write_text(text: &str, out: &mut String) {
    out.push('"');
    // What needs no escape, which is nearly everything, is copied in pieces.
    let (bytes, mut copied, mut at) = (text.as_bytes(), 0, 0);
    while let Some(found) = bytes[at..].iter().position(|byte| MARKED[usize::from(*byte)]) {
        let start = at + found;
        let (len, escape) = escape(&bytes[start..]);
        at = start + len;
        if escape != Escape::None {
            out.push_str(&text[copied..start]);
            copied = at;
        }
        match escape {
            Escape::None => {}
            Escape::Short(letter) => out.extend(['\\', letter]),
            Escape::Unicode(number) => {
                out.push_str("\\u");
                out.extend([12, 8, 4, 0].map(|shift| char::from(HEX[number >> shift & 15])));
            }
        }
    }
    out.push_str(&text[copied..]);
    out.push('"');
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// The bytes at which an escape may begin.
const MARKED: [bool; 256] = {
    let mut marked = [false; 256];
    let mut control = 0;
    while control < 0x20 {
        marked[control] = true;
        control += 1;
    }
    let mut others: &[u8] = b"\"\\<>&\xe2";
    while let [first, rest @ ..] = others {
        marked[*first as usize] = true;
        others = rest;
    }
    marked
};

/// How a character is written.
#[derive(Debug, PartialEq, Eq)]
enum Escape {
    /// As it is.
    None,
    /// By a backslash and this.
    Short(char),
    /// By its number, of 16 bits.
    Unicode(usize),
}

/// What becomes of the character that begins here with a marked byte, and how many bytes may be passed over.
fn escape(bytes: &[u8]) -> (usize, Escape) {
    match bytes {
        [quote @ (b'"' | b'\\'), ..] => (1, Escape::Short(char::from(*quote))),
        [8, ..] => (1, Escape::Short('b')),
        [0xc, ..] => (1, Escape::Short('f')),
        [b'\n', ..] => (1, Escape::Short('n')),
        [b'\r', ..] => (1, Escape::Short('r')),
        [b'\t', ..] => (1, Escape::Short('t')),
        // The line and the paragraph separator.
        [0xe2, 0x80, 0xa8, ..] => (3, Escape::Unicode(0x2028)),
        [0xe2, 0x80, 0xa9, ..] => (3, Escape::Unicode(0x2029)),
        [0xe2, ..] | [] => (1, Escape::None),
        [other, ..] => (1, Escape::Unicode((*other).into())),
    }
}

/// The shortest digits; with an exponent below 1e-6 and from 1e21 on.
pub(super) fn number(float: f64) -> String {
    let size = float.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{float:e}");
        return if text.contains("e-") { text } else { text.replace('e', "e+") };
    }
    float.to_string()
}
