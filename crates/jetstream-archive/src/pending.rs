//! The pending log: rows that are not in a block yet, made durable within one small sync, so that readers may have them
//! while blocks stay full.
//!
//! It is one file that is written from the start again and again. Each time it starts over is a *life*, with a number
//! that is stored with the metadata in the very batch that makes the former life obsolete. A record belongs to a life and
//! has its place in it, so that what an earlier life left behind is never read. Checksums begin with a number drawn for
//! the file: rows hold what strangers wrote, and nobody else can write what looks like a record.

use std::path::Path;
use std::sync::Arc;

use alluvium_env::{Disk, DiskFile, Env, OpenMode};
use alluvium_jss::{Block, BlockBuilder, Row};
use bytes::{Buf, BufMut, Bytes};

use crate::error::Error;
use crate::store::Changes;

const FILE_MAGIC: [u8; 4] = *b"jpl1";
/// Magic, the number drawn for the file, checksum.
const FILE_HEAD_BYTES: usize = 4 + 8 + 4;
const MAGIC: [u8; 4] = *b"jplr";
/// Magic, checksum, length, place, life.
const HEAD_BYTES: usize = 4 + 4 + 4 + 4 + 8;
/// A length of all ones stands for no value.
const NO_VALUE: u32 = u32::MAX;

/// The file.
#[derive(Debug)]
pub(crate) struct PendingLog {
    file: Arc<dyn DiskFile>,
    secret: u64,
    life: u64,
    place: u32,
    end: u64,
}

/// What a life of the log holds.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    pub(crate) rows: Vec<Row>,
    pub(crate) changes: Changes,
    pub(crate) records: u32,
}

impl PendingLog {
    /// Opens the log, creating it when missing, and reads the life that is valid. Without stored metadata (`None`) that is
    /// the life that the log is in.
    pub(crate) fn open(env: &Env, path: &Path, life: Option<u64>) -> Result<(Self, Replayed), Error> {
        let exists = env.disk.exists(path).map_err(Error::io("looking for the pending log"))?;
        let mode = if exists { OpenMode::ReadWrite } else { OpenMode::CreateNew };
        let file = env.disk.open(path, mode).map_err(Error::io("opening the pending log"))?;
        let len = file.len().map_err(Error::io("asking for the length of the pending log"))?;
        let mut bytes = vec![0; usize::try_from(len).unwrap_or_default()];
        file.read_exact_at(&mut bytes, 0).map_err(Error::io("reading the pending log"))?;
        let secret = match file_head(&bytes) {
            Some(secret) => secret,
            // No record was written before the head was durable.
            None if bytes.len() <= FILE_HEAD_BYTES => {
                bytes.clear();
                let secret = env.random.next_u64();
                create(&*file, secret)?;
                env.disk
                    .sync_dir(path.parent().unwrap_or(Path::new("")))
                    .map_err(Error::io("syncing the directory of the pending log"))?;
                secret
            }
            None => return Err(Error::PendingLog { at: 0, what: "its head does not read" }),
        };
        let records = Records { bytes: bytes.into(), secret };
        let life = records.life(life)?;
        let mut log = Self { file, secret, life, place: 0, end: FILE_HEAD_BYTES as u64 };
        let replayed = log.replay(&records)?;
        // What was believed is synced again: it may have lived in a page cache only.
        log.file.sync_data().map_err(Error::io("syncing the pending log"))?;
        Ok((log, replayed))
    }

    fn replay(&mut self, records: &Records) -> Result<Replayed, Error> {
        let (replayed, end) = records.replay(self.life)?;
        (self.place, self.end) = (replayed.records, end);
        Ok(replayed)
    }

