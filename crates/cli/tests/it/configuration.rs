//! The configuration as the operator meets it.

use super::support::Cli;

#[test]
fn the_effective_configuration_names_the_origin_of_each_value() {
    let ended = Cli::new("config show --listen 127.0.0.1:1").env("ALLUVIUM_SSE_CYCLE", "30s").run();
    let shown = String::from_utf8(ended.stdout).unwrap();
    assert!(shown.contains("listen = \"127.0.0.1:1\"  # flag\n"), "{shown}");
    assert!(shown.contains("sse-cycle = \"30s\"  # ALLUVIUM_SSE_CYCLE\n"), "{shown}");
    assert!(shown.contains("durability = \"fsync\"  # default\n"), "{shown}");
}

#[test]
fn an_unknown_variable_stops_the_server_before_it_starts() {
    let ended = Cli::new("serve --listen 127.0.0.1:0").env("ALLUVIUM_DATADIR", "x").run();
    assert_eq!(ended.code, Some(78));
    assert!(ended.stderr.contains("unknown environment variable `ALLUVIUM_DATADIR`"), "{}", ended.stderr);
    assert!(ended.stderr.contains("did you mean `data-dir`?"), "{}", ended.stderr);
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
    for part in ["--long-poll-timeout <DURATION>", "[default: 25s]", "[env: ALLUVIUM_LONG_POLL_TIMEOUT]"] {
        assert!(help.contains(part), "{part}: {help}");
    }
}

#[test]
fn options_and_limits_are_documented_from_the_tables_themselves() {
    let ended = Cli::new("config docs").run();
    let page = String::from_utf8(ended.stdout).unwrap();
    assert!(page.contains("| `long-poll-timeout` | `ALLUVIUM_LONG_POLL_TIMEOUT` | `25s` |"), "{page}");
    assert!(page.contains("| `Producer-Id` | 256 | `400 invalid_producer` |"), "{page}");
}
