//! What an interval of work cost: CPU of the server, of this client, and of everything else.

use std::time::{Duration, Instant};

use crate::report::Metric;
use crate::server::Session;
use crate::{clock, procfs, stats};

/// The bytes of a mebibyte.
pub(crate) const MEBIBYTE: f64 = 1_048_576.0;

/// The name of the figure for what other processes used meanwhile.
pub(crate) const OTHER_LOAD: &str = "other load";

/// CPU times at one moment.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Mark {
    at: Instant,
    server: Option<Duration>,
    client: Option<Duration>,
    machine: Option<Duration>,
}

impl Mark {
    /// Reads the counters now.
    pub(crate) fn now(session: &Session) -> Self {
        Self {
            at: clock::now(),
            server: session.pid.and_then(procfs::cpu_time),
            client: procfs::cpu_time(std::process::id()),
            machine: procfs::machine_cpu_time(),
        }
    }

    /// The CPU time that the server's process has used by now.
    pub(crate) fn server_seconds(&self) -> Option<f64> {
        self.server.map(|time| time.as_secs_f64())
    }

    /// What passed since then.
    pub(crate) fn until(&self, end: &Self) -> Usage {
        let between = |start: Option<Duration>, end: Option<Duration>| Some(end?.saturating_sub(start?));
        Usage {
            wall: end.at - self.at,
            server: between(self.server, end.server),
            client: between(self.client, end.client),
            machine: between(self.machine, end.machine),
        }
    }
}

/// CPU times of an interval.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Usage {
    pub(crate) wall: Duration,
    pub(crate) server: Option<Duration>,
    client: Option<Duration>,
    machine: Option<Duration>,
}

impl Usage {
    /// CPU per operation of both sides, and how much of the machine others used meanwhile.
    pub(crate) fn metrics(&self, operations: u64, per: &'static str) -> Vec<Metric> {
        let per_operation = |time: Duration| time.as_secs_f64() * 1e6 / stats::float(operations);
        let mut metrics = Vec::new();
        if operations > 0 {
            metrics.extend(self.server.map(|time| Metric::new("server CPU", per, per_operation(time))));
            metrics.extend(self.client.map(|time| Metric::new("client CPU", per, per_operation(time))));
        }
        metrics.extend(self.foreign_share().map(|share| Metric::new(OTHER_LOAD, "% of CPUs", share * 100.0)));
        metrics
    }

    /// The share of the machine's CPUs that neither the server nor this client used.
    fn foreign_share(&self) -> Option<f64> {
        let own = self.server? + self.client?;
        let all = self.wall.as_secs_f64() * stats::float(procfs::cores()?);
        (all > 0.0).then(|| self.machine.map(|machine| machine.saturating_sub(own).as_secs_f64() / all))?
    }
}

/// The memory of the server now.
pub(crate) fn memory_metrics(session: &Session) -> Vec<Metric> {
    let Some(memory) = session.pid.and_then(procfs::memory) else { return Vec::new() };
    vec![
        Metric::new("memory", "MiB RSS", stats::float(memory.resident) / MEBIBYTE),
        Metric::new("memory", "MiB anonymous", stats::float(memory.anonymous) / MEBIBYTE),
    ]
}

/// The disk use of the server's data now.
pub(crate) fn disk_metrics(session: &Session) -> Vec<Metric> {
    let Some(disk) = session.disk_use() else { return Vec::new() };
    vec![
        Metric::new("disk", "MiB", stats::float(disk.bytes) / MEBIBYTE),
        Metric::new("disk", "files", stats::float(disk.files)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(server_ms: u64, client_ms: u64) -> Usage {
        Usage {
            wall: Duration::from_secs(1),
            server: Some(Duration::from_millis(server_ms)),
            client: Some(Duration::from_millis(client_ms)),
            machine: Some(Duration::from_millis(server_ms + client_ms)),
        }
    }

    #[test]
    fn cpu_is_divided_by_the_operations() {
        let metrics = usage(500, 250).metrics(1000, "µs/op");
        let values: Vec<(&str, f64)> = metrics.iter().map(|metric| (metric.name, metric.value)).collect();
        assert_eq!(values, [("server CPU", 500.0), ("client CPU", 250.0), ("other load", 0.0)]);
    }

    #[test]
    fn no_operations_cost_nothing_each() {
        let metrics = usage(500, 250).metrics(0, "µs/op");
        assert_eq!(metrics.len(), 1);
        assert_eq!(metrics[0].name, "other load");
    }
}
