//! Live readers of a stream whose floor moves.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::api::{Api, BYTES, JSON, has, refused};
use super::events::{Events, Subscription};

/// Readers at the tail, and one that comes below the floor.
pub(super) fn beside_a_floor(api: &mut Api, path: &str) -> Result<()> {
    let x = api.stream(path, &[b"abc", b"de"])?;
    let Subscription::Open(mut at_tail) =
        Events::subscribe(api.address, &format!("{path}?offset={}&live=sse", x[2]))?
    else {
        anyhow::bail!("SSE at the tail is refused");
    };
    // The first control event tells that the reader has arrived.
    at_tail.next()?.context("no first event")?;
    api.published(path, &x[2], b"abcde")?;
    api.append(path, BYTES, b"fg")?;
    let mut data = None;
    while let Some((name, text)) = at_tail.next()? {
        if name == "data" {
            data = Some(text);
            break;
        }
    }
    ensure!(data.as_deref() == Some("Zmc="), "the reader at the tail saw {data:?}");
    let lagging = Events::subscribe(api.address, &format!("{path}?offset={}&live=sse", x[1]))?;
    let Subscription::Refused(response) = lagging else { anyhow::bail!("SSE below the floor is served") };
    refused(&response, 410, "retained")?;
    has(&response, "content-type", Some(JSON))
}

/// More than all the buffers between server and reader hold, so that the server cannot have sent it all before the
/// floor moves.
pub(super) fn overtaken(api: &mut Api, path: &str) -> Result<()> {
    api.create(path, "text/plain")?;
    let mut content = String::new();
    let mut tail = String::new();
    for number in 0..160_u32 {
        let line = format!("{number:08};").repeat(29_000);
        tail = api.append(path, "text/plain", line.as_bytes())?;
        content.push_str(&line);
    }
    let target = format!("{path}?offset=-1&live=sse");
    let Subscription::Open(mut events) = Events::subscribe(api.address, &target)? else {
        anyhow::bail!("SSE from the start is refused")
    };
    api.published(path, &tail, b"all of it")?;
    let (mut seen, mut next) = (String::new(), String::new());
    while let Some((name, data)) = events.next()? {
        if name == "data" {
            seen.push_str(&data);
        } else {
            let control: Value = serde_json::from_str(&data)?;
            control["streamNextOffset"].as_str().context("no offset")?.clone_into(&mut next);
        }
        if next == tail {
            break;
        }
    }
    ensure!(next != tail, "the server has sent everything before the floor moved: the check shows nothing");
    ensure!(content.starts_with(&seen), "what was seen is not the beginning of what was written");
    let resumed = Events::subscribe(api.address, &format!("{path}?offset={next}&live=sse"))?;
    let Subscription::Refused(response) = resumed else { anyhow::bail!("it goes on below the floor") };
    refused(&response, 410, "retained")
}
