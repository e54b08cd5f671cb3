//! The `alluvium` command: parses arguments and hands over to the server or to the stream client.

mod stream;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A durable streams server, and the tools to use one.
#[derive(Debug, Parser)]
#[command(name = "alluvium", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create, append to, read and delete streams on a running server.
    Stream(stream::StreamArgs),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Stream(args) => stream::run(args),
    }
}
