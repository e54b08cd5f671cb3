//! Tells, body by body, whether a reader is given what was written: every message whole, once, in its writer's order.

use anyhow::{Result, ensure};

use crate::message::{Counts, go_on_with_frames, go_on_with_json};

/// What a stream holds.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Format {
    Frames,
    Json,
}

impl Format {
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Frames => super::client::BYTES,
            Self::Json => super::client::JSON,
        }
    }
}

/// A reader's account of one stream.
#[derive(Clone, Debug)]
pub(super) struct Checker {
    format: Format,
    counts: Counts,
    /// Of everything read, as bytes; those of a JSON stream without the brackets of each response.
    crc: u32,
    bytes: u64,
}

impl Checker {
    pub(super) fn new(format: Format) -> Self {
        Self { format, counts: Counts::new(), crc: 0, bytes: 0 }
    }

    /// The next bytes of the stream, which end with a message.
    pub(super) fn take(&mut self, body: &[u8]) -> Result<()> {
        if body.is_empty() {
            return Ok(());
        }
        match self.format {
            Format::Frames => {
                go_on_with_frames(&mut self.counts, body)?;
                self.crc = crc32c::crc32c_append(self.crc, body);
                self.bytes += body.len() as u64;
            }
            Format::Json => go_on_with_json(&mut self.counts, body)?,
        }
        Ok(())
    }

    pub(super) fn take_all(mut self, bodies: &[Vec<u8>]) -> Result<Self> {
        bodies.iter().try_for_each(|body| self.take(body))?;
        Ok(self)
    }

    /// Everything must have come that was acknowledged, and nothing else.
    pub(super) fn finish(&self, due: &Counts) -> Result<()> {
        for (writer, due) in due {
            let found = self.counts.get(writer).copied().unwrap_or(0);
            ensure!(found == *due, "{found} messages of writer {writer} where {due} were acknowledged");
        }
        for writer in self.counts.keys() {
            ensure!(due.contains_key(writer), "messages of writer {writer}, who never wrote here");
        }
        Ok(())
    }

    /// Two readers must have had the same bytes in the same order.
    pub(super) fn same_as(&self, other: &Self) -> Result<()> {
        ensure!(
            (self.bytes, self.crc) == (other.bytes, other.crc),
            "one reader had {} bytes with checksum {:08x}, another {} with {:08x}",
            self.bytes,
            self.crc,
            other.bytes,
            other.crc
        );
        Ok(())
    }

    pub(super) const fn format(&self) -> Format {
        self.format
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{frames, json_array};

    #[test]
    fn what_is_lost_at_the_end_or_foreign_is_noticed() {
        let checker = Checker::new(Format::Frames).take_all(&[frames(1, 0, 2), frames(1, 2, 1)]).unwrap();
        checker.finish(&Counts::from([(1, 3)])).unwrap();
        assert!(checker.finish(&Counts::from([(1, 4)])).is_err(), "the last one is lost");
        assert!(checker.finish(&Counts::from([(1, 2)])).is_err(), "one more than was acknowledged");
        assert!(checker.finish(&Counts::from([(1, 3), (2, 1)])).is_err(), "a writer's only message is lost");
        assert!(checker.finish(&Counts::new()).is_err(), "a foreign writer");
        assert!(Checker::new(Format::Json).take_all(&[json_array(1, 1, 1)]).is_err(), "the first is lost");
    }

    #[test]
    fn two_orders_are_two_streams() {
        let one = Checker::new(Format::Frames).take_all(&[frames(1, 0, 1), frames(2, 0, 1)]).unwrap();
        let other = Checker::new(Format::Frames).take_all(&[frames(2, 0, 1), frames(1, 0, 1)]).unwrap();
        assert!(one.same_as(&one.clone()).is_ok() && one.same_as(&other).is_err());
    }
}
