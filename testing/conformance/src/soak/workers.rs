//! Streams with two subscriptions: a worker that is woken by webhook and one that claims. Both must be brought to read
//! every message, over restarts and their own failures, and no cursor that was acknowledged may go back.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};

use super::checker::Format;
use super::client::{Client, JSON};
use super::lie::Door;
use super::stats::Operation;
use super::world::World;
use super::writer::Writer;
use crate::http::{MOUNT, next_json};
use crate::message::{Counts, go_on_with_json};
use crate::random::Random;

/// Streams that the subscriptions follow at a time, and appends to each.
const STREAMS: u32 = 4;
const APPENDS: u32 = 40;
/// The longest wait for both workers to have read everything.
const CALM_MAX: Duration = Duration::from_mins(3);
const LOOK: Duration = Duration::from_millis(50);
/// The lease of a wake: short, so that some run out.
const LEASE_MS: u64 = 2_000;
/// Kinds of answers of the receiver, by number; see [`work`].
const KINDS: u32 = 8;
/// The longest wait for a webhook's connection to say something.
const SILENCE_MAX: Duration = Duration::from_secs(90);

/// What a worker has read.
#[derive(Debug, Default)]
struct Seen {
    /// Messages by stream; each stream has one writer.
    counts: BTreeMap<String, Counts>,
    /// Cursors that the server has said to have.
    acknowledged: BTreeMap<String, String>,
}

impl Seen {
    /// Takes what was read of a stream from an acknowledged offset on; it may have been read before.
    fn take(&mut self, path: &str, body: &[u8]) -> Result<()> {
        let messages: Value = serde_json::from_slice(body).context("news do not parse")?;
        let Some(first) = messages.get(0) else { return Ok(()) };
        let index = first["index"].as_u64().context("a message without its index")?;
        let writer = u32::try_from(first["writer"].as_u64().context("a message without its writer")?)?;
        let seen = self.counts.entry(path.to_owned()).or_default();
        let due = seen.get(&writer).copied().unwrap_or(0);
        ensure!(index <= due, "`{path}`: the worker was brought to message {index} where {due} is due");
        let mut counts = Counts::from([(writer, index)]);
        go_on_with_json(&mut counts, body)?;
        ensure!(counts.len() == 1, "`{path}` has messages of {} writers", counts.len());
        seen.insert(writer, counts[&writer].max(due));
        Ok(())
    }

    /// A cursor in a wake must be no less than what the server has said before.
    fn check_cursor(&self, path: &str, offset: &str) -> Result<()> {
        let known = self.acknowledged.get(path).map_or("", String::as_str);
        ensure!(offset >= known, "`{path}`: the cursor {known} was acknowledged, and a wake has {offset}");
        Ok(())
    }

    fn acknowledge(&mut self, path: &str, offset: &str) {
        let known = self.acknowledged.entry(path.to_owned()).or_default();
        if offset > known.as_str() {
            offset.clone_into(known);
        }
    }

    fn forget(&mut self, paths: &[String]) {
        for path in paths {
            self.counts.remove(path);
            self.acknowledged.remove(path);
        }
    }
}

type Shared = Arc<Mutex<Seen>>;

fn lock(seen: &Shared) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One set of streams and subscriptions after another until the end.
pub(super) fn run(world: &Arc<World>, life: Duration, mut random: Random) -> Result<()> {
    let hooked = Shared::default();
    let receiver = receive(world, &hooked, Random::new(random.next()))?;
    let (mut generation, mut before) = (0, Vec::new());
    while !world.is_over() {
        let name = format!("{}-{generation}", world.run);
        let done = one(world, &name, receiver, &hooked, life, &mut random);
        let done = done.with_context(|| format!("subscriptions {name}"))?;
        // One generation later, when no webhook of it can be under way.
        lock(&hooked).forget(&std::mem::replace(&mut before, done));
        generation += 1;
    }
    Ok(())
}

fn subscription(id: &str) -> String {
    format!("{MOUNT}__ds/subscriptions/{id}")
}

