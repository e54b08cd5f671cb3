//! Builds one large stream, then reads it from its start with several readers, as a client that has been away
//! does: following `Stream-Next-Offset` until `Stream-Up-To-Date` (PROTOCOL §5.6).

use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use tokio::task::JoinSet;

use super::{OCTET_STREAM, Tally, connect, create, join_all, latency_metrics, tidy_up, unique_name};
use crate::clock;
use crate::http::{Connection, Method, request};
use crate::report::{Cell, Metric};
use crate::server::Session;
use crate::stats::{self, Latencies};
use crate::target::Endpoint;
use crate::usage::{MEBIBYTE, Mark, disk_metrics, memory_metrics};

/// The receive buffer of a reader, in bytes: large, so that few system calls are the client's.
const READ_BUFFER_BYTES: usize = 256 * 1024;

/// A build and the reads of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CatchUp {
    /// The length of the stream.
    pub(crate) mebibytes: u32,
    /// The length of each append that it is built of.
    pub(crate) append_kibibytes: u32,
    /// How many readers at a time; each number is a measurement of its own.
    pub(crate) readers: Vec<u32>,
    /// How often each reader reads the whole stream.
    pub(crate) passes: u32,
}

/// What a reader needs to know.
#[derive(Debug)]
struct Expected {
    endpoint: Endpoint,
    stream: String,
    /// The content of every append.
    append: Vec<u8>,
    length: u64,
}

impl CatchUp {
    pub(super) fn name(&self) -> String {
        format!("catch-up of {} MiB", self.mebibytes)
    }

    pub(super) async fn run(&self, session: &Session) -> anyhow::Result<Vec<Cell>> {
        let append_bytes = u64::from(self.append_kibibytes) * 1024;
        let appends = (u64::from(self.mebibytes) << 20).div_ceil(append_bytes);
        let expected = Arc::new(Expected {
            endpoint: session.endpoint.clone(),
            stream: unique_name(),
            append: pattern(usize::try_from(append_bytes).context("the length of an append")?),
            length: appends * append_bytes,
        });
        let mut cells = vec![self.build(session, &expected, appends).await?];
        for &readers in &self.readers {
            cells.push(self.read(session, &expected, readers).await?);
        }
        tidy_up(session, [expected.stream.clone()]).await?;
        Ok(cells)
    }

    async fn build(&self, session: &Session, expected: &Expected, appends: u64) -> anyhow::Result<Cell> {
        let endpoint = &session.endpoint;
        let mut connection = connect(endpoint, 1).await?.remove(0);
        create(&mut connection, endpoint, &expected.stream, OCTET_STREAM).await?;
        let content = Some((OCTET_STREAM, expected.append.as_slice()));
        let bytes = request(Method::Post, endpoint, &expected.stream, content);
        let mut tally = Tally::new();
        let before = Mark::now(session);
        for _ in 0..appends {
            let sent = clock::now();
            let head = connection.exchange(&bytes).await?;
            ensure!(head.is_success(), "an append was answered {}", head.status);
            tally.record(sent.elapsed(), true);
        }
        let usage = before.until(&Mark::now(session));
        let mut metrics =
            vec![Metric::new("throughput", "MiB/s", mebibytes(expected.length) / usage.wall.as_secs_f64())];
        metrics.extend(latency_metrics(&tally.latencies));
        metrics.extend(usage.metrics(appends, "µs/append"));
        metrics.extend(memory_metrics(session));
        metrics.extend(disk_metrics(session));
        Ok(Cell { name: format!("build of {} MiB", self.mebibytes), metrics })
    }

