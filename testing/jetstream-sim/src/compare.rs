//! Rows of an archive against what the model says of the frames that they come from.

use std::collections::{BTreeMap, BTreeSet};

use alluvium_atproto::{Cid, cbor};
use alluvium_jetstream_simulator::{Action, Fold, Outcome, Row as Told, Status};
use alluvium_jss::{Event as Row, Kind};
use anyhow::{Context as _, Result, bail, ensure};

/// What a row tells, as the model tells it.
pub fn as_told(row: &Row) -> Result<Told> {
    let text = |name: &str| -> Result<Option<String>> {
        let body = cbor::decode(&row.payload)?;
        let body = body.as_map().context("a body that is no map")?;
        Ok(body.get(name).and_then(cbor::Value::as_text).map(str::to_owned))
    };
    let record = |action| Told::Record {
        action,
        collection: row.collection.clone(),
        rkey: row.rkey.clone(),
        rev: row.rev.clone(),
        cid: row.cid(),
        block: row.cid().map(|_| row.payload.clone()),
    };
    Ok(match row.kind {
        Kind::Create => record(Action::Create),
        Kind::Update => record(Action::Update),
        Kind::Delete => record(Action::Delete),
        Kind::Identity => Told::Identity { handle: text("handle")? },
        Kind::Account => {
            let status = text("status")?;
            let all =
                [Status::Active, Status::Deactivated, Status::Suspended, Status::Takendown, Status::Deleted];
            let status = all.into_iter().find(|known| known.name() == status.as_deref());
            Told::Account { status: status.context("a status that nobody has")? }
        }
        other => bail!("{other} is nothing that a frame tells"),
    })
}

/// The rows of each account that was never fetched are those that its frames told, in order: none lost, none doubled,
/// none invented. Returns how many were compared.
pub fn log(
    rows: Vec<Row>,
    told: &BTreeMap<String, Vec<Outcome>>,
    repaired: &BTreeSet<&str>,
) -> Result<usize> {
    let mut by_did: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for row in rows {
        by_did.entry(row.did.clone()).or_default().push(row);
    }
    let mut compared = 0;
    for (did, outcomes) in told.iter().filter(|(did, _)| !repaired.contains(did.as_str())) {
        let rows = outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::Rows(rows) => Some(rows.clone()),
            _ => None,
        });
        let expected: Vec<Told> = rows.flatten().collect();
        let seen: Vec<Told> = by_did.get(did).into_iter().flatten().map(as_told).collect::<Result<_>>()?;
        ensure!(seen == expected, "{did}: {seen:?}\ninstead of {expected:?}");
        compared += expected.len();
    }
    Ok(compared)
}

/// What a reader holds against what it must.
pub fn fold(folded: &Fold, expected: &Fold) -> Result<()> {
    let none: BTreeMap<String, Cid> = BTreeMap::new();
    for (did, expected) in expected {
        let held = folded.get(did).unwrap_or(&none);
        let missing: Vec<_> = expected.iter().filter(|(path, cid)| held.get(*path) != Some(cid)).collect();
        let extra: Vec<_> = held.iter().filter(|(path, cid)| expected.get(*path) != Some(cid)).collect();
        ensure!(missing.is_empty() && extra.is_empty(), "{did} lacks {missing:?} and has {extra:?}");
    }
    Ok(())
}
