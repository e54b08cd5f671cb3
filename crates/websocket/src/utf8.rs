//! Whether text that comes in parts is UTF-8, told as early as it can be.

/// The state between two parts: the beginning of a character whose end has not come yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Utf8 {
    begun: [u8; 4],
    len: usize,
}

impl Utf8 {
    /// Reads on. `false` once no continuation can make the text valid.
    pub(crate) fn take(&mut self, mut bytes: &[u8]) -> bool {
        while self.len > 0 {
            let [next, rest @ ..] = bytes else { return true };
            self.begun[self.len] = *next;
            self.len += 1;
            bytes = rest;
            match std::str::from_utf8(&self.begun[..self.len]) {
                Ok(_) => self.len = 0,
                // Four bytes are a character or an error, so there is always room for the next one.
                Err(error) if error.error_len().is_none() => {}
                Err(_) => return false,
            }
        }
        match std::str::from_utf8(bytes) {
            Ok(_) => true,
            Err(error) if error.error_len().is_none() => {
                let left = &bytes[error.valid_up_to()..];
                self.begun[..left.len()].copy_from_slice(left);
                self.len = left.len();
                true
            }
            Err(_) => false,
        }
    }

    /// Whether the text may end here.
    pub(crate) const fn is_complete(self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn is_valid<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> bool {
        let mut utf8 = Utf8::default();
        parts.into_iter().all(|part| utf8.take(part)) && utf8.is_complete()
    }

    #[test]
    fn what_can_no_longer_become_text_is_refused_at_its_first_byte() {
        // Overlong forms, surrogates, beyond the last plane, stray continuations.
        let bad: [&[u8]; 7] = [b"\xc0", b"\xe0\x80", b"\xed\xa0", b"\xf0\x80", b"\xf4\x90", b"\x80", b"\xff"];
        for sequence in bad {
            let (last, begun) = sequence.split_last().unwrap();
            let mut utf8 = Utf8::default();
            assert!(utf8.take(b"ok") && begun.iter().all(|byte| utf8.take(&[*byte])), "{sequence:x?}");
            assert!(!utf8.take(&[*last]), "{sequence:x?}");
        }
    }

    proptest! {
        /// However bytes are cut, the verdict is that on the whole.
        #[test]
        fn cuts_do_not_matter(
            bytes in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..8),
                any::<String>().prop_map(String::into_bytes),
                "[é€😀]{0,5}".prop_map(String::into_bytes),
            ],
            cut in 1..5_usize,
        ) {
            prop_assert_eq!(is_valid(bytes.chunks(cut)), std::str::from_utf8(&bytes).is_ok());
        }
    }
}
