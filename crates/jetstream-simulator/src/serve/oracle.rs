//! What no network has: arming faults, making things happen, and looking behind the scenes. Only on the relay's listener.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use alluvium_http::{BodyBudget, CollectLimits, Request, collect};
use bytes::Bytes;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::State;
use super::answer::Answer;
use super::query::get;
use crate::fault::Fault;
use crate::world::Act;

/// The path before everything here.
pub(super) const MOUNT: &str = "/_oracle/";
/// The longest body, in bytes.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes of bodies that are held at once.
static BODIES: BodyBudget = BodyBudget::new(4 * BODY_BYTES_MAX);

/// A fault to arm.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arm {
    fault: Fault,
    #[serde(default = "once")]
    count: u32,
}

const fn once() -> u32 {
    1
}

/// A rate to set.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rate {
    rate: u32,
}

pub(super) async fn handle(state: &Arc<State>, request: Request) -> Answer {
    answer(state, request).await.unwrap_or_else(|refused| refused)
}

async fn answer(state: &Arc<State>, request: Request) -> Result<Answer, Answer> {
    let path = request.uri().path().strip_prefix(MOUNT).unwrap_or_default().to_owned();
    let query = request.uri().query().map(str::to_owned);
    if *request.method() == Method::GET {
        return look(state, &path, query.as_deref());
    }
    if *request.method() != Method::POST {
        return Err(Answer::error(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "GET or POST"));
    }
    let limits = CollectLimits {
        bytes_max: BODY_BYTES_MAX,
        timeout: Duration::from_secs(30),
        discard_refused: false,
        budget: &BODIES,
    };
    let body = collect(request.into_body(), limits).await.map_err(|error| Answer::bad(&error.to_string()))?;
    match path.as_str() {
        "act" => {
            let (state, act) = (Arc::clone(state), read::<Act>(&body)?);
            // Signing takes a while, and this thread has connections to serve.
            let done = tokio::task::spawn_blocking(move || state.act(act)).await;
            let emitted = done
                .map_err(|error| Answer::bad(&error.to_string()))?
                .map_err(|error| Answer::bad(&error.to_string()))?;
            let seqs: Vec<u64> = emitted.iter().map(|emitted| emitted.seq).collect();
            Ok(Answer::json(&json!({"seqs": seqs})))
        }
        "faults" => {
            let Arm { fault, count } = read(&body)?;
            let id = state.arm(fault, count).map_err(|error| Answer::bad(&error.to_string()))?;
            Ok(Answer::json(&json!({"id": id})))
        }
        "rate" => {
            state.rate.store(read::<Rate>(&body)?.rate, Ordering::Relaxed);
            Ok(Answer::json(&json!({})))
        }
        _ => Err(Answer::nothing_here()),
    }
}

fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Answer> {
    serde_json::from_slice(body).map_err(|error| Answer::bad(&error.to_string()))
}

fn look(state: &State, path: &str, query: Option<&str>) -> Result<Answer, Answer> {
    match path {
        "firehose-tip" => Ok(Answer::json(&json!({"seq": state.world.lock().tip()}))),
        "faults" => {
            let faults = serde_json::to_value(state.faults.lock().all());
            Ok(Answer::json(&json!({"faults": faults.unwrap_or(Value::Null)})))
        }
        "ledger" => {
            let world = state.world.lock();
            let lies = world.ledger().iter().map(|lie| {
                let (path, reason) = lie.operation.clone().unzip();
                json!({"seq": lie.seq, "did": lie.did, "flaw": lie.flaw, "path": path, "reason": reason})
            });
            Ok(Answer::json(&json!({"lies": lies.collect::<Vec<_>>()})))
        }
        "account" => account(state, query),
        "records" => records(state, query),
        _ => Err(Answer::nothing_here()),
    }
}

/// An account by its number or DID.
fn account(state: &State, query: Option<&str>) -> Result<Answer, Answer> {
    let world = state.world.lock();
    let account = match get(query, "did") {
        Some(did) => world.find(&did),
        None => get(query, "index")
            .and_then(|index| index.parse().ok())
            .and_then(|index| world.account(index).ok()),
    };
    let account = account.ok_or_else(Answer::nothing_here)?;
    let repo = world.repo(account);
    let served = state.served.lock().get(account.did().as_str()).copied().unwrap_or(0);
    Ok(Answer::json(&json!({
        "index": account.index(),
        "did": account.did().as_str(),
        "handle": account.handle(),
        "host": account.host(),
        "status": account.status(),
        "rev": repo.rev().to_string(),
        "head": repo.head().to_string(),
        "data": repo.data().to_string(),
        "records": repo.records().len(),
        "served": served,
    })))
}

/// The records of an account that an archive may hold.
fn records(state: &State, query: Option<&str>) -> Result<Answer, Answer> {
    let did = get(query, "did").ok_or_else(|| Answer::bad("`did` is missing"))?;
    let world = state.world.lock();
    let account = world.find(&did).ok_or_else(Answer::nothing_here)?;
    let records: BTreeMap<String, String> =
        world.truth(account).into_iter().map(|(path, cid)| (path, cid.to_string())).collect();
    Ok(Answer::json(&json!({"records": records})))
}
