//! Who an account is: DID, handle, keys, and the document that says so.

use alluvium_atproto::{Curve, Did, PublicKey, SecretKey};
use serde_json::json;

use crate::config::Config;
use crate::random::{Random, digest};

/// The letters of a `did:plc`.
const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// The domain of everything here that has a name. Nobody can own it.
pub const DOMAIN: &str = "sim.invalid";
/// The name of this machine.
pub(crate) const LOCAL: &str = "localhost";

/// What does not change about an account.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) did: Did,
    pub(crate) curve: Curve,
    /// The host that it begins on.
    pub(crate) host: u32,
}

impl Identity {
    /// The account `index` of a world; `None` never comes, as the text is a DID by its making.
    pub(crate) fn new(config: &Config, index: u32) -> Option<Self> {
        let Config { seed, hosts, p256_percent, web_percent, .. } = *config;
        let mut random = Random::new(seed, "identity", index.into());
        let curve = if random.chance(p256_percent) { Curve::P256 } else { Curve::K256 };
        let is_web = random.chance(web_percent);
        let port = usize::try_from(index).ok().and_then(|index| config.web_ports.get(index));
        let did = if let Some(port) = port {
            local_web(*port)
        } else if is_web {
            format!("did:web:web-{index}.{DOMAIN}")
        } else {
            let letters = digest(seed, "did:plc", index.into());
            let letters = letters[..24].iter().map(|byte| char::from(BASE32[usize::from(byte & 31)]));
            format!("did:plc:{}", letters.collect::<String>())
        };
        let host = random.bits().trailing_zeros().min(hosts - 1);
        Some(Self { did: did.parse().ok()?, curve, host })
    }
}

/// The DID whose document a port of this machine serves.
pub(crate) fn local_web(port: u16) -> String {
    format!("did:web:{LOCAL}%3A{port}")
}

/// The handle of an account, which may have had `changes` others before.
pub(crate) fn handle(index: u32, changes: u32) -> String {
    if changes == 0 { format!("user-{index}.test") } else { format!("user-{index}-{changes}.test") }
}

/// The signing key of an account after `rotations`.
pub(crate) fn signing_key(seed: u64, index: u32, curve: Curve, rotations: u32) -> SecretKey {
    let number = u64::from(rotations) << 32 | u64::from(index);
    // A digest that is no number of the curve comes once in 2³² tries at most.
    let mut purpose = String::from("signing key");
    loop {
        match SecretKey::from_bytes(curve, &digest(seed, &purpose, number)) {
            Ok(key) => return key,
            Err(_) => purpose.push('+'),
        }
    }
}

/// The parts of a DID document.
#[derive(Debug, Clone)]
pub(crate) struct Document<'a> {
    pub(crate) did: &'a str,
    pub(crate) handle: &'a str,
    pub(crate) key: PublicKey,
    /// The address of the PDS, if the document names one.
    pub(crate) endpoint: Option<&'a str>,
}

impl Document<'_> {
    pub(crate) fn to_json(&self) -> String {
        let did = self.did;
        let service = self.endpoint.map(|endpoint| {
            json!({"id": "#atproto_pds", "type": "AtprotoPersonalDataServer", "serviceEndpoint": endpoint})
        });
        json!({
            "@context": [
                "https://www.w3.org/ns/did/v1",
                "https://w3id.org/security/multikey/v1",
                "https://w3id.org/security/suites/secp256k1-2019/v1",
            ],
            "id": did,
            "alsoKnownAs": [format!("at://{}", self.handle)],
            "verificationMethod": [{
                "id": format!("{did}#atproto"),
                "type": "Multikey",
                "controller": did,
                "publicKeyMultibase": self.key.to_multibase(),
            }],
            "service": Vec::from_iter(service),
        })
        .to_string()
    }
}
