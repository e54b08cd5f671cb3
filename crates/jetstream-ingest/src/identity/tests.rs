//! What is remembered of identities, and for how long.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::*;
use crate::account::HostingStatus;
use crate::budget::Permit;
use crate::fixtures::Author;
use crate::network::FetchError;
use crate::sink::SinkError;

#[derive(Debug, Default)]
struct Time(AtomicU64);

impl Clock for Time {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
struct Documents(Mutex<BTreeMap<String, Result<Vec<u8>, LookupError>>>);

impl Network for Documents {
    fn document(&self, did: &Did) -> Result<Vec<u8>, LookupError> {
        self.0.lock().get(did.as_str()).cloned().unwrap_or(Err(LookupError::Gone))
    }

    fn repo(&self, _server: &str, _did: &Did, _permit: &mut Permit) -> Result<Bytes, FetchError> {
        Err(FetchError::NoRoom)
    }

    fn status(&self, _server: Option<&str>, _did: &Did) -> Result<HostingStatus, FetchError> {
        Err(FetchError::NoRoom)
    }
}

#[derive(Default)]
struct Values(Mutex<BTreeMap<String, Vec<u8>>>);

impl Store for Values {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, SinkError> {
        Ok(self.0.lock().get(key).cloned())
    }

    fn scan(&self, _: &str, _: &mut dyn FnMut(&str, &[u8]) -> bool) -> Result<(), SinkError> {
        Ok(())
    }
}

struct Setting {
    network: Arc<Documents>,
    store: Arc<Values>,
    time: Arc<Time>,
    counters: Arc<Counters>,
    identities: Identities,
}

impl Setting {
    fn new() -> Self {
        let (network, store, time) =
            (Arc::new(Documents::default()), Arc::new(Values::default()), Arc::new(Time(1_000_000.into())));
        let counters = Arc::new(Counters::default());
        let identities = Identities::new(network.clone(), store.clone(), time.clone(), counters.clone(), 100);
        Self { network, store, time, counters, identities }
    }

    fn restarted(self) -> Self {
        for change in self.identities.take_changes() {
            match change.value() {
                Some(value) => self.store.0.lock().insert(change.key(), value),
                None => self.store.0.lock().remove(&change.key()),
            };
        }
        let identities = Identities::new(
            self.network.clone(),
            self.store.clone(),
            self.time.clone(),
            self.counters.clone(),
            100,
        );
        Self { identities, ..self }
    }

    fn answer(&self, author: &Author) {
        let document = serde_json::json!({
            "id": author.did.as_str(),
            "verificationMethod": [{
                "id": "#atproto", "type": "Multikey", "publicKeyMultibase": author.key.public_key().to_multibase(),
            }],
            "service": [{
                "id": "#atproto_pds", "type": "AtprotoPersonalDataServer", "serviceEndpoint": "https://pds.test",
            }],
        });
        self.network.0.lock().insert(author.did.to_string(), Ok(document.to_string().into_bytes()));
    }

    fn later(&self, ms: u64) {
        self.time.0.fetch_add(ms, Ordering::Relaxed);
    }

    fn asked(&self) -> u64 {
        self.counters.get(Counter::Lookups)
    }
}

#[test]
fn an_answer_is_remembered_for_a_day_over_a_restart() {
    let (alice, setting) = (Author::new("alice"), Setting::new());
    setting.answer(&alice);
    let found = setting.identities.find(&alice.did, false).expect("an identity");
    assert_eq!((found.key, found.server.as_deref()), (alice.key.public_key(), Some("https://pds.test")));
    let setting = setting.restarted();
    setting.later(TTL_MS - 1);
    assert!(setting.identities.find(&alice.did, false).is_ok());
    assert_eq!(setting.asked(), 1);
    setting.later(1);
    assert!(setting.identities.find(&alice.did, false).is_ok());
    assert_eq!(setting.asked(), 2);
}

#[test]
fn a_rotated_key_is_found_when_asked_again_but_not_at_every_wrong_signature() {
    let (mut alice, setting) = (Author::new("alice"), Setting::new());
    setting.answer(&alice);
    assert!(setting.identities.key(&alice.did, false).is_ok());
    alice.key = Author::new("other").key;
    setting.answer(&alice);
    for _ in 0..100 {
        assert_ne!(setting.identities.key(&alice.did, true), Ok(alice.key.public_key()));
    }
    setting.later(FRESH_MS);
    for _ in 0..100 {
        assert_eq!(setting.identities.key(&alice.did, true), Ok(alice.key.public_key()));
    }
    assert_eq!(setting.asked(), 2);
    alice.key = Author::new("third").key;
    setting.answer(&alice);
    setting.identities.forget(alice.did.as_str());
    assert_eq!(setting.identities.key(&alice.did, false), Ok(alice.key.public_key()), "an event tells");
}

#[test]
fn no_answer_is_remembered_for_moments_only() {
    let (alice, setting) = (Author::new("alice"), Setting::new());
    for error in [LookupError::Failed, LookupError::Gone] {
        setting.network.0.lock().insert(alice.did.to_string(), Err(error));
        setting.later(FAILED_MS);
        for _ in 0..10 {
            assert_eq!(setting.identities.find(&alice.did, false).err(), Some(error));
        }
    }
    assert_eq!(setting.asked(), 2);
    setting.answer(&alice);
    setting.later(FAILED_MS);
    assert!(setting.identities.find(&alice.did, false).is_ok());
}

#[test]
fn a_document_without_a_key_or_of_another_is_unusable() {
    let (alice, setting) = (Author::new("alice"), Setting::new());
    let id = format!("{{\"id\":\"{}\"}}", alice.did);
    for document in ["{}", "no JSON", &id, "{\"id\":\"did:plc:bob\"}"] {
        setting.network.0.lock().insert(alice.did.to_string(), Ok(document.as_bytes().to_vec()));
        setting.later(FAILED_MS);
        assert_eq!(setting.identities.find(&alice.did, false).err(), Some(LookupError::Unusable));
    }
}

#[test]
fn a_stored_value_that_is_damaged_or_too_far_ahead_is_asked_for_again() {
    let alice = Author::new("alice");
    let identity = Identity { key: alice.key.public_key(), server: None };
    let good = identity.encode(1_000_001);
    assert_eq!(Identity::decode(&good), Some((1_000_001, identity.clone())));
    for (value, asked) in [
        (good, 0),
        (identity.encode(1_000_000), 1),
        (identity.encode(1_000_001 + TTL_MS), 1),
        (b"short".to_vec(), 1),
        ([&[0xff; 8][..], b"{}"].concat(), 1),
    ] {
        let setting = Setting::new();
        setting.answer(&alice);
        setting.store.0.lock().insert(format!("sync/identity/{}", alice.did), value);
        assert!(setting.identities.find(&alice.did, false).is_ok());
        assert_eq!(setting.asked(), asked);
    }
}
