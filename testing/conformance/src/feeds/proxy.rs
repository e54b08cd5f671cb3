//! A proxy that cuts: each connection through it may end in the middle of whatever it carries.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::Result;

use crate::random::Random;

/// Bytes that a cut connection carries at most, each way.
const BYTES_UNTIL_CUT_MAX: u64 = 2000;
/// One connection in so many carries on to its end.
const WHOLE_ONCE_IN: u64 = 3;

/// A listening proxy; it goes on until the process ends.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    cuts: Arc<AtomicBool>,
    /// Connections that were cut.
    pub(super) cut: Arc<AtomicU64>,
}

impl Proxy {
    /// A proxy before a server, which may come and go.
    pub(super) fn start(server: SocketAddr, random: Random) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let (cuts, cut) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
        let random = Mutex::new(random);
        let (is_cutting, counter) = (Arc::clone(&cuts), Arc::clone(&cut));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let bytes_max = {
                    let mut random = random.lock().unwrap_or_else(PoisonError::into_inner);
                    let is_whole = !is_cutting.load(Ordering::Relaxed) || random.once_in(WHOLE_ONCE_IN);
                    if is_whole { u64::MAX } else { random.between(0, BYTES_UNTIL_CUT_MAX) }
                };
                // Without a server the client's connection is simply gone.
                if let Ok(server) = TcpStream::connect(server) {
                    join(client, server, bytes_max, &counter);
                }
            }
        });
        Ok(Self { address, cuts, cut })
    }

    /// Cuts again.
    pub(super) fn go_on_cutting(&self) {
        self.cuts.store(true, Ordering::Relaxed);
    }

    /// Lets every connection from now on live to its end.
    pub(super) fn stop_cutting(&self) {
        self.cuts.store(false, Ordering::Relaxed);
    }
}

/// Carries bytes both ways.
fn join(client: TcpStream, server: TcpStream, bytes_max: u64, cut: &Arc<AtomicU64>) {
    let clones = (client.try_clone(), server.try_clone());
    let (Ok(client_too), Ok(server_too)) = clones else { return };
    for (from, to) in [(client, server), (server_too, client_too)] {
        let cut = Arc::clone(cut);
        thread::spawn(move || carry(from, to, bytes_max, &cut));
    }
}

/// Carries bytes one way, until their end or the cut.
fn carry(mut from: TcpStream, mut to: TcpStream, mut left: u64, cut: &AtomicU64) {
    let mut buffer = [0; 4096];
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(read) => read,
        };
        let carried = usize::try_from(left).unwrap_or(usize::MAX).min(read);
        if to.write_all(&buffer[..carried]).is_err() {
            break;
        }
        left -= carried as u64;
        if carried < read {
            cut.fetch_add(1, Ordering::Relaxed);
            break;
        }
    }
    // Both are done for: what is half open would only wait.
    drop(from.shutdown(Shutdown::Both));
    drop(to.shutdown(Shutdown::Both));
}
