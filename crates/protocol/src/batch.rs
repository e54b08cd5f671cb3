//! The framing of a batch of appends: frames, each four bytes of length (big endian) and as many bytes.

use bytes::{Buf, Bytes};

/// The length before each frame.
const LENGTH_BYTES: usize = 4;

/// Why a body is no batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InvalidFrames {
    /// It ends inside the length of a frame.
    #[error("the body ends inside the length of a frame")]
    Length,
    /// It ends inside a frame.
    #[error("the body ends inside a frame")]
    Frame,
    /// There are more frames than there may be.
    #[error("the batch has too many frames")]
    TooMany,
    /// There is none.
    #[error("the batch has no frames")]
    None,
}

/// Cuts a body into its frames, of which there are one to `frames_max`. They share its memory.
pub fn split_frames(mut body: Bytes, frames_max: usize) -> Result<Vec<Bytes>, InvalidFrames> {
    let mut frames = Vec::new();
    while !body.is_empty() {
        if body.len() < LENGTH_BYTES {
            return Err(InvalidFrames::Length);
        }
        let length = usize::try_from(body.get_u32()).unwrap_or(usize::MAX);
        if length > body.len() {
            return Err(InvalidFrames::Frame);
        }
        if frames.len() == frames_max {
            return Err(InvalidFrames::TooMany);
        }
        frames.push(body.split_to(length));
    }
    if frames.is_empty() { Err(InvalidFrames::None) } else { Ok(frames) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_cut_where_the_lengths_say() {
        let split = |body: &'static [u8]| split_frames(Bytes::from_static(body), 3);
        let frames = split(b"\0\0\0\x02ab\0\0\0\0\0\0\0\x01c");
        assert_eq!(frames, Ok(vec![Bytes::from_static(b"ab"), Bytes::new(), Bytes::from_static(b"c")]));
        for (broken, why) in [
            (&b""[..], InvalidFrames::None),
            (b"\0", InvalidFrames::Length),
            (b"\0\0\0", InvalidFrames::Length),
            (b"\0\0\0\x02a", InvalidFrames::Frame),
            (b"\0\0\0\x01ab", InvalidFrames::Length),
            (b"\xff\xff\xff\xff", InvalidFrames::Frame),
            (b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", InvalidFrames::TooMany),
        ] {
            assert_eq!(split(broken), Err(why), "{}", broken.escape_ascii());
        }
    }
}
