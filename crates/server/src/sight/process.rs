//! What the system says of this process. Where there is no `/proc`, nothing.

use std::fs;

use alluvium_metrics::Page;
use rustix::param::{clock_ticks_per_second, page_size};

use crate::metrics::families::{
    PROCESS_CPU_SECONDS, PROCESS_MAX_FDS, PROCESS_OPEN_FDS, PROCESS_RESIDENT_BYTES, PROCESS_START_SECONDS,
    PROCESS_THREADS, PROCESS_VIRTUAL_BYTES,
};

/// Puts what there is on a page.
pub(super) fn show(page: &mut Page, started_ms: u64) {
    #[expect(clippy::cast_precision_loss, reason = "a time in seconds, to the millisecond")]
    page.fraction(&PROCESS_START_SECONDS, &[], started_ms as f64 / 1000.0);
    if let Some(stat) = fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(Stat::parse) {
        #[expect(clippy::cast_precision_loss, reason = "a time in seconds, to the hundredth")]
        let seconds = stat.cpu_ticks as f64 / clock_ticks_per_second() as f64;
        page.fraction(&PROCESS_CPU_SECONDS, &[], seconds);
        page.whole(&PROCESS_VIRTUAL_BYTES, &[], stat.virtual_bytes);
        page.whole(&PROCESS_RESIDENT_BYTES, &[], stat.resident_pages * page_size() as u64);
        page.whole(&PROCESS_THREADS, &[], stat.threads);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // One of them is the directory that is being read.
        page.whole(&PROCESS_OPEN_FDS, &[], (open.count() as u64).saturating_sub(1));
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    if let Some(limit) = limit.current {
        page.whole(&PROCESS_MAX_FDS, &[], limit);
    }
}

/// Of `/proc/self/stat` (proc(5)).
#[derive(Debug, PartialEq)]
struct Stat {
    cpu_ticks: u64,
    threads: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    /// The name of the process, in parentheses, may have anything in it; what follows are numbers.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // The first of them is the third field of the line.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: field(14)? + field(15)?,
            threads: field(20)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let line = "7 (a) b (c) S 1 7 7 0 -1 4194304 100 0 0 0 30 12 0 0 20 0 5 0 900 1048576 64 18446744073709551615";
        let stat = Stat { cpu_ticks: 42, threads: 5, virtual_bytes: 1_048_576, resident_pages: 64 };
        assert_eq!(Stat::parse(line), Some(stat));
        assert_eq!(Stat::parse("7 (a) S 1"), None);
    }

    #[test]
    fn this_process_has_memory_threads_and_files() {
        let mut page = Page::new();
        show(&mut page, 1500);
        let text = page.text(alluvium_metrics::Format::Prometheus);
        let read = alluvium_metrics::parse(&text).expect("it was written here");
        assert_eq!(read.value("process_start_time_seconds", &[]), Some(1.5));
        for name in ["process_resident_memory_bytes", "process_threads", "process_open_fds"] {
            assert!(read.value(name, &[]).is_some_and(|value| value > 0.0), "{name}");
        }
    }
}
