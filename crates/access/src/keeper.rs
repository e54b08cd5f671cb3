//! Keeps up with the access file and with keys, in a thread of its own, so that no request waits for either.
//!
//! A file is taken over once two looks in a row have found the same in it: whoever writes it may be half-way. What cannot
//! be read or is wrong changes nothing, and is logged once.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use alluvium_env::{Disk, Env, OpenMode};
use parking_lot::Mutex;

use crate::AccessError;
use crate::access::{Inner, State};
use crate::counters::Counters;
use crate::fetch::{FetchError, fetch, roots};
use crate::file::{AccessFile, KeySource, KeyUrl};
use crate::keys::KeySet;
use crate::limits::{FILE_BYTES_MAX, KEYS_BYTES_MAX, KEYS_RETRY_S, KEYS_STALE_S, KEYS_TIMEOUT_S, LOOK_S};

/// What the thread is told.
#[derive(Debug)]
pub(crate) enum Message {
    /// A token names a key of this URL that is not there.
    Wanted(KeyUrl),
    /// What came of a fetch.
    Fetched(KeyUrl, Result<KeySet, FetchError>),
}

/// What is known of fetches, for whoever wonders whether to wait for one.
#[derive(Debug, Default)]
pub(crate) struct Fetching(Mutex<HashMap<KeyUrl, Fetch>>);

#[derive(Clone, Copy, Debug, Default)]
struct Fetch {
    is_under_way: bool,
    /// When the last one began.
    began_ms: u64,
}

impl Fetching {
    /// Whether keys of this URL are on their way, or may be fetched again.
    pub(crate) fn is_worth_waiting(&self, url: &KeyUrl, now_ms: u64) -> bool {
        let all = self.0.lock();
        all.get(url).is_none_or(|fetch| fetch.is_under_way || fetch.may_begin(now_ms))
    }

    /// Notes that one begins, unless one is under way or was begun not long ago.
    fn begin(&self, url: &KeyUrl, now_ms: u64) -> bool {
        let mut all = self.0.lock();
        let fetch = all.entry(url.clone()).or_default();
        if fetch.is_under_way || (fetch.began_ms > 0 && !fetch.may_begin(now_ms)) {
            return false;
        }
        *fetch = Fetch { is_under_way: true, began_ms: now_ms };
        true
    }

    fn end(&self, url: &KeyUrl) {
        if let Some(fetch) = self.0.lock().get_mut(url) {
            fetch.is_under_way = false;
        }
    }
}

impl Fetch {
    /// A clock that was set back makes no difference.
    fn may_begin(self, now_ms: u64) -> bool {
        now_ms < self.began_ms || now_ms - self.began_ms >= KEYS_RETRY_S * 1000
    }
}

/// What a server starts with. Keys of URLs are not waited for.
pub(crate) fn first(
    path: &Path,
    env: &Env,
) -> Result<(AccessFile, HashMap<KeySource, Arc<KeySet>>), AccessError> {
    let file = parse(path, &read(&*env.disk, path, FILE_BYTES_MAX).map_err(unreadable(path))?)?;
    let mut keys = HashMap::new();
    for issuer in &file.issuers {
        match &issuer.keys {
            KeySource::File(path) => {
                let bytes = read(&*env.disk, path, KEYS_BYTES_MAX).map_err(unreadable(path))?;
                keys.insert(issuer.keys.clone(), Arc::new(parse_keys(path, &bytes)?));
            }
            // Whether its authorities can be read is known without asking anyone.
            KeySource::Url(KeyUrl { authority: Some(path), .. }) => {
                drop(roots(&*env.disk, path)?);
            }
            KeySource::Url(_) => {}
        }
    }
    Ok((file, keys))
}

/// Starts the thread; it ends soon after the last one who could ask it.
pub(crate) fn start(
    inner: &Arc<Inner>,
    messages: Receiver<Message>,
    sender: Sender<Message>,
) -> io::Result<()> {
    let mut keeper = Keeper::new(Arc::downgrade(inner), sender);
    thread::Builder::new().name("access".to_owned()).spawn(move || keeper.run(&messages)).map(drop)
}

/// The content of a file as it was found, and as it is in use.
#[derive(Debug, Default)]
struct Watched {
    seen: Option<Vec<u8>>,
    used: Option<Vec<u8>>,
    /// What was logged last.
    problem: Option<String>,
}

