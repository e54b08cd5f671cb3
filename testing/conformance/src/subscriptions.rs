//! Subscriptions: the workers of the documentation, word for word, and webhooks over `kill -9`.

mod crashes;
mod receiver;
mod workers;

use std::path::Path;

use anyhow::Result;

use crate::check::Report;
use crate::http::Connection;
use crate::server::{Launch, Store};

/// Runs all of it.
pub(crate) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    workers::run(binary, report)?;
    crashes::run(binary, report);
    report.check("with a SQLite store they are refused as what they are", || sqlite(binary));
    Ok(())
}

fn sqlite(binary: &Path) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let server = Launch::new(binary, &scratch.path().join("data"), &[]).with_store(Store::Sqlite).start()?;
    let mut connection = Connection::open(server.address)?;
    for (method, path) in [
        ("PUT", "__ds/subscriptions/x"),
        ("GET", "__ds/subscriptions/x"),
        ("POST", "__ds/subscriptions/x/claim"),
        ("GET", "__ds/jwks.json"),
    ] {
        let refused = connection.send(method, path, &[], &[])?.expect(&[501], path)?;
        anyhow::ensure!(refused.code() == "not_supported_by_store", "{path}: {}", refused.code());
    }
    server.stop()?;
    Ok(())
}
