//! How a data directory is cut, also where the mark that says so is gone.

use std::path::Path;

use alluvium_env::{Disk, OpenMode};

use crate::error::{Damage, io_fault};
use crate::format::{FORMAT_NAME, Format, FormatError, STREAMS_NAME, refusal};
use crate::identity::DirectoryId;
use crate::names::{is_folded, segment_number, shard_number};
use crate::replace::read_file;
use crate::replay::has_batches;
use crate::segment::SegmentFile;
use crate::segments::SEGMENT_BYTES_MIN;

/// How a data directory is cut.
#[derive(Debug)]
pub struct Layout {
    /// The mark, or what is wrong with it. Without, the directory does not start, but it can be looked at.
    pub format: Result<Format, FormatError>,
    /// How many shards it has.
    pub shards: u16,
    /// The size of a segment in bytes.
    pub segment_bytes: u32,
    /// What its files say of it, if anything.
    pub directory: Option<DirectoryId>,
}

impl Layout {
    /// That of the directory `dir`.
    pub(crate) fn of(disk: &dyn Disk, dir: &Path) -> Result<Self, FormatError> {
        let wrong = match read_file(disk, dir, FORMAT_NAME) {
            Ok(Some(bytes)) => match Format::decode(&bytes).map_err(|invalid| refusal(dir, invalid)) {
                Ok(format) => return Ok(format.into()),
                Err(newer @ FormatError::Version { .. }) => return Err(newer),
                Err(damage) => damage,
            },
            Ok(None) => {
                let reason = "the file that says what the directory is, and how it is cut, is missing";
                Damage { file: dir.join(FORMAT_NAME), at: 0, reason }.into()
            }
            Err(fault) => fault.into(),
        };
        let foreign = || FormatError::Foreign { dir: dir.to_owned() };
        let streams = dir.join(STREAMS_NAME);
        if !disk.exists(&streams).map_err(io_fault("look for", &streams))? {
            return Err(foreign());
        }
        let names = disk.list(&streams).map_err(io_fault("list", &streams))?;
        let last = names.iter().filter_map(|name| shard_number(name)).max();
        let shards = last.and_then(|last| last.checked_add(1)).ok_or_else(foreign)?;
        let mut seen = Seen::default();
        for shard in 0..shards {
            seen.look(disk, &Format::shard_dir(dir, shard));
        }
        match seen {
            // Traces of a start that was cut off, which made no mark.
            Seen { has_data: false, .. } => Err(foreign()),
            Seen { cut: Some((segment_bytes, directory)), .. } => {
                Ok(Self { format: Err(wrong), shards, segment_bytes, directory })
            }
            Seen { cut: None, .. } => Err(wrong),
        }
    }
}

/// What the files of shards say of the directory.
#[derive(Default)]
struct Seen {
    /// Whether anything was ever written.
    has_data: bool,
    /// What the first whole segment says.
    cut: Option<(u32, Option<DirectoryId>)>,
}

impl Seen {
    /// Looks at a shard. What cannot be read is told of by whoever reads all of it.
    fn look(&mut self, disk: &dyn Disk, dir: &Path) {
        for name in disk.list(dir).unwrap_or_default() {
            self.has_data |= is_folded(&name);
            let Some(number) = segment_number(&name) else { continue };
            let segment = SegmentFile::open_any_size(disk, dir.join(&name), number, OpenMode::Read);
            let Ok(segment) = segment else { continue };
            if segment.size() >= SEGMENT_BYTES_MIN {
                self.cut.get_or_insert((segment.size(), segment.directory()));
                self.has_data |= has_batches(&segment).unwrap_or(true);
            }
        }
    }
}

impl From<Format> for Layout {
    fn from(format: Format) -> Self {
        let Format { directory, shards, segment_bytes } = format;
        Self { format: Ok(format), shards, segment_bytes, directory: DirectoryId::of(directory) }
    }
}
