//! The `alluvium` command: parses arguments and hands over to the server or to the stream client.

mod serve;
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
    /// Run a server.
    ///
    /// Every flag is also an environment variable and a key of the configuration file. A flag wins over the variable,
    /// the variable over the file. SIGTERM or Ctrl-C stops the server once running requests have finished.
    Serve(serve::ServerArgs),
    /// Look at the server's configuration.
    #[command(subcommand)]
    Config(serve::ConfigCommand),
    /// Create, append to, read and delete streams on a running server.
    Stream(stream::StreamArgs),
    /// Create, list and delete buckets on a running server.
    Bucket(stream::bucket::BucketArgs),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Config(command) => serve::run_config(&command),
        Command::Stream(args) => stream::run(args),
        Command::Bucket(args) => stream::bucket::run(args),
    }
}
