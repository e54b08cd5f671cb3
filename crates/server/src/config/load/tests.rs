//! Precedence, refusals and their messages.

use std::io::Write;

use super::*;

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(text.as_bytes()).expect("written");
    file
}

fn message(sources: &Sources) -> String {
    Loaded::from_sources(sources).expect_err("refused").to_string()
}

#[test]
fn a_flag_wins_over_a_variable_and_a_variable_over_the_file() {
    let file = file("listen = \"127.0.0.1:1\"\nwaiters-max = 7\nsse-cycle = \"9s\"\n");
    let sources = Sources {
        flags: pairs(&[("listen", "127.0.0.1:3")]),
        environment: pairs(&[
            ("ALLUVIUM_LISTEN", "127.0.0.1:2"),
            ("ALLUVIUM_WAITERS_MAX", "8"),
            ("HOME", "/"),
        ]),
        file: Some(file.path().to_owned()),
        ..Sources::default()
    };
    let loaded = Loaded::from_sources(&sources).expect("valid");
    assert_eq!(loaded.config.listen.port(), 3);
    assert_eq!(loaded.config.waiters_max, 8);
    assert_eq!(loaded.config.sse_cycle.as_secs(), 9);
    let shown = loaded.show();
    assert!(shown.contains("listen = \"127.0.0.1:3\"  # flag\n"), "{shown}");
    assert!(shown.contains("waiters-max = \"8\"  # ALLUVIUM_WAITERS_MAX\n"), "{shown}");
}

#[test]
fn what_is_shown_can_be_read_back() {
    let loaded = Loaded::from_sources(&Sources::default()).expect("valid");
    let file = file(&loaded.show());
    let sources = Sources { file: Some(file.path().to_owned()), ..Sources::default() };
    assert_eq!(Loaded::from_sources(&sources).expect("valid").config, loaded.config);
}

#[test]
fn an_unknown_key_is_named_with_a_suggestion() {
    let file = file("data_dir = \"x\"\n");
    let sources = Sources { file: Some(file.path().to_owned()), ..Sources::default() };
    let message = message(&sources);
    assert!(message.contains("unknown key `data_dir`"), "{message}");
    assert!(message.contains("did you mean `data-dir`?"), "{message}");
}

#[test]
fn a_slip_of_the_finger_gets_a_suggestion_and_nonsense_gets_none() {
    for (slip, meant) in [
        ("listn", Some("listen")),
        ("lsiten", None),
        ("lisen", Some("listen")),
        ("durabilty", Some("durability")),
        ("segment-byte", Some("segment-bytes")),
        ("datadir", Some("data-dir")),
        ("snapshot", Some("snapshot-bytes-max")),
        ("xyzzy", None),
        ("lo", Some("log")),
        ("zq", None),
    ] {
        assert_eq!(close_to(slip).map(|option| option.name), meant, "{slip}");
    }
    let file = file("listn = \"x\"\n");
    let sources = Sources { file: Some(file.path().to_owned()), ..Sources::default() };
    assert!(message(&sources).ends_with("; did you mean `listen`?"));
    let sources = Sources { environment: pairs(&[("ALLUVIUM_LISTN", "x")]), ..Sources::default() };
    assert!(message(&sources).ends_with("`ALLUVIUM_LISTN`; did you mean `ALLUVIUM_LISTEN`?"));
}

