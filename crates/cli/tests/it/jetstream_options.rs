//! Every option of `alluvium jetstream …` is looked at before anything is started: a value that cannot be is refused by
//! name, as a flag and as a variable, with what could be.

use std::collections::BTreeSet;

use crate::support::Cli;

/// An option, values that it cannot have, and what is said of them. Switches and paths have none.
type Row = (&'static str, &'static [&'static str], &'static str);

const SERVE: &[Row] = &[
    (
        "relay",
        &["relay.example", "http://relay.example", "wss://", "wss://a@b", "wss://h:0", "wss://h?x"],
        "`wss://host`",
    ),
    ("plc", &["", "plc.directory", "wss://plc.directory", "https://:443", "https://h#x"], "`https://host`"),
    ("listen", &["", "localhost", "127.0.0.1", "127.0.0.1:70000"], "socket address"),
    ("data-dir", &[], ""),
    ("backup-dir", &[], ""),
    ("start-cursor", &["-1", "x", "9223372036854775808"], "from 0 to 9223372036854775807"),
    ("no-backfill", &[], ""),
    ("lossless", &[], ""),
    ("allow-private", &[], ""),
    ("lookback-hours", &["-1", "36h", "87601"], "from 0 to 87600"),
    ("subscribers-max", &["0", "1000001", "18446744073709551615"], "from 1 to 1000000"),
    ("subscribers-per-address-max", &["-1", "1000001"], "from 0 to 1000000"),
    ("replays-per-address-max", &["-1", "1000001"], "from 0 to 1000000"),
    (
        "replay-bytes-per-address-per-s",
        &["1", "65535", "1099511627777", "1MiB"],
        "0, or a whole number from 65536 to 1099511627776",
    ),
    ("filter-dids-max", &["-1", "1000000001"], "from 0 to 1000000000"),
    ("query-bytes-max", &["0", "99999999999"], "from 1 to"),
    ("trusted-proxies", &["proxy", "10.0.0.0/40"], "network"),
    ("long-poll-timeout", &["0", "3601", "25s"], "from 1 to 3600"),
    ("write-timeout", &["0", "3601", "5s"], "from 1 to 3600"),
    ("no-deflate", &[], ""),
    ("segment-max-age", &["-1", "31536001"], "from 0 to 31536000"),
    ("segment-bytes", &["0", "511", "1099511627777", "1MiB"], "from 512 to 1099511627776"),
    ("block-rows", &["0", "262145"], "from 1 to 262144"),
    ("write-queue-bytes", &["0", "1048575", "1099511627777"], "from 1048576 to 1099511627776"),
    ("disk-free-min", &["", "100%", "much", "1MB"], "expected"),
    ("disk-free-warn", &["", "0%", "much"], "expected"),
    ("access-file", &[], ""),
    ("token-in-query", &[], ""),
    ("cors-origins", &["example.org", "https://a b"], "origin"),
    ("address-requests-per-s", &["0", "-1", "1000000001"], "from 1 to 1000000000"),
    ("tls-cert", &[], ""),
    ("tls-key", &[], ""),
    ("log", &["debgu", "nonsense=", ""], "a level"),
    ("log-format", &["xml"], "`text` or `json`"),
    ("metrics-listen", &["here", "127.0.0.1"], "`main`, `off`"),
    #[cfg(feature = "otlp")]
    ("otlp-endpoint", &["collector:4318"], "`https://host`"),
];

const SIMULATE: &[Row] = &[
    ("listen", &["", "localhost"], "socket address"),
    ("seed", &["-1", "x"], "invalid digit"),
    ("accounts", &["0", "10000001"], "from 1 to 10000000"),
    ("rate", &["-1", "1000001"], "from 0 to 1000000"),
    ("hosts", &["0", "65"], "from 1 to 64"),
    ("initial-records-max", &["-1", "100001"], "from 0 to 100000"),
    ("past", &["-1", "100001", "4294967296"], "from 0 to 100000"),
    ("history-frames", &["0", "100000001"], "from 1 to 100000000"),
    ("history-bytes", &["0", "1099511627777"], "from 1 to 1099511627776"),
    ("p256-percent", &["-1", "101"], "from 0 to 100"),
    ("web-percent", &["-1", "101"], "from 0 to 100"),
    ("local-web", &[], ""),
    ("subscribers-max", &["0", "1000001"], "from 1 to 1000000"),
    ("tls-cert", &[], ""),
    ("tls-key", &[], ""),
];

const TAIL: &[Row] = &[
    ("cursor", &["-1", "x", "18446744073709551616"], "a number that is not negative"),
    ("since", &["", "yesterday", "-5", "1969-01-01T00:00:00Z"], "or one ago as in `15m`"),
    ("kind", &["", "commits"], "commit, identity, account and sync"),
    ("did", &["", "x", "did:"], "expected a DID"),
    ("collection", &["", "*", "x.*", "app"], "expected an NSID"),
    ("form", &["v1"], "v2, events"),
    ("no-compress", &[], ""),
    ("count", &["0", "-1", "x"], "from 1 to 18446744073709551615"),
    ("cursor-file", &[], ""),
    ("give-up-after", &["-1", "x", "31536001", "999999d"], "seconds"),
    ("token", &[], ""),
    ("token-file", &[], ""),
    ("tls-ca", &[], ""),
    ("quiet", &[], ""),
];

const BACKFILL: &[Row] = &[("output", &[], ""), ("follow", &[], "")];

/// The options of a command, as the documentation has them.
fn documented(docs: &str, command: &str) -> BTreeSet<String> {
    let section = docs.split_once(&format!("\n## `{command}`\n")).unwrap().1;
    let section = section.split("\n## ").next().unwrap();
    let flags = section.lines().filter_map(|line| line.strip_prefix("| `--")?.split_once('`'));
    flags.map(|(flag, _)| flag.to_owned()).collect()
}

fn check(flag: &str, value: &str, told: &str, cli: Cli) {
    let stderr = cli.run().fails_with(2);
    for part in [&format!("--{flag}"), &format!("'{value}'"), told] {
        assert!(stderr.contains(part), "--{flag}={value}: {part} is not in {stderr}");
    }
}

#[test]
fn a_value_that_cannot_be_is_refused_with_what_could_be() {
    let docs = Cli::new("config docs").run().ok();
    let client = [TAIL, BACKFILL].concat();
    for (command, rows, rest) in [
        ("serve", SERVE, "--relay=ws://127.0.0.1:9 --listen=127.0.0.1:0"),
        ("simulate", SIMULATE, ""),
        ("tail URL", TAIL, "http://127.0.0.1:1"),
        ("backfill URL", &client, "http://127.0.0.1:1"),
    ] {
        let listed: BTreeSet<String> = rows.iter().map(|(flag, ..)| (*flag).to_owned()).collect();
        assert_eq!(listed, documented(&docs, &format!("alluvium jetstream {command}")), "{command}");
        let command = command.split(' ').next().unwrap();
        for (flag, values, told) in rows {
            let rest: Vec<&str> =
                rest.split_whitespace().filter(|given| !given.starts_with(&format!("--{flag}="))).collect();
            let line = format!("jetstream {command} {}", rest.join(" "));
            for value in *values {
                check(flag, value, told, Cli::new(&line).arg(&format!("--{flag}={value}")));
            }
            let value = values.iter().find(|value| !value.is_empty());
            if let Some(value) = value.filter(|_| command == "serve") {
                let variable = format!("ALLUVIUM_JETSTREAM_{}", flag.to_uppercase().replace('-', "_"));
                check(flag, value, told, Cli::new(&line).env(&variable, value));
            }
        }
    }
    for (variable, value) in [("LOSSLESS", "perhaps"), ("TOKEN_IN_QUERY", "2")] {
        let cli = Cli::new("jetstream serve --relay ws://127.0.0.1:9")
            .env(&format!("ALLUVIUM_JETSTREAM_{variable}"), value);
        let stderr = cli.run().fails_with(2);
        assert!(stderr.contains("a boolean") && stderr.contains(value), "{stderr}");
    }
}
