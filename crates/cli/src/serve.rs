//! `alluvium serve` and `alluvium config`: the server's side of the command.
//!
//! The flags are not written here: they come from the server's table of options, so that a flag, its environment
//! variable, its key in the file and its documentation are one thing.

use std::{
    error::Error,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use alluvium_server::{
    Causes, EXIT_CODES, EXIT_CONFIG, ServeError, check_files,
    config::{CONFIG_VARIABLE, Config, ConfigError, Loaded, OPTIONS, OptionSpec, Sources, docs_markdown},
    metrics::metrics_markdown,
    operations, serve,
};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, Subcommand, builder::StyledStr};

use crate::{
    admin, exit_codes_help, feed, health, jetstream, keep,
    stream::{self, TLS_CA_VARIABLE, TOKEN_FILE_VARIABLE, TOKEN_VARIABLE, URL_VARIABLE},
    top,
};

/// Variables with the project's prefix that belong to the clients.
const FOREIGN_VARIABLES: &[&str] = &[
    URL_VARIABLE,
    TOKEN_VARIABLE,
    TOKEN_FILE_VARIABLE,
    TLS_CA_VARIABLE,
    feed::DB_VARIABLE,
    feed::SPACE_VARIABLE,
];

fn foreign_variables() -> Vec<String> {
    FOREIGN_VARIABLES.iter().map(|name| (*name).to_owned()).chain(jetstream::variables()).collect()
}

const CONFIG_FLAG: &str = "config";

/// Arguments of `alluvium serve`: a flag for each option, and `--config`.
#[derive(Debug, Default)]
pub(crate) struct ServerArgs {
    flags: Vec<(String, String)>,
    file: Option<PathBuf>,
}

impl ServerArgs {
    fn load(&self) -> Result<Loaded, ConfigError> {
        // A variable that is not UTF-8 cannot be one of ours.
        let environment = std::env::vars_os()
            .filter_map(|(name, text)| Some((name.into_string().ok()?, text.into_string().ok()?)))
            .collect();
        Loaded::from_sources(&Sources {
            flags: self.flags.clone(),
            environment,
            foreign_variables: foreign_variables(),
            file: self.file.clone(),
        })
    }
}

impl Args for ServerArgs {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new(CONFIG_FLAG)
            .long(CONFIG_FLAG)
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help(format!("Configuration file (TOML), each key named as its flag [env: {CONFIG_VARIABLE}]"));
        command.arg(file).args(OPTIONS.iter().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ServerArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let given = |option: &OptionSpec| {
            Some((option.name.to_owned(), matches.get_one::<String>(option.name)?.clone()))
        };
        self.flags.extend(OPTIONS.iter().filter_map(given));
        self.file = matches.get_one(CONFIG_FLAG).cloned().or_else(|| self.file.take());
        Ok(())
    }
}

fn flag(option: &OptionSpec) -> Arg {
    let default = match (option.default)() {
        text if text.is_empty() => String::new(),
        text => format!("[default: {text}] "),
    };
    let help = format!("{} {default}[env: {}]", option.help.trim(), option.variable());
    let arg = Arg::new(option.name).long(option.name).value_name(option.kind).help(StyledStr::from(help));
    // What is `yes` or `no` is `yes` if it is only named.
    if option.is_switch() { arg.num_args(0..=1).default_missing_value("yes") } else { arg }
}

/// What `alluvium serve --help` says after the options.
pub(crate) fn after_help() -> String {
    exit_codes_help(EXIT_CODES)
}

/// What to do with a configuration besides serving with it.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the configuration in force, as a file that would give it, with the origin of each value.
    Show(ServerArgs),
    /// Check the configuration without starting anything.
    Check(ServerArgs),
    /// Print the options and limits as Markdown.
    #[command(hide = true)]
    Docs,
    /// Print the operations that requests are counted under, one a line.
    #[command(hide = true)]
    Operations,
    /// Print the operations that requests to `alluvium jetstream serve` are counted under, one a line.
    #[command(hide = true)]
    JetstreamOperations,
    /// Print the metrics of `alluvium serve` as Markdown.
    #[command(hide = true)]
    Metrics,
    /// Print the metrics of `alluvium jetstream serve` as Markdown.
    #[command(hide = true)]
    JetstreamMetrics,
}

/// Runs a server until it is told to stop.
pub(crate) fn run(args: &ServerArgs) -> ExitCode {
    let loaded = match args.load() {
        Ok(loaded) => loaded,
        Err(error) => return fail(&error, EXIT_CONFIG),
    };
    match serve(&loaded.config, &mut io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail_to_serve(&error, &loaded.config),
    }
}

/// Runs `alluvium config …`.
pub(crate) fn run_config(command: &ConfigCommand) -> ExitCode {
    let text = match command {
        ConfigCommand::Docs => Ok(docs_markdown()
            + &stream::docs_markdown()
            + &feed::docs_markdown()
            + &jetstream::docs_markdown()
            + &health::docs_markdown()
            + &top::docs_markdown()
            + &admin::docs_markdown()
            + &keep::docs_markdown()),
        ConfigCommand::Operations => Ok(operations().flat_map(|name| [name, "\n"]).collect()),
        ConfigCommand::JetstreamOperations => {
            Ok(alluvium_jetstream::http::OPERATIONS.iter().flat_map(|name| [*name, "\n"]).collect())
        }
        ConfigCommand::Metrics => Ok(metrics_markdown()),
        ConfigCommand::JetstreamMetrics => Ok(alluvium_jetstream_server::metrics_markdown()),
        ConfigCommand::Show(args) => args.load().map(|loaded| loaded.show()),
        ConfigCommand::Check(args) => match args.load() {
            Ok(loaded) => match check_files(&loaded.config) {
                Ok(()) => Ok("the configuration is valid\n".to_owned()),
                Err(error) => return fail(&error, EXIT_CONFIG),
            },
            Err(error) => Err(error),
        },
    };
    match text {
        Ok(text) => match io::stdout().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error, 1),
        },
        Err(error) => fail(&error, EXIT_CONFIG),
    }
}

fn fail_to_serve(error: &ServeError, config: &Config) -> ExitCode {
    let code = fail(error, error.exit_code());
    if let Some(hint) = error.hint(config) {
        to_stderr(&format!("hint: {hint}\n"));
    }
    code
}

fn fail(error: &dyn Error, code: u8) -> ExitCode {
    to_stderr(&format!("error: {}\n", Causes(error)));
    ExitCode::from(code)
}

/// When standard error is gone there is nobody left to tell; the exit code stays.
fn to_stderr(text: &str) {
    drop(io::stderr().write_all(text.as_bytes()));
}
