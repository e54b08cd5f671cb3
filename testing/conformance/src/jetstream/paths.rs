//! Every public path, read to its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use alluvium_env::OsRandom;
use alluvium_jetstream_wire::Wire;
use alluvium_jetstream_wire::dictionary::{self, Decoder};
use alluvium_jss::header::HEADER_BYTES;
use alluvium_jss::{Metadata, ReadLimits, read};
use alluvium_websocket::{ConnectOptions, DeflateOptions, Message, connect};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::told::{self, Told};
use crate::http::{Connection, Response};

/// Far longer than a message takes that is there.
const MESSAGE_SECONDS_MAX: Duration = Duration::from_secs(30);
const XRPC: &str = "/xrpc/network.bsky.jetstream.";

/// How messages of a feed are compressed.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Packing {
    Plain,
    Dictionary,
    Deflate,
}

/// All feeds in all their compressions.
pub(super) const FEEDS: [(Wire, Packing); 7] = [
    (Wire::V1, Packing::Plain),
    (Wire::V1, Packing::Dictionary),
    (Wire::V1, Packing::Deflate),
    (Wire::V2, Packing::Plain),
    (Wire::V2, Packing::Dictionary),
    (Wire::Events, Packing::Plain),
    (Wire::Events, Packing::Dictionary),
];

pub(super) const fn path(wire: Wire) -> &'static str {
    match wire {
        Wire::V1 => "/subscribe",
        Wire::V2 => "/subscribe-v2",
        Wire::Events => "/xrpc/network.bsky.jetstream.subscribeEvents",
    }
}

pub(super) fn get(address: SocketAddr, target: &str, headers: &[(&str, &str)]) -> Result<Response> {
    Ok(Connection::open(address)?.call("GET", target, headers, b"")?)
}

fn get_json(address: SocketAddr, target: &str) -> Result<Value> {
    let answer = get(address, target, &[])?.expect(&[200], target)?;
    Ok(serde_json::from_slice(&answer.body)?)
}

/// A live feed from its first event up to the one with the number `through`, which must be one that it shows.
pub(super) async fn feed(
    address: SocketAddr,
    (wire, packing): (Wire, Packing),
    query: &str,
    through: u64,
) -> Result<Vec<Told>> {
    let packed = match (wire, packing) {
        (Wire::V1, Packing::Dictionary) => "&compress=true".to_owned(),
        (_, Packing::Dictionary) => format!("&zstdDictionary={}", dictionary::known(wire).current),
        _ => String::new(),
    };
    let url = format!("ws://{address}{}?{query}{packed}", path(wire));
    let deflate = (packing == Packing::Deflate).then(DeflateOptions::default);
    let options = ConnectOptions { deflate, ..ConnectOptions::default() };
    let mut connected = connect(&url, options, Arc::new(OsRandom)).await?;
    ensure!(connected.agreed.deflate.is_some() == (packing == Packing::Deflate), "not compressed as asked");
    let dictionary =
        get(address, &format!("{XRPC}getZstdDictionary?id={}", dictionary::known(wire).current), &[])?;
    let mut decoder = Decoder::new(&dictionary.expect(&[200], "get a dictionary")?.body)?;
    let mut events = Vec::new();
    loop {
        let next = tokio::time::timeout(MESSAGE_SECONDS_MAX, connected.socket.next()).await;
        let next = next.with_context(|| format!("no message behind {} events", events.len()))?;
        let text = match next?.context("the feed has ended")? {
            Message::Text(text) => text.as_str().as_bytes().to_vec(),
            Message::Binary(frame) => decoder.decode(&frame, 16 << 20)?,
        };
        let value: Value = serde_json::from_slice(&text)?;
        let event =
            if wire == Wire::Events { told::of_message(&value)? } else { Some(told::of_line(&value)?) };
        let Some(event) = event else { continue };
        let seq = event.seq;
        events.push(event);
        if seq >= through {
            return Ok(events);
        }
    }
}

fn lines(body: &[u8]) -> Result<Vec<Told>> {
    let page: Vec<Value> = serde_json::from_slice(body)?;
    page.iter().map(told::of_line).collect()
}

/// The stream of events from its beginning to its end, page by page.
pub(super) fn stream(address: SocketAddr) -> Result<Vec<Told>> {
    let mut connection = Connection::open(address)?;
    let (mut events, mut offset) = (Vec::new(), "-1".to_owned());
    loop {
        let path = format!("/streams/events?offset={offset}");
        let answer = connection.call("GET", &path, &[], b"")?.expect(&[200], &path)?;
        events.extend(lines(&answer.body)?);
        offset = answer.next_offset()?;
        if answer.header("stream-up-to-date").is_some() {
            return Ok(events);
        }
    }
}

/// The same by long-polls, each from the offset that the one before gave, up to an event that there is.
pub(super) fn long_polls(address: SocketAddr, through: u64) -> Result<Vec<Told>> {
    let mut connection = Connection::open(address)?;
    let (mut events, mut offset): (Vec<Told>, _) = (Vec::new(), "-1".to_owned());
    while events.last().is_none_or(|last| last.seq < through) {
        let path = format!("/streams/events?live=long-poll&offset={offset}");
        let answer = connection.call("GET", &path, &[], b"")?.expect(&[200], &path)?;
        events.extend(lines(&answer.body)?);
        offset = answer.next_offset()?;
    }
    Ok(events)
}

