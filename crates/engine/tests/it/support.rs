//! An engine in a temporary folder, and short names for what tests do with it.

use std::sync::Arc;

use alluvium_engine::{
    AppendError, AppendRequest, Appended, CreateError, CreateRequest, Created, Engine, Fault, Options,
    PublishError, PublishRequest, Published, Snapshot, SnapshotError, StreamReader,
};
use alluvium_env::Env;
use alluvium_protocol::{BucketId, ContentType, ForkOrigin, Offset, OffsetQuery, ProducerStamp, StreamPath};
use bytes::Bytes;
use tempfile::TempDir;

/// An engine and its folder; both go away together.
pub(crate) struct Fixture {
    pub(crate) engine: Engine,
    options: Options,
    dir: TempDir,
}

/// A path without a bucket by itself, one in a bucket by its URL.
pub(crate) fn path(text: &str) -> StreamPath {
    if text.starts_with('/') {
        return StreamPath::parse_url_path(text).unwrap();
    }
    StreamPath::parse_decoded(text).unwrap()
}

pub(crate) fn small_options() -> Options {
    let mut options = Options::new(Arc::new(|fault: &Fault| panic!("{fault}")));
    options.shards = 2;
    options.segment_bytes = 256 * 1024;
    options.recent_bytes = 16 * 1024;
    options.limits.append_bytes_max = 64 * 1024;
    options
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(small_options())
    }

    pub(crate) fn with(options: Options) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(Env::real(), dir.path(), options.clone()).unwrap();
        Self { engine, options, dir }
    }

    pub(crate) fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// A clean restart.
    pub(crate) fn restart(&mut self) {
        self.engine.shutdown();
        self.engine = Engine::open(Env::real(), self.dir.path(), self.options.clone()).unwrap();
    }

    pub(crate) async fn create(&self, name: &str, content_type: &str) -> Created {
        let request = create_request(content_type);
        self.engine.create(&path(name), request).await.unwrap()
    }

    pub(crate) async fn fork(
        &self,
        name: &str,
        source: &str,
        offset: Option<Offset>,
        sub_offset: u64,
    ) -> Result<Created, CreateError> {
        let origin = ForkOrigin { source: path(source), offset, sub_offset };
        let request =
            CreateRequest { content_type: None, fork: Some(origin), ..create_request("text/plain") };
        self.engine.create(&path(name), request).await
    }

    pub(crate) async fn append(&self, name: &str, content_type: &str, body: &[u8]) -> Appended {
        self.try_append(name, append_request(content_type, body)).await.unwrap()
    }

    pub(crate) async fn try_append(
        &self,
        name: &str,
        request: AppendRequest,
    ) -> Result<Appended, AppendError> {
        self.engine.append(&path(name), request).await
    }

    pub(crate) fn reader(&self, name: &str) -> StreamReader {
        self.engine.open_stream(&path(name)).unwrap()
    }

    /// All stored bytes of a stream, read in pages of about `page` bytes; and the offsets between the pages.
    pub(crate) fn read_pages(&self, name: &str, page: u64) -> (Vec<u8>, Vec<Offset>) {
        let reader = self.reader(name);
        let mut from = reader.resolve(OffsetQuery::Start).unwrap();
        let (mut bytes, mut seams) = (Vec::new(), vec![from]);
        loop {
            let mut plan = reader.read(from, page).unwrap();
            let (end, at_tail, before) = (plan.end, plan.at_tail, bytes.len() as u64);
            while let Some(pieces) = plan.fetch() {
                pieces.unwrap().iter().for_each(|piece| bytes.extend_from_slice(piece));
            }
            assert_eq!(bytes.len() as u64 - before, end.position - from.position);
            assert_eq!(reader.resolve(OffsetQuery::At(end)), Ok(end), "a page ends on a boundary");
            from = end;
            seams.push(end);
            if at_tail {
                return (bytes, seams);
            }
        }
    }

    /// All stored bytes from an offset on.
    pub(crate) fn read_pages_from(&self, name: &str, mut from: Offset) -> Vec<u8> {
        let reader = self.reader(name);
        let mut bytes = Vec::new();
        loop {
            let mut plan = reader.read(from, 1000).unwrap();
            while let Some(pieces) = plan.fetch() {
                pieces.unwrap().iter().for_each(|piece| bytes.extend_from_slice(piece));
            }
            from = plan.end;
            if plan.at_tail {
                return bytes;
            }
        }
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        self.read_pages(name, u64::MAX).0
    }

    pub(crate) async fn bucket(&self, name: &str) {
        self.engine.create_bucket(&BucketId::parse(name).unwrap()).await.unwrap();
    }

    /// Publishes a snapshot whose body says where it is.
    pub(crate) async fn publish(
        &self,
        name: &str,
        offset: Offset,
        retain_all: bool,
    ) -> Result<Published, PublishError> {
        let request = PublishRequest { retain_all, ..publish_request(offset) };
        self.publish_body(name, request, format!("everything before {offset}").as_bytes()).await
    }

    pub(crate) async fn publish_body(
        &self,
        name: &str,
        request: PublishRequest,
        body: &[u8],
    ) -> Result<Published, PublishError> {
        let mut upload = self.engine.begin_publish(&path(name), request).await?;
        for piece in body.chunks(10_000) {
            upload.write(Bytes::copy_from_slice(piece)).await?;
        }
        upload.publish().await
    }

    /// The body of the snapshot at an offset.
    pub(crate) fn snapshot(&self, name: &str, offset: Offset) -> Result<Vec<u8>, SnapshotError> {
        Ok(read_body(&self.engine.open_snapshot(&path(name), offset)?))
    }

    pub(crate) fn fold(&self) {
        for shard in 0..self.engine.shards() {
            self.engine.step_fold(shard).unwrap();
        }
    }
}

