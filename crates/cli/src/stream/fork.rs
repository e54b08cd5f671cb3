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

    /// Share everything before this offset, one that the server has given (`next offset` of `stream head` or of an
    /// append to the source) [default: the source's tail].
    #[arg(long, value_name = "OFFSET", allow_hyphen_values = true, value_parser = parse_place)]
    offset: Option<String>,

    /// Share this much past --offset: messages of a JSON stream, else bytes.
    #[arg(long, value_name = "COUNT", requires = "offset")]
    sub_offset: Option<u64>,

    #[command(flatten)]
    lifetime: LifetimeArgs,

    #[command(flatten)]
    report: ReportArgs,
}

/// An offset of a stream's own. What a read begins with instead is none of them.
fn parse_place(text: &str) -> Result<String, String> {
    match text {
        "" | "-1" | "now" => Err(format!(
            "expected an offset that the server has given, such as the `next offset` of an append, not `{text}`; \
             without --offset the fork shares all there is"
        )),
        offset => Ok(offset.to_owned()),
    }
}

/// A server tells of a header where the user has given a flag.
fn with_flag(failure: Failure, args: &ForkArgs) -> Failure {
    match failure {
        Failure::Other(text) if args.offset.is_some() && text.contains("(invalid_fork") => {
            Failure::Other(format!(
                "{text}; --offset is an offset of the source that the server has given, --sub-offset a count from there"
            ))
        }
        failure => failure,
    }
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
    let answered = connection.client()?.call(&args.lifetime.apply(call));
    let answer = answered.map_err(|failure| with_flag(failure, args))?;
    args.report.made(connection, &target, "forked", &made(&target, &answer))
}
