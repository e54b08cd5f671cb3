//! DID documents and handles: the directory's, and those that domains serve themselves.

use http::StatusCode;
use serde_json::json;

use super::State;
use super::answer::Answer;
use super::query::get;
use crate::fault::Fault;
use crate::world::{Account, World};

/// What a request for a document comes to.
pub(super) enum Lookup {
    Answer(Answer),
    /// No answer at all.
    Hang,
}

/// `GET /<did>` of the directory, and `GET /.well-known/did.json` of a `did:web`.
pub(super) fn document(state: &State, did: &str) -> Lookup {
    let is_of = |fault: &Fault| match fault {
        Fault::PlcNoEndpoint { did: of }
        | Fault::PlcMalformedHandle { did: of }
        | Fault::PlcMalformedEndpoint { did: of }
        | Fault::PlcStatus { did: of, .. }
        | Fault::PlcHang { did: of } => of == did,
        _ => false,
    };
    let world = state.world.lock();
    let missing = || {
        let message = format!("DID not registered: {did}");
        Answer::new(StatusCode::NOT_FOUND, "application/json", json!({"message": message}).to_string())
    };
    let Some(account) = world.find(did) else { return Lookup::Answer(missing()) };
    let fault = state.faults.lock().take(is_of).map(|armed| armed.fault.clone());
    let handle = account.handle();
    let text = match fault {
        Some(Fault::PlcHang { .. }) => return Lookup::Hang,
        Some(Fault::PlcStatus { status, .. }) => return Lookup::Answer(Answer::fault(status)),
        Some(Fault::PlcNoEndpoint { .. }) => world.document_with(account, handle, None),
        Some(Fault::PlcMalformedHandle { .. }) => {
            world.document_with(account, "not a handle", endpoint(&world, account))
        }
        Some(Fault::PlcMalformedEndpoint { .. }) => {
            world.document_with(account, handle, Some("https://not an address/"))
        }
        _ => world.document(account),
    };
    let gone = || {
        let message = json!({"message": format!("DID not available: {did}")});
        Answer::new(StatusCode::GONE, "application/json", message.to_string())
    };
    let found = |text: String| Answer::new(StatusCode::OK, "application/did+ld+json", text);
    Lookup::Answer(text.map_or_else(gone, found))
}

fn endpoint<'a>(world: &'a World, account: &Account) -> Option<&'a str> {
    world.hosts().get(account.host() as usize).map(|host| host.endpoint.as_str())
}

/// The account that has a handle. All of them begin with the number of the account.
fn by_handle<'a>(world: &'a World, handle: &str) -> Option<&'a Account> {
    let rest = handle.strip_prefix("user-")?;
    let number = rest.split(['-', '.']).next()?.parse().ok()?;
    world.account(number).ok().filter(|account| account.handle() == handle)
}

/// `com.atproto.identity.resolveHandle`.
pub(super) fn resolve_handle(state: &State, query: Option<&str>) -> Result<Answer, Answer> {
    let handle = get(query, "handle").ok_or_else(|| Answer::bad("`handle` is missing"))?;
    let world = state.world.lock();
    match by_handle(&world, &handle) {
        Some(account) => Ok(Answer::json(&json!({"did": account.did().as_str()}))),
        None => Err(Answer::error(StatusCode::BAD_REQUEST, "HandleNotFound", "nobody has this handle")),
    }
}

/// `GET /.well-known/atproto-did` of a handle's domain.
pub(super) fn did_of_domain(state: &State, domain: &str) -> Result<Answer, Answer> {
    let world = state.world.lock();
    by_handle(&world, domain)
        .map(|account| Answer::text(account.did().as_str().to_owned()))
        .ok_or_else(Answer::nothing_here)
}
