//! `alluvium stream close`: the end of a stream.

use clap::Args;
use ureq::http::Method;

use super::client::Call;
use super::connection::ConnectionArgs;
use super::failure::Failure;
use super::notes;
use super::report::{Report, ReportArgs};
use alluvium_protocol::header::{STREAM_CLOSED, STREAM_NEXT_OFFSET, TRUE};

/// Arguments of `alluvium stream close`.
#[derive(Debug, Args)]
pub(crate) struct CloseArgs {
    /// The stream's name or URL. Closing a closed stream changes nothing and succeeds.
    stream: String,

    #[command(flatten)]
    report: ReportArgs,
}

pub(crate) fn run(connection: &ConnectionArgs, args: &CloseArgs) -> Result<(), Failure> {
    let target = connection.target(&args.stream)?;
    let call = Call::new(Method::POST, target.url()).header(STREAM_CLOSED, TRUE);
    let answer = connection.client()?.call(&call)?;
    let next_offset = answer.header(STREAM_NEXT_OFFSET).map(str::to_owned);
    connection.notes().note(notes::place(next_offset.as_deref().unwrap_or("unknown"), true));
    args.report.print(&Report { url: target.url(), next_offset, closed: true, ..Report::default() })
}
