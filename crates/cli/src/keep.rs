//! `alluvium check`, `alluvium backup` and `alluvium restore`: looking through data, copying it, bringing it back.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use alluvium_env::{Env, Finding};
use alluvium_server::Causes;
use alluvium_server::config::{StoreChoice, exit_codes};
use alluvium_server::keep::{self, KeepFault};
use alluvium_server::words::counted;
use clap::Args;
use serde_json::{Value, json};

use crate::exit_codes_help;
use crate::stream::connection::{ServerAccess, unreachable};
use crate::stream::failure::Failure;

/// Something is wrong.
const EXIT_FOUND: u8 = 1;
/// It could not be looked at.
const EXIT_UNSEEN: u8 = 2;

/// Made, of something damaged.
const EXIT_DAMAGED: u8 = 9;

/// How `alluvium check` ends.
const CHECK_CODES: &[(u8, &str)] = &[
    (0, "everything was looked at, and nothing is wrong; notes are no faults"),
    (EXIT_FOUND, "something is wrong: see the findings"),
    (EXIT_UNSEEN, "it could not be looked at: a server runs on it, it is none of ours, or wrong usage"),
];

/// How `alluvium backup` and `alluvium restore` end.
const KEEP_CODES: &[(u8, &str)] = &[
    (0, "done, and durable"),
    (1, "nothing was made: refused, not whole, or the disk failed"),
    (2, "wrong usage"),
    (3, "the server takes no backups"),
    (4, "a backup of this name is there, or another one is being taken"),
    (7, "the server cannot be reached, or failed"),
    (8, "denied: the server wants (other) credentials"),
    (
        EXIT_DAMAGED,
        "the backup was made of what can be read, and something is wrong with what it is of: see the findings",
    ),
];

/// What `alluvium check --help` says after the options.
pub(crate) fn check_help() -> String {
    exit_codes_help(CHECK_CODES)
}

/// What the help of the others says after the options.
pub(crate) fn keep_help() -> String {
    exit_codes_help(KEEP_CODES)
}

/// The part of the page of options that is about these commands.
pub(crate) fn docs_markdown() -> String {
    let mut page = String::from(
        "\n## `alluvium check`, `alluvium backup`, `alluvium restore`\n\n\
         [operating/backup.md](operating/backup.md) says how they are used.\n\n\
         ## Exit codes of `alluvium check`\n\n",
    );
    exit_codes(&mut page, CHECK_CODES);
    page.push_str("\n## Exit codes of `alluvium backup` and `alluvium restore`\n\n");
    exit_codes(&mut page, KEEP_CODES);
    page
}

/// Arguments of `alluvium check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// A data directory of `alluvium serve` or `alluvium jetstream serve`, or a backup. No server may run on it; nothing
    /// in it is changed.
    #[arg(value_name = "DATA_DIR")]
    dir: PathBuf,
    /// Where the server has its streams if it is not the data directory: `sqlite:PATH`, as its own option.
    #[arg(long, value_name = "STORE", value_parser = sqlite_path)]
    store: Option<PathBuf>,
    /// Print one JSON object a line: each finding, and at last what was looked at.
    #[arg(long)]
    json: bool,
    /// Where a copy is made of what can't be opened without writing to it, the metadata of a Jetstream.
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    scratch: PathBuf,
}

/// Arguments of `alluvium backup`.
#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// With one argument: the name of the backup that the running server at `--url` is to take, in its `backup-dir`. With
    /// two: a data directory that no server runs on, and the folder that is made.
    #[arg(value_names = ["NAME_OR_DATA_DIR", "TARGET"], num_args = 1..=2, required = true)]
    places: Vec<PathBuf>,
    /// Without a server: where it has its streams if that is not the data directory, `sqlite:PATH`.
    #[arg(long, value_name = "STORE", value_parser = sqlite_path)]
    store: Option<PathBuf>,
    /// Without a server: where copies are made of what can't be looked at without writing to it.
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    scratch: PathBuf,
    // With a server.
    #[command(flatten)]
    access: ServerAccess,
}

/// Arguments of `alluvium restore`.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// A backup: the folder with the file `BACKUP`.
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    /// The data directory to be made: not there yet, or empty.
    #[arg(value_name = "DATA_DIR")]
    dir: PathBuf,
    /// Where the SQLite file goes, if the backup has one: `sqlite:PATH`.
    #[arg(long, value_name = "STORE", value_parser = sqlite_path)]
    store: Option<PathBuf>,
}

fn sqlite_path(text: &str) -> Result<PathBuf, String> {
    match StoreChoice::from_text(text)? {
        StoreChoice::Sqlite(path) => Ok(path),
        StoreChoice::Engine => Err("expected `sqlite:PATH`".to_owned()),
    }
}

/// Runs `alluvium check`.
pub(crate) fn check(args: &CheckArgs) -> ExitCode {
    let mut told = Told::new(args.json);
    let checked =
        keep::check(&Env::real(), &args.dir, args.store.as_deref(), &args.scratch, &mut |finding| {
            told.tell(&finding);
        });
    match checked {
        Ok(counts) => {
            told.end(&args.dir, &counts);
            if told.faults > 0 { ExitCode::from(EXIT_FOUND) } else { ExitCode::SUCCESS }
        }
        Err(error) => fail(&error, EXIT_UNSEEN),
    }
}

/// Prints findings as they come.
struct Told {
    as_json: bool,
    faults: u64,
    notes: u64,
}

