//! Repositories over HTTP, as hosts and the relay serve them.

use http::StatusCode;
use serde_json::json;

use super::answer::Answer;
use super::query::get;
use super::{Role, State};
use crate::fault::Fault;
use crate::world::{Account, World};

/// The most entries of a page.
const PAGE_MAX: usize = 1000;
/// Entries of a page if nothing is said.
const PAGE: usize = 500;

/// The account that a request is about, if it lives where the request came.
fn account<'a>(world: &'a World, role: Role, query: Option<&str>) -> Result<&'a Account, Answer> {
    let did = get(query, "did").ok_or_else(|| Answer::bad("`did` is missing"))?;
    let found = world.find(&did).filter(|account| match role {
        Role::Pds(host) => account.host() == host,
        Role::Relay => true,
    });
    found.ok_or_else(|| {
        Answer::error(StatusCode::NOT_FOUND, "RepoNotFound", &format!("could not find repo for DID: {did}"))
    })
}

fn unavailable(account: &Account) -> Result<(), Answer> {
    account.status().refusal().map_or(Ok(()), |name| {
        let message = format!("the repository is not available: {}", account.did());
        Err(Answer::error(StatusCode::BAD_REQUEST, name, &message))
    })
}

/// `com.atproto.sync.getRepo`.
pub(super) fn get_repo(state: &State, role: Role, query: Option<&str>) -> Result<Answer, Answer> {
    let did = get(query, "did").unwrap_or_default();
    let is_of = |fault: &Fault| match fault {
        Fault::GetRepoStatus { did: of, .. }
        | Fault::GetRepoResponse { did: of, .. }
        | Fault::GetRepoCut { did: of }
        | Fault::GetRepoNotFound { did: of }
        | Fault::GetRepoOld { did: of } => *of == did,
        _ => false,
    };
    let world = state.world.lock();
    let found = account(&world, role, query)?;
    let fault = state.faults.lock().take(is_of).map(|armed| (armed.fault.clone(), armed.payload.clone()));
    match fault {
        Some((Fault::GetRepoStatus { status, .. }, _)) => return Err(Answer::fault(status)),
        Some((Fault::GetRepoResponse { status, headers, body, .. }, _)) => {
            let answer = Answer::new(
                StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
                "application/octet-stream",
                body,
            );
            return Ok(headers.iter().fold(answer, |answer, (name, value)| answer.with(name, value)));
        }
        Some((Fault::GetRepoNotFound { .. }, _)) => {
            return Err(Answer::error(StatusCode::BAD_REQUEST, "RepoNotFound", "not here yet"));
        }
        Some((Fault::GetRepoOld { .. }, file)) => return Ok(Answer::car(file)),
        Some((Fault::GetRepoCut { .. }, _)) => {
            let mut file = world.repo(found).car();
            file.truncate(file.len() / 2);
            return Ok(Answer::car(file));
        }
        _ => {}
    }
    unavailable(found)?;
    let file = world.repo(found).car();
    drop(world);
    *state.served.lock().entry(did).or_default() += 1;
    Ok(Answer::car(file))
}

/// `com.atproto.sync.getLatestCommit`.
pub(super) fn latest_commit(state: &State, role: Role, query: Option<&str>) -> Result<Answer, Answer> {
    let world = state.world.lock();
    let account = account(&world, role, query)?;
    unavailable(account)?;
    let repo = world.repo(account);
    Ok(Answer::json(&json!({"cid": repo.head().to_string(), "rev": repo.rev().to_string()})))
}

/// `com.atproto.sync.getRepoStatus`.
pub(super) fn repo_status(state: &State, role: Role, query: Option<&str>) -> Result<Answer, Answer> {
    let world = state.world.lock();
    let account = account(&world, role, query)?;
    let mut body = json!({"did": account.did().as_str(), "active": account.status().is_active()});
    match account.status().name() {
        Some(name) => body["status"] = name.into(),
        None => body["rev"] = world.repo(account).rev().to_string().into(),
    }
    Ok(Answer::json(&body))
}

/// `com.atproto.sync.listRepos`. A cursor is the number of the first account of the next page.
pub(super) fn list_repos(state: &State, role: Role, query: Option<&str>) -> Result<Answer, Answer> {
    let cursor = get(query, "cursor").filter(|cursor| !cursor.is_empty());
    let limit = match get(query, "limit").map(|limit| limit.parse::<usize>()) {
        None => PAGE,
        Some(Ok(limit @ 1..=PAGE_MAX)) => limit,
        Some(_) => return Err(Answer::bad("`limit` must be 1 to 1000")),
    };
    let mut start = match cursor.as_deref().map(str::parse::<usize>) {
        None => 0,
        Some(Ok(start)) => start,
        Some(Err(_)) => return Err(Answer::bad("`cursor` is not one of this server")),
    };
    let host_of_role = if let Role::Pds(host) = role { Some(host) } else { None };
    let is_of = |fault: &Fault| match fault {
        Fault::ListReposStatus { host, cursor: at, .. } => {
            *host == host_of_role && (at.is_none() || *at == cursor)
        }
        Fault::ListReposRepeat { host } => *host == host_of_role && start > 0,
        Fault::ListReposLoop { host } => *host == host_of_role && cursor.is_some(),
        Fault::ListReposShort { host } => *host == host_of_role,
        _ => false,
    };
    let fault = state.faults.lock().take(is_of).map(|armed| armed.fault.clone());
    if let Some(Fault::ListReposStatus { status, .. }) = fault {
        return Err(Answer::fault(status));
    }
    let world = state.world.lock();
    let is_listed = |account: &&Account| match role {
        Role::Pds(host) => account.host() == host && !account.is_hidden(),
        Role::Relay => account.is_known_to_relay(),
    };
    let mut entries = limit;
    if matches!(fault, Some(Fault::ListReposRepeat { .. })) {
        let before = world.accounts().get(..start).unwrap_or_default().iter().rev();
        start = before.filter(is_listed).take(limit).last().map_or(0, |account| account.index() as usize);
    }
    if matches!(fault, Some(Fault::ListReposShort { .. })) {
        entries = entries.div_ceil(2);
    }
    let mut rest = world.accounts().get(start..).unwrap_or_default().iter().filter(is_listed);
    let page: Vec<_> = rest.by_ref().take(entries).map(|account| entry(&world, account)).collect();
    let mut body = json!({"repos": page});
    if matches!(fault, Some(Fault::ListReposLoop { .. })) {
        body["cursor"] = cursor.into();
    } else if let Some(next) = rest.next() {
        body["cursor"] = next.index().to_string().into();
    }
    Ok(Answer::json(&body))
}

fn entry(world: &World, account: &Account) -> serde_json::Value {
    let repo = world.repo(account);
    let mut entry = json!({
        "did": account.did().as_str(),
        "head": repo.head().to_string(),
        "rev": repo.rev().to_string(),
        "active": account.status().is_active(),
    });
    if let Some(name) = account.status().name() {
        entry["status"] = name.into();
    }
    entry
}
