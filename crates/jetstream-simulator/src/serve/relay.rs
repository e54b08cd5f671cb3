//! What the relay says about its hosts.

use http::StatusCode;
use serde_json::{Value, json};

use super::State;
use super::answer::Answer;
use super::query::get;
use crate::fault::Fault;
use crate::world::{Account, World};

/// `com.atproto.sync.listHosts`: all hosts in one page. The number of accounts is what the relay knows of, so a floor.
pub(super) fn list_hosts(state: &State) -> Result<Answer, Answer> {
    let refused = |fault: &Fault| matches!(fault, Fault::ListHostsStatus { .. });
    if let Some(Fault::ListHostsStatus { status }) =
        state.faults.lock().take(refused).map(|armed| armed.fault.clone())
    {
        return Err(Answer::fault(status));
    }
    let world = state.world.lock();
    let hosts: Vec<Value> = (0..world.config().hosts).map(|host| entry(state, &world, host)).collect();
    Ok(Answer::json(&json!({"hosts": hosts})))
}

/// `com.atproto.sync.getHostStatus`.
pub(super) fn host_status(state: &State, query: Option<&str>) -> Result<Answer, Answer> {
    let name = get(query, "hostname").ok_or_else(|| Answer::bad("`hostname` is missing"))?;
    let world = state.world.lock();
    let number = (0..world.config().hosts).zip(world.hosts()).find(|(_, host)| host.name == name);
    match number {
        Some((number, _)) => Ok(Answer::json(&entry(state, &world, number))),
        None => Err(Answer::error(StatusCode::BAD_REQUEST, "HostNotFound", "there is no such host")),
    }
}

fn entry(state: &State, world: &World, number: u32) -> Value {
    let is_of = |fault: &Fault| matches!(fault, Fault::HostStatus { host, .. } if *host == number);
    let fault = state.faults.lock().take(is_of).map(|armed| armed.fault.clone());
    let status =
        if let Some(Fault::HostStatus { status, .. }) = fault { status } else { "active".to_owned() };
    let is_counted = |account: &&Account| account.host() == number && account.is_known_to_relay();
    let accounts = world.accounts().iter().filter(is_counted).count();
    let name = world.hosts().get(number as usize).map(|host| host.name.as_str());
    json!({"hostname": name, "status": status, "accountCount": accounts, "seq": world.tip()})
}