impl Watched {
    /// Looks at a file; what is in it, if that is new and was there at the last look already.
    fn look(&mut self, disk: &dyn Disk, path: &Path, bytes_max: u64) -> Option<Vec<u8>> {
        let found = match read(disk, path, bytes_max) {
            Ok(found) => found,
            Err(error) => {
                self.report(path, &error.to_string());
                return None;
            }
        };
        let is_stable = self.seen.as_ref() == Some(&found);
        let is_new = self.used.as_ref() != Some(&found);
        self.seen = Some(found.clone());
        if !is_stable || !is_new {
            return None;
        }
        self.used = Some(found.clone());
        Some(found)
    }

    fn report(&mut self, path: &Path, problem: &str) {
        if self.problem.as_deref() != Some(problem) {
            tracing::error!(path = %path.display(), problem, "what is in use stays in use");
            self.problem = Some(problem.to_owned());
        }
    }
}

/// A URL with keys.
#[derive(Debug, Default)]
struct Remote {
    /// Looks since keys were fetched last.
    age: u64,
    /// Looks since it was tried last; `None` if it never was.
    tried: Option<u64>,
    problem: Option<String>,
}

#[derive(Debug)]
struct Keeper {
    inner: Weak<Inner>,
    sender: Sender<Message>,
    file: Watched,
    key_files: HashMap<PathBuf, Watched>,
    remotes: HashMap<KeyUrl, Remote>,
}

impl Keeper {
    fn new(inner: Weak<Inner>, sender: Sender<Message>) -> Self {
        Self { inner, sender, file: Watched::default(), key_files: HashMap::new(), remotes: HashMap::new() }
    }

    fn run(&mut self, messages: &Receiver<Message>) {
        let mut is_due = true;
        loop {
            let Some(inner) = self.inner.upgrade() else { return };
            if is_due {
                self.look(&inner);
            }
            drop(inner);
            let message = messages.recv_timeout(Duration::from_secs(LOOK_S));
            let Some(inner) = self.inner.upgrade() else { return };
            is_due = match message {
                Ok(message) => {
                    self.hear(&inner, message);
                    false
                }
                Err(RecvTimeoutError::Timeout) => true,
                Err(RecvTimeoutError::Disconnected) => return,
            };
        }
    }

    /// Looks at every file, and fetches what is due.
    fn look(&mut self, inner: &Inner) {
        let Some(path) = inner.options.file.clone() else { return };
        let old = inner.state();
        let mut file = None;
        if let Some(bytes) = self.file.look(&*inner.env.disk, &path, FILE_BYTES_MAX) {
            match parse(&path, &bytes) {
                Ok(parsed) if parsed == old.file => {}
                Ok(parsed) => {
                    tracing::info!(path = %path.display(), tokens = parsed.tokens.len(), "the access file has changed");
                    Counters::one(&inner.counters.file_loads);
                    self.file.problem = None;
                    file = Some(parsed);
                }
                Err(error) => {
                    Counters::one(&inner.counters.file_failures);
                    self.file.report(&path, &error.to_string());
                }
            }
        }
        let current = file.as_ref().unwrap_or(&old.file);
        let is_used = |source: &KeySource| current.issuers.iter().any(|issuer| issuer.keys == *source);
        let mut keys: HashMap<_, _> = old
            .keys
            .iter()
            .filter(|(source, _)| is_used(source))
            .map(|(key, set)| (key.clone(), set.clone()))
            .collect();
        let mut is_changed = file.is_some();
        let sources: Vec<(KeySource, u64)> =
            current.issuers.iter().map(|issuer| (issuer.keys.clone(), issuer.refresh_s)).collect();
        for (source, refresh_s) in sources {
            match &source {
                KeySource::File(path) => {
                    if let Some(fresh) = self.look_at_keys(inner, path)
                        && keys.get(&source).is_none_or(|known| **known != fresh)
                    {
                        keys.insert(source, Arc::new(fresh));
                        is_changed = true;
                    }
                }
                KeySource::Url(url) => {
                    if self.look_at_remote(inner, url, refresh_s) && keys.remove(&source).is_some() {
                        tracing::error!(%url, "keys that could not be fetched for so long are no longer used");
                        is_changed = true;
                    }
                }
            }
        }
        if is_changed {
            inner.replace(State::new(&inner.options, file.unwrap_or_else(|| old.file.clone()), keys));
        }
    }

