//! `alluvium jetstream …`: what has to do with networks of the AT Protocol.

mod serve;
mod simulate;

use std::process::ExitCode;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum JetstreamCommand {
    /// Archive a network from a relay, verified, and serve it: live feeds, and files to download.
    ///
    /// It begins where it ended, the first time with what happens next. Every commit is checked against its account's
    /// key and repository; what is missing is fetched from the account's server.
    Serve(serve::ServeArgs),
    /// Serve a network that is made up: a directory, hosts and a relay, to try things without the real one.
    ///
    /// Accounts, records, keys and everything that happens follow from the seed. Commits are really signed, so whatever
    /// verifies a relay verifies this one.
    Simulate(simulate::SimulateArgs),
}

/// Runs one of the commands.
pub(crate) fn run(command: &JetstreamCommand) -> ExitCode {
    match command {
        JetstreamCommand::Serve(args) => serve::run(args),
        JetstreamCommand::Simulate(args) => simulate::run(args),
    }
}

/// The part of the page of options that is about these commands.
pub(crate) fn docs_markdown() -> String {
    serve::docs_markdown() + &simulate::docs_markdown()
}

/// A table of the flags of one command.
fn flags_markdown(name: &str, command: &clap::Command) -> String {
    let mut page =
        format!("\n## `alluvium jetstream {name}`\n\n| flag | default | meaning |\n|---|---|---|\n");
    for flag in command.get_arguments() {
        let default: Vec<_> = flag.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
        if let Some(name) = flag.get_long() {
            let default = default.join(" ");
            page.extend(["| `--", name, "` | `", &default, "` | ", &help, " |\n"]);
        }
    }
    page
}
