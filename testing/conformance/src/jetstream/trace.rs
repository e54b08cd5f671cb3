//! What a process did to its files and told its peers: its system calls, as `strace` writes them down.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// Every call that changes files or names, those that could change them unseen, and those that tell a peer.
const CALLS: &str = "?open,openat,?creat,write,writev,pwrite64,pwritev,pwritev2,ftruncate,?truncate,fallocate,\
    lseek,fsync,fdatasync,?rename,?renameat,renameat2,?unlink,unlinkat,?mkdir,mkdirat,?rmdir,?link,linkat,?symlink,\
    symlinkat,sendto,sendmsg,sendfile,splice,copy_file_range,?dup2,dup,dup3,mmap,exit_group";
/// Strings are written down whole up to this length, which nothing here comes near.
const STRING_BYTES_MAX: &str = "4000000";
/// How long the rest of a trace may take once the process has ended.
const REST_SECONDS_MAX: Duration = Duration::from_mins(1);
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// The words before a command that write its calls to a file.
pub(super) fn tracer(log: &Path) -> Vec<String> {
    let trace = format!("trace={CALLS}");
    let words = ["strace", "-D", "-f", "-y", "-q", "-s", STRING_BYTES_MAX, "-e", &trace, "-o"];
    words.into_iter().map(str::to_owned).chain([log.display().to_string()]).collect()
}

/// The trace of a process that has ended, once all of it is there.
pub(super) fn whole(log: &Path, pid: u32) -> Result<String> {
    let deadline = Instant::now() + REST_SECONDS_MAX;
    let (began, end) = (format!("{pid} "), "+++");
    loop {
        let text = fs::read_to_string(log).unwrap_or_default();
        if text.lines().rev().any(|line| line.starts_with(&began) && line.contains(end)) {
            return Ok(text);
        }
        ensure!(Instant::now() < deadline, "the trace of process {pid} does not end");
        thread::sleep(LOOK_INTERVAL);
    }
}

/// A call that has returned.
#[derive(Debug)]
pub(super) struct Call {
    /// The lines of its beginning and of its return.
    began: usize,
    ended: usize,
    pub(super) name: String,
    args: Vec<String>,
    /// Less than zero if it failed.
    result: i64,
}

impl Call {
    fn arg(&self, number: usize) -> Result<&str> {
        self.args.get(number).map(String::as_str).with_context(|| format!("argument {number} of {self:?}"))
    }

    /// The number of the file in an argument, and what it is; none if it has no path.
    fn file(&self, number: usize) -> Result<Option<(i32, PathBuf)>> {
        let Some((number, rest)) = self.arg(number)?.split_once('<') else { return Ok(None) };
        let (path, _) = rest.rsplit_once('>').context("a path without an end")?;
        Ok(Some((number.parse()?, PathBuf::from(path))))
    }

    fn path(&self, number: usize) -> Result<PathBuf> {
        Ok(PathBuf::from(String::from_utf8(text(self.arg(number)?)?)?))
    }

    fn number(&self, number: usize) -> Result<u64> {
        self.arg(number)?.trim().parse().with_context(|| format!("argument {number} of {self:?}"))
    }

    /// What was written, as much as was.
    fn data(&self) -> Result<Vec<u8>> {
        let (mut data, len) = (text(self.arg(1)?)?, usize::try_from(self.result)?);
        data.truncate(len);
        ensure!(data.len() == len, "{} bytes of {len}", data.len());
        Ok(data)
    }
}

/// The bytes of all strings of an argument.
fn text(arg: &str) -> Result<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::new(), arg.bytes().peekable());
    let mut quoted = false;
    while let Some(byte) = rest.next() {
        match byte {
            b'"' => {
                quoted = !quoted;
                ensure!(quoted || rest.peek() != Some(&b'.'), "a string was cut short");
            }
            b'\\' if quoted => {
                let escaped = rest.next().context("an escape without an end")?;
                bytes.push(match escaped {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'r' => b'\r',
                    b'v' => 11,
                    b'f' => 12,
                    b'0'..=b'7' => {
                        let mut octal = escaped - b'0';
                        for _ in 0..2 {
                            let Some(digit @ b'0'..=b'7') = rest.peek().copied() else { break };
                            octal = octal.wrapping_mul(8) | (digit - b'0');
                            rest.next();
                        }
                        octal
                    }
                    other => other,
                });
            }
            byte if quoted => bytes.push(byte),
            _ => {}
        }
    }
    Ok(bytes)
}

/// Arguments, and what follows their closing parenthesis.
fn arguments(text: &str) -> Option<(Vec<String>, &str)> {
    let (mut args, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            b')' if depth == 0 => {
                args.push(text[start..at].trim().to_owned());
                return Some((args, &text[at + 1..]));
            }
            b')' | b']' | b'}' | b'>' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                args.push(text[start..at].trim().to_owned());
                start = at + 1;
            }
            _ => {}
        }
    }
    None
}