    /// Adds a record and syncs it.
    pub(crate) fn append(&mut self, rows: &BlockBuilder, changes: &Changes) -> Result<(), Error> {
        let payload = encode(rows, changes);
        let mut head = Vec::with_capacity(HEAD_BYTES);
        head.put_slice(&MAGIC);
        head.put_u32_le(0);
        head.put_u32_le(u32::try_from(payload.len()).map_err(|_| Error::Exhausted)?);
        head.put_u32_le(self.place);
        head.put_u64_le(self.life);
        let crc = checksum(self.secret, &head, &payload);
        head[4..8].copy_from_slice(&crc.to_le_bytes());
        self.file.write_all_at(&[&head, &payload], self.end).map_err(Error::io("writing the pending log"))?;
        self.file.sync_data().map_err(Error::io("syncing the pending log"))?;
        self.end += (head.len() + payload.len()) as u64;
        self.place += 1;
        Ok(())
    }

    /// Starts over, once the metadata says that the next life is the valid one.
    pub(crate) const fn start_over(&mut self) {
        self.life += 1;
        self.place = 0;
        self.end = FILE_HEAD_BYTES as u64;
    }

    pub(crate) const fn life(&self) -> u64 {
        self.life
    }

    /// The bytes of this life.
    pub(crate) const fn len(&self) -> u64 {
        self.end - FILE_HEAD_BYTES as u64
    }
}

/// The numbers of the rows in a log that nobody has open. Nothing is changed.
pub(crate) fn look(file: &dyn DiskFile, life: Option<u64>) -> Result<Vec<u64>, Error> {
    let len = file.len().map_err(Error::io("asking for the length of the pending log"))?;
    let mut bytes = vec![0; usize::try_from(len).unwrap_or_default()];
    file.read_exact_at(&mut bytes, 0).map_err(Error::io("reading the pending log"))?;
    let Some(secret) = file_head(&bytes) else {
        // No record was written before the head was durable.
        let is_begun = bytes.len() > FILE_HEAD_BYTES;
        return if is_begun {
            Err(Error::PendingLog { at: 0, what: "its head does not read" })
        } else {
            Ok(Vec::new())
        };
    };
    let records = Records { bytes: bytes.into(), secret };
    let (replayed, _) = records.replay(records.life(life)?)?;
    Ok(replayed.rows.iter().map(|row| row.seq).collect())
}

/// Makes a log without records, durably but for its name.
pub(crate) fn begin(disk: &dyn Disk, path: &Path, secret: u64) -> Result<(), Error> {
    let file = disk.open(path, OpenMode::CreateNew).map_err(Error::io("creating a pending log"))?;
    create(&*file, secret)
}

fn create(file: &dyn DiskFile, secret: u64) -> Result<(), Error> {
    let mut head = Vec::with_capacity(FILE_HEAD_BYTES);
    head.put_slice(&FILE_MAGIC);
    head.put_u64_le(secret);
    head.put_u32_le(crc32c::crc32c(&head));
    file.write_all_at(&[&head], 0).map_err(Error::io("writing the pending log"))?;
    file.sync_all().map_err(Error::io("syncing the pending log"))
}

/// The number drawn for the file, if its head is whole.
fn file_head(bytes: &[u8]) -> Option<u64> {
    let head = bytes.first_chunk::<FILE_HEAD_BYTES>()?;
    let (checked, mut crc) = head.split_at(FILE_HEAD_BYTES - 4);
    let mut number = checked.strip_prefix(&FILE_MAGIC)?;
    (crc32c::crc32c(checked) == crc.get_u32_le()).then(|| number.get_u64_le())
}

fn checksum(secret: u64, head: &[u8], payload: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&secret.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(crc, &head[8..]), payload)
}

/// The content of the file.
struct Records {
    bytes: Bytes,
    secret: u64,
}

impl Records {
    /// The life that is valid, by what the store says, or without it by the log.
    fn life(&self, stored: Option<u64>) -> Result<u64, Error> {
        let newest = self.parse(FILE_HEAD_BYTES).map(|(life, ..)| life);
        match (stored, newest) {
            (Some(stored), Some(found)) if found > stored => {
                Err(Error::MetadataBehind { what: "life of the pending log", stored, found })
            }
            (Some(stored), _) => Ok(stored),
            (None, newest) => Ok(newest.unwrap_or_default()),
        }
    }

