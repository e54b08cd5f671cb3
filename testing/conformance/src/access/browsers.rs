//! What a browser is told, and what caches between it and the server are.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::{Asker, Tokens, with};
use crate::check::Report;
use crate::server::Launch;

/// Pages of the origins that are listed, and of no others.
pub(super) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let tokens = Tokens::make(binary, scratch.path(), &[("a", &["admin"])])?;
    let launch = Launch::new(binary, &scratch.path().join("data"), &["--cors-origins", "https://a.example"]);
    let server = with(launch, &tokens.flags()).start()?;
    let asker = Asker::new(server.address, Some(tokens.of("a")));
    let nobody = Asker::new(server.address, None);
    report.check(
        "pages of listed origins may use the server, with credentials; others are told nothing",
        || {
            for target in ["/v1/stream/x", "/ds/docs", "/feeds/v1/spaces/s/query"] {
                for (origin, is_listed) in
                    [("https://a.example", true), ("https://b.example", false), ("null", false)]
                {
                    let headers = [("origin", origin), ("access-control-request-method", "POST")];
                    let preflight = nobody.ask("OPTIONS", target, &headers, b"")?;
                    ensure!(preflight.status == 204, "preflight: status {}", preflight.status);
                    for answer in [
                        preflight,
                        nobody.ask("GET", target, &headers, b"")?,
                        asker.ask("GET", target, &headers, b"")?,
                    ] {
                        let allowed = answer.header("access-control-allow-origin");
                        ensure!(allowed == is_listed.then_some(origin), "{target} {origin}: {allowed:?}");
                        let credentials = answer.header("access-control-allow-credentials");
                        ensure!(
                            credentials == is_listed.then_some("true"),
                            "{target} {origin}: {credentials:?}"
                        );
                        let varies =
                            |header: &(String, String)| header.0 == "vary" && header.1.contains("Origin");
                        ensure!(answer.headers().iter().any(varies), "{target} {origin}: no Vary");
                    }
                }
                let headers = [("origin", "https://a.example"), ("access-control-request-method", "POST")];
                let preflight = nobody.ask("OPTIONS", target, &headers, b"")?;
                let age: u32 =
                    preflight.header("access-control-max-age").context("it is not kept")?.parse()?;
                ensure!(age >= 600, "kept for {age} s");
                let allowed = preflight.header("access-control-allow-headers").unwrap_or_default();
                ensure!(allowed.contains("Authorization"), "{allowed}");
            }
            Ok(())
        },
    );
    report.check("what one caller may read is kept by no cache that others share", || {
        let json = [("content-type", "application/json")];
        asker.ask("PUT", "/v1/stream/x", &json, b"[1]")?.expect(&[201], "make a stream")?;
        let answer = asker.ask("GET", "/v1/stream/x?offset=-1", &[], b"")?;
        let cache = answer.header("cache-control").unwrap_or_default();
        ensure!(cache.starts_with("private"), "{cache}");
        let varies = |header: &(String, String)| header.0 == "vary" && header.1.contains("Authorization");
        ensure!(answer.headers().iter().any(varies), "no Vary");
        Ok(())
    });
    server.stop().map(drop)
}
