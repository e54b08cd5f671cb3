//! `alluvium top`: what a server does, live in a terminal, from its `/metrics`.

mod view;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use alluvium_metrics::{Exposition, parse};
use alluvium_server::config::{exit_codes, parse_seconds};
use clap::Args;

use self::view::view;
use crate::exit_codes_help;
use crate::stream::connection::{ServerAccess, unreachable};
use crate::stream::failure::Failure;
use crate::stream::{TLS_CA_VARIABLE, TOKEN_FILE_VARIABLE, TOKEN_VARIABLE, URL_DEFAULT, URL_VARIABLE};

/// How long a server may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Columns and lines where a terminal does not tell how many it has.
const SIZE_UNKNOWN: (usize, usize) = (100, 40);

/// Every exit code with its meaning.
const EXIT_CODES: &[(u8, &str)] = &[
    (0, "done; also when the reader of standard output goes away"),
    (1, "the answer is none of an alluvium server, or local I/O failed"),
    (2, "wrong usage"),
    (3, "the server has no /metrics there"),
    (7, "the server cannot be reached, or failed"),
    (8, "denied: the server wants (other) credentials"),
];

/// What `alluvium top --help` says after the options.
pub(crate) fn after_help() -> String {
    exit_codes_help(EXIT_CODES)
}

/// Arguments of `alluvium top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    // Or the address that its metrics have for themselves. A file with the token is read again before each look.
    #[command(flatten)]
    access: ServerAccess,

    /// How long between two looks, such as `2` (seconds) or `1m`.
    #[arg(long, short, value_name = "TIME", value_parser = parse_seconds, default_value = "2")]
    interval: u64,

    /// Look twice, one interval apart, print what happened between, and end.
    #[arg(long)]
    once: bool,
}

/// Runs the command.
pub(crate) fn run(args: &TopArgs) -> ExitCode {
    match watch(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, Failure::ReaderGone) {
                drop(writeln!(io::stderr(), "error: {failure}"));
            }
            failure.exit_code()
        }
    }
}

/// One look at a server.
struct Look {
    at: Instant,
    shown: Exposition,
}

fn watch(args: &TopArgs) -> Result<(), Failure> {
    let agent = args.access.place.agent(Some(ANSWER_TIMEOUT))?;
    let interval = Duration::from_secs(args.interval.max(1));
    let mut screen = Screen { is_terminal: !args.once && io::stdout().is_terminal(), is_fresh: true };
    let mut last = look(&agent, args)?;
    loop {
        std::thread::park_timeout(interval);
        match look(&agent, args) {
            Ok(now) => {
                let seconds = now.at.duration_since(last.at).as_secs_f64();
                screen.show(&view(&args.access.place.url, &last.shown, &now.shown, seconds))?;
                last = now;
            }
            Err(failure) if args.once => return Err(failure),
            // It may come back.
            Err(failure) => screen.show(&[format!("{}: {failure}", args.access.place.url)])?,
        }
        if args.once {
            return Ok(());
        }
    }
}

fn look(agent: &ureq::Agent, args: &TopArgs) -> Result<Look, Failure> {
    let url = args.access.place.at("/metrics");
    let request = args.access.authorized(agent.get(&url))?;
    let unreachable = |error: ureq::Error| unreachable(&url, &error);
    let mut answer = request.call().map_err(unreachable)?;
    let status = answer.status().as_u16();
    match status {
        200 => {}
        401 | 403 => return Err(Failure::Denied(format!("`{url}` wants (other) credentials"))),
        404 => {
            return Err(Failure::NotFound(format!(
                "nothing is at `{url}`; see the option `metrics-listen` of the server"
            )));
        }
        _ => return Err(Failure::Unavailable(format!("`{url}` was answered with status {status}"))),
    }
    let text =
        answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string().map_err(unreachable)?;
    let shown = parse(&text).map_err(|error| Failure::Other(format!("`{url}` has no metrics: {error}")))?;
    Ok(Look { at: now(), shown })
}

#[expect(clippy::disallowed_methods, reason = "how long it was between two looks; nothing is simulated here")]
fn now() -> Instant {
    Instant::now()
}

/// Where lines go: over the last ones in a terminal, behind them elsewhere.
struct Screen {
    is_terminal: bool,
    is_fresh: bool,
}

impl Screen {
    fn show(&mut self, lines: &[String]) -> Result<(), Failure> {
        let mut text = String::new();
        if self.is_terminal {
            let (columns, rows) = size();
            text.push_str(if self.is_fresh { "\x1b[2J\x1b[H" } else { "\x1b[H" });
            for line in lines.iter().take(rows.saturating_sub(1)) {
                text.extend(line.chars().take(columns));
                text.push_str("\x1b[K\n");
            }
            text.push_str("\x1b[J");
        } else {
            text.extend(lines.iter().flat_map(|line| [line.as_str(), "\n"]));
            text.push('\n');
        }
        self.is_fresh = false;
        let mut out = io::stdout();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
    }
}

/// Columns and lines of the terminal.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => SIZE_UNKNOWN,
    }
}

/// The part of the page of options that is about this command.
pub(crate) fn docs_markdown() -> String {
    let mut page = format!(
        "\n## `alluvium top`\n\n\
         | flag | variable | default | meaning |\n|---|---|---|---|\n\
         | `--url` | `{URL_VARIABLE}` | `{URL_DEFAULT}` | The server, or the address that its metrics have for themselves. |\n\
         | `--token` | `{TOKEN_VARIABLE}` | (none) | Sent as `Authorization: Bearer`. |\n\
         | `--token-file` | `{TOKEN_FILE_VARIABLE}` | (none) | A file with the token, read before each look. |\n\
         | `--tls-ca` | `{TLS_CA_VARIABLE}` | (none) | A file with certificates that are trusted in place of the public ones. |\n\
         | `--interval` | | `2` | Seconds, or a time such as `1m`, between two looks. |\n\
         | `--once` | | | Look twice, print what happened between, and end. |\n\n\
         ## Exit codes of `alluvium top`\n\n"
    );
    exit_codes(&mut page, EXIT_CODES);
    page
}
