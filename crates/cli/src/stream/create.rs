//! `alluvium stream create`: makes a stream, or makes sure of one.

use alluvium_server::config::parse_seconds;
use clap::Args;
use ureq::http::Method;

use super::client::CONTENT_TYPE;
use super::client::{Answer, Call};
use super::connection::ConnectionArgs;
use super::failure::Failure;
use super::report::{Report, ReportArgs};
use super::target::Target;
use alluvium_protocol::Lifetime;
use alluvium_protocol::header::{STREAM_CLOSED, STREAM_EXPIRES_AT, STREAM_NEXT_OFFSET, STREAM_TTL, TRUE};

/// How long a stream lives.
#[derive(Debug, Args)]
pub(crate) struct LifetimeArgs {
    /// Delete the stream after it was neither read nor written for this long, such as `90` (seconds), `15m` or `7d`.
    #[arg(long, value_name = "TIME", value_parser = parse_seconds, conflicts_with = "expires_at")]
    ttl: Option<u64>,

    /// Delete the stream at this time: RFC 3339, with a zone, such as 2030-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = parse_instant)]
    expires_at: Option<String>,
}

impl LifetimeArgs {
    /// Adds the headers that ask for this lifetime (PROTOCOL §5.1).
    pub(crate) fn apply<'a>(&self, call: Call<'a>) -> Call<'a> {
        call.maybe_header(STREAM_TTL, self.ttl.map(|seconds| seconds.to_string()))
            .maybe_header(STREAM_EXPIRES_AT, self.expires_at.clone())
    }
}

/// A time as the protocol takes it, and as it was written.
fn parse_instant(text: &str) -> Result<String, String> {
    match Lifetime::parse(None, Some(text)) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("expected a time with date and zone, as in `2030-01-31T12:00:00Z`".to_owned()),
    }
}

/// Arguments of `alluvium stream create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// The stream's name or URL.
    stream: String,

    /// What the stream holds; `application/json` keeps messages apart [default: the server's].
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,

    #[command(flatten)]
    lifetime: LifetimeArgs,

    /// Create it closed: empty for ever.
    #[arg(long)]
    closed: bool,

    #[command(flatten)]
    report: ReportArgs,
}

/// What the answer to a PUT says.
pub(crate) fn made(target: &Target, answer: &Answer) -> Report {
    Report {
        url: target.url(),
        created: Some(answer.status == 201),
        next_offset: answer.header(STREAM_NEXT_OFFSET).map(str::to_owned),
        closed: answer.flag(STREAM_CLOSED),
        already_appended: None,
    }
}

pub(crate) fn run(connection: &ConnectionArgs, args: &CreateArgs) -> Result<(), Failure> {
    let target = connection.target(&args.stream)?;
    let call = Call::new(Method::PUT, target.url())
        .maybe_header(CONTENT_TYPE, args.content_type.clone())
        .maybe_header(STREAM_CLOSED, args.closed.then_some(TRUE));
    let answer = connection.client()?.call(&args.lifetime.apply(call))?;
    args.report.made(connection, &target, "created", &made(&target, &answer))
}
