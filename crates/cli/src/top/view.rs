//! What two looks at a server come to, as lines.

use alluvium_metrics::Exposition;

/// Operations that are listed, those that were asked for most.
const OPERATIONS_MAX: usize = 20;

/// The lines: what happened between two looks that were `seconds` apart, and how things stand now.
pub(super) fn view(url: &str, before: &Exposition, now: &Exposition, seconds: f64) -> Vec<String> {
    let between = Between { before, now, seconds: seconds.max(0.001) };
    let mut lines = vec![between.headline(url), between.process()];
    lines.extend(between.writes());
    lines.extend(between.stored());
    lines.extend(between.feeds());
    lines.extend(between.jetstream());
    lines.push(String::new());
    lines.extend(between.operations());
    lines
}

struct Between<'a> {
    before: &'a Exposition,
    now: &'a Exposition,
    seconds: f64,
}

impl Between<'_> {
    /// A figure as it stands.
    fn gauge(&self, name: &str) -> f64 {
        self.now.sum(name, &[])
    }

    fn has(&self, name: &str) -> bool {
        self.now.samples(name).next().is_some()
    }

    /// How much a counter has grown. One that is smaller than it was is of a server that has been started anew.
    fn grown(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let (before, now) = (self.before.sum(name, labels), self.now.sum(name, labels));
        if now < before { now } else { now - before }
    }

    fn rate(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.grown(name, labels) / self.seconds
    }

    /// The size that so many of the things between the looks did not go beyond, as exactly as buckets tell.
    fn quantile(&self, name: &str, labels: &[(&str, &str)], wanted: f64) -> Option<f64> {
        let bucket = format!("{name}_bucket");
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for sample in self.now.samples(&bucket) {
            let fits =
                labels.iter().all(|(key, value)| sample.labels.get(*key).is_some_and(|is| is == value));
            let bound = sample.labels.get("le").filter(|_| fits);
            let Some(bound) = bound else { continue };
            let limit = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
            let mut all = labels.to_vec();
            all.push(("le", bound));
            buckets.push((limit, self.grown(&bucket, &all)));
        }
        let total = buckets.last().filter(|(_, count)| *count > 0.0)?.1;
        let rank = wanted * total;
        let (mut low, mut below) = (0.0, 0.0);
        for (limit, count) in buckets {
            if count >= rank && count > below {
                if limit.is_infinite() {
                    return Some(low);
                }
                return Some(low + (limit - low) * ((rank - below) / (count - below)).clamp(0.0, 1.0));
            }
            (low, below) = (limit, count);
        }
        None
    }

    fn mean(&self, name: &str) -> Option<f64> {
        let count = self.grown(&format!("{name}_count"), &[]);
        (count > 0.0).then(|| self.grown(&format!("{name}_sum"), &[]) / count)
    }

    fn label<'b>(&'b self, name: &'b str, label: &str) -> &'b str {
        let sample = self.now.samples(name).next();
        sample.and_then(|sample| sample.labels.get(label)).map_or("?", String::as_str)
    }

    fn headline(&self, url: &str) -> String {
        let ready = if self.gauge("alluvium_ready") > 0.0 { "ready" } else { "NOT READY" };
        let store = if self.has("alluvium_store_info") {
            let store = self.label("alluvium_store_info", "store");
            format!("   {store}, {}", self.label("alluvium_store_info", "durability"))
        } else {
            String::new()
        };
        format!("alluvium {} at {url}   {ready}{store}", self.label("alluvium_build_info", "version"))
    }

    fn process(&self) -> String {
        format!(
            "cpu {:.0} %   memory {}   files {:.0}/{:.0}   threads {:.0}   connections {:.0}   in flight {:.0}",
            100.0 * self.rate("process_cpu_seconds_total", &[]),
            bytes(self.gauge("process_resident_memory_bytes")),
            self.gauge("process_open_fds"),
            self.gauge("process_max_fds"),
            self.gauge("process_threads"),
            self.gauge("alluvium_connections"),
            self.gauge("alluvium_requests_in_flight"),
        )
    }

    fn writes(&self) -> Vec<String> {
        if !self.has("alluvium_appends_total") {
            return Vec::new();
        }
        let sync = |wanted| time(self.quantile("alluvium_journal_sync_seconds", &[], wanted));
        vec![
            String::new(),
            format!(
                "appends    {}/s   {}/s   batch {} writes, {}   sync p50 {}, p99 {}   queue {:.0}   refused {}/s",
                count(self.rate("alluvium_appends_total", &[])),
                bytes(self.rate("alluvium_append_bytes_total", &[])),
                self.mean("alluvium_batch_commands").map_or("-".to_owned(), |mean| format!("{mean:.1}")),
                self.mean("alluvium_batch_bytes").map_or("-".to_owned(), bytes),
                sync(0.5),
                sync(0.99),
                self.gauge("alluvium_queue_commands"),
                count(self.rate("alluvium_writes_refused_total", &[])),
            ),
            format!(
                "readers    long-polls {:.0}   subscribers {:.0}   unread answers {}   bodies {}",
                self.now.sum("alluvium_waiters", &[("kind", "long_poll")]),
                self.now.sum("alluvium_waiters", &[("kind", "subscriber")]),
                bytes(self.gauge("alluvium_response_bytes_held")),
                bytes(self.gauge("alluvium_body_bytes_held")),
            ),
        ]
    }

    fn stored(&self) -> Vec<String> {
        if !self.has("alluvium_streams") {
            return Vec::new();
        }
        vec![format!(
            "stored     streams {:.0}   buckets {:.0}   journal {} ({:.0} to fold)   tables {:.0}, {}   folds {:.0}, {:.0} failed",
            self.gauge("alluvium_streams"),
            self.gauge("alluvium_buckets"),
            bytes(self.gauge("alluvium_journal_bytes")),
            self.gauge("alluvium_journal_sealed_segments"),
            self.gauge("alluvium_tables"),
            bytes(self.gauge("alluvium_table_bytes")),
            self.now.sum("alluvium_folds_total", &[("outcome", "done")]),
            self.now.sum("alluvium_folds_total", &[("outcome", "failed")]),
        )]
    }

    fn feeds(&self) -> Vec<String> {
        if self.gauge("alluvium_feed_open_spaces") + self.gauge("alluvium_feed_sockets") == 0.0 {
            return Vec::new();
        }
        vec![format!(
            "feeds      spaces {:.0}   sockets {:.0}   blocks {}/s written, {}/s read   refused {}/s",
            self.gauge("alluvium_feed_open_spaces"),
            self.gauge("alluvium_feed_sockets"),
            count(self.rate("alluvium_feed_blocks_total", &[])),
            count(self.rate("alluvium_feed_blocks_read_total", &[])),
            count(self.rate("alluvium_feed_refused_total", &[])),
        )]
    }

    fn jetstream(&self) -> Vec<String> {
        if !self.has("jetstream_next_seq") {
            return Vec::new();
        }
        vec![
            String::new(),
            format!(
                "relay      received {}/s   verified {}/s   rejected {}/s   reconnects {:.0}",
                count(self.rate("jetstream_livestream_events_received_total", &[])),
                count(self.rate("jetstream_verifier_verified_total", &[])),
                count(self.rate("jetstream_verifier_failures_total", &[])),
                self.gauge("jetstream_livestream_reconnects_total"),
            ),
            format!(
                "archive    next {:.0}   rows {}/s   segments {:.0}   memory {}",
                self.gauge("jetstream_next_seq"),
                count(self.rate("jetstream_livestream_rows_total", &[])),
                self.gauge("jetstream_segments"),
                bytes(self.gauge("jetstream_memory_bytes")),
            ),
            format!(
                "live       subscribers {:.0}   sent {}/s   dropped {:.0}",
                self.gauge("jetstream_subscribers"),
                count(self.rate("jetstream_sent_total", &[])),
                ["slow", "stalled", "silent"]
                    .iter()
                    .map(|why| self.gauge(&format!("jetstream_dropped_{why}_total")))
                    .sum::<f64>(),
            ),
        ]
    }

    fn operations(&self) -> Vec<String> {
        let mut operations: Vec<(&str, f64, f64)> = Vec::new();
        for sample in self.now.samples("alluvium_requests_total") {
            let Some(operation) = sample.labels.get("operation") else { continue };
            if operations.iter().all(|(known, ..)| known != operation) {
                let labels = [("operation", operation.as_str())];
                let rate = self.rate("alluvium_requests_total", &labels);
                operations.push((operation, rate, self.now.sum("alluvium_requests_total", &labels)));
            }
        }
        operations.sort_by(|one, other| {
            (other.1, other.2).partial_cmp(&(one.1, one.2)).unwrap_or(one.0.cmp(other.0))
        });
        let head = format!(
            "{:<20} {:>10} {:>10} {:>10} {:>10} {:>12}",
            "operation", "per second", "p50", "p99", "errors/s", "in all"
        );
        let line = |(operation, rate, total): (&str, f64, f64)| {
            let labels = [("operation", operation)];
            let took = |wanted| time(self.quantile("alluvium_request_seconds", &labels, wanted));
            format!(
                "{operation:<20} {:>10} {:>10} {:>10} {:>10} {total:>12.0}",
                count(rate),
                took(0.5),
                took(0.99),
                count(self.errors(operation)),
            )
        };
        std::iter::once(head).chain(operations.into_iter().take(OPERATIONS_MAX).map(line)).collect()
    }

    /// Answers with a status of 400 or more, and those that nobody was there for, per second.
    fn errors(&self, operation: &str) -> f64 {
        let samples = self.now.samples("alluvium_requests_total");
        let failed = samples.filter_map(|sample| {
            let status = sample.labels.get("status")?;
            let is_error = status.starts_with(['4', '5']) || status == "gone";
            (is_error && sample.labels.get("operation").is_some_and(|is| is == operation)).then_some(status)
        });
        failed
            .map(|status| {
                self.rate("alluvium_requests_total", &[("operation", operation), ("status", status.as_str())])
            })
            .sum()
    }
}

