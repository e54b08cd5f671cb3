//! Who this authority is: a name drawn once, kept beside the spaces.
//!
//! It tells one server from another under the same address, in a greeting and in logs. Whether a *history* is the known one
//! says a space's token, never this: a folder that was copied by hand or set back keeps its name. A backup does not have it, so
//! a folder that was restored gets another one.

use std::io;
use std::path::Path;

use alluvium_env::{Disk, Env, OpenMode};
use alluvium_feed_protocol::Id;

/// The file, in the folder of all spaces.
pub(crate) const FILE: &str = "server-id";
/// What becomes it.
pub(crate) const FRESH: &str = "server-id.new";
/// What a name begins with; 32 lower-case hexadecimal digits follow.
const MARK: &str = "srv_";
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
    Id::parse(&format!("{MARK}{:032x}", env.random.next_u128())).expect("letters and digits")
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
    let is_name = |text: &&str| {
        let digits = text.strip_prefix(MARK).unwrap_or_default();
        digits.len() == 32 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    Ok(str::from_utf8(&bytes).ok().filter(is_name).and_then(|text| Id::parse(text).ok()))
}

/// Whether a folder has the file, and in it no name. A start gives it another one.
pub(crate) fn is_damaged(folder: &Path, disk: &dyn Disk) -> io::Result<bool> {
    Ok(disk.exists(&folder.join(FILE))? && read(folder, disk)?.is_none())
}

fn keep(folder: &Path, disk: &dyn Disk, id: &Id) -> io::Result<()> {
    let (path, fresh) = (folder.join(FILE), folder.join(FRESH));
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
        for damaged in [&b""[..], b"\xff\xfe", b"a\nb", b"srv_0123456789abcdef0123456789abcdeF"] {
            std::fs::write(folder.path().join(FILE), damaged).unwrap();
            let env = Env::real();
            assert!(is_damaged(folder.path(), env.disk.as_ref()).unwrap(), "{damaged:?}");
            let name = of_folder(folder.path(), &env);
            assert_eq!(of_folder(folder.path(), &env), name, "{damaged:?}");
            assert!(!is_damaged(folder.path(), env.disk.as_ref()).unwrap());
        }
    }
}
