//! Appends to a space: what waits together becomes one transaction.

use alluvium_feed_protocol::{AppendResponse, ErrorCode};
use alluvium_feed_store::rusqlite::Transaction;
use alluvium_feed_store::spaces;

use super::{Announcement, Space, note};
use crate::append::{self, Checked, Remembered};
use crate::failure::Failure;
use crate::hub::Moved;

/// What became of each request of a batch.
type Outcomes = Vec<Result<AppendResponse, Failure>>;

impl Space {
    /// Carries out appends in one transaction: each of them whole or not at all. When this returns they are durable
    /// and nobody has been told yet: what it returns beside the answers is for [`Self::announce`].
    pub(crate) fn append(&self, batch: &[Checked]) -> (Outcomes, Announcement) {
        let now_ms = self.env.clock.now_ms();
        let mut remembered = self.remembered.lock();
        let written = match self.rehearse(batch, now_ms) {
            Ok(Some(outcomes)) => return (outcomes, Announcement::default()),
            Ok(None) => self.founded().and_then(|database| {
                database.write(|transaction| self.carry_out(transaction, batch, &mut remembered, now_ms))
            }),
            Err(fault) => Err(fault),
        };
        if written.is_err() {
            // What was remembered in the course of it did not come to be.
            remembered.forget();
        }
        drop(remembered);
        written.unwrap_or_else(|failure| (self.refuse_all(batch, failure), Announcement::default()))
    }

    /// Carries out a batch within its transaction.
    fn carry_out(
        &self,
        transaction: &Transaction<'_>,
        batch: &[Checked],
        remembered: &mut Remembered,
        now_ms: u64,
    ) -> Result<(Outcomes, Announcement), Failure> {
        let mut space = self.row(transaction)?;
        let mut outcomes = Vec::with_capacity(batch.len());
        let mut moved: Vec<Moved> = Vec::new();
        // A request that is alone is undone with its transaction, at no cost before.
        let is_alone = batch.len() == 1;
        for checked in batch {
            let before = space.clone();
            if !is_alone {
                transaction.prepare_cached("SAVEPOINT request")?.execute([])?;
            }
            let limits = (&self.options.limits, now_ms);
            match append::apply(transaction, &mut space, remembered, checked, limits) {
                Ok(done) => {
                    if !is_alone {
                        transaction.prepare_cached("RELEASE request")?.execute([])?;
                    }
                    if done.is_large {
                        self.counts.large();
                    }
                    done.grown.iter().for_each(|feed| self.known.add(&feed.id));
                    moved.extend(done.grown.iter().map(Moved::from));
                    remembered.keep(done.grown);
                    outcomes.push(Ok(done.response));
                }
                // Damage is of what one request has come upon; the others of the batch have nothing to do with it.
                Err(failure) if failure.is_of_request() && !is_alone => {
                    transaction.execute_batch("ROLLBACK TO request; RELEASE request")?;
                    space = before;
                    outcomes.push(Err(self.noticed(failure)));
                }
                Err(failure) => return Err(failure),
            }
        }
        spaces::update(transaction, &space)?;
        Ok((outcomes, Announcement { moved, note: Some(note(&space)?) }))
    }

    /// What each request of a batch is told of which nothing came to be.
    fn refuse_all(&self, batch: &[Checked], failure: Failure) -> Outcomes {
        let (code, message) = match self.noticed(failure) {
            Failure::Refused(code, message) => (code, message),
            fault @ Failure::Store(_) => {
                let message = format!("{fault:?}");
                tracing::error!(space = %self.id, message, "a batch of appends failed");
                let (code, message) = match fault {
                    Failure::Store(error) if error.is_full() => {
                        (ErrorCode::StorageFull, "the disk is full; nothing of this append was kept")
                    }
                    _ => (ErrorCode::Internal, "nothing of this append was kept"),
                };
                (code, message.to_owned())
            }
        };
        batch.iter().map(|_| Err(Failure::refused(code, message.clone()))).collect()
    }

    /// What comes of a batch that makes no space where there is none: nothing of it is to be stored, because each request is
    /// refused or brings no blocks. None if the space is there, or is to be made.
    fn rehearse(&self, batch: &[Checked], now_ms: u64) -> Result<Option<Outcomes>, Failure> {
        if self.exists() {
            return Ok(None);
        }
        let (remembered, limits) = (Remembered::default(), &self.options.limits);
        self.ground.try_in_nothing(&self.id, |connection, unmade| {
            let mut outcomes = Vec::with_capacity(batch.len());
            for checked in batch {
                connection.execute_batch("SAVEPOINT request")?;
                let mut space = unmade.clone();
                let outcome = append::apply(connection, &mut space, &remembered, checked, (limits, now_ms));
                connection.execute_batch("ROLLBACK TO request; RELEASE request")?;
                match outcome {
                    Ok(done) if !done.grown.is_empty() => return Ok(None),
                    Ok(done) => outcomes.push(Ok(done.response)),
                    Err(Failure::Refused(code, message)) => {
                        outcomes.push(Err(Failure::Refused(code, message)));
                    }
                    Err(fault) => return Err(fault),
                }
            }
            Ok(Some(outcomes))
        })
    }

    /// Counts and logs damage that an append has come upon, which is then a refusal like others.
    fn noticed(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Store(error) if error.is_damage() => {
                self.damaged(&error);
                Failure::damaged()
            }
            other => other,
        }
    }
}
