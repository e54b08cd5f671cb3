//! What an application remembers beside its feeds, as names that it made up.

use alluvium_feed_store::rusqlite::OptionalExtension;

use crate::{Replica, ReplicaError, ReplicaResult};

impl Replica {
    /// What is remembered under a name.
    pub fn setting(&self, name: &str) -> ReplicaResult<Option<String>> {
        self.database.read::<_, ReplicaError>(|connection| {
            let sql = "SELECT value FROM settings WHERE name = ?1";
            Ok(connection.prepare_cached(sql)?.query_row([name], |row| row.get(0)).optional()?)
        })
    }

    /// Remembers a text under a name, in place of what was there.
    pub fn set_setting(&mut self, name: &str, value: &str) -> ReplicaResult<()> {
        self.database.write::<_, ReplicaError>(|transaction| {
            let sql = "INSERT INTO settings (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2";
            transaction.prepare_cached(sql)?.execute([name, value])?;
            Ok(())
        })
    }

    /// What is remembered under a name; if nothing is, `value` from now on. Two processes that ask at once get the same.
    pub fn setting_or(&mut self, name: &str, value: &str) -> ReplicaResult<String> {
        self.database.write::<_, ReplicaError>(|transaction| {
            transaction
                .prepare_cached("INSERT INTO settings (name, value) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?
                .execute([name, value])?;
            let sql = "SELECT value FROM settings WHERE name = ?1";
            Ok(transaction.prepare_cached(sql)?.query_row([name], |row| row.get(0))?)
        })
    }
}
