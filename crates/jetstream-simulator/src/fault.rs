//! Faults of servers: each is armed for a number of times, and counts how often it came.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The most faults that are remembered.
const FAULTS_MAX: usize = 4096;
/// The most notes that one fault keeps.
const NOTES_MAX: usize = 1024;

/// Something that goes wrong. Where `host` or `cursor` is left out, any will do; a `host` that is left out of a list of
/// repositories is the relay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Fault {
    /// `listHosts` is refused.
    ListHostsStatus {
        /// With this HTTP status.
        status: u16,
    },
    /// `listHosts` says another status of a host.
    HostStatus {
        /// The number of the host.
        host: u32,
        /// `active`, `idle`, `offline`, `throttled` or `banned`.
        status: String,
    },
    /// `listRepos` is refused.
    ListReposStatus {
        /// The number of the host.
        host: Option<u32>,
        /// At this cursor.
        cursor: Option<String>,
        /// With this HTTP status.
        status: u16,
    },
    /// `listRepos` gives the page before the one that was asked for.
    ListReposRepeat {
        /// The number of the host.
        host: Option<u32>,
    },
    /// `listRepos` gives the cursor that it was asked with.
    ListReposLoop {
        /// The number of the host.
        host: Option<u32>,
    },
    /// `listRepos` gives half of a page, and a cursor.
    ListReposShort {
        /// The number of the host.
        host: Option<u32>,
    },
    /// `getRepo` is refused.
    GetRepoStatus {
        /// Whose.
        did: String,
        /// With this HTTP status.
        status: u16,
    },
    /// `getRepo` gives this response.
    GetRepoResponse {
        /// Whose.
        did: String,
        /// The HTTP status.
        status: u16,
        /// Names and values of headers; a `location` makes it a redirect.
        #[serde(default)]
        headers: Vec<(String, String)>,
        /// The body, as text.
        #[serde(default)]
        body: String,
    },
    /// `getRepo` gives the first half of the file, as if that were all.
    GetRepoCut {
        /// Whose.
        did: String,
    },
    /// `getRepo` says `RepoNotFound`, as a host does to which the account is still moving.
    GetRepoNotFound {
        /// Whose.
        did: String,
    },
    /// `getRepo` gives the repository as it was when this was armed.
    GetRepoOld {
        /// Whose.
        did: String,
    },
    /// The document names no host.
    PlcNoEndpoint {
        /// Whose.
        did: String,
    },
    /// The document has a handle that is not one.
    PlcMalformedHandle {
        /// Whose.
        did: String,
    },
    /// The document has the address of a host that is not one.
    PlcMalformedEndpoint {
        /// Whose.
        did: String,
    },
    /// The directory refuses.
    PlcStatus {
        /// Whose.
        did: String,
        /// With this HTTP status.
        status: u16,
    },
    /// The directory does not answer before the server stops.
    PlcHang {
        /// Whose.
        did: String,
    },
    /// The body of a response comes slowly.
    Trickle {
        /// Of requests whose path begins with this.
        path: String,
        /// So many bytes at a time.
        bytes: usize,
        /// With so much time between them, in milliseconds.
        pause_ms: u64,
    },
    /// The connection ends within the body of a response.
    EarlyClose {
        /// Of requests whose path begins with this.
        path: String,
        /// After so many bytes.
        bytes: usize,
    },
    /// `Content-Length` says more than comes, and the connection ends.
    WrongLength {
        /// Of requests whose path begins with this.
        path: String,
        /// How much more.
        extra: u64,
    },
    /// `subscribeRepos` ends the connection without a word.
    Close {
        /// After so many frames.
        after: u64,
    },
    /// `subscribeRepos` goes back by some frames.
    Resend {
        /// After so many frames.
        after: u64,
        /// By how many.
        frames: u64,
    },
    /// `subscribeRepos` goes back to a sequence number.
    ResendSince {
        /// After so many frames.
        after: u64,
        /// What follows this number comes again.
        seq: u64,
    },
    /// `subscribeRepos` sends bytes that are not from the network.
    Inject {
        /// After so many frames.
        after: u64,
        /// The message, as numbers.
        bytes: Vec<u8>,
    },
    /// `subscribeRepos` leaves the next frame out.
    Swallow {
        /// After so many frames.
        after: u64,
    },
}

