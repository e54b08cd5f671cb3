//! What the kernel knows of processes: CPU time, resident memory, who listens on a port.
//!
//! All of it comes from `/proc`, so these figures exist on Linux only; elsewhere they are missing from the
//! report.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// The unit of CPU times in `/proc` (`USER_HZ`): 100 a second on every architecture that Rust runs on.
const TICK_MILLIS: u64 = 10;
/// The state of a listening socket in `/proc/net/tcp`.
const STATE_LISTEN: &str = "0A";

/// CPU time that a process has used, its finished threads included.
pub(crate) fn cpu_time(pid: u32) -> Option<Duration> {
    parse_cpu_time(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// CPU time that the whole machine has used since it started.
pub(crate) fn machine_cpu_time() -> Option<Duration> {
    parse_machine_cpu_time(&fs::read_to_string("/proc/stat").ok()?)
}

/// The CPUs of the whole machine, also when this process may not use all of them.
pub(crate) fn cores() -> Option<u64> {
    Some(count_cores(&fs::read_to_string("/proc/stat").ok()?)).filter(|count| *count > 0)
}

/// Memory of a process in bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Resident, mapped files included.
    pub(crate) resident: u64,
    /// Resident and not backed by a file: what the process itself has allocated.
    pub(crate) anonymous: u64,
}

/// The memory of a process now.
pub(crate) fn memory(pid: u32) -> Option<Memory> {
    parse_memory(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// The 1-minute load average.
pub(crate) fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

/// The process that listens on a TCP port, if this process may see it.
pub(crate) fn listener(port: u16) -> Option<u32> {
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .find_map(|table| listening_inode(&fs::read_to_string(table).ok()?, port))?;
    let socket = format!("socket:[{inode}]");
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        holds(&entry.path().join("fd"), &socket).then_some(pid)
    })
}

fn holds(descriptors: &Path, socket: &str) -> bool {
    fs::read_dir(descriptors).is_ok_and(|entries| {
        entries
            .flatten()
            .any(|entry| fs::read_link(entry.path()).is_ok_and(|link| link.as_os_str() == socket))
    })
}

fn parse_cpu_time(stat: &str) -> Option<Duration> {
    // The command's name is in parentheses and may hold spaces; the state is the first field after it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(ticks(user + system))
}

fn parse_machine_cpu_time(stat: &str) -> Option<Duration> {
    let line = stat.lines().find(|line| line.starts_with("cpu "))?;
    let times: Vec<u64> = line.split_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guest times are part of user.
    let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = times[..] else { return None };
    Some(ticks(user + nice + system + irq + softirq + steal))
}

fn count_cores(stat: &str) -> u64 {
    let is_core = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
    };
    stat.lines().filter(is_core).count() as u64
}

fn ticks(count: u64) -> Duration {
    Duration::from_millis(count.saturating_mul(TICK_MILLIS))
}

fn parse_memory(status: &str) -> Option<Memory> {
    let kib = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.trim().parse().ok()
    };
    Some(Memory { resident: kib("VmRSS:")? * 1024, anonymous: kib("RssAnon:")? * 1024 })
}

fn listening_inode(table: &str, port: u16) -> Option<u64> {
    let suffix = format!(":{port:04X}");
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
        (local.ends_with(&suffix) && *state == STATE_LISTEN).then(|| inode.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_an_awkward_name() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 150 25 0 0 20 0 3 0 100 1 2 3";
        assert_eq!(parse_cpu_time(stat), Some(Duration::from_millis(1750)));
        assert_eq!(parse_cpu_time("42 no parentheses"), None);
    }

    #[test]
    fn the_machine_is_busy_with_everything_but_idling() {
        let stat = "cpu  10 1 20 1000 500 2 3 4 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(parse_machine_cpu_time(stat), Some(Duration::from_millis(400)));
        assert_eq!(count_cores(stat), 1);
    }

    #[test]
    fn memory_is_told_apart_by_what_backs_it() {
        let status = "Name:\tx\nVmRSS:\t    2048 kB\nRssAnon:\t    1024 kB\nRssFile:\t    1024 kB\n";
        assert_eq!(parse_memory(status), Some(Memory { resident: 2 << 20, anonymous: 1 << 20 }));
    }

    #[test]
    fn only_a_listening_socket_on_the_port_counts() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1155 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 11 1\n\
            1: 0100007F:1156 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1\n\
            2: 0100007F:1155 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 13 1\n";
        assert_eq!(listening_inode(table, 0x1155), Some(13));
        assert_eq!(listening_inode(table, 0x1157), None);
    }
}
