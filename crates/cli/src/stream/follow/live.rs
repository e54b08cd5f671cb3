//! The live part of following: server-sent events, or long-polls.

use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::{Follower, READ_BYTES};
use crate::stream::client::sse::{EVENT_BYTES_MAX, Event, SseParser};
use crate::stream::client::{AttemptError, Trouble};
use crate::stream::failure::Failure;
use crate::stream::notes;
use alluvium_protocol::header::{BASE64, QUERY_CURSOR, QUERY_LIVE, QUERY_OFFSET, STREAM_SSE_DATA_ENCODING};

/// The `control` event (PROTOCOL §5.8).
#[derive(Debug, Deserialize)]
struct Control {
    #[serde(rename = "streamNextOffset")]
    next_offset: String,
    #[serde(rename = "streamCursor")]
    cursor: Option<String>,
    #[serde(rename = "streamClosed", default)]
    closed: bool,
}

impl Follower {
    /// Prints what is appended, by long-polls, until the stream is closed.
    pub(crate) fn long_poll(&mut self) -> Result<(), Failure> {
        while !self.closed {
            let query = self.live_query("long-poll");
            match self.page(&query) {
                Ok(_) => {}
                Err(error) => self.recover(error)?,
            }
        }
        Ok(())
    }

    /// Prints what is appended, by server-sent events, until the stream is closed.
    pub(crate) fn server_sent_events(&mut self) -> Result<(), Failure> {
        while !self.closed {
            let from = self.offset.clone();
            match self.event_stream() {
                // A server ends a connection about once a minute. If one does so without ever sending
                // anything, it must not be asked in a tight loop.
                Ok(()) if !self.closed && self.offset == from => self.outage.breathe(),
                Ok(()) => {}
                Err(error) => self.recover(error)?,
            }
        }
        Ok(())
    }

    fn live_query(&self, mode: &str) -> Vec<(&'static str, String)> {
        let mut query = Vec::with_capacity(3);
        if let Some(cursor) = &self.cursor {
            query.push((QUERY_CURSOR, cursor.clone()));
        }
        query.push((QUERY_LIVE, mode.to_owned()));
        query.push((QUERY_OFFSET, self.offset.clone()));
        query
    }

    /// One connection's events.
    fn event_stream(&mut self) -> Result<(), AttemptError> {
        let answer = self.get(&self.live_query("sse"))?;
        let base64 = answer.header(STREAM_SSE_DATA_ENCODING).is_some_and(|value| value == BASE64);
        let mut reader = answer.into_reader();
        let mut buffer = vec![0; READ_BYTES];
        let mut parser = SseParser::new(EVENT_BYTES_MAX);
        // Data waits for the control event that gives its end an offset: printed before, it would be
        // printed again if the connection broke between the two.
        let mut held = Vec::new();
        loop {
            let count = match reader.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) => return Err(AttemptError::Again(Trouble::new(&self.target.url(), &error))),
            };
            let mut events = Vec::new();
            parser
                .push(&buffer[..count], &mut |event| events.push(event))
                .map_err(|error| Failure::Other(format!("{error}; try --long-poll")))?;
            for event in events {
                self.event(event, base64, &mut held)?;
            }
            if self.closed {
                return Ok(());
            }
        }
    }

    fn event(&mut self, event: Event, base64: bool, held: &mut Vec<u8>) -> Result<(), Failure> {
        match event.name.as_slice() {
            b"data" if base64 => held.extend(decode(event.data)?),
            b"data" => held.extend(event.data),
            b"control" => {
                let control: Control = serde_json::from_slice(&event.data).map_err(|error| {
                    Failure::Other(format!("the server's control event is invalid: {error}"))
                })?;
                if let Some(printer) = self.printer.as_mut()
                    && !held.is_empty()
                {
                    self.marker.leave();
                    printer.begin_attempt();
                    printer.push(held)?;
                    printer.end_page()?;
                }
                held.clear();
                self.outage.over();
                self.offset = control.next_offset;
                self.cursor = control.cursor;
                self.closed = control.closed;
                self.marker.reach(notes::place(&self.offset, self.closed));
            }
            _ => {}
        }
        if held.len() > EVENT_BYTES_MAX {
            return Err(Failure::Other(format!(
                "the server sent more than {EVENT_BYTES_MAX} bytes without a control event"
            )));
        }
        Ok(())
    }
}

/// Base64 may be cut in lines anywhere (PROTOCOL §5.8).
fn decode(mut text: Vec<u8>) -> Result<Vec<u8>, Failure> {
    text.retain(|byte| !matches!(byte, b'\n' | b'\r'));
    STANDARD
        .decode(&text)
        .map_err(|error| Failure::Other(format!("the server's data event is not base64: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_decoded_over_its_lines() {
        assert_eq!(decode(b"AQI\nDBAUG\n".to_vec()).unwrap(), [1, 2, 3, 4, 5, 6]);
        assert!(decode(Vec::new()).unwrap().is_empty());
        assert!(decode(b"AQI".to_vec()).is_err());
    }

    #[test]
    fn a_control_event_needs_no_more_than_an_offset() {
        let control: Control = serde_json::from_str(r#"{"streamNextOffset":"1_2"}"#).unwrap();
        assert_eq!((control.next_offset.as_str(), control.closed), ("1_2", false));
        let control: Control =
            serde_json::from_str(r#"{"streamNextOffset":"1_2","streamClosed":true,"upToDate":true}"#)
                .unwrap();
        assert!(control.closed && control.cursor.is_none());
    }
}
