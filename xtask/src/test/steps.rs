//! The steps of `cargo xtask test`, in their order.

use std::process::Command;

use anyhow::Result;

use super::Tally;
use super::child::{cargo_counts, checked, counted, own_counts, seed_counts};
use crate::{docs, licenses, programs, tidy};

/// The binary that black-box steps run against.
const BINARY: &str = "target/release/alluvium";
/// Seeds of the simulation in this command; `cargo run --release -p alluvium-sim` runs as many as asked for.
const SEEDS: &str = "0..300";
/// Seeds of the simulation of feeds.
const FEEDS_SEEDS: &str = "0..200";

/// One step.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) run: fn() -> Result<Tally>,
}

/// All steps: quick ones first, and the release binary before those that need it.
pub(super) const STEPS: &[Step] = &[
    Step { name: "fmt", about: "formatting", run: || checked(cargo().args(["fmt", "--all", "--check"])) },
    Step { name: "clippy", about: "lints, as errors", run: clippy },
    Step { name: "tidy", about: "the norms of this repository", run: || Ok(all_good(&tidy::problems()?)) },
    Step {
        name: "licenses",
        about: "licences of all dependencies",
        run: || Ok(all_good(&licenses::problems()?)),
    },
    Step { name: "unit", about: "tests of every crate, and of the examples in the documentation", run: unit },
    Step {
        name: "pages",
        about: "the generated parts of the documentation",
        run: || Ok(all_good(&docs::problems(|| programs::built("alluvium"))?)),
    },
    Step { name: "otlp", about: "the OpenTelemetry export, in a build that has it", run: otlp },
    Step { name: "wasm", about: "the pure crates build for WebAssembly", run: wasm },
    Step { name: "docs", about: "the API documentation builds without a warning", run: api_docs },
    Step { name: "release", about: "the release binary", run: release },
    Step { name: "simulation", about: "seeded runs of the engine over a disk that fails", run: simulation },
    Step { name: "planted", about: "bugs that the simulation must find", run: planted },
    Step {
        name: "feeds-simulation",
        about: "seeded runs of feeds over a bad network",
        run: feeds_simulation,
    },
    Step { name: "feeds-planted", about: "bugs that the simulation of feeds must find", run: feeds_planted },
    Step { name: "suite", about: "the official conformance suite", run: || black_box("suite") },
    Step {
        name: "suite-sqlite",
        about: "the official conformance suite, on one SQLite file",
        run: || on_sqlite("suite"),
    },
    Step {
        name: "suite-token",
        about: "the official conformance suite, with a token",
        run: || conformance(&["suite", "--token"]),
    },
    Step {
        name: "access",
        about: "every operation of every door for every kind of caller",
        run: || black_box("access"),
    },
    Step {
        name: "clients",
        about: "the published npm and PyPI clients, over restarts",
        run: || black_box("clients"),
    },
    Step {
        name: "clients-sqlite",
        about: "the published clients, over restarts on one SQLite file",
        run: || on_sqlite("clients"),
    },
    Step {
        name: "buckets",
        about: "buckets, snapshots and bootstrap, in every state of the store",
        run: || black_box("buckets"),
    },
    Step {
        name: "websockets",
        about: "WebSockets against npm ws and PyPI websockets",
        run: || black_box("websockets"),
    },
    Step {
        name: "feed-sockets",
        about: "feeds over WebSocket: npm clients, a thousand subscribers",
        run: || black_box("feed-sockets"),
    },
    Step {
        name: "tls",
        about: "TLS and HTTP/2: curl, Node, a page in Chromium, certificates that change",
        run: || black_box("tls"),
    },
    Step {
        name: "abuse",
        about: "peers that send too slowly, too much or the wrong thing",
        run: || black_box("abuse"),
    },
    Step {
        name: "subscriptions",
        about: "the workers of the documentation, webhooks over kill -9",
        run: || black_box("subscriptions"),
    },
    Step {
        name: "backup",
        about: "backups under load, brought back; looking through what is there",
        run: || black_box("backup"),
    },
    Step {
        name: "backup-sqlite",
        about: "backups under load of one SQLite file",
        run: || on_sqlite("backup"),
    },
    Step { name: "crash", about: "kill -9 under load", run: || black_box("crash") },
    Step {
        name: "crash-sqlite",
        about: "kill -9 under load, on one SQLite file",
        run: || on_sqlite("crash"),
    },
    Step {
        name: "crash-feeds",
        about: "feeds: kill -9 of clients and server, cut connections, lost data",
        run: || black_box("feeds"),
    },
    Step {
        name: "simulator",
        about: "a network that is made up, over its sockets",
        run: || black_box("simulator"),
    },
    Step { name: "sight", about: "metrics, health, names of requests", run: || black_box("sight") },
    Step {
        name: "openapi",
        about: "the description of the HTTP surface, status by status",
        run: || black_box("openapi"),
    },
    Step {
        name: "deploy",
        about: "units that allow what the servers do; nginx, HAProxy and Caddy in front of one",
        run: || black_box("deploy"),
    },
    Step { name: "failed-sync", about: "a sync and a write that fail", run: || black_box("failed-sync") },
    Step {
        name: "failed-sync-sqlite",
        about: "a sync and a write that fail, on one SQLite file",
        run: || on_sqlite("failed-sync"),
    },
    Step { name: "admin", about: "retention, and what an operator asks", run: || black_box("admin") },
    Step { name: "full-disk", about: "a disk without room", run: || black_box("full-disk") },
    Step {
        name: "jetstream",
        about: "a Jetstream behind a simulated network, with published clients, under kill -9",
        run: || black_box("jetstream"),
    },
    Step {
        name: "jetstream-model",
        about: "a Jetstream at several seeds: every path against the model of the network",
        run: || black_box("jetstream-model"),
    },
    Step {
        name: "jetstream-faults",
        about: "a Jetstream and everything that can be wrong with a network",
        run: || black_box("jetstream-faults"),
    },
    Step {
        name: "jetstream-crashes",
        about: "a Jetstream killed, failing and without power at every step to the disk, and its readers",
        run: || black_box("jetstream-crashes"),
    },
    Step {
        name: "jetstream-soak",
        about: "a short soak of a Jetstream with two restarts, and every lie that it must notice",
        run: || conformance(&["jetstream-soak", "--duration", "12s", "--restart-every", "4s"]),
    },
    Step {
        name: "jetstream-planted",
        about: "bugs that the tests of the Jetstream must find",
        run: jetstream_planted,
    },
    Step {
        name: "soak",
        about: "a short soak with two restarts, and every lie that a soak must notice",
        run: || conformance(&["soak", "--duration", "20s", "--restart-every", "8s", "--lies"]),
    },
    Step { name: "many-streams", about: "100,000 streams", run: || black_box("many-streams") },
];

