//! A receiver of webhooks that is done with some, takes others and calls back, fails, or breaks off.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::http::next_json;

/// A receiver, which ends with the process.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) address: SocketAddr,
    state: Arc<State>,
}

/// A webhook that came.
#[derive(Clone, Debug)]
pub(super) struct Came {
    pub(super) at_ms: u64,
    pub(super) body: Value,
}

#[derive(Debug, Default)]
struct State {
    /// Answers only with failures.
    is_down: AtomicBool,
    /// Answers only with success.
    is_well: AtomicBool,
    count: AtomicU64,
    came: Mutex<Vec<Came>>,
}

/// Milliseconds since the Unix epoch.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Receiver {
    pub(super) fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("listen")?;
        let address = listener.local_addr()?;
        let state = Arc::<State>::default();
        let shared = state.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = shared.clone();
                thread::spawn(move || while serve(&stream, &state).is_some_and(|goes_on| goes_on) {});
            }
        });
        Ok(Self { address, state })
    }

    pub(super) fn set_down(&self, is_down: bool) {
        self.state.is_down.store(is_down, Ordering::SeqCst);
    }

    pub(super) fn set_well(&self) {
        self.state.is_well.store(true, Ordering::SeqCst);
    }

    /// What came so far.
    pub(super) fn came(&self) -> Vec<Came> {
        self.state.came.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Answers one request; `None` when the connection is over.
fn serve(stream: &TcpStream, state: &State) -> Option<bool> {
    let body = next_json(stream)?;
    let came = Came { at_ms: now_ms(), body };
    state.came.lock().unwrap_or_else(PoisonError::into_inner).push(came);
    let count = state.count.fetch_add(1, Ordering::SeqCst);
    let kind = if state.is_down.load(Ordering::SeqCst) {
        3
    } else if state.is_well.load(Ordering::SeqCst) {
        0
    } else {
        count % 5
    };
    let (status, answer) = match kind {
        0..=1 => ("200 OK", r#"{"done":true}"#),
        2 => ("202 Accepted", "{}"),
        3 => ("500 Internal Server Error", ""),
        // It has the webhook, and nobody knows.
        _ => return None,
    };
    let text = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{answer}", answer.len());
    let mut stream = stream;
    stream.write_all(text.as_bytes()).ok()?;
    Some(true)
}