    fn look_at_keys(&mut self, inner: &Inner, path: &Path) -> Option<KeySet> {
        let watched = self.key_files.entry(path.to_owned()).or_default();
        let bytes = watched.look(&*inner.env.disk, path, KEYS_BYTES_MAX)?;
        match parse_keys(path, &bytes) {
            Ok(keys) => {
                Counters::one(&inner.counters.key_loads);
                watched.problem = None;
                Some(keys)
            }
            Err(error) => {
                Counters::one(&inner.counters.key_failures);
                watched.report(path, &error.to_string());
                None
            }
        }
    }

    /// Counts on, and fetches if it is time. Whether what was fetched once is too old by now.
    fn look_at_remote(&mut self, inner: &Inner, url: &KeyUrl, refresh_s: u64) -> bool {
        let remote = self.remotes.entry(url.clone()).or_default();
        remote.age += LOOK_S;
        remote.tried = remote.tried.map(|tried| tried + LOOK_S);
        let is_stale = remote.age > KEYS_STALE_S.max(2 * refresh_s);
        let is_due = remote
            .tried
            .is_none_or(|tried| tried >= if remote.problem.is_some() { KEYS_RETRY_S } else { refresh_s });
        if is_due {
            self.fetch(inner, url);
        }
        is_stale
    }

    /// Fetches in a thread of its own: a slow issuer holds up nothing else.
    fn fetch(&mut self, inner: &Inner, url: &KeyUrl) {
        if !inner.fetching.begin(url, inner.env.clock.now_ms()) {
            return;
        }
        self.remotes.entry(url.clone()).or_default().tried = Some(0);
        let (sender, disk, target) = (self.sender.clone(), inner.env.disk.clone(), url.clone());
        let fetching = move || {
            let fetched = fetch(&*disk, &target, Duration::from_secs(KEYS_TIMEOUT_S));
            drop(sender.send(Message::Fetched(target, fetched)));
        };
        if let Err(error) = thread::Builder::new().name("access-keys".to_owned()).spawn(fetching) {
            tracing::error!(%error, %url, "keys cannot be fetched");
            inner.fetching.end(url);
        }
    }

    fn hear(&mut self, inner: &Inner, message: Message) {
        match message {
            Message::Wanted(url) => self.fetch(inner, &url),
            Message::Fetched(url, fetched) => {
                let remote = self.remotes.entry(url.clone()).or_default();
                match fetched {
                    Ok(keys) => {
                        remote.age = 0;
                        remote.problem = None;
                        Counters::one(&inner.counters.key_loads);
                        take_over(inner, &url, keys);
                    }
                    Err(error) => {
                        let problem = error.to_string();
                        Counters::one(&inner.counters.key_failures);
                        if remote.problem.as_ref() != Some(&problem) {
                            tracing::error!(%url, problem, "keys cannot be fetched; those in use stay in use");
                            remote.problem = Some(problem);
                        }
                    }
                }
                inner.fetching.end(&url);
            }
        }
    }
}

fn take_over(inner: &Inner, url: &KeyUrl, keys: KeySet) {
    let old = inner.state();
    let source = KeySource::Url(url.clone());
    let is_used = old.file.issuers.iter().any(|issuer| issuer.keys == source);
    if !is_used || old.keys.get(&source).is_some_and(|known| **known == keys) {
        return;
    }
    tracing::info!(%url, keys = keys.len(), "the keys of an issuer have changed");
    let mut all = old.keys.clone();
    all.insert(source, Arc::new(keys));
    inner.replace(State::new(&inner.options, old.file.clone(), all));
}

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> AccessError {
    let path = path.to_owned();
    move |source| AccessError::Unreadable { path, source }
}

fn parse(path: &Path, bytes: &[u8]) -> Result<AccessFile, AccessError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let text = std::str::from_utf8(bytes)
        .map_err(|error| unreadable(path)(io::Error::new(io::ErrorKind::InvalidData, error)))?;
    AccessFile::parse(text, folder).map_err(|error| AccessError::File { path: path.to_owned(), error })
}

fn parse_keys(path: &Path, bytes: &[u8]) -> Result<KeySet, AccessError> {
    KeySet::parse(bytes).map_err(|error| AccessError::Keys { path: path.to_owned(), error })
}

pub(crate) fn read(disk: &dyn Disk, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = disk.open(path, OpenMode::Read)?;
    let len = file.len()?;
    if len > bytes_max {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("it is longer than {bytes_max} bytes"),
        ));
    }
    let mut bytes = vec![0; usize::try_from(len).unwrap_or_default()];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
