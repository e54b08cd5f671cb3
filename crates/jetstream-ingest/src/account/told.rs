//! What is archived although no relay sent it, because the event that said so was dropped or never came: bodies that are
//! made up, and have the number 0.
//!
//! Of an account that an `#account` was dropped of, its server is asked how it is hosted. Of one that an `#identity` was
//! dropped of, nothing but that it may have changed is known, which is what such an event says.

use alluvium_atproto::cbor::{Map, Value, encode};
use alluvium_jss::Kind;
use bytes::Bytes;
use jiff::Timestamp;

use super::{Account, Context, Note, Step};
use crate::convert::marker_row;
use crate::state::{Asks, Change, Hosting};

/// The longest status that is believed, in bytes; those of the network are single words.
const STATUS_BYTES_MAX: usize = 64;

/// How a server says that an account is hosted (`com.atproto.sync.getRepoStatus`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostingStatus {
    /// Whether the repository can be had.
    pub active: bool,
    /// Why not; empty if nothing is said.
    pub status: String,
}

impl HostingStatus {
    /// Reads the answer of a server about `did`; nothing if it is none.
    pub fn read(json: &[u8], did: &str) -> Option<Self> {
        let json: serde_json::Value = serde_json::from_slice(json).ok()?;
        if json.get("did")?.as_str()? != did {
            return None;
        }
        let active = json.get("active")?.as_bool()?;
        let status = json.get("status").and_then(serde_json::Value::as_str).unwrap_or_default();
        let status = if active { "" } else { status };
        (status.len() <= STATUS_BYTES_MAX).then(|| Self { active, status: status.to_owned() })
    }
}

/// What was found out of an account.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Told {
    /// How it is hosted, if that was asked and answered.
    pub hosting: Option<HostingStatus>,
    /// Whether key and server were asked for anew, and answered.
    pub identity: bool,
}

impl Account {
    /// Notes what is to be found out beside the repository, soon.
    pub(super) fn ask(&mut self, asks: Asks, context: &Context<'_>, step: &mut Step) {
        let Some(waiting) = &mut self.waiting else { return };
        let all = waiting.repair.asks.and(asks);
        if all == waiting.repair.asks {
            return;
        }
        waiting.repair.asks = all;
        self.reschedule(context.now_ms(), step);
    }

    /// An event said what was to be found out. Its repair remains, for what else was dropped.
    pub(super) fn answered(&mut self, answered: Asks, step: &mut Step) {
        let Some(waiting) = &mut self.waiting else { return };
        let asks = &mut waiting.repair.asks;
        let left = Asks {
            account: asks.account && !answered.account,
            identity: asks.identity && !answered.identity,
        };
        if left != *asks {
            *asks = left;
            step.changes.push(Change::Repair(self.did.clone(), Some(waiting.repair.clone())));
        }
    }

    /// The repository is as it should be. If something else is not known yet it is asked for again; else this says how the
    /// repair has ended.
    pub(super) fn asked(&mut self, context: &Context<'_>, step: &mut Step) -> Option<Note> {
        let retry = &context.rules.retry;
        let waiting = self.waiting.as_mut().filter(|waiting| waiting.repair.asks.any());
        let Some(waiting) = waiting else { return Some(Note::Repaired) };
        waiting.repair.attempts = waiting.repair.attempts.saturating_add(1);
        let attempts = waiting.repair.attempts;
        if attempts >= retry.gone_attempts {
            return Some(Note::GivenUp);
        }
        let wait = retry.wait_ms(attempts, context.random);
        self.reschedule(context.now_ms().saturating_add(wait), step);
        None
    }

    /// What was asked for was found out. What an event has said meanwhile stands.
    pub fn told(&mut self, told: &Told, context: &Context<'_>) -> Step {
        let mut step = Step::default();
        let Some(waiting) = &self.waiting else { return step };
        let asks = waiting.repair.asks;
        let mut answered = Asks::default();
        if asks.identity && told.identity {
            answered.identity = true;
            let body = marker_body(&self.did, context.now_us, &[]);
            step.gated(marker_row(Kind::Identity, &self.did, "", &body));
        }
        if let Some(hosting) = told.hosting.as_ref().filter(|_| asks.account) {
            answered.account = true;
            self.hosted(hosting, context, &mut step);
        }
        self.answered(answered, &mut step);
        step
    }

    /// Archives how the account is hosted, if that is not known already.
    fn hosted(&mut self, told: &HostingStatus, context: &Context<'_>, step: &mut Step) {
        let known = self.hosting.as_ref().map_or((true, ""), |known| (known.active, known.status.as_str()));
        if known == (told.active, told.status.as_str()) {
            return;
        }
        let mut more = vec![("active", Value::Bool(told.active))];
        more.extend((!told.status.is_empty()).then(|| ("status", Value::from(told.status.as_str()))));
        let body = marker_body(&self.did, context.now_us, &more);
        if !step.gated(marker_row(Kind::Account, &self.did, "", &body)) {
            return;
        }
        let hosting = Hosting {
            active: told.active,
            status: told.status.clone(),
            // The relay's next event is newer than this, whatever its number.
            seq: self.hosting.as_ref().map_or(0, |known| known.seq),
            time: time(context.now_us),
        };
        self.set_hosting(hosting, context, step);
    }
}

/// A time as events have it.
fn time(micros: u64) -> String {
    let time = i64::try_from(micros).ok().and_then(|micros| Timestamp::from_microsecond(micros).ok());
    time.map(|time| format!("{time:.3}")).unwrap_or_default()
}

/// The body of an event about an account, as of now.
fn marker_body(did: &str, now_us: u64, more: &[(&str, Value)]) -> Bytes {
    let mut body = Map::new();
    body.insert("did", Value::from(did));
    body.insert("seq", Value::Integer(0));
    body.insert("time", Value::from(time(now_us).as_str()));
    for (key, value) in more {
        body.insert(key, value.clone());
    }
    encode(&Value::Map(body)).into()
}

/// The body of a `#sync` of this account and revision, without time and blocks.
pub(super) fn sync_body(did: &str, rev: &str) -> Bytes {
    let mut body = Map::new();
    body.insert("did", Value::from(did));
    body.insert("rev", Value::from(rev));
    body.insert("seq", Value::Integer(0));
    body.insert("time", Value::from(""));
    body.insert("blocks", Value::Bytes(Vec::new()));
    encode(&Value::Map(body)).into()
}
