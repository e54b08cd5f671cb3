//! The keys that webhooks are signed with, and the tokens of wakes.
//!
//! A key is published some time before it signs, so that receivers that have cached the key set know it by then, and stays
//! published some time after, longer than anyone takes a signature for fresh. Its private half is dropped when the next
//! takes over.

use alluvium_protocol::subscription::signature::{
    REPLAY_WINDOW_MS, header_value, jwk_x, key_id, signed_bytes,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::command::Refusal;

/// How long a key is published before it signs, in milliseconds: twice as long as receivers may cache the set.
pub(crate) const LEAD_MS: u64 = 600_000;
/// How long a key stays published after its last signature, in milliseconds.
pub(crate) const KEPT_MS: u64 = 12 * REPLAY_WINDOW_MS;
/// How long a token is good for, in milliseconds, if its wake is not over before.
const TOKEN_MS: u64 = 24 * 3_600_000;
/// What begins the subject of a token.
const SUBJECT: &str = "subscription:";

/// All keys, as they are written down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Keys {
    /// Signs tokens. Never published.
    token_seed: [u8; 32],
    /// In the order in which they take over.
    keys: Vec<Key>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Key {
    public: [u8; 32],
    /// The private half, until the next key has taken over.
    seed: Option<[u8; 32]>,
    /// When it begins to sign.
    from_ms: u64,
}

/// What a token says.
#[derive(Serialize, Deserialize)]
struct Claims {
    sub: String,
    epoch: u64,
    exp: u64,
}

impl Key {
    fn new(seed: [u8; 32], from_ms: u64) -> Self {
        let public = SigningKey::from_bytes(&seed).verifying_key().to_bytes();
        Self { public, seed: Some(seed), from_ms }
    }
}

impl Keys {
    /// A first key, which signs at once.
    pub(crate) fn first(token_seed: [u8; 32], seed: [u8; 32], now_ms: u64) -> Self {
        Self { token_seed, keys: vec![Key::new(seed, now_ms)] }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Which key signs now: the last one whose time has come.
    fn active_at(&self, now_ms: u64) -> usize {
        let started = self.keys.iter().rposition(|key| key.from_ms <= now_ms);
        started.unwrap_or_default()
    }

    /// When [`rotated`](Self::rotated) has something to do.
    pub(crate) fn due_ms(&self, now_ms: u64, rotation_ms: u64) -> u64 {
        let active = self.active_at(now_ms);
        let next = match self.keys.get(active + 1) {
            Some(next) => next.from_ms,
            None => self.keys[active].from_ms.saturating_add(rotation_ms.saturating_sub(LEAD_MS)),
        };
        // Those before the active one are dropped once nobody takes their signatures any more.
        let drop_ms = (0..active).map(|at| self.keys[at + 1].from_ms.saturating_add(KEPT_MS)).min();
        // And lose their private half as soon as they sign no more.
        let retire = self.keys[..active].iter().any(|key| key.seed.is_some()).then_some(0);
        next.min(drop_ms.unwrap_or(u64::MAX)).min(retire.unwrap_or(u64::MAX))
    }

    /// The keys after what is due: retired, dropped, or with one more, made from `seed`.
    pub(crate) fn rotated(&self, now_ms: u64, rotation_ms: u64, seed: [u8; 32]) -> Self {
        let mut rotated = self.clone();
        let active = rotated.active_at(now_ms);
        rotated.keys[..active].iter_mut().for_each(|key| key.seed = None);
        let is_last = active + 1 == rotated.keys.len();
        let wanted_ms = rotated.keys[active].from_ms.saturating_add(rotation_ms.saturating_sub(LEAD_MS));
        if is_last && now_ms >= wanted_ms {
            rotated.keys.push(Key::new(seed, now_ms.saturating_add(LEAD_MS)));
        }
        let dropped = (0..active)
            .take_while(|at| now_ms >= rotated.keys[at + 1].from_ms.saturating_add(KEPT_MS))
            .count();
        rotated.keys.drain(..dropped);
        rotated
    }

    /// The name of the key that signs now.
    pub(crate) fn key_id(&self, now_ms: u64) -> String {
        key_id(&self.keys[self.active_at(now_ms)].public)
    }

    /// The value of a webhook's signature header.
    pub(crate) fn sign(&self, now_ms: u64, body: &[u8]) -> Option<String> {
        let key = &self.keys[self.active_at(now_ms)];
        let time_s = now_ms / 1000;
        let signature = SigningKey::from_bytes(&key.seed?).sign(&signed_bytes(time_s, body));
        Some(header_value(time_s, &key_id(&key.public), &signature.to_bytes()))
    }

    /// The key set, as receivers read it.
    pub(crate) fn jwks(&self) -> Vec<u8> {
        let jwk = |key: &Key| {
            json!({
                "kty": "OKP", "crv": "Ed25519", "kid": key_id(&key.public), "use": "sig", "alg": "EdDSA",
                "x": jwk_x(&key.public),
            })
        };
        let keys: Vec<_> = self.keys.iter().map(jwk).collect();
        json!({ "keys": keys }).to_string().into_bytes()
    }

    /// The token of a wake.
    pub(crate) fn token(&self, id: &str, generation: u64, now_ms: u64) -> String {
        let exp = now_ms.saturating_add(TOKEN_MS) / 1000;
        let claims = Claims { sub: format!("{SUBJECT}{id}"), epoch: generation, exp };
        let claims = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&claims).unwrap_or_default());
        let signature = SigningKey::from_bytes(&self.token_seed).sign(claims.as_bytes());
        format!("{claims}.{}", URL_SAFE_NO_PAD.encode(signature.to_bytes()))
    }

    /// The generation that a token of this subscription was given for.
    pub(crate) fn check_token(&self, token: &str, id: &str, now_ms: u64) -> Result<u64, Refusal> {
        let (claims, signature) = token.split_once('.').ok_or(Refusal::TokenInvalid)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| Refusal::TokenInvalid)?;
        let signature = Signature::from_slice(&signature).map_err(|_| Refusal::TokenInvalid)?;
        let key: VerifyingKey = SigningKey::from_bytes(&self.token_seed).verifying_key();
        key.verify_strict(claims.as_bytes(), &signature).map_err(|_| Refusal::TokenInvalid)?;
        let claims = URL_SAFE_NO_PAD.decode(claims).map_err(|_| Refusal::TokenInvalid)?;
        let claims: Claims = serde_json::from_slice(&claims).map_err(|_| Refusal::TokenInvalid)?;
        if claims.sub.strip_prefix(SUBJECT) != Some(id) {
            return Err(Refusal::TokenInvalid);
        }
        if now_ms / 1000 > claims.exp { Err(Refusal::TokenExpired) } else { Ok(claims.epoch) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400_000;

    fn kids(keys: &Keys) -> Vec<String> {
        keys.keys.iter().map(|key| key_id(&key.public)).collect()
    }

    #[test]
    fn a_key_is_published_before_it_signs_and_after_it_has_signed() {
        let mut keys = Keys::first([1; 32], [2; 32], DAY);
        let first = keys.key_id(DAY);
        assert_eq!(keys.due_ms(DAY, DAY), 2 * DAY - LEAD_MS);
        assert_eq!(keys.rotated(2 * DAY - LEAD_MS - 1, DAY, [3; 32]), keys, "nothing is due before its time");

        keys = keys.rotated(2 * DAY - LEAD_MS, DAY, [3; 32]);
        let second = kids(&keys)[1].clone();
        assert_eq!(kids(&keys), [first.clone(), second.clone()], "both are published");
        assert_eq!(keys.key_id(2 * DAY - 1), first);
        assert_eq!(keys.due_ms(2 * DAY - LEAD_MS, DAY), 2 * DAY);

        assert_eq!(keys.key_id(2 * DAY), second, "the new one signs");
        assert_eq!(keys.due_ms(2 * DAY, DAY), 0);
        keys = keys.rotated(2 * DAY, DAY, [4; 32]);
        assert_eq!(kids(&keys), [first, second.clone()], "and the old one can still be looked up");
        assert_eq!(keys.keys[0].seed, None, "but not sign");
        assert_eq!(keys.due_ms(2 * DAY, DAY), 2 * DAY + KEPT_MS);

        keys = keys.rotated(2 * DAY + KEPT_MS, DAY, [4; 32]);
        assert_eq!(kids(&keys), [second]);
    }

    #[test]
    fn at_all_times_there_is_one_key_that_signs_and_the_set_knows_it() {
        let mut keys = Keys::first([1; 32], [0; 32], 0);
        let (mut now, mut used) = (0, std::collections::BTreeSet::new());
        for step in 1..200_u8 {
            now += u64::from(step) * 97_000;
            if now >= keys.due_ms(now, 3_600_000) {
                keys = keys.rotated(now, 3_600_000, [step; 32]);
            }
            let header = keys.sign(now, b"{}").expect("a key that signs");
            let kid = keys.key_id(now);
            assert!(header.contains(&kid) && kids(&keys).contains(&kid));
            assert!(keys.keys.len() <= 4, "{}", keys.keys.len());
            used.insert(kid);
        }
        assert!(used.len() > 50, "{}", used.len());
    }

    #[test]
    fn a_token_is_good_for_its_subscription_and_time_alone() {
        let keys = Keys::first([1; 32], [2; 32], 0);
        let token = keys.token("a", 7, 0);
        assert_eq!(keys.check_token(&token, "a", 0), Ok(7));
        assert_eq!(keys.check_token(&token, "b", 0), Err(Refusal::TokenInvalid));
        assert_eq!(keys.check_token(&token, "a", TOKEN_MS + 1_000), Err(Refusal::TokenExpired));
        let other = Keys::first([3; 32], [2; 32], 0);
        assert_eq!(other.check_token(&token, "a", 0), Err(Refusal::TokenInvalid));
        for at in 0..token.len() {
            let mut broken = token.clone().into_bytes();
            broken[at] = if broken[at] == b'A' { b'B' } else { b'A' };
            let broken = String::from_utf8(broken).expect("ASCII");
            if broken != token {
                assert_eq!(keys.check_token(&broken, "a", 0), Err(Refusal::TokenInvalid), "{at}");
            }
        }
        for none in ["", ".", "a.b", "a", &token[..token.len() - 1]] {
            assert_eq!(keys.check_token(none, "a", 0), Err(Refusal::TokenInvalid));
        }
    }
}