fn one(
    world: &Arc<World>,
    name: &str,
    receiver: SocketAddr,
    hooked: &Shared,
    life: Duration,
    random: &mut Random,
) -> Result<Vec<String>> {
    let mut client = Client::new(world);
    let (pool, hook, wakes) = (format!("pool-{name}"), format!("hook-{name}"), format!("soak/wakes-{name}"));
    client.create(&format!("{MOUNT}{wakes}"), JSON)?;
    let pattern = format!("soak/jobs-{name}/*");
    let documents = [
        (
            &pool,
            json!({"type": "pull-wake", "pattern": pattern, "wake_stream": wakes, "lease_ttl_ms": LEASE_MS}),
        ),
        (
            &hook,
            json!({"type": "webhook", "pattern": pattern, "lease_ttl_ms": LEASE_MS,
                "webhook": {"url": format!("http://{receiver}/")}}),
        ),
    ];
    for (id, document) in documents {
        let (target, body) = (subscription(id), document.to_string());
        let headers = [("content-type", JSON)];
        client.call(Operation::Other, ("PUT", &target), &headers, body.as_bytes(), &[200, 201])?;
    }
    let claimed = Shared::default();
    let is_done = Mutex::new(false);
    let due = thread::scope(|scope| {
        let worker = scope.spawn(|| world.watch(claim(world, &pool, &wakes, &claimed, &is_done)));
        let due = write(world, name, life, random);
        let due = world.watch(due.and_then(|due| {
            await_all(&mut client, &due, &[(&pool, &claimed), (&hook, hooked)])?;
            Ok(due)
        }));
        *is_done.lock().unwrap_or_else(PoisonError::into_inner) = true;
        worker.join().map_err(|_| anyhow!("a worker has panicked"))??;
        due
    })?;
    for id in [&pool, &hook] {
        client.call(Operation::Delete, ("DELETE", &subscription(id)), &[], &[], &[204])?;
    }
    let paths: Vec<String> = due.into_keys().collect();
    for path in paths.iter().chain([&wakes]) {
        client.delete(&format!("{MOUNT}{path}"))?;
    }
    Ok(paths)
}

/// Writes the streams and closes them; returns what each holds, by its name.
fn write(
    world: &Arc<World>,
    name: &str,
    life: Duration,
    random: &mut Random,
) -> Result<BTreeMap<String, Counts>> {
    let mut client = Client::new(world);
    let mut writers = Vec::new();
    for number in 0..STREAMS {
        let path = format!("soak/jobs-{name}/{number}");
        client.create(&format!("{MOUNT}{path}"), JSON)?;
        let target = format!("{MOUNT}{path}");
        writers.push((path, Writer::new(world, &target, Format::Json, Random::new(random.next()))));
    }
    for _ in 0..STREAMS * APPENDS {
        if world.is_over() {
            break;
        }
        let (_, writer) = &mut writers[random.below(STREAMS) as usize];
        writer.append()?;
        writer.pace(life / (STREAMS * APPENDS));
    }
    let mut due = BTreeMap::new();
    for (path, mut writer) in writers {
        // At least one, so that each stream has something to be woken for.
        writer.append()?;
        client.close(&format!("{MOUNT}{path}"), JSON)?;
        due.insert(path, Counts::from([(writer.number, writer.messages)]));
    }
    Ok(due)
}

/// Waits until both have read everything and the server knows.
fn await_all(
    client: &mut Client,
    due: &BTreeMap<String, Counts>,
    workers: &[(&String, &Shared)],
) -> Result<()> {
    let world = Arc::clone(&client.world);
    let deadline = Instant::now() + CALM_MAX;
    for (id, seen) in workers {
        loop {
            world.go_on()?;
            let target = subscription(id);
            let found = client.call(Operation::Other, ("GET", &target), &[], &[], &[200])?;
            let found: Value = serde_json::from_slice(&found.body)?;
            let links = found["streams"].as_array().cloned().unwrap_or_default();
            let mut behind = Vec::new();
            for (path, counts) in due {
                let tail =
                    client.call(Operation::Other, ("HEAD", &format!("{MOUNT}{path}")), &[], &[], &[200])?;
                let tail = tail.next_offset()?;
                let is_known = links
                    .iter()
                    .any(|link| link["path"] == path.as_str() && link["acked_offset"] == tail.as_str());
                if !is_known || lock(seen).counts.get(path) != Some(counts) {
                    behind.push(path);
                }
            }
            if behind.is_empty() {
                break;
            }
            ensure!(Instant::now() < deadline, "{id} has not read {behind:?}; it is {found}");
            thread::sleep(LOOK);
        }
    }
    Ok(())
}

/// Reads the news of a wake; returns for each stream where to go on.
fn read_news(client: &mut Client, wake: &Value, seen: &Shared, door: Door) -> Result<Vec<(String, String)>> {
    let mut streams = Vec::new();
    // All of them before the first read, which may last as long as a restart.
    for stream in wake["streams"].as_array().context("a wake without streams")? {
        let path = stream["path"].as_str().context("a stream without its path")?;
        let from = stream["acked_offset"].as_str().context("a stream without its cursor")?;
        lock(seen).check_cursor(path, from)?;
        if stream["has_pending"] == true {
            streams.push((path, from));
        }
    }
    let mut read = Vec::new();
    for (path, from) in streams {
        let target = format!("{MOUNT}{path}?offset={from}");
        let answer = client.ask(Operation::Read, "GET", &target, &[], &[])?.response;
        // A wake that comes late may tell of streams whose time is over.
        if answer.status == 404 {
            continue;
        }
        let mut answer = answer.expect(&[200], "read news")?;
        client.world.hear(door, &mut answer.body);
        lock(seen).take(path, &answer.body)?;
        read.push((path.to_owned(), answer.next_offset()?));
    }
    Ok(read)
}