fn cargo() -> Command {
    Command::new(env!("CARGO"))
}

fn all_good(problems: &[String]) -> Tally {
    for problem in problems {
        println!("{problem}");
    }
    Tally::one(problems.is_empty())
}

fn clippy() -> Result<Tally> {
    checked(cargo().args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ]))
}

fn unit() -> Result<Tally> {
    counted(cargo().args(["test", "--workspace", "--locked", "--quiet", "--no-fail-fast"]), cargo_counts)
}

/// Of the whole workspace, although only the server and the program have a part in it: so all else is that of the tests.
fn otlp() -> Result<Tally> {
    let selection = ["test", "--workspace", "--locked", "--quiet", "--features", "alluvium/otlp"];
    let targets = ["--lib", "--bin", "alluvium", "otlp"];
    counted(cargo().args(selection).args(targets), cargo_counts)
}

/// Without default features, which are what needs a machine.
fn wasm() -> Result<Tally> {
    let target =
        ["check", "--target", "wasm32-unknown-unknown", "--no-default-features", "--locked", "--quiet"];
    let packages = ["alluvium-protocol", "alluvium-sqlstore", "alluvium-feed-protocol", "alluvium-atproto"];
    checked(cargo().args(target).args(packages.iter().flat_map(|package| ["--package", package])))
}

fn api_docs() -> Result<Tally> {
    let arguments = ["doc", "--workspace", "--no-deps", "--locked", "--quiet", "--document-private-items"];
    // Private items are documented here, so links to them lead somewhere.
    let flags = "-D warnings -A rustdoc::private_intra_doc_links";
    checked(cargo().args(arguments).env("RUSTDOCFLAGS", flags))
}

fn release() -> Result<Tally> {
    checked(cargo().args(["build", "--release", "--locked", "--quiet", "--package", "alluvium"]))
}

fn simulation() -> Result<Tally> {
    let run =
        ["run", "--release", "--locked", "--quiet", "--package", "alluvium-sim", "--", "--seeds", SEEDS];
    counted(cargo().args(run), seed_counts)
}

/// In a build of its own: the bugs are behind a feature that no other build has.
fn planted() -> Result<Tally> {
    let arguments = [
        "--package",
        "alluvium-sim",
        "--features",
        "planted-bugs",
        "--test",
        "planted",
        "--test",
        "store",
        "--test",
        "subscriptions",
    ];
    counted(cargo().args(["test", "--locked", "--quiet"]).args(arguments), cargo_counts)
}

/// Unoptimised but for what it depends on, above all SQLite: the tests have built that already, and to build the rest anew,
/// optimised, takes longer than all seeds do.
fn feeds_simulation() -> Result<Tally> {
    counted(programs::built("alluvium-feeds-sim")?.args(["--seeds", FEEDS_SEEDS]), seed_counts)
}

fn feeds_planted() -> Result<Tally> {
    let arguments = ["--package", "alluvium-feeds-sim", "--features", "planted-bugs", "--test", "planted"];
    counted(cargo().args(["test", "--locked", "--quiet"]).args(arguments), cargo_counts)
}

/// The tests of its crates, built with bugs that an environment variable chooses from.
fn jetstream_planted() -> Result<Tally> {
    let packages = [
        "alluvium-jss",
        "alluvium-jetstream-archive",
        "alluvium-jetstream-ingest",
        "alluvium-jetstream",
        "alluvium-jetstream-client",
        "alluvium-jetstream-sim",
    ];
    // The same packages that it builds then: else their dependencies would be built twice.
    let packages = packages.iter().flat_map(|package| ["--package", package]);
    let arguments = ["--features", "alluvium-jetstream-sim/planted-bugs", "--test", "planted"];
    counted(cargo().args(["test", "--locked", "--quiet"]).args(packages).args(arguments), cargo_counts)
}

/// A claim of `testing/conformance`, against the release binary.
fn black_box(claim: &str) -> Result<Tally> {
    conformance(&[claim])
}

/// As [`black_box`], with all streams in one SQLite file.
fn on_sqlite(claim: &str) -> Result<Tally> {
    conformance(&["--store", "sqlite", claim])
}

fn conformance(arguments: &[&str]) -> Result<Tally> {
    let mut program = programs::built("alluvium-conformance")?;
    counted(program.args(["--binary", BINARY]).args(arguments), own_counts)
}
