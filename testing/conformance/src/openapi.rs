//! `docs/openapi.json` and `alluvium serve` say the same, and so do `docs/openapi-jetstream.json` and
//! `alluvium jetstream serve`: every path, method and status of a description is tried, every answer is one that is
//! described, and every operation that the server counts requests under has its place in the description.

pub(crate) mod jetstream;
mod script;
pub(crate) mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use alluvium_metrics::{Exposition, parse};
use anyhow::{Context, Result, ensure};
use serde_json::Value;

use self::script::{FAR, script};
use self::trial::Trial;
use crate::check::Report;
use crate::http::{Connection, Response};
use crate::server::Launch;

/// What counts requests by their operation.
const REQUESTS: &str = "alluvium_requests_total";

/// What is described of one method of one path.
#[derive(Debug)]
struct Described {
    metrics: BTreeSet<String>,
    /// By status, the media types that an answer may have; none for an answer without a body.
    answers: BTreeMap<u16, Vec<String>>,
}

/// By path and method, as they stand in the description.
type Description = BTreeMap<(String, String), Described>;

/// One description and what is known of the server that it describes.
#[derive(Debug)]
pub(crate) struct Subject {
    name: &'static str,
    description: Description,
    /// What trials have come to: path, method and status.
    tried: BTreeSet<(String, String, u16)>,
    known: Known,
}

/// Tries everything that is described of `alluvium serve`, and of `alluvium jetstream serve`.
pub(crate) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    let mut subject = Subject::read("openapi.json", BTreeMap::from([("far", FAR.to_owned())]))?;
    let scratch = tempfile::tempdir()?;
    let backups = scratch.path().join("backups").display().to_string();
    let flags = ["--append-bytes-max", "64KiB", "--long-poll-timeout", "50ms", "--segment-bytes", "1MiB"];
    let flags = [&flags[..], &["--backup-dir", &backups]].concat();
    let server = Launch::new(binary, &scratch.path().join("data"), &flags).start()?;
    subject.try_all(server.address, &script(), report);
    // What names nothing.
    let nameless = ["other", "feed_other", "feed_preflight", "admin_other"];
    subject.finish(&operations(binary, "operations")?, &nameless, report);
    server.stop()?;
    jetstream::run(binary, report)
}

impl Subject {
    /// Reads a description in `docs/`.
    pub(crate) fn read(name: &'static str, known: BTreeMap<&'static str, String>) -> Result<Self> {
        let description = read(name)?;
        Ok(Self { name, description, tried: BTreeSet::new(), known: Known(known) })
    }

    /// Sends requests to a server.
    pub(crate) fn try_all(&mut self, address: SocketAddr, trials: &[Trial], report: &mut Report) {
        for trial in trials {
            report.check(&trial.to_string(), || {
                let key = try_out(address, &self.description, trial, &mut self.known)?;
                self.tried.insert(key);
                Ok(())
            });
        }
    }

    /// After all trials: whether each status was tried and each operation is described, but those that are `nameless`.
    pub(crate) fn finish(&self, operations: &BTreeSet<String>, nameless: &[&str], report: &mut Report) {
        report.check(&format!("every status in {} was tried", self.name), || {
            for ((path, method), described) in &self.description {
                for status in described.answers.keys() {
                    let key = (path.clone(), method.clone(), *status);
                    ensure!(self.tried.contains(&key), "{method} {path}: {status} was not tried");
                }
            }
            Ok(())
        });
        report.check(&format!("every operation of the server is in {}", self.name), || {
            let all = self.description.values();
            let described: BTreeSet<&str> =
                all.flat_map(|described| &described.metrics).map(String::as_str).collect();
            for operation in operations {
                let is_described = described.contains(operation.as_str());
                let is_none = nameless.contains(&operation.as_str());
                ensure!(is_described != is_none, "`{operation}` is described: {is_described}");
            }
            ensure!(described.iter().all(|name| operations.contains(*name)), "one that is none is described");
            Ok(())
        });
    }
}

/// What trials have learned, for those after them.
#[derive(Debug)]
struct Known(BTreeMap<&'static str, String>);

impl Known {
    /// A text with each `<name>` replaced by what is known under it.
    fn fill(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("<{name}>"), value))
    }
}