/// The worker of the pull-wake subscription.
fn claim(world: &Arc<World>, id: &str, wakes: &str, seen: &Shared, is_done: &Mutex<bool>) -> Result<()> {
    let mut client = Client::new(world);
    let mut offset = "-1".to_owned();
    while !*is_done.lock().unwrap_or_else(PoisonError::into_inner) {
        let (target, headers) = (format!("{}/claim", subscription(id)), [("content-type", JSON)]);
        let answer = client.ask(Operation::Other, "POST", &target, &headers, br#"{"worker":"soak"}"#)?;
        if answer.response.status == 409 {
            let target = format!("{MOUNT}{wakes}?offset={offset}&live=long-poll");
            let waited = client.call(Operation::Tail, ("GET", &target), &[], &[], &[200, 204])?;
            offset = waited.next_offset()?;
            continue;
        }
        let answer = answer.response.expect(&[200], "claim")?;
        let wake: Value = serde_json::from_slice(&answer.body)?;
        let read = read_news(&mut client, &wake, seen, Door::Claim)?;
        acknowledge(&mut client, &format!("{}/ack", subscription(id)), &wake, "token", &read, seen)?;
    }
    Ok(())
}

/// Reports what was read. A wake that is over by now counts for nothing, and is issued again.
fn acknowledge(
    client: &mut Client,
    target: &str,
    wake: &Value,
    token: &str,
    read: &[(String, String)],
    seen: &Shared,
) -> Result<()> {
    let acks: Vec<Value> =
        read.iter().map(|(path, offset)| json!({"stream": path, "offset": offset})).collect();
    let body =
        json!({"wake_id": wake["wake_id"], "generation": wake["generation"], "acks": acks, "done": true})
            .to_string();
    let bearer = format!("Bearer {}", wake[token].as_str().context("a wake without its token")?);
    let headers = [("content-type", JSON), ("authorization", bearer.as_str())];
    let answer = client.ask(Operation::Other, "POST", target, &headers, body.as_bytes())?;
    // Fenced, or the subscription has been deleted.
    let is_over = matches!(answer.response.status, 401 | 404 | 409);
    if !is_over {
        answer.response.expect(&[200, 204], "acknowledge")?;
        for (path, offset) in read {
            lock(seen).acknowledge(path, offset);
        }
    }
    Ok(())
}

/// Starts the receiver of webhooks, which ends with the process.
fn receive(world: &Arc<World>, seen: &Shared, random: Random) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("listen for webhooks")?;
    let address = listener.local_addr()?;
    let (world, seen, random) = (Arc::clone(world), Arc::clone(seen), Arc::new(Mutex::new(random)));
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (world, seen, random) = (Arc::clone(&world), Arc::clone(&seen), Arc::clone(&random));
            thread::spawn(move || {
                let mut client = Client::new(&world);
                // A connection that ends is the server's business; what it brought is checked.
                while let Some(wake) = next_webhook(&stream) {
                    let draw = random.lock().unwrap_or_else(PoisonError::into_inner).below(KINDS);
                    let draw = if world.is_lying() { KINDS } else { draw };
                    let answer = work(&mut client, &wake, &seen, draw);
                    let Ok((status, body)) = world.watch(answer) else { return };
                    let text = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                    let mut stream = &stream;
                    if stream.write_all(text.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    Ok(address)
}

/// Most are done at once, some are reported later, some fail after they were read.
fn work(client: &mut Client, wake: &Value, seen: &Shared, draw: u32) -> Result<(&'static str, &'static str)> {
    let read = read_news(client, wake, seen, Door::Webhook)?;
    match draw {
        0 => Ok(("500 Internal Server Error", "")),
        1 | 2 => {
            let target = wake["callback_url"].as_str().context("no callback URL")?;
            let path = target.split_once("://").and_then(|(_, rest)| rest.find('/').map(|at| &rest[at..]));
            acknowledge(
                client,
                path.context("no path in a callback URL")?,
                wake,
                "callback_token",
                &read,
                seen,
            )?;
            Ok(("202 Accepted", "{}"))
        }
        _ => Ok(("200 OK", r#"{"done":true}"#)),
    }
}

/// The next request's body; `None` when the connection is over.
fn next_webhook(stream: &TcpStream) -> Option<Value> {
    stream.set_read_timeout(Some(SILENCE_MAX)).ok()?;
    next_json(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::json_array;

    #[test]
    fn news_may_come_again_but_not_with_a_gap() {
        let mut seen = Seen::default();
        seen.take("a", &json_array(1, 0, 3)).unwrap();
        seen.take("a", &json_array(1, 1, 3)).unwrap();
        assert_eq!(seen.counts["a"], Counts::from([(1, 4)]));
        seen.take("a", b"[]").unwrap();
        assert!(seen.take("a", &json_array(1, 5, 1)).is_err(), "message 4 was never delivered");
    }

    #[test]
    fn a_cursor_that_goes_back_is_noticed() {
        let mut seen = Seen::default();
        seen.check_cursor("a", "-1").unwrap();
        seen.acknowledge("a", "0000000000000002_0000000000000020");
        assert!(seen.check_cursor("a", "0000000000000001_0000000000000010").is_err());
        assert!(seen.check_cursor("a", "-1").is_err());
        seen.check_cursor("a", "0000000000000002_0000000000000020").unwrap();
    }
}
