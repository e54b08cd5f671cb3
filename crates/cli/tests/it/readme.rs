//! The README's tour, run as it stands there.

use std::process::Command;

use crate::support::Server;

const README: &str = include_str!("../../../../README.md");

/// The shell commands of a section, in order.
fn commands(heading: &str) -> String {
    let section = README.split("\n## ").find(|section| section.starts_with(heading)).unwrap();
    section.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap()).collect()
}

/// Runs them against a server, and returns what they print.
fn run(server: &Server, commands: &str) -> String {
    let commands = commands
        .replace("127.0.0.1:4437", server.address())
        .replace("target/release/alluvium", env!("CARGO_BIN_EXE_alluvium"));
    let output =
        Command::new("sh").arg("-ec").arg(&commands).env("ALLUVIUM_URL", server.url()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_tour_with_curl_shows_what_the_readme_says() {
    let server = Server::start();
    let printed = run(&server, &commands("Five minutes with curl"));
    let mut rest = printed.as_str();
    for part in [
        "HTTP/1.1 201",
        "HTTP/1.1 204",
        "HTTP/1.1 204",
        // From the start.
        r#"[{"text":"hello"},{"text":"how"},{"text":"are you"}]"#,
        // Live.
        "event: data",
        r#"{"text":"fine"}"#,
        "\"upToDate\":true",
        // Resumed; then once, and again.
        "\n[{\"text\":\"fine\"}]\nHTTP/1.1 200",
        "HTTP/1.1 204",
        // Forked.
        "HTTP/1.1 201",
        r#"{"text":"once"},{"text":"only in the first"}]"#,
        r#"{"text":"once"},{"text":"only in the fork"}]"#,
        // Closed and deleted.
        "stream-closed: true",
        "HTTP/1.1 204",
    ] {
        let (_, behind) =
            rest.split_once(part).unwrap_or_else(|| panic!("{part} is missing in {rest}\n\n{printed}"));
        rest = behind;
    }
    assert_eq!(printed.matches("only in the fork").count(), 1, "{printed}");
}

#[test]
fn the_tour_of_the_command_line_follows_a_pipe() {
    let server = Server::start();
    let printed = run(&server, &commands("The same from the command line"));
    assert_eq!(printed, "line 1\nline 2\nline 3\n");
}

#[test]
fn the_tour_of_snapshots_drops_the_history_and_keeps_the_document() {
    let server = Server::start();
    let printed = run(&server, &commands("Drop the history, keep the document"));
    let mut rest = printed.as_str();
    for part in [
        "HTTP/1.1 201",
        "HTTP/1.1 201",
        "HTTP/1.1 204",
        "stream-snapshot-offset: ",
        "HTTP/1.1 410",
        "\"code\":\"retained\"",
        "multipart/mixed; boundary=",
        r#"{"state":["a","b"]}"#,
        r#"{"set":"c"}"#,
    ] {
        let (_, behind) =
            rest.split_once(part).unwrap_or_else(|| panic!("{part} is missing in {rest}\n\n{printed}"));
        rest = behind;
    }
    assert!(!printed.contains(r#"{"set":"a"}"#), "{printed}");
}
