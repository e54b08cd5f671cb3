//! What a command that changes a stream has to say, for people and for programs.

use std::io::Write;

use clap::Args;
use serde::Serialize;

use super::connection::ConnectionArgs;
use super::failure::Failure;
use super::notes;
use super::target::Target;

/// How the outcome is told.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Print the outcome as a JSON object on standard output.
    #[arg(long)]
    json: bool,
}

/// The outcome, as `--json` prints it. What is unknown is left out.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) url: String,
    /// Whether the stream did not exist before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_offset: Option<String>,
    pub(crate) closed: bool,
    /// Messages that the server knew from an earlier command, and did not write again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) already_appended: Option<u64>,
}

impl ReportArgs {
    /// Tells what became of a stream that was to be made: `verb` if it is new.
    pub(crate) fn made(
        &self,
        connection: &ConnectionArgs,
        target: &Target,
        verb: &str,
        report: &Report,
    ) -> Result<(), Failure> {
        let what = if report.created == Some(true) { verb } else { "exists already" };
        connection.notes().note(format_args!("{what}: {target}"));
        if let Some(offset) = &report.next_offset {
            connection.notes().note(notes::place(offset, report.closed));
        }
        self.print(report)
    }

    /// Prints the report, if that was asked for.
    pub(crate) fn print(&self, report: &Report) -> Result<(), Failure> {
        if !self.json {
            return Ok(());
        }
        let mut out = std::io::stdout().lock();
        let printed =
            serde_json::to_writer(&mut out, report).map_err(Into::into).and_then(|()| writeln!(out));
        printed.and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
    }
}
