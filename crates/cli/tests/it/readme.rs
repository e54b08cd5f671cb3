//! The tours of README and pages, run as they stand there.

use std::path::Path;
use std::process::Command;

use crate::support::Server;

const README: &str = include_str!("../../../../README.md");
const EXTENSIONS: &str = include_str!("../../../../docs/extensions.md");
const FEEDS: &str = include_str!("../../../../docs/feeds.md");

/// The shell commands of a section, in order.
fn commands(heading: &str) -> String {
    commands_of(README, heading)
}

fn commands_of(page: &str, heading: &str) -> String {
    let section = page.split("\n## ").find(|section| section.starts_with(heading)).unwrap();
    section.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap()).collect()
}

/// Runs them against a server, and returns what they print.
fn run(server: &Server, commands: &str) -> String {
    let commands = commands
        .replace("127.0.0.1:4437", server.address())
        .replace("target/release/alluvium", env!("CARGO_BIN_EXE_alluvium"));
    // A folder for the name that pages call the command by.
    let path = format!("{}:{}", binary_folder(), std::env::var("PATH").unwrap());
    // Files that a tour makes go where they are cleaned up.
    let folder = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    shell
        .arg("-ec")
        .arg(&commands)
        .env("ALLUVIUM_URL", server.url())
        .env("PATH", path)
        .current_dir(folder.path());
    let output = shell.output().unwrap();
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

/// The folder that the command is in, under its own name.
fn binary_folder() -> String {
    Path::new(env!("CARGO_BIN_EXE_alluvium")).parent().unwrap().display().to_string()
}

#[test]
fn the_commands_of_the_extensions_run_as_they_stand_beside_the_readme_s() {
    let server = Server::start();
    run(&server, &commands("Drop the history, keep the document"));
    let section = EXTENSIONS.split("\n## From the command line").nth(1).unwrap();
    let block = section.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let printed = run(&server, &format!("{block}\ncat copy.json; ls notes"));
    assert!(printed.contains("notes") && printed.contains(r#"{"state":["a","b"]}"#), "{printed}");
}

#[test]
fn the_tour_of_feeds_ends_at_the_other_file() {
    let server = Server::start();
    let printed = run(&server, &commands("Write offline"));
    assert_eq!(printed, "milk\nbread\neggs\n");
}

#[test]
fn the_longer_tour_of_feeds_ends_with_one_order_also_on_a_server_without_data() {
    let mut server = Server::start();
    let tour = commands_of(FEEDS, "Two files and a server").replace("alluvium serve\n", "");
    let binary = format!("{} feed", env!("CARGO_BIN_EXE_alluvium"));
    let tour = tour.replace("alluvium feed", &binary);
    let (first, last) = tour.split_at(tour.find(&format!("{binary} --db a.sqlite replicate")).unwrap());
    // The shell in which the tour goes on after the server has lost everything.
    let folder = tempfile::tempdir().unwrap();
    let go_on = |commands: &str| {
        let commands = commands.replace("127.0.0.1:4437", server.address());
        let mut shell = Command::new("sh");
        shell.arg("-ec").arg(format!("export ALLUVIUM_SPACE=family\n{commands}"));
        let output = shell.env("ALLUVIUM_URL", server.url()).current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let printed = go_on(first);
    assert!(printed.contains("to push   2\n"), "{printed}");
    assert!(printed.contains("groceries\t-\t2 blocks\n"), "{printed}");
    assert!(printed.ends_with("milk\nbread\nmilk\nbread\neggs\njam\ntea\n"), "{printed}");
    let same_order = |printed: &str| {
        let blocks: Vec<&str> = printed.lines().filter(|line| line.starts_with('{')).collect();
        assert_eq!(blocks.len(), 14, "{printed}");
        assert_eq!(blocks[..7], blocks[7..]);
        assert!(!printed.contains("\"position\":null"), "{printed}");
    };
    let printed = go_on(last);
    same_order(&printed);
    assert!(printed.contains("apples") && printed.contains("pears"), "{printed}");
    let again: Vec<&str> =
        last.lines().filter(|line| line.contains(" sync") || line.contains(" read ")).collect();
    let again = again.join("\n");
    server.kill();
    std::fs::remove_dir_all(server.data().join("feeds")).unwrap();
    server.restart();
    let commands = again.replace("127.0.0.1:4437", server.address());
    let mut shell = Command::new("sh");
    shell.arg("-ec").arg(format!("export ALLUVIUM_SPACE=family\n{commands}"));
    let output = shell.env("ALLUVIUM_URL", server.url()).current_dir(folder.path()).output().unwrap();
    same_order(&String::from_utf8(output.stdout).unwrap());
}

#[test]
fn the_tour_of_copied_files_sets_a_block_aside_and_appends_it_anew() {
    let server = Server::start();
    let tour = commands_of(FEEDS, "Copies of a file");
    let begun = "alluvium feed --db a.sqlite append groceries -m milk --sync\n";
    let binary = format!("{} feed", env!("CARGO_BIN_EXE_alluvium"));
    let tour = format!("{begun}{tour}alluvium feed --db a.sqlite read groceries\n");
    let printed = run(&server, &tour.replace("alluvium feed", &binary));
    assert!(printed.starts_with("exit code 4\n{\"number\":1,"), "{printed}");
    assert!(printed.contains("\"text\":\"olives\"") && printed.ends_with("olives\n"), "{printed}");
}

#[test]
fn the_requests_about_feeds_are_answered_as_they_stand_on_the_page() {
    let printed = run(&Server::start(), &commands_of(FEEDS, "Doors"));
    let tags = ["AppendResponse", "QueryResponse", "SubscribeResponse", "QueryResponse"];
    let answers: Vec<&str> = printed.lines().collect();
    assert_eq!(answers.len(), tags.len(), "{printed}");
    for (answer, tag) in answers.iter().zip(tags) {
        assert!(answer.starts_with(&format!("{{\"_tag\":\"{tag}\"")), "{printed}");
    }
}

/// As many ports behind one another as a network with its hosts takes, and one more.
fn free_ports(count: u16) -> u16 {
    let free = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
    let first = |seed: u16| 20_000 + seed % 100 * 100;
    let seed = u16::try_from(std::process::id() % 10_000).unwrap();
    let starts = (0..100).map(|step: u16| first(seed.wrapping_add(step)));
    starts.into_iter().find(|start| (*start..start + count).all(free)).expect("free ports")
}

#[test]
fn the_tour_of_jetstream_follows_a_network_that_is_made_up() {
    let server = Server::start();
    let first = free_ports(12);
    let (network, serve) = (format!("127.0.0.1:{first}"), format!("127.0.0.1:{}", first + 11));
    let tour = commands("Follow a network")
        .replace("simulate --past", &format!("simulate --listen {network} --past"))
        .replace("serve --allow-private", &format!("serve --listen {serve} --allow-private"))
        .replace("127.0.0.1:7777", &network)
        .replace("127.0.0.1:8080", &serve);
    let printed = run(&server, &tour);
    let lines: Vec<serde_json::Value> =
        printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let records = lines.iter().filter(|line| line["commit"]["collection"].is_string()).count();
    assert_eq!(records, 3, "{printed}");
    let status = lines.iter().find(|line| line["phase"] == "steady_state").expect("a status");
    assert_eq!(status["relay"]["connected"], true);
    assert!(status["relay"]["cursor"].is_u64() && status["relay"]["lagMs"].is_u64(), "{status}");
    assert!(status["archive"]["rows"].as_u64().unwrap() >= 3, "{status}");
    let counted = status["events"]["commit"].as_u64().unwrap();
    assert!(counted >= status["events"]["verified"].as_u64().unwrap() && counted > 0, "{status}");
    assert!(printed.contains("event: "), "{printed}");
}