    /// What a life has, and where its records end.
    fn replay(&self, life: u64) -> Result<(Replayed, u64), Error> {
        let (mut replayed, mut at) = (Replayed::default(), FILE_HEAD_BYTES as u64);
        while let Some((payload, end)) = self.expected(at, life, replayed.records) {
            replay(&payload, &mut replayed).map_err(|what| Error::PendingLog { at, what })?;
            replayed.records += 1;
            at = end;
        }
        if self.has_later(at, life, replayed.records) {
            return Err(Error::PendingLog { at, what: "a record does not read, and a later one does" });
        }
        Ok((replayed, at))
    }

    /// Life, place and payload of the whole record that starts here.
    fn parse(&self, start: usize) -> Option<(u64, u32, Bytes)> {
        let rest = self.bytes.get(start..)?;
        let (head, rest) = rest.split_at_checked(HEAD_BYTES)?;
        let mut fields = head.strip_prefix(&MAGIC)?;
        let (crc, len) = (fields.get_u32_le(), fields.get_u32_le() as usize);
        let (place, life) = (fields.get_u32_le(), fields.get_u64_le());
        let payload = rest.get(..len)?;
        let start = start + HEAD_BYTES;
        (checksum(self.secret, head, payload) == crc)
            .then(|| (life, place, self.bytes.slice(start..start + len)))
    }

    /// The payload of the record at this place of the file, if it is whole and the expected one, and where it ends.
    fn expected(&self, at: u64, life: u64, place: u32) -> Option<(Bytes, u64)> {
        let (found_life, found_place, payload) = self.parse(usize::try_from(at).ok()?)?;
        let end = at + (HEAD_BYTES + payload.len()) as u64;
        (found_life == life && found_place == place).then_some((payload, end))
    }

    /// Whether a whole record of this life lies behind the end of what could be read: then that end is damage and not the
    /// torn end of the last write.
    fn has_later(&self, end: u64, life: u64, place: u32) -> bool {
        let from = usize::try_from(end).map_or(self.bytes.len(), |end| end.min(self.bytes.len()));
        memchr::memmem::find_iter(&self.bytes[from..], &MAGIC)
            .filter_map(|start| self.parse(from + start))
            .any(|(found, at, _)| found == life && at >= place)
    }
}

fn encode(rows: &BlockBuilder, changes: &Changes) -> Vec<u8> {
    let body = rows.body();
    let len = |bytes: &Bytes| u32::try_from(bytes.len()).unwrap_or(NO_VALUE);
    let mut payload = Vec::with_capacity(body.len() + 8);
    payload.put_u32_le(len(&body));
    payload.put_slice(&body);
    for (key, value) in changes {
        payload.put_u32_le(len(key));
        payload.put_slice(key);
        payload.put_u32_le(value.as_ref().map_or(NO_VALUE, len));
        payload.put_slice(value.as_ref().map_or(&[], |value| &value[..]));
    }
    payload
}

fn replay(payload: &Bytes, into: &mut Replayed) -> Result<(), &'static str> {
    let mut rest = payload.clone();
    let body = part(&mut rest)?.ok_or("a record without rows")?;
    let block = Block::decode(body).map_err(|_| "the rows of a record do not decode")?;
    into.rows.extend((0..block.len()).map(|row| block.shared_row(row)));
    while !rest.is_empty() {
        let key = part(&mut rest)?.ok_or("a change without a key")?;
        let value = part(&mut rest)?;
        into.changes.insert(key, value);
    }
    Ok(())
}

fn part(rest: &mut Bytes) -> Result<Option<Bytes>, &'static str> {
    const SHORT: &str = "a record ends too early";
    match rest.try_get_u32_le().map_err(|_| SHORT)? {
        NO_VALUE => Ok(None),
        len if len as usize <= rest.len() => Ok(Some(rest.split_to(len as usize))),
        _ => Err(SHORT),
    }
}