/// All calls that have returned, in the order in which they did.
pub(super) fn calls(trace: &str) -> Result<Vec<Call>> {
    let (mut calls, mut unfinished) = (Vec::new(), HashMap::new());
    for (number, line) in trace.lines().enumerate() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        let (began, whole) = if let Some(resumed) = rest.strip_prefix("<... ") {
            let (_, tail) = resumed.split_once("resumed>").context("a call that goes on")?;
            let (began, head): (usize, &str) =
                unfinished.remove(thread).context("a call that never began")?;
            (began, format!("{head}{tail}"))
        } else if let Some(head) = rest.strip_suffix("<unfinished ...>") {
            unfinished.insert(thread, (number, head));
            continue;
        } else if rest.starts_with("+++") || rest.starts_with("---") {
            continue;
        } else {
            (number, rest.to_owned())
        };
        let (name, rest) = whole.split_once('(').with_context(|| format!("no call: {line}"))?;
        let (args, result) = arguments(rest).with_context(|| format!("no call: {line}"))?;
        let result = result.trim_start().strip_prefix('=').context("no result")?.trim_start();
        let digits = result.find(|c: char| c != '-' && !c.is_ascii_digit()).unwrap_or(result.len());
        let result = match result[..digits].parse() {
            Ok(result) => result,
            Err(_) if name == "exit_group" => 0,
            // The process ended in it.
            Err(_) => continue,
        };
        calls.push(Call { began, ended: number, name: name.to_owned(), args, result });
    }
    Ok(calls)
}

/// Something that was done to files below a directory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Op {
    MakeDir(PathBuf),
    /// A file is opened; if it is not there it is made.
    Open {
        file: i32,
        path: PathBuf,
        appends: bool,
        empties: bool,
    },
    /// Without a place it is written where the last one ended.
    Write {
        file: i32,
        path: PathBuf,
        at: Option<u64>,
        data: Vec<u8>,
    },
    Resize {
        file: i32,
        path: PathBuf,
        len: u64,
    },
    Seek {
        file: i32,
        at: u64,
    },
    Sync {
        file: i32,
        path: PathBuf,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    Remove(PathBuf),
}

impl Op {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::MakeDir(_) => "make",
            Self::Open { .. } => "open",
            Self::Write { .. } => "write",
            Self::Resize { .. } => "resize",
            Self::Seek { .. } => "seek",
            Self::Sync { .. } => "sync",
            Self::Rename { .. } => "rename",
            Self::Remove(_) => "remove",
        }
    }

    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::MakeDir(path)
            | Self::Open { path, .. }
            | Self::Write { path, .. }
            | Self::Resize { path, .. }
            | Self::Sync { path, .. }
            | Self::Rename { to: path, .. }
            | Self::Remove(path) => Some(path),
            Self::Seek { .. } => None,
        }
    }

    /// What a call does below a directory; none if that is nothing. What cannot be told is an error.
    pub(super) fn of(call: &Call, root: &Path) -> Result<Option<Self>> {
        if call.result < 0 {
            return Ok(None);
        }
        let below = |path: &Path| path.starts_with(root);
        match call.name.as_str() {
            "open" | "creat" => return Self::opened(call, 0, root),
            "openat" => return Self::opened(call, 1, root),
            "mkdir" | "mkdirat" => {
                let path = call.path(usize::from(call.name == "mkdirat"))?;
                return Ok(below(&path).then_some(Self::MakeDir(path)));
            }
            "unlink" | "unlinkat" => {
                let path = call.path(usize::from(call.name == "unlinkat"))?;
                ensure!(!below(&path) || call.args.len() < 3 || call.arg(2)? == "0", "{call:?}");
                return Ok(below(&path).then_some(Self::Remove(path)));
            }
            "rename" | "renameat" | "renameat2" => {
                let (from, to) = if call.name == "rename" { (0, 1) } else { (1, 3) };
                let (from, to) = (call.path(from)?, call.path(to)?);
                return Ok(below(&to).then_some(Self::Rename { from, to }));
            }
            "rmdir" | "truncate" | "link" | "linkat" | "symlink" | "symlinkat" => {
                let named = call.args.iter().any(|arg| text(arg).is_ok_and(|path| below(&path_of(path))));
                ensure!(!named, "{call:?} is not understood");
                return Ok(None);
            }
            "exit_group" | "splice" | "sendfile" => return Ok(None),
            _ => {}
        }
        let number = usize::from(call.name == "mmap") * 4;
        let Some((file, path)) = call.file(number)? else { return Ok(None) };
        if !below(&path) {
            return Ok(None);
        }
        Ok(match call.name.as_str() {
            "write" | "writev" => Some(Self::Write { file, path, at: None, data: call.data()? }),
            "pwrite64" | "pwritev" => {
                Some(Self::Write { file, path, at: Some(call.number(3)?), data: call.data()? })
            }
            "ftruncate" => Some(Self::Resize { file, path, len: call.number(1)? }),
            "lseek" => Some(Self::Seek { file, at: u64::try_from(call.result)? }),
            "fsync" | "fdatasync" => Some(Self::Sync { file, path }),
            "mmap" => {
                let is_seen = call.arg(3)?.contains("MAP_PRIVATE") || !call.arg(2)?.contains("PROT_WRITE");
                ensure!(is_seen, "{call:?} changes files unseen");
                None
            }
            _ => bail!("{call:?} is not understood"),
        })
    }

    fn opened(call: &Call, number: usize, root: &Path) -> Result<Option<Self>> {
        let path = call.path(number)?;
        if !path.starts_with(root) {
            return Ok(None);
        }
        let flags = if call.name == "creat" { "O_WRONLY|O_CREAT|O_TRUNC" } else { call.arg(number + 1)? };
        let has = |flag| flags.split('|').any(|set| set == flag);
        ensure!(!has("O_TMPFILE"), "{call:?} is not understood");
        let (appends, empties) = (has("O_APPEND"), has("O_TRUNC"));
        Ok(Some(Self::Open { file: i32::try_from(call.result)?, path, appends, empties }))
    }
}

