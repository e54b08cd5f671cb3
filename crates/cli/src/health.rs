//! `alluvium health`: whether a server is there and ready, as an exit code, for what watches it without a client of its own.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use alluvium_server::config::exit_codes;
use clap::Args;

use crate::exit_codes_help;
use crate::stream::connection::{ServerPlace, unreachable};
use crate::stream::failure::Failure;
use crate::stream::{TLS_CA_VARIABLE, URL_DEFAULT, URL_VARIABLE};

/// How long a server may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
/// Bytes of an answer that are shown.
const SHOWN_BYTES_MAX: u64 = 1024;

/// Every exit code with its meaning.
const EXIT_CODES: &[(u8, &str)] = &[
    (0, "ready; also when the reader of standard output goes away"),
    (1, "local I/O failed"),
    (2, "wrong usage"),
    (7, "the server cannot be reached, or is not ready: it recovers or stops"),
];

/// What `alluvium health --help` says after the options.
pub(crate) fn after_help() -> String {
    exit_codes_help(EXIT_CODES)
}

/// Arguments of `alluvium health`.
#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    // Of either kind, or the address that its metrics have for themselves.
    #[command(flatten)]
    server: ServerPlace,
}

/// Runs the command.
pub(crate) fn run(args: &HealthArgs) -> ExitCode {
    match ask(args).and_then(|answer| say(&answer)) {
        Ok(()) | Err(Failure::ReaderGone) => ExitCode::SUCCESS,
        Err(failure) => {
            drop(writeln!(io::stderr(), "error: {failure}"));
            failure.exit_code()
        }
    }
}

fn ask(args: &HealthArgs) -> Result<String, Failure> {
    let agent = args.server.agent(Some(ANSWER_TIMEOUT))?;
    let url = args.server.at("/readyz");
    let mut answer = agent.get(&url).call().map_err(|error| unreachable(&url, &error))?;
    let status = answer.status().as_u16();
    let text = answer.body_mut().with_config().limit(SHOWN_BYTES_MAX).read_to_string().unwrap_or_default();
    match status {
        200 => Ok(text),
        _ => Err(Failure::Unavailable(format!("`{url}` was answered with status {status}: {}", text.trim()))),
    }
}

fn say(answer: &str) -> Result<(), Failure> {
    let mut out = io::stdout();
    writeln!(out, "{}", answer.trim()).and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
}

/// The part of the page of options that is about this command.
pub(crate) fn docs_markdown() -> String {
    let mut page = format!(
        "\n## `alluvium health`\n\n\
         | flag | variable | default | meaning |\n|---|---|---|---|\n\
         | `--url` | `{URL_VARIABLE}` | `{URL_DEFAULT}` | The server, of either kind, or the address that its metrics have for themselves. |\n\
         | `--tls-ca` | `{TLS_CA_VARIABLE}` | (none) | A file with certificates that are trusted in place of the public ones. |\n\n\
         ## Exit codes of `alluvium health`\n\n"
    );
    exit_codes(&mut page, EXIT_CODES);
    page
}