/// A number of bytes with a unit.
fn bytes(bytes: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut amount, mut unit) = (bytes, 0);
    while amount >= 1024.0 && unit + 1 < units.len() {
        amount /= 1024.0;
        unit += 1;
    }
    if unit == 0 || amount >= 100.0 {
        format!("{amount:.0} {}", units[unit])
    } else {
        format!("{amount:.1} {}", units[unit])
    }
}

/// A number of things, rounded where it is large.
fn count(number: f64) -> String {
    if number == 0.0 {
        "0".to_owned()
    } else if number < 10.0 {
        format!("{number:.1}")
    } else {
        format!("{number:.0}")
    }
}

/// A time with a unit.
fn time(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".to_owned(),
        Some(seconds) if seconds < 0.001 => format!("{:.0} us", seconds * 1e6),
        Some(seconds) if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        Some(seconds) => format!("{seconds:.1} s"),
    }
}

#[cfg(test)]
mod tests {
    use alluvium_metrics::parse;

    use super::*;

    fn shown(appends: u32, fast: u32) -> Exposition {
        let text = format!(
            "# HELP alluvium_ready x\n# TYPE alluvium_ready gauge\nalluvium_ready 1\n\
             # HELP alluvium_build_info x\n# TYPE alluvium_build_info gauge\nalluvium_build_info{{version=\"9.9\"}} 1\n\
             # HELP alluvium_appends_total x\n# TYPE alluvium_appends_total counter\nalluvium_appends_total {appends}\n\
             # HELP alluvium_requests_total x\n# TYPE alluvium_requests_total counter\n\
             alluvium_requests_total{{operation=\"append\",status=\"204\"}} {appends}\n\
             alluvium_requests_total{{operation=\"append\",status=\"503\"}} {}\n\
             alluvium_requests_total{{operation=\"head\",status=\"200\"}} 7\n\
             # HELP alluvium_request_seconds x\n# TYPE alluvium_request_seconds histogram\n\
             alluvium_request_seconds_bucket{{operation=\"append\",le=\"0.001\"}} {fast}\n\
             alluvium_request_seconds_bucket{{operation=\"append\",le=\"0.01\"}} {appends}\n\
             alluvium_request_seconds_bucket{{operation=\"append\",le=\"+Inf\"}} {appends}\n\
             alluvium_request_seconds_sum{{operation=\"append\"}} 1\n\
             alluvium_request_seconds_count{{operation=\"append\"}} {appends}\n",
            appends / 10,
        );
        parse(&text).expect("the format")
    }

