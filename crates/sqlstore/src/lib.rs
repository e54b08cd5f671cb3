//! Durable streams in SQL, to be embedded in a service of one's own.
//!
//! The store keeps streams: bytes in order, appended by producers that may repeat themselves, read in bounded windows. It
//! owns what must be durable and consistent; transport, authentication and admission are the caller's. It implements the
//! contract [`StreamStore`](alluvium_protocol::store::StreamStore), and passes its behaviour suite.
//!
//! * **Claimed.** A producer that [acquires](alluvium_protocol::store::StreamStore::acquire_producer) a stream is its only
//!   writer and fences whoever was before. A [strict](SqliteStore::strict) store takes data from nobody else.
//! * **Incarnated.** Every row belongs to one life of a path; nothing of an earlier one can show in a later.
//! * **Bounded.** Rows, windows, appends and checkpoints have [ceilings](Bounds), checked against the row budget of one
//!   transaction before the store opens.
//! * **Checked.** Each row of bytes carries a checksum and must follow the one before it, or the read is refused.
//!
//! # A service that keeps the transcripts of agents
//!
//! One worker writes a transcript at a time. It acquires the stream, numbers its appends, and repeats one whose answer it
//! did not get:
//!
//! ```
//! # use alluvium_env::Env;
//! # use alluvium_protocol::store::{AppendOptions, PutOptions, StreamStore};
//! # use alluvium_protocol::{ContentType, ProducerId, ProducerStamp, StreamPath};
//! # use alluvium_sqlstore::{SqliteOptions, SqliteStore, check};
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let file = dir.path().join("transcripts.sqlite");
//! let store = SqliteStore::strict(&file, SqliteOptions::default(), &Env::real())?;
//! let path = StreamPath::parse_decoded("agents/7/transcript")?;
//! let json = PutOptions { content_type: Some(ContentType::JSON), ..PutOptions::default() };
//! store.put(&path, json).await?;
//!
//! let claim = store.acquire_producer(&path, ProducerId::parse("worker-a")?, None).await?;
//! let numbered = |seq| AppendOptions {
//!     producer: Some(ProducerStamp { id: claim.id.clone(), epoch: claim.epoch, seq }),
//!     ..AppendOptions::default()
//! };
//! let said = r#"{"role":"user","text":"What lives in a river's bed?"}"#;
//! let first = store.append(&path, said.into(), numbered(0)).await?;
//! // The answer was lost on its way: the same again changes nothing, and gets the same answer.
//! let again = store.append(&path, said.into(), numbered(0)).await?;
//! assert!(first.appended && !again.appended);
//! assert_eq!(first.next_offset, again.next_offset);
//! # Ok(()) }
//! ```
//!
//! # Recovering after a takeover
//!
//! A worker that is lost without a word may come back. Its successor acquires the stream, which fences it, reads what it
//! left, and goes on:
//!
//! ```
//! # use alluvium_env::Env;
//! # use alluvium_protocol::store::{AppendOptions, GetOptions, PutOptions, StoreError, StreamStore};
//! # use alluvium_protocol::{ProducerId, ProducerStamp, StreamError, StreamPath};
//! # use alluvium_sqlstore::{SqliteOptions, SqliteStore};
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let file = dir.path().join("transcripts.sqlite");
//! # let store = SqliteStore::strict(&file, SqliteOptions::default(), &Env::real())?;
//! # let path = StreamPath::parse_decoded("agents/7/transcript")?;
//! # store.put(&path, PutOptions::default()).await?;
//! # let numbered = |claim: &alluvium_protocol::store::ProducerClaim, seq| AppendOptions {
//! #     producer: Some(ProducerStamp { id: claim.id.clone(), epoch: claim.epoch, seq }),
//! #     expected_incarnation: Some(claim.incarnation),
//! #     ..AppendOptions::default()
//! # };
//! let lost = store.acquire_producer(&path, ProducerId::parse("worker-a")?, None).await?;
//! store.append(&path, "half a".into(), numbered(&lost, 0)).await?;
//!
//! let successor = store.acquire_producer(&path, ProducerId::parse("worker-b")?, None).await?;
//! let left = store.get(&path, GetOptions::default()).await?;
//! assert_eq!(left.next_offset, successor.next_offset, "nothing can come in between any more");
//! assert_eq!(left.messages[0].data, "half a");
//! store.append(&path, " sentence".into(), numbered(&successor, 0)).await?;
//!
//! // The lost one comes back, and learns that it is not the writer.
//! let late = store.append(&path, " thought".into(), numbered(&lost, 1)).await;
//! assert!(matches!(late, Err(StoreError::Refused(StreamError::Conflict(_)))));
//! # Ok(()) }
//! ```
//!
//! # Folding from a checkpoint
//!
//! A reader that makes something of a whole stream keeps it beside the stream, and next time begins there. A checkpoint
//! is never the truth: one that is missing, or of another version, costs a longer read and nothing else.
//!
//! ```
//! # use alluvium_env::Env;
//! # use alluvium_protocol::store::{AppendOptions, FoldCheckpoint, PutOptions, StoreResult, StreamStore};
//! # use alluvium_protocol::{Incarnation, StreamPath};
//! # use alluvium_sqlstore::{SqliteOptions, SqliteStore};
//! const VERSION: u32 = 1;
//!
//! /// How many words were said.
//! async fn words(store: &SqliteStore, path: &StreamPath, incarnation: Incarnation) -> StoreResult<usize> {
//!     let kept = store.fold_checkpoint(path, None).await?;
//!     let kept = kept.filter(|kept| kept.format_version == VERSION && kept.incarnation == incarnation);
//!     let (mut words, mut next) = match kept.and_then(|kept| Some((kept.data.parse().ok()?, kept.offset))) {
//!         Some((words, offset)) => (words, offset.append_index + 1),
//!         None => (0, 1),
//!     };
//!     loop {
//!         let batches = store.read_append_batches(path, next, 100, Some(incarnation), None).await?;
//!         let Some(last) = batches.last() else { return Ok(words) };
//!         next = last.append_index + 1;
//!         let offset = last.end_offset;
//!         words += batches.iter().map(|batch| String::from_utf8_lossy(&batch.data).split_whitespace().count()).sum::<usize>();
//!         let data = words.to_string();
//!         store.put_fold_checkpoint(path, FoldCheckpoint { offset, incarnation, format_version: VERSION, data }).await?;
//!     }
//! }
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let store = SqliteStore::open(&dir.path().join("s.sqlite"), SqliteOptions::default(), &Env::real())?;
//! # let path = StreamPath::parse_decoded("s")?;
//! # let incarnation = store.put(&path, PutOptions::default()).await?.incarnation;
//! # for said in ["one two ", "three ", "four five six "] {
//! #     store.append(&path, said.into(), AppendOptions::default()).await?;
//! # }
//!
//! assert_eq!(words(&store, &path, incarnation).await?, 6);
//! store.append(&path, "seven".into(), AppendOptions::default()).await?;
//! assert_eq!(words(&store, &path, incarnation).await?, 7, "and only the last append was read");
//! # Ok(()) }
//! ```
//!
//! # Elsewhere than on this machine
//!
//! What is asked of the database is data: [`plan`] has every statement, [`ops`] every operation over anything that runs
//! them ([`plan::Sql`]). Without the feature `native` that is all of the crate, and it builds for WebAssembly.

mod bounds;
mod checksum;
mod chunk;
#[cfg(feature = "native")]
pub mod native;
pub mod ops;
pub mod plan;
mod row;

pub use bounds::{
    BATCHES_MAX, Bounds, BoundsError, CHUNK_ROWS_MAX, FORK_LEVELS_MAX, VALUE_BYTES_MAX, WRITE_ROWS_MAX,
};
#[cfg(feature = "native")]
pub use native::{Checked, Counted, OpenError, ReadMode, SqliteOptions, SqliteStore, check};
pub use ops::Scope;
pub use row::StreamRow;
