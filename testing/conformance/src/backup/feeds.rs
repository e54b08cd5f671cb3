//! Clients of feeds whose server falls back to a backup that was taken while they wrote.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Tool;
use crate::check::Report;
use crate::feeds::Client;
use crate::http::Connection;
use crate::server::Launch;

const CLIENTS: usize = 2;
/// Texts that each client writes before, while and after the backup is taken.
const TEXTS: usize = 12;
/// Pushes of one are pulls of another, and a history that was lost takes one more.
const SETTLING_PASSES: usize = 3;

struct World {
    clients: Vec<Client>,
    written: BTreeSet<String>,
}

impl World {
    fn write(&mut self, phase: &str) -> Result<()> {
        for nth in 0..TEXTS {
            for (number, client) in self.clients.iter().enumerate() {
                let text = format!("{phase} {number} {nth}");
                client.append(&format!("feed-{}", nth % 3), std::slice::from_ref(&text), None)?;
                self.written.insert(text);
            }
        }
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        for _ in 0..SETTLING_PASSES {
            self.clients.iter().try_for_each(Client::sync)?;
        }
        let first = self.clients[0].feeds()?;
        let shown: Vec<&String> = first.values().flatten().map(|(_, _, _, text)| text).collect();
        let found: BTreeSet<&String> = shown.iter().copied().collect();
        ensure!(shown.len() == found.len(), "a text is there twice");
        ensure!(found.len() == self.written.len(), "{} of {} texts", found.len(), self.written.len());
        for (number, client) in self.clients.iter().enumerate() {
            let status = client.status()?;
            for left in ["blocksToPush", "blocksToPull", "blocksRefused", "conflicts"] {
                ensure!(status[left] == 0, "client {number} is not done: {status}");
            }
            ensure!(client.feeds()? == first, "client {number} shows something else than client 0");
        }
        Ok(())
    }
}

/// The identity of the history that a server has.
fn token(address: SocketAddr) -> Result<Value> {
    let target = "/feeds/v1/spaces/crash/query";
    let json = [("content-type", "application/json")];
    let answer = Connection::open(address)?.call("POST", target, &json, br#"{"requestId":"1"}"#)?;
    let answer: Value = serde_json::from_slice(&answer.expect(&[200], "ask for the token")?.body)?;
    let token = answer["serverToken"].clone();
    ensure!(token.is_string(), "no token in {answer}");
    Ok(token)
}

pub(super) fn run(tool: &Tool, report: &mut Report) -> Result<()> {
    let server = tool.launch("feeds").start()?;
    let address = server.address;
    let url = format!("http://{address}");
    let clients = (0..CLIENTS)
        .map(|number| Client::new(&tool.binary, tool.folder.join(format!("{number}.sqlite")), &url))
        .collect::<Result<_>>()?;
    let mut world = World { clients, written: BTreeSet::new() };
    world.write("before")?;
    world.settle()?;
    let before = token(address)?;
    // They go on while it is taken.
    world.clients.iter_mut().try_for_each(Client::follow)?;
    std::thread::scope(|scope| {
        let taking = scope.spawn(|| tool.take(address, "feeds"));
        world.write("meanwhile")?;
        taking.join().ok().context("the command panicked")?
    })?;
    world.write("after")?;
    world.clients.iter_mut().try_for_each(Client::kill)?;
    world.settle()?;
    let launch = server.kill()?;
    fs::remove_dir_all(&launch.data_dir)?;
    report.check(
        "feeds: clients of a restored server heal, lose nothing, and are told of another history",
        || {
            tool.restore(&tool.backup("feeds"), "feeds")?;
            let server = Launch { listen: address, ..tool.launch("feeds") }.start()?;
            world.settle()?;
            ensure!(token(address)? != before, "the server has the token of the history that it lost");
            // And whoever comes now gets the same.
            let fresh = Client::new(&tool.binary, tool.folder.join("fresh.sqlite"), &url)?;
            fresh.sync()?;
            ensure!(fresh.feeds()? == world.clients[0].feeds()?, "a fresh client gets something else");
            let dir = server.stop()?.data_dir;
            tool.check(&dir, "feeds").map(drop)
        },
    );
    Ok(())
}
