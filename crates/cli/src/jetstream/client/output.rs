//! Where lines go, and the file that says up to where they are there.
//!
//! The cursor file is replaced as a whole, and only once the lines that it covers are where they belong: in a file
//! synced, else given to standard output. With an output file it also says how long that is; what is behind, from before
//! a crash, is cut off when it is gone on with, so that no event is in it twice.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_env::{Disk, DiskFile, OpenMode};
use alluvium_jetstream_client::Cursor;
use serde::{Deserialize, Serialize};

use crate::stream::failure::Failure;

/// Lines are written together up to this many bytes.
const BUFFER_BYTES: usize = 256 * 1024;
/// The longest cursor file that is read.
const CURSOR_FILE_BYTES_MAX: u64 = 64 * 1024;

/// A place in a server's events.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Place {
    /// The server, as it was named. Numbers mean nothing at another one.
    pub(super) server: String,
    pub(super) cursor: Cursor,
    /// The length of the output that goes with it, if that is a file.
    pub(super) output_bytes: Option<u64>,
}

/// A cursor file.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    server: String,
    /// As feeds have it: the number of the next event, or a time.
    cursor: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_bytes: Option<u64>,
}

/// Where lines go.
#[derive(Debug)]
enum Sink {
    Standard,
    File { file: Arc<dyn DiskFile>, len: u64 },
}

/// Lines, and the cursor that goes with them.
#[derive(Debug)]
pub(super) struct Output {
    disk: Arc<dyn Disk>,
    sink: Sink,
    buffer: Vec<u8>,
    cursor_file: Option<PathBuf>,
    server: String,
}

impl Output {
    /// Opens the output at the place of the cursor file, else at `place`.
    pub(super) fn open(
        disk: &Arc<dyn Disk>,
        output: Option<&Path>,
        cursor_file: Option<&Path>,
        mut place: Place,
    ) -> Result<(Self, Place), Failure> {
        let mut is_new = cursor_file.is_some() && output.is_some();
        if let Some(kept) = cursor_file.map(|path| kept(&**disk, path)).transpose()?.flatten() {
            if kept.server != place.server {
                let server = kept.server;
                return Err(Failure::Conflict(format!("the cursor file is of another server: {server}")));
            }
            (place, is_new) = (kept, false);
        }
        let sink = match output {
            None => Sink::Standard,
            Some(path) => file(&**disk, path, place.output_bytes)?,
        };
        let server = place.server.clone();
        let cursor_file = cursor_file.map(Path::to_owned);
        let mut output = Self { disk: Arc::clone(disk), sink, buffer: Vec::new(), cursor_file, server };
        if is_new {
            // Before the first line: else nothing would say what the file is if it ended before the first cursor.
            output.keep(place.cursor)?;
        }
        Ok((output, place))
    }

    /// Whether lines go to a terminal.
    pub(super) fn is_terminal(&self) -> bool {
        matches!(self.sink, Sink::Standard) && io::stdout().is_terminal()
    }

    /// Whether lines go to standard output.
    pub(super) const fn is_standard(&self) -> bool {
        matches!(self.sink, Sink::Standard)
    }

    /// Adds a line.
    pub(super) fn line(&mut self, line: &str) -> Result<(), Failure> {
        self.buffer.extend_from_slice(line.as_bytes());
        self.buffer.push(b'\n');
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes what waits.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        match &mut self.sink {
            Sink::Standard => {
                let mut out = io::stdout().lock();
                let written = out.write_all(&self.buffer).and_then(|()| out.flush());
                written.map_err(|error| Failure::output(&error))?;
            }
            Sink::File { file, len } => {
                file.write_all_at(&[&self.buffer], *len).map_err(failed("write the output"))?;
                *len += self.buffer.len() as u64;
            }
        }
        self.buffer.clear();
        Ok(())
    }

    /// Keeps the cursor, after everything that it covers.
    pub(super) fn keep(&mut self, cursor: Cursor) -> Result<(), Failure> {
        self.flush()?;
        let output_bytes = match &self.sink {
            Sink::Standard => None,
            Sink::File { file, len } => {
                file.sync_data().map_err(failed("sync the output"))?;
                Some(*len)
            }
        };
        let (Some(path), Some(number)) = (&self.cursor_file, cursor.to_wire()) else { return Ok(()) };
        let kept = Kept { server: self.server.clone(), cursor: number.to_string(), output_bytes };
        let mut text = serde_json::to_vec(&kept).map_err(|error| Failure::Other(error.to_string()))?;
        text.push(b'\n');
        replace(&*self.disk, path, &text).map_err(failed("write the cursor file"))
    }
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::Other(format!("cannot {what}: {error}"))
}

