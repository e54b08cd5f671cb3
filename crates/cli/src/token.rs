//! `alluvium token`: makes a token, and the entry of the access file that lets its holder in.

use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use alluvium_access::{Grants, Prefix, Token, TokenHash, file};
use alluvium_env::{Env, OpenMode};
use alluvium_server::config::parse_seconds;
use clap::Args;

use crate::stream::failure::Failure;
use crate::stream::notes;

/// Longest token that is read, in bytes.
const TOKEN_BYTES_MAX: u64 = alluvium_access::limits::TOKEN_BYTES_MAX as u64;

/// Arguments of `alluvium token`.
#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    /// What the holder is called in logs.
    #[arg(long, value_name = "NAME")]
    name: String,
    /// What the holder may do: `read`, `write` or `admin`, everywhere or below a place, as in `read:/ds/docs`. Can be given
    /// again.
    #[arg(long = "scope", value_name = "SCOPE", required = true)]
    scopes: Vec<String>,
    /// Where, for scopes that name no place of their own. Can be given again.
    #[arg(long = "prefix", value_name = "PATH")]
    prefixes: Vec<String>,
    /// For how long the token is good, such as `90d`; without this for as long as its entry is there.
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    expires_in: Option<u64>,
    /// Write the token to this new file, which nobody but you may read, and not to standard error.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Take a token that exists already from standard input, and only make its entry.
    #[arg(long, conflicts_with = "token_file")]
    from_stdin: bool,
}

/// Prints an entry on standard output, and the token where nobody puts it into a file by mistake.
pub(crate) fn run(args: &TokenArgs) -> ExitCode {
    match make(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            notes::error(&failure);
            failure.exit_code()
        }
    }
}

fn make(args: &TokenArgs) -> Result<(), Failure> {
    let env = Env::real();
    check(args)?;
    let expires = args.expires_in.map(|seconds| expiry(env.clock.now_ms(), seconds)).transpose()?;
    let hash = if args.from_stdin {
        TokenHash::of(&read_token()?)
    } else {
        let token = Token::generate(env.random.as_ref());
        hand_over(args, &env, &token)?;
        token.hash()
    };
    let entry = file::entry(&args.name, &hash, &args.scopes, &args.prefixes, expires.as_deref());
    io::stdout().write_all(entry.as_bytes()).map_err(|error| other(&error))
}

/// The server would refuse the same later.
fn check(args: &TokenArgs) -> Result<(), Failure> {
    let prefix =
        |text: &String| Prefix::parse(text).map_err(|error| Failure::Usage(format!("`{text}`: {error}")));
    let prefixes: Vec<Prefix> = args.prefixes.iter().map(prefix).collect::<Result<_, _>>()?;
    let beside = (!prefixes.is_empty()).then_some(prefixes.as_slice());
    Grants::parse(args.scopes.iter().map(String::as_str), beside)
        .map_err(|error| Failure::Usage(error.to_string()))?;
    let entry = file::entry(&args.name, &TokenHash::of(""), &args.scopes, &args.prefixes, None);
    let parsed = file::AccessFile::parse(&entry, std::path::Path::new(""));
    parsed.map(drop).map_err(|error| Failure::Usage(error.to_string()))
}

fn expiry(now_ms: u64, seconds: u64) -> Result<String, Failure> {
    let too_far = || Failure::Usage("the token would be good for too long".to_owned());
    let at =
        (now_ms / 1000).checked_add(seconds).and_then(|at| i64::try_from(at).ok()).ok_or_else(too_far)?;
    jiff::Timestamp::from_second(at).map(|time| time.to_string()).map_err(|_| too_far())
}

fn read_token() -> Result<String, Failure> {
    let mut text = String::new();
    io::stdin().take(TOKEN_BYTES_MAX).read_to_string(&mut text).map_err(|error| other(&error))?;
    match text.trim() {
        "" => Err(Failure::Usage("there is no token on standard input".to_owned())),
        token => Ok(token.to_owned()),
    }
}

fn hand_over(args: &TokenArgs, env: &Env, token: &Token) -> Result<(), Failure> {
    let Some(path) = &args.token_file else {
        let text = format!("token of `{}`, shown once: {}\n", args.name, token.reveal());
        return io::stderr().write_all(text.as_bytes()).map_err(|error| other(&error));
    };
    let unwritable = |error: io::Error| Failure::Other(format!("cannot write `{}`: {error}", path.display()));
    // Nobody else may read the file from its first moment on.
    let mask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let opened = env.disk.open(path, OpenMode::CreateNew);
    rustix::process::umask(mask);
    let file = opened.map_err(unwritable)?;
    file.write_all_at(&[token.reveal().as_bytes(), b"\n"], 0)
        .and_then(|()| file.sync_all())
        .map_err(unwritable)
}

fn other(error: &io::Error) -> Failure {
    Failure::Other(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_the_file_has_it() {
        assert_eq!(expiry(1_800_000_000_500, 60).ok().as_deref(), Some("2027-01-15T08:01:00Z"));
        assert!(expiry(0, u64::MAX).is_err());
    }
}
