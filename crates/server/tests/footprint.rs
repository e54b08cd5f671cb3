//! What connections take in memory while nothing happens on them: bytes that the program has asked its allocator for, so
//! the same on every machine. The figures are those of docs/operating/sizing.md.

#![expect(clippy::print_stdout, reason = "the figures, for who asks for them")]
#![expect(clippy::unwrap_used, reason = "what fails here is a failed test")]
#![expect(unsafe_code, reason = "an allocator that counts is one, and those have no safe interface")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::Duration,
};

use alluvium_env::Env;
use alluvium_server::{
    config::{Loaded, Sources},
    serve,
};
use rustix::process::{Signal, getpid, kill_process};

/// Far longer than anything takes here.
const LONG: Duration = Duration::from_mins(1);

/// Time without a change after which what is held is taken to be all.
const SETTLED_MS: u64 = 1000;

/// Connections of one kind. Many, so that what tables have grown by does not count for much.
const CONNECTIONS: usize = 256;

/// No connection is without a task, a socket and a place.
const BYTES_MIN: usize = 512;
/// One that has sent nothing.
const SILENT_BYTES_MAX: usize = 2 * 1024;
/// One whose requests are all answered, some seconds later.
const QUIET_BYTES_MAX: usize = 4 * 1024;
/// One with a response of server-sent events, at the tail.
const SUBSCRIBER_BYTES_MAX: usize = 5 * 1024;
/// One with a long-poll. It has two buffers for what may come and one for the answer's head, of 8 KiB each.
const WAITING_BYTES_MAX: usize = 40 * 1024;

struct Counting;

/// Bytes that have been asked for and not given back.
static HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is the system's allocator's; this counts beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller keeps to what the system's allocator asks of it.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        HELD.fetch_add(size, Relaxed);
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Where a server says that it listens.
struct Said(mpsc::Sender<String>);

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(String::from_utf8_lossy(bytes).into_owned()).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn start(data_dir: &str) -> (SocketAddr, thread::JoinHandle<()>) {
    let flags = [
        ("listen", "127.0.0.1:0"),
        ("data-dir", data_dir),
        ("shards", "1"),
        ("reactors", "1"),
        ("segment-bytes", "16MiB"),
        ("append-bytes-max", "8MiB"),
        ("durability", "os"),
    ];
    let flags = flags.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
    let config = Loaded::from_sources(&Sources { flags, ..Sources::default() }).unwrap().config;
    let (say, said) = mpsc::channel();
    let server = thread::spawn(move || serve(&config, &mut Said(say)).unwrap());
    let said = said.recv_timeout(LONG).unwrap();
    let address = said.split("http://").nth(1).unwrap().split_whitespace().next().unwrap();
    (address.parse().unwrap(), server)
}

fn send(address: SocketAddr, request: &str) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    socket
}

/// Reads until `end` has come.
fn read_to(socket: &mut TcpStream, end: &str) {
    let (mut bytes, mut len) = ([0; 4096], 0);
    while !bytes[..len].windows(end.len()).any(|part| part == end.as_bytes()) {
        let read = socket.read(&mut bytes[len..]).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&bytes[..len]));
        len += read;
    }
}

/// Bytes that are held once what is still made ready in the background, as the next segment of a journal, is.
fn settled() -> usize {
    let clock = Env::real().clock;
    let (mut held, mut since) = (HELD.load(Relaxed), clock.now_ms());
    while clock.now_ms() < since + SETTLED_MS {
        let now = HELD.load(Relaxed);
        if now.abs_diff(held) > CONNECTIONS {
            (held, since) = (now, clock.now_ms());
        }
        thread::yield_now();
    }
    held
}

/// Opens connections, and waits until they hold no more than so many bytes each. They do so soon or never.
fn measure(
    what: &str,
    address: SocketAddr,
    bytes_max: usize,
    connect: impl Fn() -> TcpStream,
) -> Vec<TcpStream> {
    let clock = Env::real().clock;
    let mut sockets = Vec::with_capacity(CONNECTIONS);
    let before = settled();
    sockets.extend((0..CONNECTIONS).map(|_| connect()));
    // Whoever is answered now comes after all of them.
    read_to(&mut send(address, "GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"), "200 OK");
    let until = clock.now_ms() + u64::try_from(LONG.as_millis()).unwrap();
    loop {
        let each = HELD.load(Relaxed).saturating_sub(before) / CONNECTIONS;
        if each <= bytes_max {
            println!("{what}: {each} bytes");
            assert!(each >= BYTES_MIN, "{what}: {each} bytes, so something else was measured");
            return sockets;
        }
        assert!(clock.now_ms() < until, "{what}: {each} bytes where {bytes_max} are allowed");
        thread::yield_now();
    }
}

#[test]
fn what_waits_takes_no_more_than_is_said() {
    let scratch = tempfile::tempdir().unwrap();
    let (address, server) = start(scratch.path().join("data").to_str().unwrap());
    let stream = "/v1/stream/crowd";
    let put = "host: x\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\nfirst";
    read_to(&mut send(address, &format!("PUT {stream} HTTP/1.1\r\n{put}")), "201 Created");
    let get =
        |query: &str| format!("GET {stream}?{query} HTTP/1.1\r\nhost: x\r\nuser-agent: footprint\r\n\r\n");
    let answered = |mut socket: TcpStream, query: &str, end: &str| {
        socket.write_all(get(query).as_bytes()).unwrap();
        read_to(&mut socket, end);
        socket
    };

    let silent = measure("a connection without a request", address, SILENT_BYTES_MAX, || send(address, ""));
    let quiet = measure("a connection that has been quiet", address, QUIET_BYTES_MAX, || {
        answered(send(address, ""), "offset=-1", "\r\n\r\nfirst")
    });
    let subscribers = measure("a subscriber over SSE", address, SUBSCRIBER_BYTES_MAX, || {
        answered(send(address, ""), "offset=-1&live=sse", "upToDate")
    });
    let waiting = measure("a long-poll that waits", address, WAITING_BYTES_MAX, || {
        send(address, &get("offset=now&live=long-poll"))
    });
    // What has given back everything is as good as before.
    let quiet: Vec<_> =
        quiet.into_iter().map(|socket| answered(socket, "offset=-1", "\r\n\r\nfirst")).collect();
    drop((silent, subscribers, waiting, quiet));
    kill_process(getpid(), Signal::TERM).unwrap();
    server.join().unwrap();
}
