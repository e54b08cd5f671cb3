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
fn tagged(key: &str, text: &str, out: &mut String) {
    for part in ["{\"", key, "\":\"", text, "\"}"] {
        out.push_str(part);
    }
}

/// Appends `text` as a JSON string, escaped as [`write_json`] does it.
pub fn write_text(text: &str, out: &mut String) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push('"');
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            '\0'..='\u{1f}' | '<' | '>' | '&' => {
                out.push_str("\\u00");
                out.push(char::from(HEX[char as usize >> 4]));
                out.push(char::from(HEX[char as usize & 15]));
            }
            _ => out.push(char),
        }
    }
    out.push('"');
}

/// The shortest digits; with an exponent below 1e-6 and from 1e21 on.
fn number(float: f64) -> String {
    let size = float.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{float:e}");
        return if text.contains("e-") { text } else { text.replace('e', "e+") };
    }
    float.to_string()
}
