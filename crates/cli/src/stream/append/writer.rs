//! Appends to one stream in order, each exactly once.

use ureq::http::Method;

use crate::stream::client::CONTENT_TYPE;
use crate::stream::client::{Answer, Call, Client, Repeat};
use crate::stream::failure::Failure;
use crate::stream::interrupt::Marker;
use crate::stream::notes;
use crate::stream::report::Report;
use crate::stream::target::Target;
use alluvium_protocol::header::{
    PRODUCER_EPOCH, PRODUCER_ID, PRODUCER_SEQ, STREAM_CLOSED, STREAM_NEXT_OFFSET, TRUE,
};

/// The identity that lets a server recognise a repeated append (PROTOCOL §5.2.1).
#[derive(Debug)]
pub(super) struct Producer {
    id: String,
    epoch: u64,
    next_seq: u64,
    /// Chosen by the user, so that it may have been used before.
    chosen: bool,
}

impl Producer {
    pub(super) fn chosen(id: String, epoch: u64) -> Self {
        Self { id, epoch, next_seq: 0, chosen: true }
    }

    /// An id that nobody else has.
    pub(super) fn random() -> Result<Self, Failure> {
        let draw = || getrandom::u64().map_err(|error| Failure::Other(format!("no randomness: {error}")));
        let id = format!("cli-{:016x}{:016x}", draw()?, draw()?);
        Ok(Self { id, epoch: 0, next_seq: 0, chosen: false })
    }
}

/// What became of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Appended {
    /// It is in the stream now.
    Now,
    /// The server knows this producer, epoch and sequence from an earlier command.
    Before,
}

/// The writing end of a stream.
#[derive(Debug)]
pub(super) struct Writer {
    client: Client,
    target: Target,
    content_type: String,
    producer: Option<Producer>,
    next_offset: Option<String>,
    has_appended: bool,
    closed: bool,
    /// How much of the input is appended, for the notes.
    covered: String,
    marker: Marker,
}

impl Writer {
    pub(super) fn new(
        client: Client,
        target: Target,
        content_type: String,
        producer: Option<Producer>,
        marker: Marker,
    ) -> Self {
        Self {
            client,
            target,
            content_type,
            producer,
            next_offset: None,
            has_appended: false,
            closed: false,
            covered: String::new(),
            marker,
        }
    }

    /// Takes down where the stream ended before anything was appended.
    pub(super) fn begin_at(&mut self, tail: Option<String>) {
        self.next_offset = tail;
        self.mark();
    }

    /// Whether anything was appended, or the stream closed.
    pub(super) fn has_appended(&self) -> bool {
        self.has_appended
    }

    /// Appends, and closes the stream in the same step if asked to. To be followed by [`cover`](Self::cover).
    pub(super) fn append(&mut self, body: &[u8], close: bool) -> Result<Appended, Failure> {
        let call = self.call(close).header(CONTENT_TYPE, self.content_type.clone()).body(body);
        let mut outage = self.client.outage();
        self.marker.leave();
        let answer = self.client.call_during(&call, &mut outage)?;
        // 204 to a producer means "known already" (PROTOCOL §5.2.1). After a failed attempt, or with an id
        // that only this command has, it is this very append that the server knows.
        let known = self.producer.as_ref().is_some_and(|producer| producer.chosen && answer.status == 204);
        self.note(&answer, close);
        Ok(if known && !outage.is_on() { Appended::Before } else { Appended::Now })
    }

    /// Closes the stream without appending.
    pub(super) fn close(&mut self) -> Result<(), Failure> {
        self.marker.leave();
        let answer = self.client.call(&self.call(true))?;
        self.note(&answer, true);
        self.mark();
        Ok(())
    }

    /// Where the last append ended, or the stream before the first, for the notes.
    pub(super) fn place(&self) -> Option<String> {
        self.next_offset.as_deref().map(|offset| notes::place(offset, self.closed))
    }

    /// Takes down that this much of the input is appended.
    pub(super) fn cover(&mut self, through: u64, unit: &str) {
        let unit = if through == 1 { unit.trim_end_matches('s') } else { unit };
        self.covered = format!("appended: {through} {unit} of the input");
        self.mark();
    }

    /// What was last taken down.
    pub(super) fn covered(&self) -> &str {
        &self.covered
    }

    /// How the stream stands now, for programs.
    pub(super) fn report(&self, already_appended: u64) -> Report {
        Report {
            url: self.target.url(),
            next_offset: self.next_offset.clone(),
            closed: self.closed,
            already_appended: Some(already_appended),
            ..Report::default()
        }
    }

    /// Tells whoever watches, if there is anything to tell.
    fn mark(&self) {
        let lines = [(!self.covered.is_empty()).then(|| self.covered.clone()), self.place()];
        let told = lines.into_iter().flatten().collect::<Vec<_>>().join("\n");
        if !told.is_empty() {
            self.marker.reach(told);
        }
    }

    pub(super) fn closed(&self) -> bool {
        self.closed
    }

    /// Input that is cut differently each time must not meet the sequence of an earlier command: the server
    /// would take other bytes for those it has.
    pub(super) fn used_before(&self) -> Failure {
        Failure::Conflict(format!("already appended: nothing written: {}", self.known_reason()))
    }

    /// Why the server knows an append already.
    pub(super) fn known_reason(&self) -> String {
        let (id, epoch) =
            self.producer.as_ref().map_or(("", 0), |producer| (producer.id.as_str(), producer.epoch));
        format!(
            "producer `{id}` has used this sequence in epoch {epoch} before; give a higher --epoch to append more"
        )
    }

    fn call<'a>(&self, close: bool) -> Call<'a> {
        let call =
            Call::new(Method::POST, self.target.url()).maybe_header(STREAM_CLOSED, close.then_some(TRUE));
        match &self.producer {
            Some(producer) => call
                .header(PRODUCER_ID, producer.id.clone())
                .header(PRODUCER_EPOCH, producer.epoch.to_string())
                .header(PRODUCER_SEQ, producer.next_seq.to_string()),
            None => call.repeat(Repeat::OnlyIfUntouched),
        }
    }

    fn note(&mut self, answer: &Answer, close: bool) {
        if let Some(producer) = &mut self.producer {
            producer.next_seq += 1;
        }
        if let Some(offset) = answer.header(STREAM_NEXT_OFFSET) {
            self.next_offset = Some(offset.to_owned());
        }
        self.closed |= close;
        self.has_appended = true;
    }
}