#[test]
fn a_segment_too_small_for_two_appends_is_refused_with_both_values_and_the_remedy() {
    let refused = message(&Sources { flags: pairs(&[("segment-bytes", "16MiB")]), ..Sources::default() });
    for part in
        ["`segment-bytes` (16MiB)", "`append-bytes-max` (32MiB)", "to 8MiB or less", "to 64MiB or more"]
    {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    let tiny = pairs(&[("segment-bytes", "2KiB"), ("append-bytes-max", "1KiB")]);
    assert!(message(&Sources { flags: tiny, ..Sources::default() }).contains("at least 4KiB"));
}

#[test]
fn options_that_a_sqlite_store_does_without_are_found() {
    let set = |store: &str| {
        let flags =
            pairs(&[("store", store), ("shards", "2"), ("snapshot-grace", "9s"), ("sse-cycle", "9s")]);
        Loaded::from_sources(&Sources { flags, ..Sources::default() }).expect("valid").config.without_effect()
    };
    assert_eq!(set("sqlite:x"), ["snapshot-grace", "shards"]);
    assert!(set("engine").is_empty());
    let known: Vec<&str> = OPTIONS.iter().map(|option| option.name).collect();
    assert!(crate::config::ENGINE_ONLY.iter().all(|name| known.contains(name)));
}

#[test]
fn an_unknown_variable_is_named_unless_it_belongs_to_another_command() {
    let environment = pairs(&[("ALLUVIUM_DATADIR", "x"), ("ALLUVIUM_URL", "http://x")]);
    let sources =
        Sources { environment, foreign_variables: vec!["ALLUVIUM_URL".to_owned()], ..Sources::default() };
    let message = message(&sources);
    assert!(message.contains("unknown environment variable `ALLUVIUM_DATADIR`"), "{message}");
}

#[test]
fn an_invalid_value_is_named_with_its_option_and_origin() {
    let sources = Sources { flags: pairs(&[("long-poll-timeout", "25")]), ..Sources::default() };
    let message = message(&sources);
    assert!(message.contains("invalid value `25` for `long-poll-timeout` (flag)"), "{message}");
}

#[test]
fn what_the_engine_would_refuse_is_refused_with_the_configuration() {
    for (flags, named) in [
        (&[("segment-bytes", "63MiB")][..], "segment-bytes"),
        (&[("append-bytes-max", "33MiB")], "append-bytes-max"),
        (&[("segment-bytes", "5GiB")], "segment-bytes"),
        (&[("shards", "65")], "shards"),
    ] {
        let message = message(&Sources { flags: pairs(flags), ..Sources::default() });
        assert!(message.contains(named), "{flags:?}: {message}");
    }
    let fits = pairs(&[("append-bytes-max", "33MiB"), ("segment-bytes", "66MiB"), ("shards", "64")]);
    assert!(Loaded::from_sources(&Sources { flags: fits, ..Sources::default() }).is_ok());
}

#[test]
fn a_certificate_goes_with_its_key_and_proxies_are_networks() {
    let with = |flags: &[(&str, &str)]| Sources { flags: pairs(flags), ..Sources::default() };
    for one in ["tls-cert", "tls-key"] {
        let message = message(&with(&[(one, "x.pem")]));
        assert!(message.contains("`tls-cert` and `tls-key` go together"), "{message}");
    }
    let both = with(&[("tls-cert", "x.pem"), ("tls-key", "y.pem"), ("trusted-proxies", "10.0.0.0/8, ::1")]);
    let loaded = Loaded::from_sources(&both).expect("valid");
    assert_eq!(loaded.config.tls_key, Some(PathBuf::from("y.pem")));
    assert_eq!(loaded.config.trusted_proxies.to_string(), "10.0.0.0/8,::1/128");
    let message = message(&with(&[("trusted-proxies", "10.0.0.0/40")]));
    assert!(message.contains("10.0.0.0/40") && message.contains("trusted-proxies"), "{message}");
}

/// A number that no machine has things for ends a server at its start by name, and not later by a panic.
#[test]
fn every_number_of_things_has_an_end_and_is_refused_by_name() {
    let counts: Vec<&OptionSpec> =
        OPTIONS.iter().filter(|option| matches!(option.kind, "NUMBER" | "NUMBER|auto")).collect();
    assert!(counts.len() > 20, "{}", counts.len());
    for option in counts {
        for text in ["0", "-1", "x", "", "1.5", "18446744073709551616"] {
            let refused = message(&Sources { flags: pairs(&[(option.name, text)]), ..Sources::default() });
            assert!(refused.contains(&format!("`{}`", option.name)), "{}={text}: {refused}", option.name);
        }
    }
    for (name, beyond) in
        [("waiters-max", "4294967296"), ("webhooks-max", "18446744073709551615"), ("reactors", "1025")]
    {
        for sources in [
            Sources { flags: pairs(&[(name, beyond)]), ..Sources::default() },
            Sources {
                environment: pairs(&[(
                    &*format!("ALLUVIUM_{}", name.to_uppercase().replace('-', "_")),
                    beyond,
                )])
                .into_iter()
                .collect(),
                ..Sources::default()
            },
        ] {
            let refused = message(&sources);
            assert!(refused.contains(&format!("`{name}`")), "{refused}");
            assert!(refused.contains("4294967295") || refused.contains("1024"), "{refused}");
        }
    }
}