    #[test]
    fn rates_are_of_the_time_between_two_looks() {
        let lines = view("http://x", &shown(100, 50), &shown(300, 150), 2.0);
        assert!(lines[0].starts_with("alluvium 9.9 at http://x   ready"), "{lines:#?}");
        assert!(lines.iter().any(|line| line.starts_with("appends    100/s")), "{lines:#?}");
        let append: Vec<&str> = lines
            .iter()
            .find(|line| line.starts_with("append "))
            .expect("a line")
            .split_whitespace()
            .collect();
        // Of 200 appends half took up to a millisecond, the others up to ten.
        assert_eq!(append, ["append", "110", "1.0", "ms", "9.8", "ms", "10", "330"]);
        let place = |name: &str| lines.iter().position(|line| line.starts_with(name));
        assert!(place("append ") < place("head "), "{lines:#?}");
    }

    #[test]
    fn a_server_that_was_started_anew_counts_from_nothing() {
        let lines = view("http://x", &shown(1000, 1000), &shown(20, 10), 2.0);
        assert!(lines.iter().any(|line| line.starts_with("appends    10/s")), "{lines:#?}");
    }

    #[test]
    fn amounts_have_a_unit_that_fits() {
        assert_eq!([bytes(0.0), bytes(1023.0), bytes(1536.0)], ["0 B", "1023 B", "1.5 KiB"]);
        assert_eq!(bytes(200.0 * 1024.0 * 1024.0), "200 MiB");
        assert_eq!(
            [time(None), time(Some(0.000_05)), time(Some(0.25)), time(Some(3.0))],
            ["-", "50 us", "250.0 ms", "3.0 s"]
        );
    }
}
