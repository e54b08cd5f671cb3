//! What reads a server's answers, for those who feed it anything: fuzzing. Not part of the interface.

use crate::config::Form;
use crate::event::{Event, Heard, hear};
use crate::plan;

/// A message of a live feed; none if it is no event. Of what cannot be read the reason.
pub fn message(line: &str, form: Form) -> Result<Option<Event>, String> {
    match hear(line.to_owned(), form) {
        Ok(Heard::Event(event)) => Ok(Some(event)),
        Ok(_) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// A segment of a plan, with the ranges of its blocks; none for all of it.
pub type Planned = (u64, Option<Vec<(u32, u32)>>);

/// The answer to a plan: how far it goes, and what of it is to be downloaded, in order.
pub fn plan(answer: &[u8]) -> Result<(u64, Vec<Planned>), String> {
    let page = plan::read_page(answer).map_err(|error| error.to_string())?;
    let entries = page.entries.into_iter().map(|entry| (entry.index.get(), entry.ranges));
    Ok((page.through, entries.collect()))
}

/// The answer to a list of segments, of which the first is wanted that reaches a time: its first event.
pub fn list(answer: &[u8], time: i64) -> Result<Option<u64>, String> {
    plan::first_of_page(answer, time).map_err(|error| error.to_string())
}
