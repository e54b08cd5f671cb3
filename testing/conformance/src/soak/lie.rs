//! Planted lies: one wrong byte, one lost message, one deletion that never was. A soak that does not notice them proves
//! nothing, so its own test plants each, at each door.

use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Error, Result, bail};

/// Bodies at a door that are told as they are before the lie comes.
const TRUE_BODIES: u32 = 2;

/// Where bytes come in or go out.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Door {
    Read,
    LongPoll,
    Sse,
    Fork,
    Kept,
    Snapshot,
    Bootstrap,
    Feed,
    Webhook,
    Claim,
    Append,
    Delete,
}

/// All doors with the names that an option has for them.
const DOORS: &[(&str, Door)] = &[
    ("read", Door::Read),
    ("long-poll", Door::LongPoll),
    ("sse", Door::Sse),
    ("fork", Door::Fork),
    ("kept", Door::Kept),
    ("snapshot", Door::Snapshot),
    ("bootstrap", Door::Bootstrap),
    ("feed", Door::Feed),
    ("webhook", Door::Webhook),
    ("claim", Door::Claim),
    ("append", Door::Append),
    ("delete", Door::Delete),
];

/// How bytes are made wrong.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Kind {
    /// One bit of a body.
    Flip,
    /// A whole body: it comes empty, or is never sent though its sender is told so.
    Drop,
}

/// One lie, told once.
#[derive(Debug)]
pub(super) struct Lie {
    kind: Kind,
    pub(super) door: Door,
    seen: AtomicU32,
}

/// Every lie that makes sense, as an option names it.
pub(super) fn all() -> Vec<String> {
    let mut lies = Vec::new();
    for (name, door) in DOORS {
        if !matches!(door, Door::Append | Door::Delete) {
            lies.push(format!("flip@{name}"));
        }
        // A kept stream, a fork and a snapshot are compared with what is known, so that these two are one test.
        if !matches!(door, Door::Kept | Door::Fork | Door::Snapshot) {
            lies.push(format!("drop@{name}"));
        }
    }
    lies
}

impl FromStr for Lie {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (kind, place) = text.split_once('@').context("a lie is KIND@DOOR")?;
        let kind = match kind {
            "flip" => Kind::Flip,
            "drop" => Kind::Drop,
            _ => bail!("no lie is called `{kind}`"),
        };
        let door = DOORS.iter().find(|(name, _)| *name == place);
        let (_, door) = *door.with_context(|| format!("no door is called `{place}`"))?;
        Ok(Self { kind, door, seen: AtomicU32::new(0) })
    }
}

impl Lie {
    /// Makes a body wrong if it is its turn.
    pub(super) fn tell(&self, door: Door, body: &mut Vec<u8>) {
        let is_empty = body.is_empty() || body == b"[]";
        if door != self.door || is_empty || !self.is_due() {
            return;
        }
        match self.kind {
            Kind::Flip => {
                let middle = body.len() / 2;
                body[middle] ^= 1;
            }
            Kind::Drop if body[0] == b'[' => *body = b"[]".to_vec(),
            Kind::Drop => body.clear(),
        }
    }

    /// Whether a message to the server is the one that gets lost.
    pub(super) fn swallows(&self, door: Door) -> bool {
        door == self.door && self.kind == Kind::Drop && self.is_due()
    }

    fn is_due(&self) -> bool {
        self.seen.fetch_add(1, Ordering::SeqCst) == TRUE_BODIES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lie_is_told_once_and_at_its_door() {
        let lie: Lie = "flip@sse".parse().unwrap();
        let told: Vec<Vec<u8>> = (0..5)
            .map(|_| {
                let (mut here, mut elsewhere) = (b"abc".to_vec(), b"abc".to_vec());
                lie.tell(Door::Read, &mut elsewhere);
                assert_eq!(elsewhere, b"abc");
                lie.tell(Door::Sse, &mut here);
                here
            })
            .collect();
        assert_eq!(told.iter().filter(|body| *body != b"abc").count(), 1);
        assert!(all().iter().all(|lie| lie.parse::<Lie>().is_ok()));
        assert!("flip@nowhere".parse::<Lie>().is_err() && "bend@sse".parse::<Lie>().is_err());
    }
}
