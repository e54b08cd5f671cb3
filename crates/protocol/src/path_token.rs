//! A stream's path as one word, for places that allow no slashes: keys, file names, labels.
//!
//! The word is the path in base64url without padding. A long one keeps its first 180 characters and ends in `~` and
//! 16 digits of the path's SHA-256, so that it still names one path only, but no longer tells all of it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

/// Longest word that holds the whole path.
const WHOLE_CHARACTERS_MAX: usize = 200;
/// What is kept of a longer one.
const KEPT_CHARACTERS: usize = 180;
/// Digits of the hash after `~`.
const HASH_DIGITS: usize = 16;

/// The word for a path.
pub fn encode_stream_path(path: &str) -> String {
    let mut word = URL_SAFE_NO_PAD.encode(path);
    if word.len() > WHOLE_CHARACTERS_MAX {
        word.truncate(KEPT_CHARACTERS);
        word.push('~');
        for byte in &Sha256::digest(path)[..HASH_DIGITS / 2] {
            for digit in [byte >> 4, byte & 0xf] {
                word.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
            }
        }
    }
    word
}

/// The path that a word stands for; of a long path the beginning, cut at a character. `None` if it is no such word.
pub fn decode_stream_path(word: &str) -> Option<String> {
    let (kept, is_whole) = match word.split_once('~') {
        None => (word, word.len() <= WHOLE_CHARACTERS_MAX),
        Some((kept, hash)) => {
            let is_hash = hash.len() == HASH_DIGITS
                && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            if kept.len() != KEPT_CHARACTERS || !is_hash {
                return None;
            }
            (kept, true)
        }
    };
    let mut bytes = URL_SAFE_NO_PAD.decode(kept).ok().filter(|_| is_whole)?;
    if let Err(error) = str::from_utf8(&bytes) {
        // A cut may fall within a character; anything else was never text.
        let is_cut = kept.len() < word.len() && error.error_len().is_none();
        bytes.truncate(error.valid_up_to());
        if !is_cut {
            return None;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_short_path_is_told_whole() {
        assert_eq!(encode_stream_path("a/b?ü"), "YS9iP8O8");
        assert_eq!(decode_stream_path("YS9iP8O8").as_deref(), Some("a/b?ü"));
    }

    #[test]
    fn a_long_path_is_cut_and_told_apart_by_its_hash() {
        let (path, other) = ("é".repeat(200), "é".repeat(201));
        let word = encode_stream_path(&path);
        assert_eq!(word.len(), KEPT_CHARACTERS + 1 + HASH_DIGITS);
        assert_ne!(word, encode_stream_path(&other));
        // 180 characters of base64 are 135 bytes: 67 letters of two bytes, and half of one.
        assert_eq!(decode_stream_path(&word), Some("é".repeat(67)));
        assert_eq!(encode_stream_path(&"a".repeat(151)).split_once('~').unwrap().1, "5416d58d0995ead4");
    }

    #[test]
    fn other_words_name_no_path() {
        let cut = encode_stream_path(&"a".repeat(300));
        for word in ["=", "YQ==", "a~b", "/w", "_w", &cut[1..], &cut[..cut.len() - 1], &"A".repeat(204)] {
            assert_eq!(decode_stream_path(word), None, "{word}");
        }
    }

    proptest! {
        #[test]
        fn a_word_is_safe_anywhere_and_tells_the_path_or_its_beginning(path in "\\PC{0,120}") {
            let word = encode_stream_path(&path);
            prop_assert!(word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_~".contains(&byte)));
            let decoded = decode_stream_path(&word).unwrap();
            prop_assert!(path.starts_with(&decoded));
            prop_assert!(decoded == path || decoded.len() > 130);
        }
    }
}
