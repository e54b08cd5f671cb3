//! `alluvium stream fork`: a stream that begins with another one's content.

use clap::Args;
use ureq::http::Method;

use super::client::Call;
use super::connection::ConnectionArgs;
use super::create::{LifetimeArgs, made};
use super::failure::Failure;
use super::report::ReportArgs;
use alluvium_protocol::header::{STREAM_FORK_OFFSET, STREAM_FORK_SUB_OFFSET, STREAM_FORKED_FROM};

/// Arguments of `alluvium stream fork`.
#[derive(Debug, Args)]
pub(crate) struct ForkArgs {
    /// The stream to share content with.
    source: String,

    /// The stream to create, on the same server.
    new: String,

    /// Share everything before this offset [default: the source's tail].
    #[arg(long, value_name = "OFFSET", allow_hyphen_values = true)]
    offset: Option<String>,

    /// Share this much past --offset: messages of a JSON stream, else bytes.
    #[arg(long, value_name = "COUNT", requires = "offset")]
    sub_offset: Option<u64>,

    #[command(flatten)]
    lifetime: LifetimeArgs,

    #[command(flatten)]
    report: ReportArgs,
}

pub(crate) fn run(connection: &ConnectionArgs, args: &ForkArgs) -> Result<(), Failure> {
    let source = connection.target(&args.source)?;
    let target = connection.target(&args.new)?;
    if !source.same_server(&target) {
        return Err(Failure::Usage("a fork and its source are on one server".to_owned()));
    }
    let call = Call::new(Method::PUT, target.url())
        .header(STREAM_FORKED_FROM, source.path())
        .maybe_header(STREAM_FORK_OFFSET, args.offset.clone())
        .maybe_header(STREAM_FORK_SUB_OFFSET, args.sub_offset.map(|count| count.to_string()));
    let answer = connection.client()?.call(&args.lifetime.apply(call))?;
    args.report.made(connection, &target, "forked", &made(&target, &answer))
}
