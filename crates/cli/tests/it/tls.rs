//! Clients of a server that speaks TLS: whom they trust, and what they say of a server that they do not.

use std::path::Path;

use tempfile::TempDir;

use super::support::{Cli, Ended, Server};

/// A certificate for some names that signs itself, and its key, in files.
fn certificate(folder: &Path, names: &[&str]) -> (String, String) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    written(folder, &made.cert.pem(), &made.signing_key.serialize_pem())
}

#[expect(clippy::disallowed_methods, reason = "a test of a command makes the files that it is given")]
fn written(folder: &Path, certificate: &str, key: &str) -> (String, String) {
    let (certificate_file, key_file) = (folder.join("cert.pem"), folder.join("key.pem"));
    std::fs::write(&certificate_file, certificate).unwrap();
    std::fs::write(&key_file, key).unwrap();
    (certificate_file.display().to_string(), key_file.display().to_string())
}

fn server(folder: &Path, names: &[&str]) -> (Server, String) {
    let (certificate, key) = certificate(folder, names);
    let server = Server::start_with(&format!("--tls-cert {certificate} --tls-key {key}"));
    (server, certificate)
}

/// Every kind of command that speaks to a server, for the one at `url`.
fn commands(url: &str, file: &Path) -> Vec<(String, Cli)> {
    let mut commands: Vec<(String, Cli)> = [
        "health",
        "top --once",
        "backup daily",
        "admin streams",
        "admin delete /v1/stream/a",
        "stream create a",
        "stream read a",
        "stream append a --message x",
        "stream tail a",
        "bucket create docs",
    ]
    .into_iter()
    .map(|text| (text.to_owned(), Cli::new(text).arg("--url").arg(url)))
    .collect();
    let tail = "jetstream tail".to_owned();
    commands.push((tail.clone(), Cli::new(&tail).arg(url)));
    for sync in ["feed sync", "feed sync --follow"] {
        let at = file.to_str().unwrap();
        Cli::new("feed append f --message x --db").arg(at).run().ok();
        commands.push((sync.to_owned(), Cli::new(sync).arg("--url").arg(url).arg("--db").arg(at)));
        let socket = url.replacen("http", "ws", 1);
        let of_socket = Cli::new(sync).arg("--url").arg(&socket).arg("--db").arg(at);
        commands.push((format!("{sync} over a socket"), of_socket));
    }
    commands
}

/// The command has ended because of what is wrong with the server, at once and in words.
fn refused(name: &str, ended: Ended, why: &str) {
    let said = ended.fails_with(7);
    assert!(said.contains(why), "{name}: {said}");
    for odd in [
        "trying again",
        "again in",
        "gave up",
        "UnknownIssuer",
        "NotValidForName",
        "InvalidContentType",
        "CaUsedAsEndEntity",
        "http parse fail",
    ] {
        assert!(!said.contains(odd), "{name}: {said}");
    }
}

#[test]
fn every_command_ends_at_a_server_that_is_not_trusted_and_says_why() {
    let folder = TempDir::new().unwrap();
    let (server, certificate) = server(folder.path(), &["localhost", "127.0.0.1"]);
    let file = folder.path().join("feeds.sqlite");
    for (name, command) in commands(&server.url(), &file) {
        refused(&name, command.run(), "signed by nobody who is trusted here");
    }
    for trusting in [
        Cli::new("health --tls-ca").arg(&certificate),
        Cli::new("health").env("ALLUVIUM_TLS_CA", &certificate),
        Cli::new("stream create a --tls-ca").arg(&certificate),
        Cli::new("top --once --interval 1 --tls-ca").arg(&certificate),
    ] {
        trusting.arg("--url").arg(&server.url()).run().ok();
    }
}

#[test]
fn a_certificate_for_another_name_and_a_server_without_tls_are_told_of() {
    let folder = TempDir::new().unwrap();
    let (server, certificate) = server(folder.path(), &["other.example"]);
    let file = folder.path().join("feeds.sqlite");
    for (name, command) in commands(&server.url(), &file) {
        let ended = command.env("ALLUVIUM_TLS_CA", &certificate).run();
        refused(&name, ended, "its certificate is for another name");
    }
    let plain = Server::start();
    for (name, command) in commands(&plain.url().replace("http://", "https://"), &file) {
        refused(
            &name,
            command.run(),
            "does not speak TLS: without certificates, its URL begins with `http://`",
        );
    }
}

#[test]
fn a_server_with_tls_tells_every_command_that_its_url_has_it_too() {
    let folder = TempDir::new().unwrap();
    let (server, certificate) = server(folder.path(), &["localhost", "127.0.0.1"]);
    let file = folder.path().join("feeds.sqlite");
    for (name, command) in commands(&server.url().replace("https://", "http://"), &file) {
        let ended = command.env("ALLUVIUM_TLS_CA", &certificate).run();
        refused(&name, ended, "does not speak plain HTTP: with certificates, its URL begins with `https://`");
    }
}

/// What `openssl req -x509` makes without further options.
#[test]
fn a_certificate_of_an_authority_is_told_of_with_what_to_do() {
    let folder = TempDir::new().unwrap();
    let made = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let signed = parameters.self_signed(&made).unwrap();
    let (certificate, key) = written(folder.path(), &signed.pem(), &made.serialize_pem());
    let server = Server::start_with(&format!("--tls-cert {certificate} --tls-key {key}"));
    let file = folder.path().join("feeds.sqlite");
    for (name, command) in commands(&server.url(), &file) {
        let ended = command.env("ALLUVIUM_TLS_CA", &certificate).run();
        refused(&name, ended, "made with `basicConstraints=CA:FALSE`");
    }
}
