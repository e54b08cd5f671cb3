//! Connections that read, lent out one at a time.

use std::path::PathBuf;

use alluvium_protocol::store::{StoreFault, StoreResult};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::native::buffers::Buffers;
use crate::native::connection::{Connection, Runner, fault};
use crate::native::open;
use crate::native::options::SqliteOptions;

/// The connections of a store.
#[derive(Debug)]
pub(crate) struct Readers {
    path: PathBuf,
    options: SqliteOptions,
    idle: Mutex<Vec<Connection>>,
    turns: Semaphore,
    buffers: Buffers,
}

impl Readers {
    pub(crate) fn new(path: PathBuf, options: &SqliteOptions) -> Self {
        let turns = Semaphore::new(options.readers_max.max(1));
        // A window, and what may lie beyond its end.
        let buffer_bytes = usize::try_from(options.bounds.read_bytes_max).map_or(0, |bytes| 2 * bytes);
        let buffers = Buffers::new(options.readers_max, buffer_bytes);
        Self { path, options: options.clone(), idle: Mutex::default(), turns, buffers }
    }

    /// The right to use a connection.
    pub(crate) async fn turn(&self) -> Result<tokio::sync::SemaphorePermit<'_>, StoreFault> {
        self.turns.acquire().await.map_err(|_| StoreFault::Stopped)
    }

    /// Reads on one of the connections. Needs a turn.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&mut Runner<'_>) -> StoreResult<T>) -> StoreResult<T> {
        let idle = self.idle.lock().pop();
        let mut connection = if let Some(connection) = idle {
            connection
        } else {
            let raw = open::reader(&self.path, &self.options).map_err(|error| fault(&error))?;
            Connection::new(raw, 0).with_buffers(self.buffers.clone())
        };
        let result = read(&mut connection.runner());
        self.idle.lock().push(connection);
        result
    }

    /// Ends all reading and closes the connections.
    pub(crate) fn close(&self) {
        self.turns.close();
        self.idle.lock().clear();
    }
}
