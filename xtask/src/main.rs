//! The project's own tools: `cargo xtask test`, `cargo xtask tidy`, `cargo xtask licenses`, `cargo xtask docs`.
//!
//! Everything that a check can decide is decided here, so that no norm of this repository depends on memory.

#![expect(clippy::print_stdout, reason = "a command-line tool reports on standard output")]
#![expect(
    clippy::disallowed_methods,
    reason = "tools look at real files and time; nothing here is simulated"
)]

mod docs;
mod licenses;
mod metadata;
mod programs;
mod test;
mod tidy;
mod tree;

use std::process::ExitCode;

use anyhow::{Result, bail};

const HELP: &str = "\
cargo xtask COMMAND

  test [--only STEP]...   everything that must pass, from formatting to crash tests; --list names the steps
  tidy [--accept-golden]  the norms of this repository; --accept-golden records golden files that are new
  licenses                the licences of all dependencies against the list of allowed ones
  docs                    rewrites the generated parts of the documentation
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything that the command checks holds.
fn run(arguments: &[String]) -> Result<bool> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["test", options @ ..] => test::run(options),
        ["tidy"] => {
            let mut problems = tidy::problems()?;
            problems.extend(docs::problems(|| Ok(programs::alone("alluvium")))?);
            Ok(report(&problems))
        }
        ["tidy", "--accept-golden"] => tidy::accept_golden().map(|()| true),
        ["licenses"] => Ok(report(&licenses::problems()?)),
        ["docs"] => docs::rewrite().map(|()| true),
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(true)
        }
        _ => bail!("unknown command `{}`\n\n{HELP}", arguments.join(" ")),
    }
}

fn report(problems: &[String]) -> bool {
    for problem in problems {
        println!("{problem}");
    }
    println!(
        "{}",
        match problems.len() {
            0 => "nothing to complain about".to_owned(),
            count => format!("{count} problems"),
        }
    );
    problems.is_empty()
}
