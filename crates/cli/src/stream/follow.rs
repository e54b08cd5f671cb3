//! Reading a stream from an offset: page by page to the tail, then live. Every step starts from the last
//! offset that the server gave, so a broken connection or a restarted server costs nothing but the wait.

mod live;

use std::io::{self, Read, Stdout};

use ureq::http::Method;

use super::client::CONTENT_TYPE;
use super::client::{Answer, AttemptError, Call, Client, Outage, Trouble};
use super::connection::ConnectionArgs;
use super::failure::Failure;
use super::interrupt::{Marker, Work, watch_over};
use super::notes::{self, Notes};
use super::output::{Printer, Shape};
use super::progress::Progress;
use super::target::Target;
use alluvium_protocol::header::{
    QUERY_OFFSET, STREAM_CLOSED, STREAM_CURSOR, STREAM_NEXT_OFFSET, STREAM_UP_TO_DATE,
};

/// The tail, wherever that is; only an answer tells.
const NOW: &str = "now";
/// One read from a response.
const READ_BYTES: usize = 64 * 1024;

/// A reader with its place in a stream.
#[derive(Debug)]
pub(crate) struct Follower {
    client: Client,
    target: Target,
    json_shape: Shape,
    offset: String,
    /// Echoed on live requests, so that shared caches do not repeat themselves (PROTOCOL §10.1).
    cursor: Option<String>,
    /// Known with the first answer, which tells the content type.
    printer: Option<Printer<Stdout>>,
    outage: Outage,
    progress: Progress,
    closed: bool,
    notes: Notes,
    marker: Marker,
}

/// How a page ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageEnd {
    More,
    Tail,
}

impl Follower {
    /// Starts at `offset`, a token of the server's, `-1` or `now`. JSON streams are printed as `json_shape`.
    pub(crate) fn new(
        connection: &ConnectionArgs,
        stream: &str,
        offset: &str,
        json_shape: Shape,
    ) -> Result<Self, Failure> {
        let client = connection.client()?;
        let outage = client.outage();
        // As long as nothing is printed, it is from there that a later command goes on.
        let at = (offset != NOW).then(|| notes::place(offset, false));
        let marker = watch_over(Work::Printing, connection.notes(), at)?;
        Ok(Self {
            client,
            target: connection.target(stream)?,
            json_shape,
            offset: offset.to_owned(),
            cursor: None,
            printer: None,
            outage,
            progress: Progress::new(connection.quiet, &io::stdout(), None),
            closed: false,
            notes: connection.notes(),
            marker,
        })
    }

    /// Prints everything up to the tail.
    pub(crate) fn catch_up(&mut self) -> Result<(), Failure> {
        loop {
            let query = [(QUERY_OFFSET, self.offset.clone())];
            match self.page(&query) {
                Ok(PageEnd::More) => {}
                Ok(PageEnd::Tail) => return Ok(()),
                Err(error) => self.recover(error)?,
            }
        }
    }

    /// Completes the output after everything was printed.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        self.progress.finish();
        self.printer.as_mut().map_or(Ok(()), Printer::finish)
    }

    /// Says where a later command goes on; nothing while a page is printed in part.
    pub(crate) fn note_place(&mut self, outcome: &Result<(), Failure>) {
        self.progress.finish();
        if self.printer.as_ref().is_some_and(|printer| !printer.is_inside_page()) {
            self.notes.place(&notes::place(&self.offset, self.closed), outcome, Work::Printing);
        }
    }

    /// Waits after trouble; passes on what no waiting helps against.
    fn recover(&mut self, error: AttemptError) -> Result<(), Failure> {
        if self.printer.as_ref().is_some_and(|printer| !printer.is_inside_page()) {
            self.marker.back();
        }
        match error {
            AttemptError::Again(trouble) => self.outage.wait(&trouble),
            AttemptError::Final(failure) => Err(failure),
        }
    }

    /// Asks for one page and prints it as it arrives.
    fn page(&mut self, query: &[(&str, String)]) -> Result<PageEnd, AttemptError> {
        let answer = self.get(query)?;
        let next = answer.require(STREAM_NEXT_OFFSET)?;
        let cursor = answer.header(STREAM_CURSOR).map(str::to_owned);
        let closed = answer.flag(STREAM_CLOSED);
        let tail = closed || answer.flag(STREAM_UP_TO_DATE);
        // A long-poll that ran into its timeout has no page (PROTOCOL §5.7).
        if answer.status != 204 {
            self.print_page(answer)?;
        }
        self.outage.over();
        self.marker.reach(notes::place(&next, closed));
        // A server that forgets to say so is at its tail all the same when nothing moves.
        let stuck = next == self.offset;
        self.offset = next;
        self.cursor = cursor;
        self.closed = closed;
        Ok(if tail || stuck { PageEnd::Tail } else { PageEnd::More })
    }

    fn get(&self, query: &[(&str, String)]) -> Result<Answer, AttemptError> {
        let query: Vec<(&str, &str)> = query.iter().map(|(key, value)| (*key, value.as_str())).collect();
        self.client.attempt(&Call::new(Method::GET, self.target.url_with(&query)))
    }

    fn print_page(&mut self, answer: Answer) -> Result<(), AttemptError> {
        let content_type = answer.header(CONTENT_TYPE).unwrap_or_default();
        let shape = if is_json(content_type) { self.json_shape } else { Shape::Bytes };
        let printer = self.printer.get_or_insert_with(|| Printer::new(io::stdout(), shape));
        printer.begin_attempt();
        self.marker.leave();
        let mut reader = answer.into_reader();
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let count = match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) => return Err(AttemptError::Again(Trouble::new(&self.target.url(), &error))),
            };
            if printer.push(&buffer[..count])? {
                self.outage.over();
                self.progress.add(count);
            }
        }
        Ok(printer.end_page()?)
    }
}

/// Whether a stream has JSON messages (PROTOCOL §9.1).
pub(crate) fn is_json(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case("application/json")
}
