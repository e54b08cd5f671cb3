//! `alluvium stream …`: the client side of the protocol on the command line.

use std::process::ExitCode;

use clap::Args;

/// Arguments of `alluvium stream`.
#[derive(Debug, Args)]
pub(crate) struct StreamArgs {}

/// Runs one stream command against a server.
pub(crate) fn run(_args: StreamArgs) -> ExitCode {
    ExitCode::FAILURE
}
