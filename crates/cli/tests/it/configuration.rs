//! The configuration as the operator meets it.

use super::support::{Cli, Server, call};

#[test]
fn the_effective_configuration_names_the_origin_of_each_value() {
    let ended = Cli::new("config show --listen 127.0.0.1:1").env("ALLUVIUM_SSE_CYCLE", "30s").run();
    let shown = String::from_utf8(ended.stdout).unwrap();
    assert!(shown.contains("listen = \"127.0.0.1:1\"  # flag\n"), "{shown}");
    assert!(shown.contains("sse-cycle = \"30s\"  # ALLUVIUM_SSE_CYCLE\n"), "{shown}");
    assert!(shown.contains("durability = \"fsync\"  # default\n"), "{shown}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test of a command makes the files that it is given")]
fn a_file_may_say_yes_and_no_in_the_words_of_toml() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("alluvium.toml");
    for (line, shown) in [
        ("public-history = true", "public-history = \"yes\""),
        ("public-history = false", "public-history = \"no\""),
        ("public-history = \"yes\"", "public-history = \"yes\""),
    ] {
        std::fs::write(&file, line).unwrap();
        let ended = Cli::new("config show --config").arg(file.to_str().unwrap()).run().ok();
        assert!(ended.contains(shown), "{line}: {ended}");
    }
    for (line, told) in [
        ("public-history = 1", "expected `yes` or `no`"),
        ("snapshot-grace = \"0s\"", "must be more than 0"),
        ("snapshot-bytes-max = 0", "must be more than 0"),
    ] {
        std::fs::write(&file, line).unwrap();
        let ended = Cli::new("config check --config").arg(file.to_str().unwrap()).run();
        assert!(ended.stderr.contains(told), "{line}: {}", ended.stderr);
        ended.fails_with(78);
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the files of a configuration are real ones")]
fn a_check_reads_the_files_that_a_configuration_names() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a-file");
    let named = file.to_str().unwrap();
    for (flags, content) in [
        ("--access-file FILE", None),
        ("--access-file FILE", Some("[[token")),
        ("--tls-cert FILE --tls-key FILE", None),
        ("--tls-cert FILE --tls-key FILE", Some("no certificate")),
    ] {
        drop(std::fs::remove_file(&file));
        if let Some(content) = content {
            std::fs::write(&file, content).unwrap();
        }
        let ended = Cli::new(&format!("config check {}", flags.replace("FILE", named))).run();
        assert!(ended.stderr.contains(named), "{flags}: {}", ended.stderr);
        ended.fails_with(78);
    }
}

#[test]
fn a_flag_for_yes_or_no_needs_no_word_behind_it() {
    for (flags, shown) in [
        ("--insecure", "insecure = \"yes\"  # flag"),
        ("--insecure --listen 0.0.0.0:1", "listen = \"0.0.0.0:1\"  # flag"),
        ("--insecure yes", "insecure = \"yes\"  # flag"),
        ("--insecure=no", "insecure = \"no\"  # flag"),
        ("--feeds false", "feeds = \"no\"  # flag"),
        ("--webhook-loopback --insecure", "webhook-loopback = \"yes\"  # flag"),
    ] {
        let ended = Cli::new(&format!("config show {flags}")).run().ok();
        assert!(ended.contains(shown), "{flags}: {ended}");
    }
    for text in ["true", "yes"] {
        let ended = Cli::new("config show --listen 0.0.0.0:1").env("ALLUVIUM_INSECURE", text).run().ok();
        assert!(ended.contains("insecure = \"yes\"  # ALLUVIUM_INSECURE"), "{ended}");
    }
    for line in ["config show --insecure=maybe", "config show --listen 0.0.0.0:1"] {
        Cli::new(line).run().fails_with(78);
    }
}

#[test]
fn an_unknown_variable_stops_the_server_before_it_starts() {
    let ended = Cli::new("serve --listen 127.0.0.1:0").env("ALLUVIUM_DATADIR", "x").run();
    assert_eq!(ended.code, Some(78));
    assert!(ended.stderr.contains("unknown environment variable `ALLUVIUM_DATADIR`"), "{}", ended.stderr);
    assert!(ended.stderr.contains("did you mean `ALLUVIUM_DATA_DIR`?"), "{}", ended.stderr);
}

