//! The manifest of a shard: which files count.
//!
//! Replacing it is the one moment at which a fold takes effect. The bytes are drawn in
//! `docs/formats/data-directory.md`.

use std::path::Path;

use alluvium_env::Disk;
use bytes::{BufMut, BytesMut};
use thiserror::Error;

use crate::codec::{Decoder, Malformed, put_varint};
use crate::error::{Damage, IoFault};
use crate::format::FORMAT_VERSION;
use crate::replace::{read_file, replace_file, sync_file};

/// The name of the manifest.
pub const MANIFEST_NAME: &str = "MANIFEST";

const MANIFEST_MAGIC: [u8; 8] = *b"alvm-man";

/// What goes wrong with a manifest.
#[derive(Debug, Error)]
pub enum ManifestError {
    /// The file isn't what was written.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// The system failed an operation.
    #[error(transparent)]
    Io(#[from] IoFault),
}

/// Which files of a shard count. Everything else in its folder is left over and can go.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Manifest {
    /// The number of the shard.
    pub shard: u16,
    /// The newest checkpoint.
    pub checkpoint: Option<u64>,
    /// The tables, strictly ascending.
    pub tables: Vec<u64>,
    /// The first segment that the checkpoint doesn't cover.
    pub first_segment: u64,
    /// The sequence number of the last batch before that segment.
    pub last_seq: u64,
    /// The number of the next table or checkpoint.
    pub next_file: u64,
}

impl Manifest {
    /// Reads the manifest of the shard in `dir`; `None` when there is none.
    ///
    /// What it says may not be durable: a process may have died before its directory was synced. Write it back
    /// before removing a file that it doesn't mention. [`Manifest::load`] does both.
    pub fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<Self>, ManifestError> {
        let Some(bytes) = read_file(disk, dir, MANIFEST_NAME)? else { return Ok(None) };
        let damage = |reason| Damage { file: dir.join(MANIFEST_NAME), at: 0, reason };
        Ok(Some(Self::decode(&bytes).map_err(damage)?))
    }

    /// Reads the manifest of the shard in `dir` and makes it durable as it is; `None` when there is none.
    ///
    /// Needs no room: on a full disk, where it cannot be written anew, the file that is there is synced. That is
    /// weaker only where an earlier sync of it failed, and after that nothing here went on.
    pub fn load(disk: &dyn Disk, dir: &Path) -> Result<Option<Self>, ManifestError> {
        let manifest = Self::read(disk, dir)?;
        if let Some(manifest) = &manifest {
            match manifest.write(disk, dir) {
                Err(ManifestError::Io(fault)) if fault.is_full() => sync_file(disk, dir, MANIFEST_NAME)?,
                done => done?,
            }
        }
        Ok(manifest)
    }

    /// Replaces the manifest of the shard in `dir` in one step. Durable when it returns, and so are the names of the
    /// files that it mentions.
    pub fn write(&self, disk: &dyn Disk, dir: &Path) -> Result<(), ManifestError> {
        Ok(replace_file(disk, dir, MANIFEST_NAME, &self.encode())?)
    }

    /// The manifest as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = BytesMut::new();
        out.put_slice(&MANIFEST_MAGIC);
        out.put_u32_le(0);
        out.put_u32_le(FORMAT_VERSION);
        out.put_u16_le(self.shard);
        put_varint(&mut out, u64::from(self.checkpoint.is_some()));
        put_varint(&mut out, self.checkpoint.unwrap_or(0));
        put_varint(&mut out, self.first_segment);
        put_varint(&mut out, self.last_seq);
        put_varint(&mut out, self.next_file);
        put_varint(&mut out, self.tables.len() as u64);
        for table in &self.tables {
            put_varint(&mut out, *table);
        }
        let crc = crc32c::crc32c(&out[12..]);
        out[8..12].copy_from_slice(&crc.to_le_bytes());
        out.to_vec()
    }

    /// The manifest that `bytes` are, or which check failed.
    pub fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        const CUT: &str = "the manifest is too short";
        let (magic, rest) = bytes.split_first_chunk::<8>().ok_or(CUT)?;
        let (crc, rest) = rest.split_first_chunk().ok_or(CUT)?;
        if *magic != MANIFEST_MAGIC {
            return Err("the file doesn't start like a manifest");
        }
        if u32::from_le_bytes(*crc) != crc32c::crc32c(rest) {
            return Err("the checksum of the manifest doesn't match");
        }
        let (version, rest) = rest.split_first_chunk().ok_or(CUT)?;
        if u32::from_le_bytes(*version) != FORMAT_VERSION {
            return Err("the manifest has another format version than the directory");
        }
        decode_facts(rest).map_err(|_| "the manifest is malformed")
    }
}

