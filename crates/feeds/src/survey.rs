//! What an operator sees of all spaces at once: what each takes on the disk.

use std::io;

use alluvium_env::{Disk, OpenMode};
use alluvium_feed_store::{ListedSpace, list_spaces};

use crate::ground::{DATABASE, Ground};

/// What a space takes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SurveyedSpace {
    /// Its folder in the folder of feeds.
    pub folder: String,
    /// Bytes of its files: the database, its log, its guard.
    pub bytes: u64,
    /// When one of them was last written to, in seconds since 1970.
    pub modified_s: Option<u64>,
}

impl Ground {
    /// All spaces, the largest first. A space that goes away meanwhile is left out.
    pub(crate) fn survey(&self, disk: &dyn Disk) -> io::Result<Vec<SurveyedSpace>> {
        let mut spaces = Vec::new();
        for folder in self.folders(disk)? {
            let path = self.folder_named(&folder);
            let Ok(files) = disk.list(&path) else { continue };
            let mut space = SurveyedSpace { folder, bytes: 0, modified_s: None };
            for file in files {
                // A log may be gone by now.
                let Ok(file) = disk.open(&path.join(file), OpenMode::Read) else { continue };
                space.bytes = space.bytes.saturating_add(file.len()?);
                space.modified_s = space.modified_s.max(file.modified_s()?);
            }
            spaces.push(space);
        }
        spaces.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.folder.cmp(&b.folder)));
        Ok(spaces)
    }

    /// The space in a folder; none if the folder is none of a space, or cannot be read now.
    pub(crate) fn space_in(&self, folder: &str) -> Option<ListedSpace> {
        let path = crate::ground::is_folder_name(folder).then(|| self.folder_named(folder))?;
        match list_spaces(&path.join(DATABASE)) {
            Ok(spaces) => spaces.into_iter().next(),
            Err(error) => {
                tracing::debug!(folder, %error, "the name of a space cannot be read");
                None
            }
        }
    }
}
