//! The official conformance suite, against the binary in its default, durable mode.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::access::Tokens;
use crate::check::Report;
use crate::server::{Launch, Store};
use crate::tools;

/// Tests of version 0.3.6. A smaller number means that tests went missing.
const TESTS_EXPECTED: usize = 338;
/// The only group that may be skipped, and how many tests it has: only the engine can be subscribed to.
const SKIPPED_GROUP: &str = "Reserved subscription APIs";
const SKIPPED_MAX: usize = 6;
/// Two tests wait for a long-poll to time out; the default of 25 s would only make them slow.
const LONG_POLL_MS: u32 = 2_000;

/// How the suite is run.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Against a server that takes nobody without a token; the suite has one.
    #[arg(long)]
    token: bool,
}

/// Runs the suite and checks how many tests passed, failed and were skipped.
pub(crate) fn run(binary: &Path, store: Store, options: &Options, report: &mut Report) -> Result<()> {
    let node = tools::node_project()?;
    let scratch = tempfile::tempdir()?;
    let timeout = format!("{}s", LONG_POLL_MS / 1_000);
    // The receivers of the suite's webhooks are on this machine.
    let flags = ["--long-poll-timeout", &timeout, "--webhook-loopback", "yes"];
    let mut launch = Launch::new(binary, &scratch.path().join("data"), &flags);
    let tokens =
        options.token.then(|| Tokens::make(binary, scratch.path(), &[("suite", &["admin"])])).transpose()?;
    if let Some(tokens) = &tokens {
        launch.flags.extend(tokens.flags());
    }
    let server = launch.with_store(store).start()?;
    let results_file = scratch.path().join("results.json");
    // Failing tests make it exit with an error; what counts is read from the results.
    let output = Command::new("node")
        .arg("node_modules/vitest/vitest.mjs")
        .args(["run", "--reporter=json", "--outputFile"])
        .arg(&results_file)
        .env("ALLUVIUM_TEST_URL", format!("http://{}", server.address))
        .env("ALLUVIUM_TEST_TOKEN", tokens.as_ref().map_or("", |tokens| tokens.of("suite")))
        .env("ALLUVIUM_TEST_LONG_POLL_MS", LONG_POLL_MS.to_string())
        .env("ALLUVIUM_TEST_SUBSCRIPTIONS", if store == Store::Engine { "yes" } else { "no" })
        .current_dir(&node)
        .stdin(Stdio::null())
        .output()
        .context("run vitest")?;
    let results = std::fs::read(&results_file).with_context(|| {
        format!("vitest left no results; it said:\n{}", String::from_utf8_lossy(&output.stderr))
    })?;
    server.stop()?;
    let (passed, failed) = judge(&serde_json::from_slice(&results)?, store)?;
    report.add(passed, failed);
    Ok(())
}

/// Prints each failure and returns how many passed and failed; anything unexpected about the counts is an error.
fn judge(results: &Value, store: Store) -> Result<(usize, usize)> {
    let tests: Vec<&Value> = results["testResults"]
        .as_array()
        .context("no `testResults`")?
        .iter()
        .flat_map(|file| file["assertionResults"].as_array().into_iter().flatten())
        .collect();
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for test in tests {
        let name = test["fullName"].as_str().unwrap_or("(unnamed)");
        match test["status"].as_str() {
            Some("passed") => passed += 1,
            Some("failed") => {
                failed += 1;
                println!(
                    "FAILED  {name}\n        {}",
                    test["failureMessages"][0].as_str().unwrap_or_default()
                );
            }
            _ => {
                ensure!(name.starts_with(SKIPPED_GROUP), "`{name}` was skipped");
                skipped += 1;
            }
        }
    }
    println!(
        "official suite: {passed} passed, {failed} failed, {skipped} of `{SKIPPED_GROUP}` not asked for"
    );
    let skipped_expected = if store == Store::Engine { 0 } else { SKIPPED_MAX };
    let expected = TESTS_EXPECTED - skipped_expected;
    ensure!(passed + failed == expected, "{} tests ran where {expected} were due", passed + failed);
    ensure!(skipped == skipped_expected, "{skipped} tests were skipped where {skipped_expected} were due");
    Ok((passed, failed))
}
