//! The `alluvium` command: parses arguments and hands over to the server or to a client.

mod admin;
mod feed;
mod health;
mod jetstream;
mod keep;
mod serve;
mod stream;
mod token;
mod top;

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
    #[command(after_help = serve::after_help())]
    Serve(serve::ServerArgs),
    /// Look at the server's configuration.
    #[command(subcommand)]
    Config(serve::ConfigCommand),
    /// Create, append to, read and delete streams on a running server.
    Stream(stream::StreamArgs),
    /// Write and read feeds in a file of your own, offline or not, and synchronise it with a server.
    Feed(feed::FeedArgs),
    /// Create, list and delete buckets on a running server.
    Bucket(stream::bucket::BucketArgs),
    /// See which streams and spaces a running server has, by size and idleness, and delete streams by their prefix.
    Admin(admin::AdminArgs),
    /// Make a token for a server, and the entry of its access file that goes with it.
    ///
    /// The entry is printed; it has the token's hash and not the token. The token is shown once, on standard error.
    Token(token::TokenArgs),
    /// Follow, keep and serve a network of the AT Protocol.
    #[command(subcommand)]
    Jetstream(jetstream::JetstreamCommand),
    /// Look through a data directory or a backup that no server uses: every checksum, and what files say of each other.
    #[command(after_help = keep::check_help())]
    Check(keep::CheckArgs),
    /// Take a backup: of a running server, or of a data directory that none runs on.
    #[command(after_help = keep::keep_help())]
    Backup(keep::BackupArgs),
    /// Make a data directory of a backup.
    ///
    /// Every file is compared with the backup's manifest, the whole is checked, and only then put in place. Clients of
    /// feeds notice that the server has another history, and heal.
    #[command(after_help = keep::keep_help())]
    Restore(keep::RestoreArgs),
    /// Ask a server whether it is ready, for what watches it: the exit code is 0 if it is.
    #[command(after_help = health::after_help())]
    Health(health::HealthArgs),
    /// Watch what a server does: rates, latencies, what it holds.
    #[command(after_help = top::after_help())]
    Top(top::TopArgs),
}

/// Columns of a line of the table of exit codes.
const EXIT_CODES_COLUMNS: usize = 80;

/// Exit codes as the help shows them.
fn exit_codes_help(codes: &[(u8, &str)]) -> String {
    let mut help = String::from("Exit codes:");
    for (code, meaning) in codes {
        let mut line = format!("\n{code:>5} ");
        for word in meaning.split(' ') {
            if line.len() + word.len() > EXIT_CODES_COLUMNS {
                help.push_str(&line);
                line = format!("\n{:6}", "");
            }
            line.push(' ');
            line.push_str(word);
        }
        help.push_str(&line);
    }
    help
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Config(command) => serve::run_config(&command),
        Command::Stream(args) => stream::run(args),
        Command::Feed(args) => feed::run(args),
        Command::Bucket(args) => stream::bucket::run(args),
        Command::Admin(args) => admin::run(args),
        Command::Token(args) => token::run(&args),
        Command::Jetstream(command) => jetstream::run(&command),
        Command::Check(args) => keep::check(&args),
        Command::Backup(args) => keep::backup(&args),
        Command::Restore(args) => keep::restore(&args),
        Command::Health(args) => health::run(&args),
        Command::Top(args) => top::run(&args),
    }
}
