//! The layers: an edge between crates of the workspace goes to a strictly lower layer, without exception.

use std::collections::BTreeSet;

use crate::metadata::Package;
use crate::tree::root;

/// The layer of every production crate. `docs/ARCHITECTURE.md` says what each layer may do.
const LAYERS: &[(&str, u8)] = &[
    ("alluvium-protocol", 0),
    ("alluvium-atproto", 0),
    ("alluvium-feed-protocol", 0),
    ("alluvium-metrics", 0),
    ("alluvium-env", 1),
    ("alluvium-tail", 1),
    ("alluvium-journal", 2),
    ("alluvium-jss", 2),
    ("alluvium-http", 2),
    ("alluvium-websocket", 2),
    ("alluvium-feed-store", 2),
    ("alluvium-jetstream-archive", 3),
    ("alluvium-engine", 3),
    ("alluvium-feed-replica", 3),
    ("alluvium-jetstream-ingest", 3),
    ("alluvium-jetstream-simulator", 3),
    ("alluvium-jetstream-wire", 3),
    ("alluvium-sqlstore", 3),
    ("alluvium-streams", 4),
    ("alluvium-feeds", 4),
    ("alluvium-jetstream", 4),
    ("alluvium-feed-client", 5),
    ("alluvium-jetstream-client", 5),
    ("alluvium-jetstream-server", 5),
    ("alluvium-server", 5),
    ("alluvium", 6),
];
/// Crates of development: they may use everything, and nothing may use them.
const DEVELOPMENT: &[&str] = &[
    "alluvium-feeds-sim",
    "alluvium-jetstream-sim",
    "alluvium-sim",
    "alluvium-bench",
    "alluvium-conformance",
    "alluvium-fuzz",
    "xtask",
];
/// Edges that the numbers would allow and the purpose of a crate does not.
const FORBIDDEN: &[(&str, &str, &str)] = &[
    ("alluvium-http", "alluvium-protocol", "the HTTP plumbing knows no protocol"),
    ("alluvium-tail", "alluvium-protocol", "waking readers needs no protocol"),
];
/// What a crate of layer 0 may depend on: it has no I/O, no clock and no runtime, and builds for WebAssembly.
const PURE: &[&str] = &[
    "base64",
    "bytes",
    "ciborium",
    "ed25519-dalek",
    "jiff",
    "k256",
    "memchr",
    "p256",
    "proptest",
    "ruzstd",
    "serde",
    "serde_json",
    "sha2",
    "thiserror",
];

/// Edges and names that break the rule.
pub(crate) fn problems(packages: &[Package]) -> Vec<String> {
    let members: Vec<&Package> = packages.iter().filter(|package| package.is_member).collect();
    let names: BTreeSet<&str> = members.iter().map(|member| member.name.as_str()).collect();
    let mut problems = Vec::new();
    for member in &members {
        problems.extend(misnamed(member));
        let own = layer(&member.name);
        if own.is_none() && !DEVELOPMENT.contains(&member.name.as_str()) {
            problems.push(format!("{}: has no layer in xtask/src/tidy/layers.rs", member.name));
        }
        for used in &member.dependencies {
            if names.contains(used.as_str()) {
                problems.extend(edge(&member.name, own, used));
            } else if own == Some(0) && !PURE.contains(&used.as_str()) {
                problems.push(format!("{}: is pure and must not depend on `{used}`", member.name));
            }
        }
    }
    for (name, _) in LAYERS.iter().filter(|(name, _)| !names.contains(name)) {
        problems.push(format!("xtask/src/tidy/layers.rs: `{name}` is not a crate of the workspace"));
    }
    problems
}

fn layer(name: &str) -> Option<u8> {
    LAYERS.iter().find(|(known, _)| *known == name).map(|(_, layer)| *layer)
}

fn edge(from: &str, own: Option<u8>, to: &str) -> Option<String> {
    let forbidden = FORBIDDEN.iter().find(|(a, b, _)| (*a, *b) == (from, to));
    match (own, layer(to)) {
        _ if forbidden.is_some() => forbidden.map(|(_, _, why)| format!("{from} must not use {to}: {why}")),
        (_, None) => Some(format!("{from} uses {to}, which is for development only")),
        (Some(own), Some(other)) if other >= own => {
            Some(format!("{from} (layer {own}) uses {to} (layer {other}): edges go to lower layers only"))
        }
        _ => None,
    }
}

/// A package is called `alluvium-` and its folder; the binary is plain `alluvium`.
fn misnamed(member: &Package) -> Option<String> {
    let folder = member.dir.strip_prefix(root()).ok()?.to_str()?;
    let expected = match folder {
        "crates/cli" => "alluvium".to_owned(),
        "xtask" => "xtask".to_owned(),
        "fuzz" => "alluvium-fuzz".to_owned(),
        _ => format!("alluvium-{}", folder.rsplit('/').next()?),
    };
    (member.name != expected)
        .then(|| format!("{folder}: is called `{}` instead of `{expected}`", member.name))
}
