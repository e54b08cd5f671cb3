//! Whoever asks for too much is told when to come again.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Asker, Tokens, with};
use crate::check::Report;
use crate::http::Response;
use crate::server::Launch;

/// Uses up what there is, and waits as long as told.
pub(super) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let tokens = Tokens::make(binary, scratch.path(), &[("a", &["admin"]), ("b", &["admin"])])?;
    let flags = ["--token-requests-per-s", "5", "--token-append-bytes-per-s", "1KiB", "--rate-burst", "2s"];
    let more = ["--address-requests-per-s", "10", "--trusted-proxies", "127.0.0.1"];
    let launch = Launch::new(binary, &scratch.path().join("data"), &[&flags[..], &more[..]].concat());
    let server = with(launch, &tokens.flags()).start()?;
    let address = server.address;
    report.check("requests and bytes are limited for each token and each address, and come again", || {
        let from = |client: &'static str, token: &'static str| {
            let asker = Asker::new(address, Some(tokens.of(token)));
            move |method: &str, body: &[u8]| {
                let headers = [("content-type", "text/plain"), ("x-forwarded-for", client)];
                asker.ask(method, "/v1/stream/x", &headers, body)
            }
        };
        let until_refused = |ask: &dyn Fn() -> Result<Response>| {
            for number in 0..200 {
                let answer = ask()?;
                if answer.status == 429 {
                    let after: u64 = answer.header("retry-after").context("no Retry-After")?.parse()?;
                    ensure!(answer.header("alluvium-error") == Some("rate_limited"), "another code");
                    return Ok((number, Duration::from_secs(after)));
                }
            }
            anyhow::bail!("nothing is limited")
        };
        let a = from("192.0.2.1", "a");
        a("PUT", b"x")?.expect(&[201], "make a stream")?;
        let (given, wait) = until_refused(&|| a("GET", b""))?;
        ensure!(
            (8..=20).contains(&given) && wait <= Duration::from_secs(2),
            "{given} in a row, then {wait:?}"
        );
        from("192.0.2.2", "b")("GET", b"")?.expect(&[200], "another token at another address")?;
        std::thread::sleep(wait);
        a("GET", b"")?.expect(&[200], "once the time is up")?;
        // Two tokens at one address share what that has.
        let (b, shared) = (from("192.0.2.9", "b"), from("192.0.2.9", "a"));
        let (given, _) = until_refused(&|| b("GET", b"").and(shared("GET", b"")))?;
        ensure!(given <= 20, "{given} by one address");
        // Bytes: as much as is saved up, or once more than that.
        std::thread::sleep(Duration::from_secs(2));
        let bytes = from("192.0.2.3", "b");
        bytes("POST", &[b'x'; 3000])?.expect(&[200, 204], "more than is saved up, once")?;
        let refused = bytes("POST", b"x")?.expect(&[429], "a byte more")?;
        let after: u64 = refused.header("retry-after").context("no Retry-After")?.parse()?;
        ensure!((1..=3).contains(&after), "{after} s");
        bytes("GET", b"")?.expect(&[200], "a read has no bytes to keep").map(drop)
    });
    server.stop().map(drop)
}
