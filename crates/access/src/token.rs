//! Static tokens, and what is kept of them.
//!
//! A token has 256 random bits, so a plain SHA-256 of it tells nothing to whoever reads the file: there is nothing to
//! guess that a slow hash would make slower.

use std::fmt;
use std::str::FromStr;

use alluvium_env::Random;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

/// What every token made here begins with, so that one that went astray is recognised.
pub(crate) const MARK: &str = "alv_";
/// What stands before the digits of a hash.
const SCHEME: &str = "sha256:";

/// A token as its holder has it.
pub struct Token(String);

impl Token {
    /// A new one.
    pub fn generate(random: &dyn Random) -> Self {
        let mut bits = [0; 32];
        for part in bits.chunks_exact_mut(8) {
            part.copy_from_slice(&random.next_u64().to_be_bytes());
        }
        Self(format!("{MARK}{}", URL_SAFE_NO_PAD.encode(bits)))
    }

    /// The token itself, for whoever is to have it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What is kept of it.
    pub fn hash(&self) -> TokenHash {
        TokenHash::of(&self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// The SHA-256 of a token.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct TokenHash(pub(crate) [u8; 32]);

impl TokenHash {
    /// That of a token.
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }
}

/// Why a text is no hash.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a hash is `{SCHEME}` and 64 hexadecimal digits; `alluvium token` makes one")]
pub struct InvalidHash;

impl FromStr for TokenHash {
    type Err = InvalidHash;

    fn from_str(text: &str) -> Result<Self, InvalidHash> {
        let digits = text.strip_prefix(SCHEME).filter(|digits| digits.len() == 64).ok_or(InvalidHash)?;
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16).ok_or(InvalidHash);
            *byte = u8::try_from(digit(0)? * 16 + digit(1)?).map_err(|_| InvalidHash)?;
        }
        Ok(Self(hash))
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEME)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use alluvium_env::sim::SeededRandom;

    use super::*;

    #[test]
    fn a_token_has_a_mark_256_bits_and_a_hash_that_reads_back() {
        let random = SeededRandom::new(1);
        let (one, other) = (Token::generate(&random), Token::generate(&random));
        assert_ne!(one.reveal(), other.reveal());
        assert_eq!(one.reveal().len(), MARK.len() + 43);
        assert_eq!(one.hash().to_string().parse(), Ok(one.hash()));
        assert!(!format!("{one:?} {:?}", one.hash()).contains(one.reveal()));
        // `printf %s abc | sha256sum`
        let known = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(TokenHash::of("abc").to_string(), known);
    }

    #[test]
    fn what_is_no_hash_is_none() {
        let digits = "a".repeat(64);
        for bad in
            [String::new(), digits.clone(), format!("sha1:{digits}"), format!("sha256:{}", &digits[1..])]
        {
            assert_eq!(bad.parse::<TokenHash>(), Err(InvalidHash), "{bad}");
        }
        assert_eq!(format!("sha256:{}g", &digits[1..]).parse::<TokenHash>(), Err(InvalidHash));
        assert_eq!(format!("sha256:{}é", &digits[2..]).parse::<TokenHash>(), Err(InvalidHash));
    }
}
