//! Writing.

use super::value::Value;
use crate::cid::Cid;

/// The one encoding of `value`.
pub fn encode(value: &Value) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.value(value);
    writer.into_bytes()
}

/// Writes values one after the other; whoever writes the parts of a map or list writes as many as announced, keys in
/// order.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// What was written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// A whole value.
    pub fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.null(),
            Value::Bool(bool) => self.0.push(if *bool { 0xf5 } else { 0xf4 }),
            Value::Integer(integer) => self.integer(*integer),
            Value::Float(float) => {
                self.0.push(0xfb);
                self.0.extend_from_slice(&float.get().to_be_bytes());
            }
            Value::Bytes(bytes) => self.bytes(bytes),
            Value::Text(text) => self.text(text),
            Value::List(list) => {
                self.list(list.len());
                for value in list {
                    self.value(value);
                }
            }
            Value::Map(map) => {
                self.map(map.len());
                for (key, value) in map.iter() {
                    self.text(key);
                    self.value(value);
                }
            }
            Value::Link(cid) => self.link(cid),
        }
    }

    /// Null.
    pub fn null(&mut self) {
        self.0.push(0xf6);
    }

    /// An integer.
    pub fn integer(&mut self, integer: i64) {
        // The complement of a negative number is what the encoding counts.
        let major = u8::from(integer < 0);
        self.head(major, if integer < 0 { !integer } else { integer }.unsigned_abs());
    }

    /// An integer that is not negative; readers take those of 63 bits.
    pub fn unsigned(&mut self, integer: u64) {
        self.head(0, integer);
    }

    /// Bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.head(2, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Text.
    pub fn text(&mut self, text: &str) {
        self.head(3, text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    /// The head of a list of `len` values.
    pub fn list(&mut self, len: usize) {
        self.head(4, len as u64);
    }

    /// The head of a map of `len` entries.
    pub fn map(&mut self, len: usize) {
        self.head(5, len as u64);
    }

    /// A link: tag 42 around a zero byte and the CID.
    pub fn link(&mut self, cid: &Cid) {
        self.0.extend_from_slice(&[0xd8, 42, 0x58, 37, 0]);
        self.0.extend_from_slice(cid.as_bytes());
    }

    /// A link, or null.
    pub fn optional_link(&mut self, cid: Option<&Cid>) {
        match cid {
            Some(cid) => self.link(cid),
            None => self.null(),
        }
    }

    fn head(&mut self, major: u8, argument: u64) {
        let major = major << 5;
        let bytes = argument.to_be_bytes();
        let (info, len) = match argument {
            0..=23 => return self.0.push(major | bytes[7]),
            24..=0xff => (24, 1),
            0x100..=0xffff => (25, 2),
            0x1_0000..=0xffff_ffff => (26, 4),
            _ => (27, 8),
        };
        self.0.push(major | info);
        self.0.extend_from_slice(&bytes[8 - len..]);
    }
}
