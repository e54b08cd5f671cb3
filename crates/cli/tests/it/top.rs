//! `alluvium top` with a token.

use super::support::{Cli, Server};

#[test]
#[expect(clippy::disallowed_methods, reason = "a test of a command makes the files that it is given")]
fn it_shows_a_token_from_a_file_and_is_denied_without() {
    let folder = tempfile::tempdir().unwrap();
    let (access, token) = (folder.path().join("access.toml"), folder.path().join("token"));
    let (access, token) = (access.to_str().unwrap(), token.to_str().unwrap());
    let entry = Cli::new("token --name watcher --scope admin:/metrics --token-file").arg(token).run().ok();
    std::fs::write(access, entry).unwrap();
    let server = Server::start_with(&format!("--access-file {access}"));
    let top = || Cli::new("top --once --interval 1 --url").arg(&server.url());
    for shown in [
        top().arg("--token-file").arg(token),
        top().env("ALLUVIUM_TOKEN_FILE", token),
        top().env("ALLUVIUM_TOKEN", std::fs::read_to_string(token).unwrap().trim()),
    ] {
        let text = shown.run().ok();
        assert!(text.contains("ready") && text.contains("streams"), "{text}");
    }
    top().run().fails_with(8);
    // A token that was given comes before a file, and a file that is not there or empty is told of.
    top().arg("--token").arg("other").arg("--token-file").arg(token).run().fails_with(8);
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "\n").unwrap();
    let other = folder.path().join("other");
    std::fs::write(&other, "alv_other\n").unwrap();
    top().arg("--token-file").arg(other.to_str().unwrap()).run().fails_with(8);
    // A file that is another is no token either.
    for path in ["/nowhere", empty.to_str().unwrap(), access] {
        let ended = top().arg("--token-file").arg(path).run();
        assert!(ended.stderr.contains(path), "{}", ended.stderr);
        ended.fails_with(2);
    }
}
