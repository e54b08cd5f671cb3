//! Other people's parsers: Python's `email` package and a streaming parser of Node's world read every bootstrap, and
//! must find the parts that this crate's own strict parser finds.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::api::{Api, BYTES, JSON};
use super::cover::Suite;
use super::multipart::{Bootstrap, Part};
use crate::http::Response;
use crate::random::Random;
use crate::tools;

/// Programs that print the parts of what they are given, each with its name.
pub(super) fn programs() -> Result<[(&'static str, Command); 2]> {
    let node = tools::node_project()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut javascript = Command::new("node");
    javascript.arg("multipart.js").current_dir(node);
    let mut python = Command::new("python3");
    python.arg("multipart.py").current_dir(root.join("python"));
    Ok([("Python's email package", python), ("npm @fastify/busboy", javascript)])
}

pub(super) fn run(suite: &mut Suite<'_>, address: SocketAddr) -> Result<()> {
    let mut api = Api::new(address);
    let targets: Vec<String> = streams(&mut api)?.iter().map(|path| format!("{path}/bootstrap")).collect();
    for (name, mut parser) in programs()? {
        suite.check("BS-1 BS-12", &format!("{name} finds the parts that are hard to find"), || {
            targets.iter().try_for_each(|target| agree(&mut api, target, &mut parser))
        });
    }
    Ok(())
}

/// Streams whose bootstraps are easy to misread.
fn streams(api: &mut Api) -> Result<Vec<String>> {
    let bucket = api.bucket("parsers")?;
    let mut random = Random::new(46);
    let awkward: Vec<Vec<u8>> = [
        &b"--"[..],
        b"\r\n",
        b"\r\n--",
        b"--x--\r\n",
        b"\r\nContent-Type: text/html\r\n\r\n",
        b"\0\xff\0",
        b"a\rb\nc\r\n",
        b"\n",
        b"text",
        b"\r",
    ]
    .map(<[u8]>::to_vec)
    .to_vec();
    let noise: Vec<Vec<u8>> = (0..60)
        .map(|_| {
            let length = usize::try_from(random.between(1, 3_000)).unwrap_or(1);
            // Mostly of the few bytes that delimiters are made of.
            (0..length).map(|_| b"\r\n--\r\n-:ab\0 "[random.below(12) as usize]).collect()
        })
        .collect();
    let mut paths = Vec::new();
    for (name, messages) in [("empty", Vec::new()), ("awkward", awkward), ("noise", noise)] {
        let path = format!("{bucket}/{name}");
        let x = api.stream(&path, &messages.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
        let snapped = format!("{path}-snapped");
        let y = api.stream(&snapped, &messages.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
        api.published(&snapped, &y[x.len() / 2], &messages.concat())?;
        paths.extend([path, snapped]);
    }
    let json = format!("{bucket}/json");
    api.create(&json, JSON)?;
    api.append(&json, JSON, b"[{\"a\": \"\\r\\n--\"}, [1, 2], \"\xc3\xa4\", 4]")?;
    paths.push(json);
    let closed = format!("{bucket}/closed");
    api.stream(&closed, &[b"last"])?;
    api.call("POST", &closed, &[("content-type", BYTES), ("stream-closed", "true")], b"x")?;
    paths.push(closed);
    Ok(paths)
}

/// The parser gets `Content-Type: …`, an empty line and the body on standard input, and answers with a JSON array of
/// `{"type", "hex"}`.
pub(super) fn agree(api: &mut Api, target: &str, parser: &mut Command) -> Result<()> {
    let response = api.get(target)?.expect(&[200], target)?;
    judge(&response, parser).with_context(|| target.to_owned())
}

fn judge(response: &Response, parser: &mut Command) -> Result<()> {
    let content_type = response.header("content-type").context("no Content-Type")?;
    let mut child =
        parser.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("start the parser")?;
    let mut input = child.stdin.take().context("no stdin")?;
    let message = [format!("Content-Type: {content_type}\r\n\r\n").as_bytes(), &response.body].concat();
    // Written from a thread of its own: a parser may answer before it has read all.
    let writing = std::thread::spawn(move || input.write_all(&message));
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "the parser ended with {}", output.status);
    writing.join().map_err(|_| anyhow::anyhow!("the writing thread panicked"))??;
    let found: Value = serde_json::from_slice(&output.stdout).context("what the parser printed")?;
    let bootstrap = Bootstrap::parse(response)?;
    let parts: Vec<&Part> = std::iter::once(&bootstrap.snapshot).chain(&bootstrap.messages).collect();
    let Some(found) = found.as_array() else { bail!("the parser printed {found}") };
    ensure!(found.len() == parts.len(), "it found {} parts of {}", found.len(), parts.len());
    for (index, (found, part)) in found.iter().zip(parts).enumerate() {
        ensure!(
            found["type"].as_str() == part.header("content-type"),
            "part {index} is of type {}",
            found["type"]
        );
        ensure!(found["hex"].as_str() == Some(hex(&part.body).as_str()), "part {index} has other bytes");
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