impl Told {
    fn new(as_json: bool) -> Self {
        Self { as_json, faults: 0, notes: 0 }
    }

    fn tell(&mut self, finding: &Finding) {
        let (Finding { file, at, what, .. }, is_fault) = (finding, finding.is_fault());
        *(if is_fault { &mut self.faults } else { &mut self.notes }) += 1;
        let (kind, lost) = (if is_fault { "fault" } else { "note" }, keep::lost(finding));
        let file = file.display();
        print(&if self.as_json {
            json!({ "kind": kind, "file": file.to_string(), "at": at, "what": what, "lost": lost })
                .to_string()
        } else {
            let place = at.map(|at| format!(", byte {at}")).unwrap_or_default();
            format!("{kind}: {file}{place}: {what} (lost by it: {lost})")
        });
    }

    fn end(&self, dir: &Path, counts: &[(&'static str, u64)]) {
        let Self { faults, notes, .. } = self;
        print(&if self.as_json {
            let counts: serde_json::Map<_, _> =
                counts.iter().map(|(name, count)| (name.replace(' ', "_"), json!(count))).collect();
            json!({ "checked": counts, "faults": faults, "notes": notes }).to_string()
        } else {
            let counts: Vec<String> = counts.iter().map(|(name, count)| counted(*count, name)).collect();
            let counts = if counts.is_empty() { "nothing".to_owned() } else { counts.join(", ") };
            format!("{}: looked at {counts}; faults {faults}, notes {notes}", dir.display())
        });
    }
}

/// Whoever reads this may have seen enough; the exit code stays.
fn print(line: &str) {
    drop(writeln!(io::stdout(), "{line}"));
}

fn fail(error: &KeepFault, code: u8) -> ExitCode {
    drop(writeln!(io::stderr(), "error: {}", Causes(error)));
    ExitCode::from(code)
}

/// Runs `alluvium backup`.
pub(crate) fn backup(args: &BackupArgs) -> ExitCode {
    let done = match &args.places[..] {
        [dir, target] => return offline(args, dir, target),
        [name] => live(args, name),
        _ => Err(Failure::Usage("one or two arguments".to_owned())),
    };
    match done {
        Ok(line) => {
            print(&line);
            ExitCode::SUCCESS
        }
        Err(failure) => {
            drop(writeln!(io::stderr(), "error: {failure}"));
            failure.exit_code()
        }
    }
}

/// Of all that can be read, and says what cannot.
fn offline(args: &BackupArgs, dir: &Path, target: &Path) -> ExitCode {
    let (store, mut told) = (args.store.as_deref(), Told::new(false));
    let taken = keep::backup_closed(&Env::real(), dir, store, target, &args.scratch, &mut |finding| {
        told.tell(&finding);
    });
    let taken = match taken {
        Ok(taken) => taken,
        Err(error) => return fail(&error, EXIT_FOUND),
    };
    print(&line(&target.display().to_string(), taken.files, taken.bytes, taken.linked_bytes));
    if told.faults == 0 {
        return ExitCode::SUCCESS;
    }
    let faults = told.faults;
    drop(writeln!(
        io::stderr(),
        "error: the backup was made of what there is; faults {faults} are told of above, and `restore` refuses what has some"
    ));
    ExitCode::from(EXIT_DAMAGED)
}

fn line(name: &str, files: u64, bytes: u64, linked: u64) -> String {
    let (files, bytes) = (counted(files, "files"), counted(bytes, "bytes"));
    format!("{name}: {files}, {bytes}, of which {linked} are shared with the data directory")
}

/// Has the server take it, however long that lasts.
fn live(args: &BackupArgs, name: &Path) -> Result<String, Failure> {
    let name = name.to_str().filter(|name| !name.contains(['/', '?', '#', '%']));
    let name =
        name.ok_or_else(|| Failure::Usage("a folder needs a second argument: the target".to_owned()))?;
    let url = args.access.place.at(&format!("/admin/v1/backups/{name}"));
    let agent = args.access.place.agent(None)?;
    let request = args.access.authorized(agent.put(&url))?;
    let unreachable = |error: ureq::Error| unreachable(&url, &error);
    let mut answer = request.send_empty().map_err(unreachable)?;
    let status = answer.status().as_u16();
    let text = answer.body_mut().read_to_string().map_err(unreachable)?;
    let body: Value = serde_json::from_str(&text).unwrap_or_default();
    // A Jetstream writes some refusals as its clients read them, with the message beside the name of the error.
    let message = body["error"]["message"].as_str().or_else(|| body["message"].as_str());
    let message = message.unwrap_or("no reason was given").to_owned();
    match status {
        201 => {
            let number = |name: &str| body[name].as_u64().unwrap_or_default();
            Ok(line(name, number("files"), number("bytes"), number("linked_bytes")))
        }
        401 | 403 => Err(Failure::Denied(message)),
        404 => Err(Failure::NotFound(message)),
        409 => Err(Failure::Conflict(message)),
        400..500 => Err(Failure::Other(message)),
        _ => Err(Failure::Unavailable(message)),
    }
}

/// Runs `alluvium restore`.
pub(crate) fn restore(args: &RestoreArgs) -> ExitCode {
    let mut told = Told::new(false);
    let store = args.store.as_deref();
    match keep::restore(&Env::real(), &args.backup, &args.dir, store, &mut |finding| told.tell(&finding)) {
        Ok(counts) => {
            told.end(&args.dir, &counts);
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error, EXIT_FOUND),
    }
}