/// What a cursor file says; none if there is none.
fn kept(disk: &dyn Disk, path: &Path) -> Result<Option<Place>, Failure> {
    let failed = failed("read the cursor file");
    let file = match disk.open(path, OpenMode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let len = file.len().map_err(&failed)?;
    let invalid = || Failure::Other(format!("{} is no cursor file", path.display()));
    let mut text = vec![0; usize::try_from(len.min(CURSOR_FILE_BYTES_MAX)).unwrap_or_default()];
    file.read_exact_at(&mut text, 0).map_err(&failed)?;
    let kept: Kept = serde_json::from_slice(&text).map_err(|_| invalid())?;
    let cursor = Cursor::parse(&kept.cursor).ok_or_else(invalid)?;
    Ok(Some(Place { server: kept.server, cursor, output_bytes: kept.output_bytes }))
}

/// The output file, cut to where the cursor is.
fn file(disk: &dyn Disk, path: &Path, len: Option<u64>) -> Result<Sink, Failure> {
    let failed = failed("open the output");
    let exists = disk.exists(path).map_err(&failed)?;
    let mode = if exists { OpenMode::ReadWrite } else { OpenMode::CreateNew };
    let file = disk.open(path, mode).map_err(&failed)?;
    let found = file.len().map_err(&failed)?;
    let len = match len {
        None if found > 0 => {
            return Err(Failure::Conflict(format!(
                "{} is there already, and no cursor file says how to go on with it",
                path.display()
            )));
        }
        Some(len) if found < len => {
            return Err(Failure::Conflict(format!(
                "{} is shorter than the {len} bytes that the cursor file is of",
                path.display()
            )));
        }
        len => len.unwrap_or(0),
    };
    file.truncate(len).map_err(&failed)?;
    if !exists {
        disk.sync_dir(folder(path)).map_err(&failed)?;
    }
    Ok(Sink::File { file, len })
}

/// Puts a whole file in the place of another.
fn replace(disk: &dyn Disk, path: &Path, text: &[u8]) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    if disk.exists(&new)? {
        disk.remove(&new)?;
    }
    let file = disk.open(&new, OpenMode::CreateNew)?;
    file.write_all_at(&[text], 0)?;
    file.sync_all()?;
    disk.rename(&new, path)?;
    disk.sync_dir(folder(path))
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => Path::new("/"),
    }
}

#[cfg(test)]
mod tests {
    use alluvium_env::sim::SimDisk;

    use super::*;

    const OUTPUT: &str = "/d/out";
    const CURSOR: &str = "/d/cursor";

    fn place() -> Place {
        Place { server: "http://h".to_owned(), cursor: Cursor::After(0), output_bytes: None }
    }

    fn open(disk: &SimDisk) -> Result<(Output, Place), Failure> {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        Output::open(&disk, Some(Path::new(OUTPUT)), Some(Path::new(CURSOR)), place())
    }

    fn content(disk: &SimDisk) -> String {
        let file = disk.open(Path::new(OUTPUT), OpenMode::Read).unwrap();
        let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    /// Whatever was written behind the last cursor is written once more, and is there once.
    #[test]
    fn an_output_is_gone_on_with_where_its_cursor_is() {
        let disk = SimDisk::new(1);
        disk.create_dir_all(Path::new("/d")).unwrap();
        let (mut output, place) = open(&disk).unwrap();
        assert_eq!(place.cursor, Cursor::After(0));
        output.line("one").unwrap();
        output.keep(Cursor::After(1)).unwrap();
        output.line("two").unwrap();
        output.flush().unwrap();
        drop(output);
        assert_eq!(content(&disk), "one\ntwo\n");
        let (mut output, place) = open(&disk).unwrap();
        assert_eq!((place.cursor, place.output_bytes), (Cursor::After(1), Some(4)));
        output.line("two").unwrap();
        output.keep(Cursor::After(2)).unwrap();
        assert_eq!(content(&disk), "one\ntwo\n");
        assert_eq!(open(&disk).unwrap().1.cursor, Cursor::After(2));
    }

    /// Ended at any step, also before the first cursor was kept, it is gone on with, and what the cursor covers is there.
    #[test]
    fn a_crash_at_any_step_leaves_what_can_be_gone_on_with() {
        const LINES: u64 = 6;
        let write = |disk: &SimDisk, kept: &mut u64| -> Result<(), Failure> {
            let (mut output, place) = open(disk)?;
            let Cursor::After(after) = place.cursor else { panic!("a number") };
            assert!(after >= *kept, "{after} is kept, and {kept} was");
            for number in after + 1..=LINES {
                output.line(&number.to_string())?;
                output.flush()?;
                if number.is_multiple_of(2) {
                    output.keep(Cursor::After(number))?;
                    *kept = number;
                }
            }
            Ok(())
        };
        for seed in 0..10 {
            for operation in 0.. {
                let disk = SimDisk::new(seed);
                disk.create_dir_all(Path::new("/d")).unwrap();
                disk.sync_dir(Path::new("/")).unwrap();
                let mut kept = 0;
                disk.crash_at(disk.operations() + operation);
                if write(&disk, &mut kept).is_ok() {
                    assert!(operation > 20, "{operation} steps are too few");
                    break;
                }
                disk.restart();
                write(&disk, &mut kept)
                    .unwrap_or_else(|failure| panic!("seed {seed}, {operation}: {failure}"));
                assert_eq!(content(&disk), "1\n2\n3\n4\n5\n6\n", "seed {seed}, {operation}");
            }
        }
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let disk = SimDisk::new(1);
        disk.create_dir_all(Path::new("/d")).unwrap();
        let (mut output, _) = open(&disk).unwrap();
        output.line("one").unwrap();
        output.keep(Cursor::After(1)).unwrap();
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let (out, cursor) = (Some(Path::new(OUTPUT)), Some(Path::new(CURSOR)));
        let elsewhere = Place { server: "http://other".to_owned(), ..place() };
        assert!(matches!(Output::open(&shared, out, cursor, elsewhere), Err(Failure::Conflict(_))));
        // Without a cursor nothing says what the file is.
        assert!(matches!(Output::open(&shared, out, None, place()), Err(Failure::Conflict(_))));
        disk.open(Path::new(OUTPUT), OpenMode::ReadWrite).unwrap().truncate(1).unwrap();
        assert!(matches!(open(&disk), Err(Failure::Conflict(_))));
        replace(&disk, Path::new(CURSOR), b"x").unwrap();
        assert!(matches!(open(&disk), Err(Failure::Other(_))));
    }
}