#[test]
fn the_variables_of_the_client_are_none_of_the_server_s_business() {
    let ended = Cli::new("config check").env("ALLUVIUM_URL", "http://x").env("ALLUVIUM_TOKEN", "x").run();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn help_shows_each_option_with_its_default_and_its_variable() {
    let ended = Cli::new("serve --help").run();
    let help = String::from_utf8(ended.stdout).unwrap();
    let words: Vec<&str> = help.split_whitespace().collect();
    let help = words.join(" ");
    for part in [
        "--long-poll-timeout <DURATION>",
        "[default: 25s]",
        "[env: ALLUVIUM_LONG_POLL_TIMEOUT]",
        "75 another process uses the data directory",
    ] {
        assert!(help.contains(part), "{part}: {help}");
    }
}

#[test]
fn options_and_limits_are_documented_from_the_tables_themselves() {
    let ended = Cli::new("config docs").run();
    let page = String::from_utf8(ended.stdout).unwrap();
    assert!(page.contains("| `long-poll-timeout` | `ALLUVIUM_LONG_POLL_TIMEOUT` | `25s` |"), "{page}");
    assert!(page.contains("| `Producer-Id` | 256 bytes | `400 invalid_producer` |"), "{page}");
    assert!(page.contains("`ALLUVIUM_TOKEN`") && page.contains("`ALLUVIUM_CONFIG`"), "{page}");
    for code in ["| 69 | another program", "| 75 | another process", "| 7 | unavailable", "| 130 | stopped"] {
        assert!(page.contains(code), "{code}: {page}");
    }
}

#[test]
fn locations_are_under_the_public_url() {
    let server = Server::start_with("--public-url https://streams.example/");
    let created = call(server.address(), "PUT", "/v1/stream/a%20b", &[], b"");
    assert_eq!(created.header("location"), Some("https://streams.example/v1/stream/a%20b"));
}

#[test]
fn a_data_directory_keeps_its_shards_and_any_number_of_reactors_serves_it() {
    let mut server = Server::start_with("--shards 3 --reactors 2");
    for stream in ["a", "b", "c", "d", "e", "f"] {
        server.stream("append --create -m").arg(stream).arg(stream).run().ok();
    }
    server.terminate();
    assert_eq!(server.ended(), Some(0));
    server.restart_with("--shards 1 --reactors 1");
    for stream in ["a", "b", "c", "d", "e", "f"] {
        assert_eq!(server.stream("read").arg(stream).run().ok(), stream);
    }
    assert_eq!(std::fs::read_dir(server.data().join("streams")).unwrap().count(), 3);
}

#[test]
fn log_lines_are_written_as_asked_for() {
    for (flags, expected) in [
        ("--log info --log-format json", Some("\"message\":\"stopped\"")),
        ("--log info --log-format text", Some("INFO alluvium_server::stop: stopped")),
        ("--log warn", None),
    ] {
        let mut server = Server::start_with(flags);
        server.terminate();
        assert_eq!(server.ended(), Some(0));
        let log = server.log();
        match expected {
            Some(expected) => assert!(log.contains(expected), "{flags}: {log}"),
            None => assert_eq!(log, ""),
        }
    }
}

#[test]
fn a_level_that_does_not_exist_is_refused_and_said_to_be_none() {
    for (filter, told) in [("debgu", "`debgu` is no level"), ("nonsense=", "after `nonsense=`")] {
        let ended = Cli::new("config check --log").arg(filter).run();
        assert!(ended.stderr.contains(told), "{filter}: {}", ended.stderr);
        ended.fails_with(78);
    }
}

#[test]
fn a_server_on_sqlite_tells_what_it_does_without() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.sqlite");
    let flags = format!("--store sqlite:{} --feeds no --shards 2 --log warn", file.display());
    let mut server = Server::start_with(&flags);
    server.terminate();
    assert_eq!(server.ended(), Some(0));
    let log = server.log();
    assert!(log.contains("`shards` has no effect with `store = sqlite:"), "{log}");
    assert_eq!(log.lines().count(), 1, "{log}");
}

#[test]
fn a_sqlite_file_that_cannot_be_made_is_named_with_its_option() {
    let ended = Cli::new("serve --listen 127.0.0.1:0 --store sqlite:/proc/none/x/y.db").run();
    assert!(ended.stderr.contains("`/proc/none/x` for the file that `store` names"), "{}", ended.stderr);
    ended.fails_with(74);
}
