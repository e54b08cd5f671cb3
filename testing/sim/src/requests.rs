//! Requests of simulated clients: put to the engine and to the model at the same moment.

use crate::client::{self, Answering};
use crate::model::{Answer, Command, Refusal, bucket_of};
use crate::operation::{AppendAsk, CreateAsk, PublishAsk};
use crate::report::Violation;
use crate::world::{Waiting, World};

impl World {
    pub(crate) fn create(&mut self, ask: &CreateAsk) -> Result<(), Violation> {
        let expected = self.model.submit_create(ask, self.now_ms());
        let answering = client::create(&self.engine()?, ask);
        self.submit(&ask.path, expected, answering)
    }

    pub(crate) fn append(&mut self, ask: &AppendAsk) -> Result<(), Violation> {
        let expected = self.model.submit_append(ask, self.now_ms());
        let answering = client::append(&self.engine()?, ask);
        self.submit(&ask.path, expected, answering)
    }

    pub(crate) fn delete(&mut self, path: &str) -> Result<(), Violation> {
        let expected = self.model.submit_delete(path, self.now_ms());
        let answering = client::delete(&self.engine()?, path);
        self.submit(path, expected, answering)
    }

    pub(crate) fn publish(&mut self, ask: &PublishAsk) -> Result<(), Violation> {
        let now_ms = self.now_ms();
        let expected = self.model.submit_publish(ask, now_ms);
        let answering = client::publish(&self.engine()?, ask);
        let waiting = self.waiting.len();
        self.submit(&ask.path, expected, answering)?;
        if self.waiting.len() > waiting {
            // It was taken, which counts as use.
            if let Some(stream) = self.model.find_mut(&ask.path) {
                stream.deadline.renew(stream.life, now_ms, false);
            }
        }
        // A long body is written before the command is queued.
        let has_failed = !self.engine()?.is_running() || self.disk.is_down();
        if has_failed { self.recover(None) } else { Ok(()) }
    }

    /// Nothing else waits meanwhile: a create would wait for a deletion of its bucket, and be in the way of one.
    pub(crate) fn create_bucket(&mut self, name: &str) -> Result<(), Violation> {
        self.commit_all()?;
        let command = Command::CreateBucket { name: name.to_owned() };
        let answering = client::create_bucket(&self.engine()?, name);
        self.submit(&bucket_path(name), Ok(command), answering)?;
        self.commit(shard_of(&bucket_path(name), self.setup.shards))
    }

    pub(crate) fn delete_bucket(&mut self, name: &str) -> Result<(), Violation> {
        self.commit_all()?;
        let expected = self.model.submit_bucket_end(name, self.now_ms());
        let answering = client::delete_bucket(&self.engine()?, name);
        self.submit(&bucket_path(name), expected, answering)?;
        self.commit(shard_of(&bucket_path(name), self.setup.shards))
    }

    /// Polls a request for the first time: it is answered at once, or waits for its shard, as the model says.
    pub(crate) fn submit(
        &mut self,
        path: &str,
        expected: Result<Command, Answer>,
        mut answering: Answering,
    ) -> Result<(), Violation> {
        let reads_failed = self.disk.counts().reads_failed;
        let actual = client::poll(&mut answering);
        match (expected, actual) {
            (Ok(command), None) => {
                let shard = shard_of(path, self.setup.shards);
                self.waiting.push(Waiting { shard, command, answering });
                Ok(())
            }
            (Ok(command @ Command::Publish { .. }), Some(Answer::Refused(Refusal::Full)))
                if self.squeezed =>
            {
                self.model.abandon(&command);
                Ok(())
            }
            (Ok(command @ Command::Publish { .. }), Some(Answer::Refused(Refusal::Stopped)))
                if self.disk.is_down() || self.engine.as_ref().is_some_and(|engine| !engine.is_running()) =>
            {
                self.model.abandon(&command);
                Ok(())
            }
            (Ok(command), Some(Answer::Refused(Refusal::Unreadable)))
                if self.disk.counts().reads_failed > reads_failed =>
            {
                self.model.abandon(&command);
                Ok(())
            }
            (Err(_), Some(Answer::Refused(Refusal::Unreadable)))
                if self.disk.counts().reads_failed > reads_failed =>
            {
                Ok(())
            }
            (Err(expected), Some(actual)) if expected.agrees(&actual) => {
                self.counts.answer(&actual);
                Ok(())
            }
            (expected, actual) => Err(Violation::new(format!(
                "submitting to `{path}`: expected {expected:?}, the engine says {actual:?}"
            ))),
        }
    }

    /// Sends once more an append whose answer was lost. Whatever became of the first attempt, the model knows it.
    pub(crate) fn retry(&mut self) -> Result<(), Violation> {
        if self.unanswered.is_empty() {
            return Ok(());
        }
        self.counts.retries += 1;
        let ask = self.unanswered.remove(0);
        self.append(&ask)
    }
}

/// What stands for a bucket itself where a path is wanted.
fn bucket_path(name: &str) -> String {
    format!("/ds/{name}/")
}

/// The shard of a path, as the format fixes it: FNV-1a over the key, with the high half folded in.
fn shard_of(path: &str, shards: u16) -> u16 {
    let key = match bucket_of(path) {
        Some(_) => format!("\0{}", path.trim_start_matches("/ds/").trim_end_matches('/')),
        None => path.to_owned(),
    };
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    u16::try_from((hash ^ (hash >> 32)) % u64::from(shards)).unwrap_or(0)
}
