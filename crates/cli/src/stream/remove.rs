//! `alluvium stream rm`: deletes streams.

use clap::Args;
use ureq::http::Method;

use super::client::{Call, Client};
use super::connection::ConnectionArgs;
use super::failure::Failure;
use super::target::Target;

/// Arguments of `alluvium stream rm`.
#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// Names or URLs of streams. The first that cannot be deleted ends the command.
    #[arg(required = true)]
    streams: Vec<String>,

    /// Streams that do not exist, or are deleted already, are no failure.
    #[arg(long, short)]
    force: bool,
}

pub(crate) fn run(connection: &ConnectionArgs, args: &RemoveArgs) -> Result<(), Failure> {
    let client = connection.client()?;
    let targets: Vec<Target> =
        args.streams.iter().map(|stream| connection.target(stream)).collect::<Result<_, _>>()?;
    for target in &targets {
        match remove(&client, target) {
            Err(Failure::NotFound(_) | Failure::Gone(_)) if args.force => {}
            outcome => outcome?,
        }
    }
    Ok(())
}

fn remove(client: &Client, target: &Target) -> Result<(), Failure> {
    let mut outage = client.outage();
    match client.call_during(&Call::new(Method::DELETE, target.url()), &mut outage) {
        // An attempt whose answer was lost has done it.
        Err(Failure::NotFound(_)) if outage.is_on() => Ok(()),
        outcome => outcome.map(drop),
    }
}
