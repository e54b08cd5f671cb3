//! What a snapshot upload does to appends: a writer at a steady rate, without and with uploads going on to the same
//! stream (the project's extensions, which other servers do not have).

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::{OCTET_STREAM, SHORT_ANSWER_BYTES, connect, create, latency_metrics, sleep_until, unique_name};
use crate::clock;
use crate::http::{Connection, Method, request};
use crate::report::{Cell, Metric};
use crate::server::Session;
use crate::stats::{self, Latencies};
use crate::target::Endpoint;
use crate::usage::{Mark, memory_metrics};

/// Where buckets are.
const BUCKET_BASE: &str = "/ds";
/// One write of an upload. Small, so that the one thread of the client is soon back at the appends.
const PIECE_BYTES: usize = 64 * 1024;

/// A writer, and uploads beside it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Uploads {
    /// The length of one snapshot.
    pub(crate) mebibytes: u32,
    /// Appends a second.
    pub(crate) rate: u32,
    /// The length of one append.
    pub(crate) bytes: usize,
    /// How long each setting is measured.
    pub(crate) duration: Duration,
    /// How fast to upload, in MiB a second; 0 for as fast as it goes. Each is measured on its own.
    pub(crate) paces: Vec<u32>,
}

impl Uploads {
    pub(super) fn name(&self) -> String {
        format!("{} appends/s beside uploads of {} MiB", self.rate, self.mebibytes)
    }

    pub(super) async fn run(&self, session: &Session) -> anyhow::Result<Vec<Cell>> {
        let endpoint = Endpoint { base: BUCKET_BASE.to_owned(), ..session.endpoint.clone() };
        let (bucket, mut writer) = (unique_name(), connect(&endpoint, 1).await?.remove(0));
        let made =
            writer.exchange(&request(Method::Put, &endpoint, &bucket, Some((OCTET_STREAM, b"")))).await?;
        ensure!(made.is_success(), "creating a bucket was answered {}: it has no buckets", made.status);
        let stream = format!("{bucket}/s");
        create(&mut writer, &endpoint, &stream, OCTET_STREAM).await?;
        let mut cells = vec![self.cell(session, &endpoint, &stream, &mut writer, None).await?];
        for pace in &self.paces {
            cells.push(self.cell(session, &endpoint, &stream, &mut writer, Some(*pace)).await?);
        }
        for resource in [&stream, &bucket] {
            let head = writer.exchange(&request(Method::Delete, &endpoint, resource, None)).await?;
            ensure!(head.is_success(), "deleting was answered {}", head.status);
        }
        Ok(cells)
    }

    /// Appends for the duration, with uploads one after another if there is a pace for them.
    async fn cell(
        &self,
        session: &Session,
        endpoint: &Endpoint,
        stream: &str,
        writer: &mut Connection,
        pace: Option<u32>,
    ) -> anyhow::Result<Cell> {
        let before = Mark::now(session);
        let start = clock::now();
        let until = start + self.duration;
        let writing = self.write(writer, endpoint, stream, start);
        let (latencies, uploaded) = match pace {
            None => (writing.await?, 0),
            Some(pace) => tokio::try_join!(writing, self.upload(endpoint, stream, pace, until))?,
        };
        let wall = start.elapsed();
        let usage = before.until(&Mark::now(session));
        let what = match pace {
            None => "no upload".to_owned(),
            Some(0) => "uploads as fast as they go".to_owned(),
            Some(pace) => format!("uploads at {pace} MiB/s"),
        };
        let mut metrics = vec![Metric::new("appends", "count", stats::float(latencies.count()))];
        metrics.extend(latency_metrics(&latencies));
        metrics.push(Metric::new("p99.9", "ms", latencies.millis(0.999)));
        metrics.push(Metric::new("longest", "ms", latencies.millis(1.0)));
        let mebibytes = stats::float(uploaded) / 1_048_576.0;
        metrics.push(Metric::new("uploaded", "MiB/s", mebibytes / wall.as_secs_f64()));
        metrics.extend(usage.metrics(latencies.count(), "µs/append"));
        metrics.extend(memory_metrics(session));
        Ok(Cell { name: format!("{} appends/s, {what}", self.rate), metrics })
    }

    /// Appends at the rate asked for. An append counts from when it was sent, or from when it was due if the one
    /// before it held it up.
    async fn write(
        &self,
        writer: &mut Connection,
        endpoint: &Endpoint,
        stream: &str,
        start: Instant,
    ) -> anyhow::Result<Latencies> {
        let append = request(Method::Post, endpoint, stream, Some((OCTET_STREAM, &vec![b'a'; self.bytes])));
        let mut latencies = Latencies::new();
        let mut free = start;
        for number in 0_u64.. {
            let due = start + Duration::from_secs_f64(stats::float(number) / f64::from(self.rate));
            if due >= start + self.duration {
                break;
            }
            sleep_until(due).await;
            let counts_from = if free > due { due } else { clock::now() };
            let head = writer.exchange(&append).await?;
            ensure!(head.is_success(), "an append was answered {}", head.status);
            free = clock::now();
            latencies.record(free - counts_from);
        }
        Ok(latencies)
    }

    /// Publishes snapshots at the tail until the time is up. Returns how many bytes went; the last one is finished.
    async fn upload(
        &self,
        endpoint: &Endpoint,
        stream: &str,
        pace: u32,
        until: Instant,
    ) -> anyhow::Result<u64> {
        let mut connection = Connection::open(endpoint.address, SHORT_ANSWER_BYTES).await?;
        let piece = vec![b's'; PIECE_BYTES];
        let length = u64::from(self.mebibytes) * 1_048_576;
        let (start, mut uploaded) = (clock::now(), 0_u64);
        while clock::now() < until {
            let tail = request(Method::Get, endpoint, &format!("{stream}?offset=now"), None);
            let offset = connection.exchange(&tail).await?.next_offset.context("no Stream-Next-Offset")?;
            let head = format!(
                "PUT {}/{stream}/snapshot/{offset} HTTP/1.1\r\nHost: {}\r\n{}Content-Length: {length}\r\n\r\n",
                endpoint.base, endpoint.host, endpoint.credentials
            );
            connection.send(head.as_bytes()).await?;
            let mut left = length;
            while left > 0 {
                let now = left.min(PIECE_BYTES as u64);
                connection.send(&piece[..usize::try_from(now).unwrap_or(PIECE_BYTES)]).await?;
                (left, uploaded) = (left - now, uploaded + now);
                if pace > 0 {
                    let due = stats::float(uploaded) / (f64::from(pace) * 1_048_576.0);
                    sleep_until(start + Duration::from_secs_f64(due)).await;
                }
                tokio::task::yield_now().await;
            }
            let head = connection.receive_head().await?;
            connection.receive_body(&head, &mut |_| ()).await?;
            ensure!(head.status == 204, "a publication was answered {}", head.status);
        }
        Ok(uploaded)
    }
}