/// Why a fault cannot be armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("no more than {FAULTS_MAX} faults can be armed")]
pub struct TooManyFaults;

/// A fault that was armed.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Armed {
    /// Its number.
    pub id: u64,
    /// What it is.
    pub fault: Fault,
    /// How often it will come yet.
    pub left: u32,
    /// How often it came.
    pub fired: u64,
    /// What it met, for those that meet something: the sequence numbers that were left out or where a connection ended.
    pub met: Vec<u64>,
    /// What it needs to come.
    #[serde(skip)]
    pub(crate) payload: Bytes,
}

/// All faults, those that are over included.
#[derive(Debug, Default)]
pub struct Faults(Vec<Armed>);

impl Faults {
    /// Arms a fault for `count` times and gives it a number.
    pub fn arm(&mut self, fault: Fault, count: u32) -> Result<u64, TooManyFaults> {
        self.arm_with(fault, count, Bytes::new())
    }

    pub(crate) fn arm_with(
        &mut self,
        fault: Fault,
        count: u32,
        payload: Bytes,
    ) -> Result<u64, TooManyFaults> {
        if self.0.len() >= FAULTS_MAX {
            return Err(TooManyFaults);
        }
        let id = self.0.len() as u64 + 1;
        self.0.push(Armed { id, fault, left: count, fired: 0, met: Vec::new(), payload });
        Ok(id)
    }

    /// Ends a fault; what it counted stays.
    pub fn disarm(&mut self, id: u64) {
        if let Some(armed) = self.0.iter_mut().find(|armed| armed.id == id) {
            armed.left = 0;
        }
    }

    /// How often a fault came.
    pub fn fired(&self, id: u64) -> u64 {
        self.0.iter().find(|armed| armed.id == id).map_or(0, |armed| armed.fired)
    }

    /// All of them, in the order in which they were armed.
    pub fn all(&self) -> &[Armed] {
        &self.0
    }

    /// The first armed fault that `fits`, which counts as come.
    pub(crate) fn take(&mut self, fits: impl Fn(&Fault) -> bool) -> Option<&mut Armed> {
        let armed = self.0.iter_mut().find(|armed| armed.left > 0 && fits(&armed.fault))?;
        armed.left -= 1;
        armed.fired += 1;
        Some(armed)
    }
}

impl Armed {
    pub(crate) fn note(&mut self, met: u64) {
        if self.met.len() < NOTES_MAX {
            self.met.push(met);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_comes_as_often_as_armed_and_counts() {
        let mut faults = Faults::default();
        let close = |after| Fault::Close { after };
        let first = faults.arm(close(1), 2).expect("room");
        let second = faults.arm(close(1), 1).expect("room");
        let other = faults.arm(close(7), 1).expect("room");
        let mut ids = Vec::new();
        while let Some(armed) = faults.take(|fault| *fault == close(1)) {
            armed.note(9);
            ids.push(armed.id);
        }
        assert_eq!(ids, [first, first, second]);
        assert_eq!([first, second, other].map(|id| faults.fired(id)), [2, 1, 0]);
        assert_eq!(faults.all()[0].met, [9, 9]);
        faults.disarm(other);
        assert!(faults.take(|_| true).is_none());
    }

    #[test]
    fn faults_are_read_from_json_and_their_number_is_bounded() {
        let fault: Fault = serde_json::from_str(r#"{"fault":"trickle","path":"/x","bytes":1,"pauseMs":2}"#)
            .expect("a fault");
        assert_eq!(fault, Fault::Trickle { path: "/x".to_owned(), bytes: 1, pause_ms: 2 });
        assert!(serde_json::from_str::<Fault>(r#"{"fault":"close","after":1,"x":2}"#).is_err());
        let mut faults = Faults::default();
        for _ in 0..FAULTS_MAX {
            faults.arm(fault.clone(), 1).expect("room");
        }
        assert_eq!(faults.arm(fault, 1), Err(TooManyFaults));
    }
}
