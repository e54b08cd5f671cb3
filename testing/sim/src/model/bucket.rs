//! Buckets of the model: which exist, and which streams are in them.

use crate::model::{Answer, Command, Model, Refusal};

/// The bucket that a path is in.
pub fn bucket_of(path: &str) -> Option<&str> {
    path.strip_prefix("/ds/")?.split_once('/').map(|(bucket, _)| bucket)
}

impl Model {
    /// Whether a bucket exists.
    pub fn has_bucket(&self, name: &str) -> bool {
        self.buckets.contains_key(name)
    }

    /// The life of the bucket that a path is in now; `Err` when there is none.
    pub(super) fn bucket_life(&self, path: &str) -> Result<Option<u64>, Refusal> {
        match bucket_of(path) {
            None => Ok(None),
            Some(name) => self.buckets.get(name).copied().map(Some).ok_or(Refusal::NotFound),
        }
    }

    /// Whether what has the path is that of an earlier bucket of the same name.
    pub fn is_left_over(&self, path: &str) -> bool {
        let life = self.bucket_life(path);
        self.named(path).is_some_and(|stream| Ok(stream.bucket) != life)
    }

    /// The ids of the streams that live in a bucket, in order.
    pub fn listed(&self, name: &str, now_ms: u64) -> Vec<String> {
        let prefix = format!("/ds/{name}/");
        let paths = self.live(now_ms).filter_map(|stream| stream.path.strip_prefix(&prefix));
        let mut ids: Vec<String> = paths.map(str::to_owned).collect();
        ids.sort_unstable();
        ids
    }

    /// Starts to delete a bucket.
    pub fn submit_bucket_end(&self, name: &str, now_ms: u64) -> Result<Command, Answer> {
        if !self.has_bucket(name) {
            return Err(Answer::Refused(Refusal::NotFound));
        }
        if !self.listed(name, now_ms).is_empty() {
            return Err(Answer::Refused(Refusal::Conflict));
        }
        Ok(Command::DeleteBucket { name: name.to_owned() })
    }

    pub(super) fn admit_bucket(&mut self, name: &str) -> Answer {
        if self.has_bucket(name) {
            return Answer::Refused(Refusal::Conflict);
        }
        self.next += 1;
        self.buckets.insert(name.to_owned(), self.next);
        Answer::Done
    }

    pub(super) fn admit_bucket_end(&mut self, name: &str) -> Answer {
        self.buckets.remove(name);
        Answer::Done
    }
}
