//! From a reader to lines, until the end, a signal, or nobody reads them.

use std::process::ExitCode;
use std::time::Duration;

use alluvium_jetstream_client::{Cursor, Events, Item, Notice};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep, sleep_until};

use super::failure;
use super::output::Output;
use super::show::Show;
use crate::stream::failure::{EXIT_INTERRUPTED, EXIT_TERMINATED, Failure};
use crate::stream::interrupt::end_without_reader;
use crate::stream::notes::Notes;

/// How old a kept cursor gets while there are further events.
const KEEP_EVERY: Duration = Duration::from_secs(1);
/// How long a signal waits for lines that nobody takes.
const GRACE: Duration = Duration::from_secs(2);

/// Writes what a reader gives. The exit code of a good end.
pub(super) async fn follow(
    mut events: Events,
    mut output: Output,
    count: Option<u64>,
    notes: Notes,
    quiet: bool,
) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new()?;
    tokio::spawn(guard(Signals::new()?));
    if output.is_standard() {
        std::thread::spawn(end_without_reader);
    }
    let mut show = Show::new(quiet, output.is_terminal());
    let written = write(&mut events, &mut output, count, notes, &mut show, &mut signals).await;
    show.finish();
    // What was written counts also if reading failed.
    let kept = output.keep(events.cursor());
    if let Some(cursor) = events.cursor().to_wire() {
        notes.note(format_args!("cursor: {cursor}"));
    }
    let code = written?;
    kept?;
    Ok(ExitCode::from(code))
}

async fn write(
    events: &mut Events,
    output: &mut Output,
    count: Option<u64>,
    notes: Notes,
    show: &mut Show,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let mut left = count.unwrap_or(u64::MAX);
    let mut kept: (Instant, Cursor) = (Instant::now(), events.cursor());
    while left > 0 {
        let is_due = kept.1 != events.cursor();
        let item = tokio::select! {
            biased;
            code = signals.next() => return Ok(code),
            item = events.next_item() => item.map_err(|error| failure::of_reading(&error))?,
            () = sleep_until(kept.0 + KEEP_EVERY), if is_due => {
                output.keep(events.cursor())?;
                show.look(events.progress(), events.cursor());
                kept = (Instant::now(), events.cursor());
                continue;
            }
        };
        match item {
            None => break,
            Some(Item::Event(event)) => {
                output.line(&event.line)?;
                left -= 1;
                show.step(|| events.progress(), events.cursor());
            }
            Some(Item::Passed(_)) => show.step(|| events.progress(), events.cursor()),
            Some(Item::Notice(notice)) => tell(&notice, notes, show),
        }
        if events.is_drained() {
            output.flush()?;
        }
        // Under load the timer above does not come to its turn.
        if kept.0.elapsed() >= KEEP_EVERY {
            output.keep(events.cursor())?;
            kept = (Instant::now(), events.cursor());
        }
    }
    Ok(0)
}

fn tell(notice: &Notice, notes: Notes, show: &Show) {
    show.aside(|| match notice {
        Notice::Empty => notes.note(
            "no finished segment of the archive has anything of that yet; what there is comes by the live feed \
             (`tail`, or `backfill --follow`)",
        ),
        Notice::Archive { tip } => notes.note(format_args!("the archive, up to event {tip}")),
        Notice::Live => notes.note("live"),
        Notice::Again { reason, pause } => {
            notes.note(format_args!("{reason}; again in {} ms", pause.as_millis()));
        }
        Notice::Info { name, message } => notes.note(format_args!("the server says {name}: {message}")),
    });
}

/// Ends the process some time after a signal: the command's own thread may wait for somebody to take its lines.
async fn guard(mut signals: Signals) {
    let code = signals.next().await;
    sleep(GRACE).await;
    exit(code);
}

#[expect(clippy::exit, reason = "the command's own thread is blocked by a reader that does not read")]
fn exit(code: u8) -> ! {
    std::process::exit(code.into())
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::Other(format!("cannot receive signals: {error}"));
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
        })
    }

    async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => EXIT_INTERRUPTED,
            _ = self.terminate.recv() => EXIT_TERMINATED,
        }
    }
}
