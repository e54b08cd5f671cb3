//! Messages that describe themselves, so that a reader can tell a whole one from a torn, foreign or doubled one.
//!
//! Binary streams hold frames one after another:
//!
//! ```text
//!  0      4 | "AMSG"
//!  4      4 | writer, little endian
//!  8      8 | index of the message among its writer's, little endian
//! 16      4 | length of the payload, little endian
//! 20      4 | CRC-32C of bytes 0..20 and the payload
//! 24      n | payload, a function of writer and index
//! ```
//!
//! JSON streams hold objects with the same facts: `{"writer":1,"index":2,"crc":3,"text":"…"}`.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};

use crate::random::Random;

const MAGIC: &[u8; 4] = b"AMSG";
const HEADER_BYTES: usize = 24;
/// One message in this many is large.
const LARGE_ONCE_IN: u64 = 64;

/// How many messages of each writer a stream holds.
pub(crate) type Counts = BTreeMap<u32, u64>;

/// The payload of a message: its length and bytes follow from writer and index alone.
fn payload(writer: u32, index: u64) -> Vec<u8> {
    let mut random = Random::new((u64::from(writer) << 40) ^ index);
    let length =
        if random.once_in(LARGE_ONCE_IN) { random.below(131_072) } else { random.below(512) } as usize;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

fn payload_length(payload: &[u8]) -> u32 {
    u32::try_from(payload.len()).expect("payloads are at most 128 KiB")
}

/// The frames of `count` messages from `first` on.
pub(crate) fn frames(writer: u32, first: u64, count: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for index in first..first + count {
        let payload = payload(writer, index);
        let start = out.len();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&writer.to_le_bytes());
        out.extend_from_slice(&index.to_le_bytes());
        out.extend_from_slice(&payload_length(&payload).to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&out[start..]), &payload);
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&payload);
    }
    out
}

/// A JSON array of `count` messages from `first` on.
pub(crate) fn json_array(writer: u32, first: u64, count: u64) -> Vec<u8> {
    let objects: Vec<String> = (first..first + count)
        .map(|index| {
            let payload = payload(writer, index);
            let (crc, text) = (crc32c::crc32c(&payload), json_text(&payload));
            format!(r#"{{"writer":{writer},"index":{index},"crc":{crc},"text":"{text}"}}"#)
        })
        .collect();
    format!("[{}]", objects.join(",")).into_bytes()
}

fn json_text(payload: &[u8]) -> String {
    payload.iter().take(64).map(|byte| char::from(b'a' + byte % 26)).collect()
}

/// Reads a binary stream's whole content: each writer's messages must be whole, in order, without gap or repeat.
pub(crate) fn count_frames(content: &[u8]) -> Result<Counts> {
    let mut counts = Counts::new();
    go_on_with_frames(&mut counts, content)?;
    Ok(counts)
}

/// As [`count_frames`], with what follows on what was counted before.
pub(crate) fn go_on_with_frames(counts: &mut Counts, content: &[u8]) -> Result<()> {
    let mut rest = content;
    while !rest.is_empty() {
        let at = content.len() - rest.len();
        ensure!(rest.len() >= HEADER_BYTES, "torn message header at byte {at} of {}", content.len());
        ensure!(&rest[..4] == MAGIC, "no message starts at byte {at} of {}", content.len());
        let word =
            |from: usize| u32::from_le_bytes([rest[from], rest[from + 1], rest[from + 2], rest[from + 3]]);
        let (writer, length) = (word(4), word(16) as usize);
        let index = u64::from(word(8)) | u64::from(word(12)) << 32;
        ensure!(
            rest.len() >= HEADER_BYTES + length,
            "torn message payload at byte {at} of {}",
            content.len()
        );
        let found = &rest[HEADER_BYTES..HEADER_BYTES + length];
        let crc = crc32c::crc32c_append(crc32c::crc32c(&rest[..20]), found);
        ensure!(crc == word(20), "wrong checksum of message {index} of writer {writer} at byte {at}");
        ensure!(
            found == payload(writer, index),
            "message {index} of writer {writer} is not what was written"
        );
        count_one(counts, writer, index)?;
        rest = &rest[HEADER_BYTES + length..];
    }
    Ok(())
}

/// Reads the arrays of a JSON stream, one per response, under the same rule as [`count_frames`].
pub(crate) fn count_json(arrays: &[Vec<u8>]) -> Result<Counts> {
    let mut counts = Counts::new();
    arrays.iter().try_for_each(|array| go_on_with_json(&mut counts, array))?;
    Ok(counts)
}

/// As [`count_json`], with one array that follows on what was counted before.
pub(crate) fn go_on_with_json(counts: &mut Counts, array: &[u8]) -> Result<()> {
    let value: serde_json::Value = serde_json::from_slice(array).context("a JSON response does not parse")?;
    let Some(messages) = value.as_array() else { bail!("a JSON response is not an array") };
    for message in messages {
        let number = |key: &str| message[key].as_u64().with_context(|| format!("no `{key}` in {message}"));
        let (writer, index) = (u32::try_from(number("writer")?)?, number("index")?);
        let payload = payload(writer, index);
        let crc = u64::from(crc32c::crc32c(&payload));
        ensure!(crc == number("crc")?, "wrong checksum of message {index} of writer {writer}");
        let is_whole = message["text"] == json_text(&payload)
            && message.as_object().map(serde_json::Map::len) == Some(4);
        ensure!(is_whole, "message {index} of writer {writer} is not what was written: {message}");
        count_one(counts, writer, index)?;
    }
    Ok(())
}

fn count_one(counts: &mut Counts, writer: u32, index: u64) -> Result<()> {
    let next = counts.entry(writer).or_insert(0);
    ensure!(
        index == *next,
        "writer {writer}: message {index} where {next} was due ({})",
        if index < *next { "doubled" } else { "lost" }
    );
    *next += 1;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_messages_are_counted_per_writer() {
        let content = [frames(1, 0, 3), frames(2, 0, 1), frames(1, 3, 2)].concat();
        assert_eq!(count_frames(&content).unwrap(), Counts::from([(1, 5), (2, 1)]));
        assert_eq!(count_json(&[json_array(7, 0, 2), json_array(7, 2, 1)]).unwrap(), Counts::from([(7, 3)]));
    }

    #[test]
    fn a_lost_doubled_torn_or_altered_message_is_noticed() {
        assert!(count_frames(&frames(1, 1, 1)).is_err(), "lost");
        assert!(count_frames(&[frames(1, 0, 1), frames(1, 0, 1)].concat()).is_err(), "doubled");
        let whole = frames(1, 0, 2);
        for cut in 1..whole.len() {
            let counted = count_frames(&whole[..cut]);
            assert!(counted.is_err() || cut == frames(1, 0, 1).len(), "torn at {cut}");
        }
        let mut altered = whole;
        altered[10] ^= 1;
        assert!(count_frames(&altered).is_err(), "altered");
        assert!(count_json(&[json_array(1, 0, 1), json_array(1, 0, 1)]).is_err(), "doubled JSON");
        let whole = json_array(1, 0, 1);
        for at in 0..whole.len() {
            let mut altered = whole.clone();
            altered[at] ^= 1;
            assert!(
                count_json(&[altered]).map_or(true, |counts| counts != Counts::from([(1, 1)])),
                "byte {at}"
            );
        }
    }
}