pub(crate) fn create_request(content_type: &str) -> CreateRequest {
    CreateRequest {
        content_type: Some(ContentType::parse(content_type).unwrap()),
        ..CreateRequest::default()
    }
}

pub(crate) fn publish_request(offset: Offset) -> PublishRequest {
    PublishRequest {
        offset,
        content_type: ContentType::parse("text/x-state; v=2").unwrap(),
        retain_all: false,
        if_match: None,
        if_none_match: None,
        length: None,
    }
}

pub(crate) fn read_body(snapshot: &Snapshot) -> Vec<u8> {
    let end = snapshot.body.end().unwrap();
    let mut plan = snapshot.body.read_to(Offset::ZERO, end, u64::MAX).unwrap();
    let mut bytes = Vec::new();
    while let Some(pieces) = plan.fetch() {
        pieces.unwrap().iter().for_each(|piece| bytes.extend_from_slice(piece));
    }
    assert_eq!(bytes.len() as u64, snapshot.head.length);
    bytes
}

pub(crate) fn append_request(content_type: &str, body: &[u8]) -> AppendRequest {
    AppendRequest {
        content_type: Some(ContentType::parse(content_type).unwrap()),
        body: Bytes::copy_from_slice(body),
        ..AppendRequest::default()
    }
}

pub(crate) fn stamp(id: &str, epoch: u64, seq: u64) -> ProducerStamp {
    ProducerStamp::parse(Some(id), Some(&epoch.to_string()), Some(&seq.to_string())).unwrap().unwrap()
}

impl Fixture {
    /// Bytes of all files of the engine.
    pub(crate) fn disk_bytes(&self) -> u64 {
        fn sum(dir: &std::path::Path) -> u64 {
            let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
            entries
                .map(|entry| match entry.metadata().unwrap() {
                    meta if meta.is_dir() => sum(&entry.path()),
                    meta => meta.len(),
                })
                .sum()
        }
        sum(self.dir.path())
    }
}
