//! Fuzz bodies for `alluvium-jetstream-ingest`: what a relay sends and what the store gives back.

use std::sync::atomic::{AtomicUsize, Ordering};

use alluvium_atproto::{Curve, Did, PublicKey, SecretKey};
use alluvium_jetstream_ingest::account::{Account, Context, HostingStatus, Stored};
use alluvium_jetstream_ingest::fetched::Fetched;
use alluvium_jetstream_ingest::frame::{Event, Frame, decode, time_of};
use alluvium_jetstream_ingest::rules::{Keys, LookupError, Rules};
use alluvium_jetstream_ingest::state::{
    Chain, Hosting, Repair, ToldSync, decode_cursor, decode_seq, encode_cursor, encode_seq,
};

/// A fuzz body.
pub type Body = fn(&[u8]);

/// Every body with the name of its target and of its folder of seeds.
pub const BODIES: [(&str, Body); 2] = [("ingest_frame", frame), ("ingest_state", state)];

/// The one account that signs in the seeds.
struct Alice(PublicKey);

impl Keys for Alice {
    fn key(&self, did: &Did, _again: bool) -> Result<PublicKey, LookupError> {
        match did.as_str() {
            "did:plc:alice" => Ok(self.0.clone()),
            "did:plc:slow" => Err(LookupError::Failed),
            _ => Err(LookupError::Gone),
        }
    }
}

/// The input is a message of a relay; what it says of an account is judged twice.
pub fn frame(input: &[u8]) {
    _ = time_of(input);
    _ = HostingStatus::read(input, "did:plc:alice");
    let rules = Rules::default();
    let Ok(Frame::Event(event)) = decode(&input.to_vec().into(), rules.limits.frame_bytes) else {
        return;
    };
    let mut secret = [7; 32];
    secret[..5].copy_from_slice(b"alice");
    let keys = Alice(SecretKey::from_bytes(Curve::K256, &secret).expect("a key").public_key());
    let pending = AtomicUsize::new(0);
    let context = Context {
        now_us: 1_800_000_000_000_000,
        random: 1,
        rules: &rules,
        keys: &keys,
        pending_bytes: &pending,
    };
    if let Event::Sync(sync) = &event
        && let Ok(did) = sync.did.parse()
        && let Ok(fetched) = Fetched::read(sync.blocks.clone(), &did, context.now_us, &rules, &keys)
    {
        assert!(fetched.records.len() <= sync.blocks.len());
    }
    let mut account = Account::new(event.did(), Stored::default());
    let first = account.event(event.clone(), &context);
    assert!(first.rows.iter().all(|row| row.check().is_ok()));
    let again = account.event(event, &context);
    assert!(first.rows.is_empty() || again.rows.is_empty(), "what is archived is known");
    assert_eq!(account.holds_commits(), account.repair().is_some());
    assert!(account.repair().is_some() || pending.load(Ordering::Relaxed) == 0);
}

/// The input is a stored value.
pub fn state(input: &[u8]) {
    if let Ok(chain) = Chain::decode(input) {
        assert_eq!(chain.encode(), input);
    }
    if let Ok(hosting) = Hosting::decode(input) {
        assert_eq!(Hosting::decode(&hosting.encode()).map(|again| again.seq), Ok(hosting.seq));
    }
    if let Ok(repair) = Repair::decode(input) {
        assert_eq!(Repair::decode(&repair.encode()).map(|again| again.due_ms), Ok(repair.due_ms));
    }
    if let Ok(told) = ToldSync::decode(input) {
        assert_eq!(ToldSync::decode(&told.encode()), Ok(told));
    }
    if let Ok(seq) = decode_seq(input) {
        assert_eq!(encode_seq(seq), input);
    }
    if let Ok(cursor) = decode_cursor(input) {
        assert_eq!(encode_cursor(cursor), input);
    }
}
