//! Who this authority is: a name drawn once, kept beside the spaces.
//!
//! It tells one server from another under the same address, in a greeting and in logs. Whether a *history* is the known one
//! says a space's token, never this: a folder that was copied or set back keeps its name.

use std::io;
use std::path::Path;

use alluvium_env::{Disk, Env, OpenMode};
use alluvium_feed_protocol::Id;

/// The file, in the folder of all spaces.
const FILE: &str = "server-id";
/// Longest file that is read, in bytes.
const BYTES_MAX: u64 = 128;

/// The name that the folder has, or a new one. Where it can't be kept, as on a full disk, it lasts until the next start.
pub(crate) fn of_folder(folder: &Path, env: &Env) -> Id {
    match read(folder, env.disk.as_ref()) {
        Ok(Some(id)) => return id,
        Ok(None) => {}
        Err(error) => tracing::warn!(%error, "the server's name cannot be read, so it gets another one"),
    }
    let id = drawn(env);
    if let Err(error) = keep(folder, env.disk.as_ref(), &id) {
        tracing::warn!(%error, "the server's name cannot be kept");
    }
    id
}

fn drawn(env: &Env) -> Id {
    #[expect(clippy::expect_used, reason = "letters and digits are an identifier")]
    Id::parse(&format!("srv_{:032x}", env.random.next_u128())).expect("letters and digits")
}

/// The name in the file; none if there is no file, or no name in it.
fn read(folder: &Path, disk: &dyn Disk) -> io::Result<Option<Id>> {
    let path = folder.join(FILE);
    if !disk.exists(&path)? {
        return Ok(None);
    }
    let file = disk.open(&path, OpenMode::Read)?;
    let mut bytes = vec![0; usize::try_from(file.len()?.min(BYTES_MAX)).unwrap_or(0)];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(str::from_utf8(&bytes).ok().and_then(|text| Id::parse(text).ok()))
}

fn keep(folder: &Path, disk: &dyn Disk, id: &Id) -> io::Result<()> {
    let (path, fresh) = (folder.join(FILE), folder.join("server-id.new"));
    if disk.exists(&fresh)? {
        disk.remove(&fresh)?;
    }
    let file = disk.open(&fresh, OpenMode::CreateNew)?;
    file.write_all_at(&[id.as_str().as_bytes()], 0)?;
    file.sync_all()?;
    disk.rename(&fresh, &path)?;
    disk.sync_dir(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_keeps_its_name_and_another_has_another() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let env = Env::real();
        let name = of_folder(one.path(), &env);
        assert_eq!(of_folder(one.path(), &env), name);
        assert_ne!(of_folder(other.path(), &env), name);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a file is damaged behind the back of the code under test")]
    fn what_is_no_name_is_replaced_by_one() {
        let folder = tempfile::tempdir().unwrap();
        for damaged in [&b""[..], b"\xff\xfe", b"a\nb"] {
            std::fs::write(folder.path().join(FILE), damaged).unwrap();
            let name = of_folder(folder.path(), &Env::real());
            assert_eq!(of_folder(folder.path(), &Env::real()), name, "{damaged:?}");
        }
    }
}