/// Sends a request and compares its answer with the description. Returns what was tried.
fn try_out(
    address: SocketAddr,
    description: &Description,
    trial: &Trial,
    known: &mut Known,
) -> Result<(String, String, u16)> {
    let key = (trial.path.to_owned(), trial.method.to_lowercase());
    let described = description.get(&key).context("it is not described")?;
    let before = scrape(address)?;
    let headers: Vec<(&str, String)> =
        trial.headers.iter().map(|(name, value)| (*name, known.fill(value))).collect();
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let asked = match std::str::from_utf8(trial.body) {
        Ok(text) => known.fill(text).into_bytes(),
        Err(_) => trial.body.to_vec(),
    };
    let answer = ask(address, trial, &known.fill(trial.target), &headers, &asked)?;
    let body = String::from_utf8_lossy(&answer.body[..answer.body.len().min(200)]).into_owned();
    ensure!(answer.status == trial.status, "{} where {} was due: {body}", answer.status, trial.status);
    let types = described.answers.get(&answer.status).context("the status is not described")?;
    let given = answer.header("content-type").unwrap_or_default();
    let is_empty = answer.body.is_empty();
    let fits = types.iter().any(|known| known == "*/*" || given.starts_with(known.as_str()));
    ensure!(is_empty || fits, "`{given}` is not described, {types:?} are");
    let after = scrape(address)?;
    let grew = |operation: &String| {
        let labels = [("operation", operation.as_str())];
        after.sum(REQUESTS, &labels) > before.sum(REQUESTS, &labels)
    };
    ensure!(described.metrics.iter().any(grew), "it was not counted as one of {:?}", described.metrics);
    for (name, header) in trial.keeps {
        let value = kept(&answer, header).with_context(|| format!("no `{header}`"))?;
        known.0.insert(name, value);
    }
    Ok((key.0, key.1, answer.status))
}

/// The value of a header, or what a pointer finds in a JSON body.
fn kept(answer: &Response, place: &str) -> Option<String> {
    if !place.starts_with('/') {
        return answer.header(place).map(ToOwned::to_owned);
    }
    let body: Value = serde_json::from_slice(&answer.body).ok()?;
    let value = body.pointer(place)?;
    Some(value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned))
}

/// One request on a connection of its own. Of an answer with events the beginning is enough.
fn ask(
    address: SocketAddr,
    trial: &Trial,
    target: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<Response> {
    let mut connection = Connection::open(address)?;
    if !target.contains("live=sse") && trial.status != 101 {
        return Ok(connection.call(trial.method, target, headers, body)?);
    }
    connection.begin(trial.method, target, headers)?;
    Ok(connection.read_head()?)
}

fn scrape(address: SocketAddr) -> Result<Exposition> {
    let answer = Connection::open(address)?.call("GET", "/metrics", &[], &[])?;
    Ok(parse(std::str::from_utf8(&answer.body)?)?)
}

/// The operations that the program knows, by its own word.
fn operations(binary: &Path, of: &str) -> Result<BTreeSet<String>> {
    let output = std::process::Command::new(binary).args(["config", of]).output()?;
    ensure!(output.status.success(), "`config {of}` ended with {}", output.status);
    Ok(String::from_utf8(output.stdout)?.lines().map(ToOwned::to_owned).collect())
}

fn read(name: &str) -> Result<Description> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let text = fs::read_to_string(docs.join(name))?;
    let document: Value = serde_json::from_str(&text).context("the description")?;
    let mut description = Description::new();
    for (path, methods) in document["paths"].as_object().context("no paths")? {
        for (method, operation) in methods.as_object().context("no methods")? {
            let place = format!("{method} {path}");
            let described = described(&document, operation).with_context(|| place.clone())?;
            for name in path.split('{').skip(1).filter_map(|rest| rest.split('}').next()) {
                ensure!(has_parameter(&document, operation, name), "{place}: `{name}` is no parameter");
            }
            description.insert((path.clone(), method.clone()), described);
        }
    }
    Ok(description)
}

fn described(document: &Value, operation: &Value) -> Result<Described> {
    let metrics = operation["x-metrics"].as_array().context("no `x-metrics`")?;
    let metrics = metrics.iter().filter_map(|name| name.as_str().map(ToOwned::to_owned)).collect();
    let mut answers = BTreeMap::new();
    for (status, answer) in operation["responses"].as_object().context("no responses")? {
        let answer = followed(document, answer).context("a reference that leads nowhere")?;
        ensure!(answer["description"].is_string(), "{status} has no description");
        let types = answer["content"].as_object().map(|content| content.keys().cloned().collect());
        if status != "default" {
            answers.insert(status.parse()?, types.unwrap_or_default());
        }
    }
    Ok(Described { metrics, answers })
}

fn has_parameter(document: &Value, operation: &Value, name: &str) -> bool {
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    parameters.filter_map(|parameter| followed(document, parameter)).any(|parameter| {
        parameter["name"] == name && parameter["in"] == "path" && parameter["required"] == true
    })
}

/// What a reference within the document leads to, or the value itself.
fn followed<'a>(document: &'a Value, value: &'a Value) -> Option<&'a Value> {
    match value["$ref"].as_str() {
        Some(reference) => document.pointer(reference.strip_prefix('#')?),
        None => Some(value),
    }
}