    async fn read(&self, session: &Session, expected: &Arc<Expected>, readers: u32) -> anyhow::Result<Cell> {
        let mut connections = Vec::new();
        for _ in 0..readers {
            connections.push(Connection::open(session.endpoint.address, READ_BUFFER_BYTES).await?);
        }
        let before = Mark::now(session);
        let mut tasks = JoinSet::new();
        for connection in connections {
            tasks.spawn(read_passes(connection, Arc::clone(expected), self.passes));
        }
        let mut latencies = Latencies::new();
        for reader in join_all(tasks).await? {
            latencies.merge(&reader);
        }
        let usage = before.until(&Mark::now(session));
        let read = expected.length * u64::from(readers) * u64::from(self.passes);
        let rate = mebibytes(read) / usage.wall.as_secs_f64();
        let mut metrics = vec![Metric::new("throughput", "MiB/s", rate)];
        metrics.extend(latency_metrics(&latencies));
        let pages = stats::float(latencies.count()) / f64::from(readers * self.passes);
        metrics.push(Metric::new("answers", "per pass", pages));
        metrics.extend(usage.metrics(read >> 20, "µs/MiB"));
        metrics.extend(memory_metrics(session));
        Ok(Cell { name: format!("{}, {readers} readers", self.name()), metrics })
    }
}

/// Reads the stream several times; with the latency of each answer, content included.
async fn read_passes(
    mut connection: Connection,
    expected: Arc<Expected>,
    passes: u32,
) -> anyhow::Result<Latencies> {
    let mut latencies = Latencies::new();
    for _ in 0..passes {
        let length = read_pass(&mut connection, &expected, &mut latencies).await?;
        ensure!(length == expected.length, "read {length} bytes of a stream of {}", expected.length);
    }
    Ok(latencies)
}

async fn read_pass(
    connection: &mut Connection,
    expected: &Expected,
    latencies: &mut Latencies,
) -> anyhow::Result<u64> {
    let (mut position, mut offset) = (0, "-1".to_owned());
    loop {
        let resource = format!("{}?offset={offset}", expected.stream);
        let sent = clock::now();
        connection.send(&request(Method::Get, &expected.endpoint, &resource, None)).await?;
        let head = connection.receive_head().await?;
        ensure!(head.status == 200, "a read was answered {}", head.status);
        let (before, mut intact) = (position, true);
        let check = &mut |piece: &[u8]| {
            intact &= is_intact(piece, position, &expected.append);
            position += piece.len() as u64;
        };
        connection.receive_body(&head, check).await?;
        latencies.record(sent.elapsed());
        ensure!(intact, "the content read is not what was appended");
        if head.close {
            *connection = Connection::open(expected.endpoint.address, READ_BUFFER_BYTES).await?;
        }
        if head.up_to_date {
            return Ok(position);
        }
        match head.next_offset {
            Some(next) if position > before => offset = next.into(),
            _ => bail!("a read before the tail brought no content or no next offset"),
        }
    }
}

/// The bytes of one append; neighbours differ so that a shift shows.
fn pattern(length: usize) -> Vec<u8> {
    // A prime modulus, so that the pattern does not fall in step with pages or blocks.
    (0..=250).cycle().take(length).collect()
}

/// Looks at the two ends of a piece only: comparing every byte would cost the client more than receiving it.
fn is_intact(piece: &[u8], position: u64, append: &[u8]) -> bool {
    let at = |position: u64| usize::try_from(position % append.len() as u64).map(|index| append[index]);
    match (piece.first(), piece.last()) {
        (Some(first), Some(last)) => {
            at(position).is_ok_and(|byte| byte == *first)
                && at(position + piece.len() as u64 - 1).is_ok_and(|byte| byte == *last)
        }
        _ => true,
    }
}

fn mebibytes(bytes: u64) -> f64 {
    stats::float(bytes) / MEBIBYTE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shifted_content_is_noticed() {
        let append = pattern(1000);
        let stream: Vec<u8> = append.iter().chain(&append).copied().collect();
        assert!(is_intact(&stream[990..1010], 990, &append));
        assert!(is_intact(&[], 5, &append));
        assert!(!is_intact(&stream[991..1010], 990, &append));
    }
}