/// The same as server-sent events.
pub(super) fn sent_events(address: SocketAddr, through: u64) -> Result<Vec<Told>> {
    let mut connection = Connection::open(address)?;
    connection.begin("GET", "/streams/events?live=sse&offset=-1", &[])?;
    let head = connection.read_head()?;
    ensure!(head.status == 200 && head.header("content-type") == Some("text/event-stream"), "{head:?}");
    let (mut events, mut body): (Vec<Told>, _) = (Vec::new(), Vec::new());
    while events.last().is_none_or(|last| last.seq < through) {
        ensure!(connection.read_chunk(&mut body)?, "the stream has ended behind {} events", events.len());
        while let Some(end) = body.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = body.drain(..=end).collect();
            if let Some(data) = line.strip_prefix(b"data:").filter(|data| data.starts_with(b"[")) {
                events.extend(lines(data)?);
            }
        }
    }
    Ok(events)
}

/// The finished segments, as the list names them.
pub(super) fn segments(address: SocketAddr) -> Result<Vec<(String, String, u64)>> {
    let (mut segments, mut cursor) = (Vec::new(), "0".to_owned());
    loop {
        let page = get_json(address, &format!("{XRPC}listSegments?limit=2&cursor={cursor}"))?;
        for segment in page["segments"].as_array().context("segments")? {
            let text =
                |field: &str| Ok::<_, anyhow::Error>(segment[field].as_str().context("text")?.to_owned());
            segments.push((text("name")?, text("checksum")?, segment["maxSeq"].as_u64().context("maxSeq")?));
        }
        match page["cursor"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => return Ok(segments),
        }
    }
}

/// A segment, downloaded in two parts of one version.
fn download(address: SocketAddr, name: &str, checksum: &str) -> Result<Vec<u8>> {
    let target = format!("{XRPC}getSegment?name={name}");
    let etag = format!("\"{checksum}\"");
    let mut bytes = Vec::new();
    for range in ["bytes=0-999", "bytes=1000-"] {
        let headers = [("range", range), ("if-range", etag.as_str())];
        let part = get(address, &target, &headers)?.expect(&[206], &target)?;
        ensure!(part.header("etag") == Some(&etag), "another version of {name}");
        bytes.extend(part.body);
    }
    Ok(bytes)
}

fn metadata(bytes: &[u8]) -> Result<Metadata> {
    let header = bytes.first_chunk::<HEADER_BYTES>().context("a header")?;
    let place = u64::from_le_bytes(*bytes[58..].first_chunk().context("a header")?);
    let footer = bytes.get(usize::try_from(place)?..).context("a footer")?.to_vec();
    Metadata::parse(header, &footer.into(), ReadLimits::default())
        .map_err(|(at, damage)| anyhow::anyhow!("at {at}: {damage}"))
}

/// The rows of a segment: of whole files, or of each block by itself.
pub(super) fn rows(address: SocketAddr, name: &str, checksum: &str, by_block: bool) -> Result<Vec<Told>> {
    let file = download(address, name, checksum)?;
    let metadata = metadata(&file)?;
    let all: Vec<u32> = (0..u32::try_from(metadata.blocks.len())?).collect();
    blocks(address, name, checksum, &metadata, &all, (!by_block).then_some(&file))
}

fn blocks(
    address: SocketAddr,
    name: &str,
    checksum: &str,
    metadata: &Metadata,
    numbers: &[u32],
    file: Option<&Vec<u8>>,
) -> Result<Vec<Told>> {
    let mut rows = Vec::new();
    for number in numbers {
        let info = metadata.blocks.get(*number as usize).context("no such block")?;
        let frame = if let Some(file) = file {
            file[usize::try_from(info.frame_offset())?..usize::try_from(info.end())?].to_vec()
        } else {
            let target = format!("{XRPC}getBlock?segment={name}&blockIndex={number}");
            let answer = get(address, &target, &[])?.expect(&[200], &target)?;
            ensure!(answer.header("etag") == Some(&format!("\"{checksum}:{number}\"")), "{target}");
            answer.body
        };
        let block = read::decode(&frame, info, ReadLimits::default())?;
        for row in block.rows() {
            rows.push(told::of_row(&row)?);
        }
    }
    Ok(rows)
}

/// What a client gets that follows plans: all rows of what they name, and up to where.
pub(super) fn planned(address: SocketAddr, method: &str, mut request: Value) -> Result<(Vec<Told>, u64)> {
    let (mut found, mut pin): (Vec<Told>, Option<u64>) = (Vec::new(), None);
    loop {
        let body = request.to_string();
        let target = format!("{XRPC}{method}");
        let headers = [("content-type", "application/json")];
        let answer = Connection::open(address)?.call("POST", &target, &headers, body.as_bytes())?;
        let plan: Value = serde_json::from_slice(&answer.expect(&[200], &target)?.body)?;
        let number = |field: &str| plan[field].as_u64().context("a number");
        let tip = *pin.get_or_insert(number("sealedTipSeq")?);
        for segment in plan["segments"].as_array().context("segments")? {
            let (name, checksum) = (
                segment["name"].as_str().context("name")?,
                segment["checksum"].as_str().context("checksum")?,
            );
            if segment["mode"] == "segment" {
                found.extend(rows(address, name, checksum, false)?);
                continue;
            }
            let metadata = metadata(&download(address, name, checksum)?)?;
            for range in segment["blocks"].as_array().context("ranges")? {
                let end =
                    |field: &str| u32::try_from(range[field].as_u64().context("a range")?).context("a range");
                let numbers: Vec<u32> = (end("first")?..=end("last")?).collect();
                found.extend(blocks(address, name, checksum, &metadata, &numbers, None)?);
            }
        }
        let through = number("plannedThroughSeq")?;
        if through >= tip {
            return Ok((found, tip));
        }
        request["afterSeq"] = json!(through);
        request["beforeSeq"] = json!(tip);
    }
}
