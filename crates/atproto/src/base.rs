//! The two text encodings of bytes that the protocol uses and the standard library lacks.

const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const BASE58: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
/// The longest base58 text that is read, in bytes: the work grows with its square. The longest key needs 90.
const MAX_BASE58: usize = 128;

/// RFC 4648 base32 in lower case without padding.
pub(crate) fn base32(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(5) * 8);
    let (mut held, mut bits) = (0_u32, 0_u32);
    for byte in bytes {
        held = (held << 8) | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(BASE32[(held >> bits) as usize & 31]));
        }
        held &= (1 << bits) - 1;
    }
    if bits > 0 {
        text.push(char::from(BASE32[(held << (5 - bits)) as usize & 31]));
    }
    text
}

/// The inverse of [`base32`]: no other text has these bytes, so left-over bits must be zero and fewer than five.
pub(crate) fn base32_decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 5 / 8);
    let (mut held, mut bits) = (0_u32, 0_u32);
    for byte in text.bytes() {
        let digit = match byte {
            b'a'..=b'z' => byte - b'a',
            b'2'..=b'7' => byte - b'2' + 26,
            _ => return None,
        };
        held = (held << 5) | u32::from(digit);
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from((held >> bits) & 0xff).ok()?);
            held &= (1 << bits) - 1;
        }
    }
    (bits < 5 && held == 0).then_some(bytes)
}

/// Base58 with the alphabet of Bitcoin.
pub(crate) fn base58(bytes: &[u8]) -> String {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    // Digits, the lowest first.
    let mut digits: Vec<u8> = Vec::new();
    for byte in &bytes[zeros..] {
        let mut carry = u32::from(*byte);
        for digit in &mut digits {
            carry += u32::from(*digit) << 8;
            *digit = (carry % 58) as u8;
            carry /= 58;
        }
        while carry > 0 {
            digits.push((carry % 58) as u8);
            carry /= 58;
        }
    }
    let zeros = std::iter::repeat_n('1', zeros);
    zeros.chain(digits.iter().rev().map(|digit| char::from(BASE58[usize::from(*digit)]))).collect()
}

/// The inverse of [`base58`]; at most 128 bytes of text.
pub(crate) fn base58_decode(text: &str) -> Option<Vec<u8>> {
    if text.len() > MAX_BASE58 {
        return None;
    }
    let zeros = text.bytes().take_while(|byte| *byte == b'1').count();
    // Bytes, the lowest first.
    let mut bytes: Vec<u8> = Vec::new();
    for byte in text.bytes().skip(zeros) {
        let mut carry = u32::try_from(BASE58.iter().position(|known| *known == byte)?).ok()?;
        for byte in &mut bytes {
            carry += u32::from(*byte) * 58;
            *byte = (carry & 0xff) as u8;
            carry >>= 8;
        }
        while carry > 0 {
            bytes.push((carry & 0xff) as u8);
            carry >>= 8;
        }
    }
    bytes.extend(std::iter::repeat_n(0, zeros));
    bytes.reverse();
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_examples_of_the_standards_come_out() {
        for (bytes, text) in
            [("", ""), ("f", "my"), ("fo", "mzxq"), ("foo", "mzxw6"), ("foobar", "mzxw6ytboi")]
        {
            assert_eq!(base32(bytes.as_bytes()), text);
            assert_eq!(base32_decode(text).as_deref(), Some(bytes.as_bytes()));
        }
        assert_eq!(base58(b"Hello World!"), "2NEpo7TZRRrLZSi2U");
        assert_eq!(base58(&[0, 0, 0x28, 0x7f, 0xb4, 0xcd]), "11233QC4");
    }

    #[test]
    fn a_second_text_for_the_same_bytes_is_refused() {
        for text in ["mz", "m", "mzxw6a", "MY", "my======", "m1"] {
            assert_eq!(base32_decode(text), None, "{text}");
        }
        for text in ["0", "O", "l", "I", " ", &"z".repeat(129)] {
            assert_eq!(base58_decode(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn bytes_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert_eq!(base32_decode(&base32(&bytes)), Some(bytes.clone()));
            prop_assert_eq!(base58_decode(&base58(&bytes)), Some(bytes));
        }
    }
}
