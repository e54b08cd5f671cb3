//! Integers as text: decimal as headers carry them, hexadecimal as tokens of this server do.

use crate::limits::INTEGER_MAX;

/// Digits only, leading zeros allowed; `None` for anything else or a value over [`INTEGER_MAX`].
pub(crate) fn parse(text: &str) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.bytes().try_fold(0_u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        let value = value * 10 + digit;
        // The bound is far below `u64::MAX / 10`, so the next multiplication cannot overflow.
        (value <= INTEGER_MAX).then_some(value)
    })
}

/// Fills `digits` with the lowest digits of `value`, in lower-case hexadecimal.
pub(crate) fn write_hex(digits: &mut [u8], mut value: u128) {
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(value & 0xf) as usize];
        value >>= 4;
    }
}

/// Like [`parse`], but with exactly one spelling per value: no leading zeros.
pub(crate) fn parse_canonical(text: &str) -> Option<u64> {
    if text.len() > 1 && text.starts_with('0') {
        return None;
    }
    parse(text)
}
