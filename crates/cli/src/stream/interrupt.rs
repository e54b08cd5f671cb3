//! Ctrl-C, SIGTERM, and a reader that has gone: how a long command ends before it is done.
//!
//! The command itself blocks in a read or a write, so a thread beside it watches. The command tells it where it is:
//! at an offset that says where to go on, or between two of them. In between, the thread waits a moment for it to
//! arrive; then it says where that was, and ends the process.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use tokio::runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::failure::{EXIT_INTERRUPTED, EXIT_TERMINATED, Failure};
use super::notes::Notes;

/// How long an append or a page that is on its way may still take.
const GRACE: Duration = Duration::from_secs(1);

/// Where a command is.
#[derive(Debug, Default, Clone)]
struct Place {
    /// The last offset it has reached, and what else there is to say about it.
    reached: Option<String>,
    /// It is past that offset, and has not come to the next one.
    between: bool,
}

/// The command's side: marks where it is.
#[derive(Debug)]
pub(crate) struct Marker {
    place: watch::Sender<Place>,
}

impl Marker {
    /// Something is on its way that the last offset does not cover.
    pub(crate) fn leave(&self) {
        self.place.send_if_modified(|place| !std::mem::replace(&mut place.between, true));
    }

    /// It is back at the last offset: what was on its way has left no trace.
    pub(crate) fn back(&self) {
        self.place.send_if_modified(|place| std::mem::take(&mut place.between));
    }

    /// It has reached an offset.
    pub(crate) fn reach(&self, place: String) {
        self.place.send_replace(Place { reached: Some(place), between: false });
    }
}

/// What ends a command from outside.
struct Watcher {
    interrupt: Signal,
    terminate: Signal,
    place: watch::Receiver<Place>,
    work: Work,
    notes: Notes,
}

/// What a command does for so long that somebody may stop it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// It sends its input. What it is for is at the server.
    Appending,
    /// It prints. Without a reader of its output it is for nothing.
    Printing,
}

/// Watches over a command that begins at a place, if that is known.
pub(crate) fn watch_over(work: Work, notes: Notes, at: Option<String>) -> Result<Marker, Failure> {
    let failed = |error: io::Error| Failure::Other(format!("cannot receive signals: {error}"));
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let (sender, place) = watch::channel(Place { reached: at, between: false });
    let watcher = {
        let _inside = runtime.enter();
        Watcher {
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
            place,
            work,
            notes,
        }
    };
    // Both end with the process.
    std::thread::spawn(move || runtime.block_on(watcher.run()));
    if work == Work::Printing {
        std::thread::spawn(end_without_reader);
    }
    Ok(Marker { place: sender })
}

impl Watcher {
    async fn run(mut self) {
        let code = tokio::select! {
            _ = self.interrupt.recv() => EXIT_INTERRUPTED,
            _ = self.terminate.recv() => EXIT_TERMINATED,
        };
        let mut place = self.place.clone();
        tokio::select! {
            // While the place is looked at, the command cannot leave it.
            Ok(place) = place.wait_for(|place| !place.between) => self.end(&place, code),
            () = tokio::time::sleep(GRACE) => {}
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        self.end(&self.place.borrow(), code);
    }

    fn end(&self, place: &Place, code: u8) -> ! {
        if let Some(reached) = &place.reached {
            let doubt = match self.work {
                _ if !place.between => "",
                Work::Appending => " (one more append was on its way: it may or may not be in the stream)",
                Work::Printing => " (a part of what follows it is printed already)",
            };
            self.notes.clear_line();
            self.notes.note(format_args!("{reached}{doubt}"));
        }
        exit(code)
    }
}

/// Ends the process once nobody reads its standard output any more: a command that waits for something to print would
/// find out only when there is something.
pub(crate) fn end_without_reader() {
    let output = io::stdout();
    loop {
        let mut polled = [PollFd::new(&output, PollFlags::empty())];
        match poll(&mut polled, None) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(_) if polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) => exit(0),
            // Standard output was closed from the start, or is something that cannot be watched.
            _ => return,
        }
    }
}

#[expect(clippy::exit, reason = "the command's own thread is blocked, and has said where it is")]
fn exit(code: u8) -> ! {
    std::process::exit(code.into())
}