fn decode_facts(bytes: &[u8]) -> Result<Manifest, Malformed> {
    let mut decoder = Decoder::new(bytes);
    let shard = decoder.u16()?;
    let checkpoint = match decoder.pair()? {
        (0, 0) => None,
        (1, number) => Some(number),
        _ => return Err(Malformed),
    };
    let (first_segment, last_seq) = decoder.pair()?;
    let next_file = decoder.varint()?;
    let count = decoder.count(1)?;
    let mut tables = Vec::with_capacity(count);
    for _ in 0..count {
        tables.push(decoder.varint()?);
    }
    decoder.finish()?;
    if !tables.is_sorted_by(|table, next| table < next) {
        return Err(Malformed);
    }
    Ok(Manifest { shard, checkpoint, tables, first_segment, last_seq, next_file })
}

#[cfg(test)]
mod tests {
    use alluvium_env::sim::{FaultRule, Operation, SimDisk};
    use proptest::prelude::*;

    use super::*;

    fn arbitrary_manifest() -> impl Strategy<Value = Manifest> {
        let tables = prop::collection::btree_set(any::<u64>(), 0..5);
        (any::<(u16, Option<u64>, u64, u64, u64)>(), tables).prop_map(
            |((shard, checkpoint, first_segment, last_seq, next_file), tables)| Manifest {
                shard,
                checkpoint,
                tables: tables.into_iter().collect(),
                first_segment,
                last_seq,
                next_file,
            },
        )
    }

    fn example(next_file: u64) -> Manifest {
        Manifest {
            shard: 3,
            checkpoint: Some(4),
            tables: vec![2, 3],
            first_segment: 9,
            last_seq: 77,
            next_file,
        }
    }

    proptest! {
        #[test]
        fn manifests_round_trip(manifest in arbitrary_manifest()) {
            prop_assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest));
        }

        #[test]
        fn arbitrary_bytes_are_no_manifest_and_no_panic(facts: Vec<u8>) {
            prop_assert!(Manifest::decode(&facts).is_err());
            if let Ok(manifest) = decode_facts(&facts) {
                prop_assert_eq!(&manifest.encode()[16..], &facts[..], "two encodings of one manifest");
            }
        }
    }

    #[test]
    fn a_manifest_cut_short_or_flipped_anywhere_is_refused() {
        let bytes = example(5).encode();
        for len in 0..bytes.len() {
            assert!(Manifest::decode(&bytes[..len]).is_err(), "cut to {len}");
        }
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Manifest::decode(&flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_crash_anywhere_in_a_replacement_leaves_the_old_or_the_new_one() {
        let dir = Path::new("/");
        for seed in 0..20 {
            for operation in 0..8 {
                let disk = SimDisk::new(seed);
                example(5).write(&disk, dir).expect("the first manifest");
                disk.crash_at(disk.operations() + operation);
                let replaced = example(6).write(&disk, dir).is_ok();
                disk.restart();
                let found = Manifest::load(&disk, dir).expect("a readable manifest").expect("a manifest");
                assert!(found == example(6) || (!replaced && found == example(5)), "{found:?}");
            }
        }
    }

    #[test]
    fn a_loaded_manifest_is_durable_even_after_a_failed_sync() {
        let dir = Path::new("/");
        for seed in 0..20 {
            let disk = SimDisk::new(seed);
            example(5).write(&disk, dir).expect("the first manifest");
            disk.plan(FaultRule { operation: Operation::SyncDir, path_contains: String::new(), skip: 1 });
            example(6).write(&disk, dir).expect_err("a failed sync");
            disk.kill();
            let loaded = Manifest::load(&disk, dir).expect("a readable manifest").expect("a manifest");
            disk.crash();
            disk.restart();
            let found = Manifest::read(&disk, dir).expect("a readable manifest").expect("a manifest");
            assert_eq!(found, loaded, "seed {seed}");
        }
    }
}
