//! `alluvium jetstream …`: what has to do with networks of the AT Protocol.

mod inspect;
mod simulate;

use std::process::ExitCode;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum JetstreamCommand {
    /// Serve a network that is made up: a directory, hosts and a relay, to try things without the real one.
    ///
    /// Accounts, records, keys and everything that happens follow from the seed. Commits are really signed, so whatever
    /// verifies a relay verifies this one.
    Simulate(simulate::SimulateArgs),
    /// Show what segment files have, and check that all of it can be read.
    #[command(after_help = inspect::after_help())]
    Inspect(inspect::InspectArgs),
}

/// Runs one of the commands.
pub(crate) fn run(command: &JetstreamCommand) -> ExitCode {
    match command {
        JetstreamCommand::Simulate(args) => simulate::run(args),
        JetstreamCommand::Inspect(args) => inspect::run(args),
    }
}

/// The part of the page of options that is about these commands.
pub(crate) fn docs_markdown() -> String {
    simulate::docs_markdown() + &inspect::docs_markdown()
}
