//! `alluvium jetstream …`: what has to do with networks of the AT Protocol.

mod client;
mod inspect;
mod serve;
mod simulate;
mod tls;
mod values;

use std::process::ExitCode;

use clap::Subcommand;

pub(crate) use self::serve::variables;

#[derive(Debug, Subcommand)]
pub(crate) enum JetstreamCommand {
    /// Serve a network that is made up: a directory, hosts and a relay, to try things without the real one.
    ///
    /// Accounts, records, keys and everything that happens follow from the seed. Commits are really signed, so whatever
    /// verifies a relay verifies this one.
    Simulate(simulate::SimulateArgs),
    /// Print the events of a server as they come, one object of JSON on a line.
    ///
    /// What the live feed no longer gives is downloaded from the archive. A connection that breaks is opened again behind
    /// the last event.
    Tail(client::TailArgs),
    /// Download the archive of a server, one object of JSON on a line; with --follow, go on with what comes.
    ///
    /// The archive ends with the last finished segment. What came after it is in the live feed.
    Backfill(client::BackfillArgs),
    /// Follow a relay: verify every commit, archive every event, and serve live feeds and downloads.
    Serve(serve::ServeArgs),
    /// Show what segment files have, and check that all of it can be read.
    #[command(after_help = inspect::after_help())]
    Inspect(inspect::InspectArgs),
}

/// Runs one of the commands.
pub(crate) fn run(command: &JetstreamCommand) -> ExitCode {
    match command {
        JetstreamCommand::Simulate(args) => simulate::run(args),
        JetstreamCommand::Tail(args) => client::tail(args),
        JetstreamCommand::Backfill(args) => client::backfill(args),
        JetstreamCommand::Serve(args) => serve::run(args),
        JetstreamCommand::Inspect(args) => inspect::run(args),
    }
}

/// The part of the page of options that is about these commands.
pub(crate) fn docs_markdown() -> String {
    simulate::docs_markdown() + &serve::docs_markdown() + &inspect::docs_markdown() + &client::docs_markdown()
}

/// The flags of a command as a section of that page.
fn flags_markdown(name: &str, command: &clap::Command) -> String {
    let has_variables = name.ends_with(" serve");
    let (variable, line) = if has_variables { (" variable |", "---|") } else { ("", "") };
    let mut page = format!("\n## `{name}`\n\n| flag |{variable} default | meaning |\n|---|{line}---|---|\n");
    for flag in command.get_arguments() {
        let default: Vec<_> = flag.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
        if let Some(name) = flag.get_long() {
            let default = default.join(" ");
            page.extend(["| `--", name, "` | "]);
            if has_variables && let Some(variable) = flag.get_env() {
                page.extend(["`", &variable.to_string_lossy(), "` | "]);
            }
            page.extend(["`", &default, "` | ", &help, " |\n"]);
        }
    }
    page
}