fn path_of(bytes: Vec<u8>) -> PathBuf {
    String::from_utf8(bytes).map(PathBuf::from).unwrap_or_default()
}

/// What happens in the course of a process.
#[derive(Debug)]
pub(super) enum Step {
    Disk(Op),
    /// A peer gets a line of a live feed, in JSON.
    Told(Value),
    /// The process has ended, and what the kernel had is there still.
    Ended,
}

/// Everything that a process did to files below a directory, and what it told the peers of its live feeds. A line counts
/// as told when the process begins to send its last byte, and a call as done when it has returned.
pub(super) fn steps(trace: &str, root: &Path) -> Result<Vec<Step>> {
    let mut placed: Vec<(usize, Step)> = Vec::new();
    let mut peers: HashMap<PathBuf, Peer> = HashMap::new();
    for call in calls(trace)? {
        if let Some(op) = Op::of(&call, root)? {
            placed.push((call.ended, Step::Disk(op)));
        } else if matches!(call.name.as_str(), "write" | "writev" | "sendto" | "sendmsg") && call.result > 0 {
            let Some((_, peer)) = call.file(0)? else { continue };
            if !peer.as_os_str().as_encoded_bytes().starts_with(b"socket:") {
                continue;
            }
            let lines = peers.entry(peer).or_default().lines(&call.data()?)?;
            placed.extend(lines.into_iter().map(|line| (call.began, Step::Told(line))));
        }
    }
    placed.sort_by_key(|(line, _)| *line);
    Ok(placed.into_iter().map(|(_, step)| step).collect())
}

/// What a peer was sent and is not taken apart yet.
#[derive(Default)]
struct Peer {
    /// Whether it changed over to a WebSocket.
    is_socket: bool,
    sent: Vec<u8>,
}

impl Peer {
    /// The text messages that have become whole (RFC 6455, section 5.2).
    fn lines(&mut self, sent: &[u8]) -> Result<Vec<Value>> {
        if sent.starts_with(b"HTTP/1.1 ") {
            *self = Self { is_socket: sent.starts_with(b"HTTP/1.1 101"), sent: Vec::new() };
            let end = sent.windows(4).position(|four| four == b"\r\n\r\n").context("a head in one piece")?;
            self.sent.extend(&sent[end + 4..]);
        } else {
            self.sent.extend(sent);
        }
        let mut lines = Vec::new();
        if !self.is_socket {
            self.sent.clear();
        }
        while let [first, short, rest @ ..] = self.sent.as_slice() {
            let wide = match short {
                126 => 2,
                127 => 8,
                _ => 0,
            };
            if rest.len() < wide {
                break;
            }
            let long = rest[..wide].iter().fold(0_usize, |len, byte| (len << 8) | usize::from(*byte));
            let len = if wide == 0 { usize::from(*short) } else { long };
            let Some(message) = rest.get(wide..wide + len) else { break };
            match first {
                0x81 => lines.push(serde_json::from_slice(message)?),
                0x88..=0x8a => {}
                other => bail!("a frame that begins with {other:#x}"),
            }
            self.sent.drain(..2 + wide + len);
        }
        Ok(lines)
    }
}

#[cfg(test)]
mod tests;
