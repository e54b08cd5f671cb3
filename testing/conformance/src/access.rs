//! Who may do what: every operation of every door, open streams, limits, origins, and a log without a token.

mod browsers;
mod events;
mod limits;
mod open;
mod table;

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

use self::table::{CALLERS, Door};
use crate::check::Report;
use crate::http::{Connection, Response};
use crate::server::{Launch, Server, Store};

/// Exit code of a configuration that is refused.
const EXIT_CONFIG: i32 = 78;

/// A server that logs everything, and nothing of what it logs is to be a token.
pub(crate) struct Logged {
    pub(crate) server: Server,
    log: PathBuf,
}

/// Starts a server whose whole log is kept.
fn start(mut launch: Launch, folder: &Path) -> Result<Logged> {
    let log = folder.join("log");
    let shell = format!("exec \"$0\" \"$@\" 2>>'{}'", log.display());
    launch.program.splice(0..0, ["sh".to_owned(), "-c".to_owned(), shell]);
    launch.flags.extend(["--log".to_owned(), "trace".to_owned()]);
    Ok(Logged { server: launch.start()?, log })
}

impl Logged {
    /// Stops the server and looks for tokens in its log.
    fn finish(self, what: &str, tokens: &[&str], report: &mut Report) {
        let stopped = self.server.stop();
        report.check(&format!("{what}: the whole log has no token in it"), || {
            stopped?;
            let log = fs::read_to_string(&self.log)?;
            ensure!(log.lines().count() > 3, "there is no log to speak of: {log}");
            for token in tokens {
                // Any part of it that is long enough to be of use.
                let part = &token[token.len() / 2..];
                let line = log.lines().find(|line| line.contains(part));
                ensure!(line.is_none(), "a token is in the log");
            }
            Ok(())
        });
    }
}

/// An access file with tokens that the binary itself has made.
#[derive(Debug)]
pub(crate) struct Tokens {
    file: PathBuf,
    held: Vec<(String, String)>,
}

impl Tokens {
    /// Makes a token for each name.
    pub(crate) fn make(binary: &Path, folder: &Path, wanted: &[(&str, &[&str])]) -> Result<Self> {
        let mut tokens = Self { file: folder.join("access.toml"), held: Vec::new() };
        for (name, scopes) in wanted {
            tokens.add(binary, name, scopes, &[])?;
        }
        Ok(tokens)
    }

    fn add(&mut self, binary: &Path, name: &str, scopes: &[&str], more: &[&str]) -> Result<()> {
        let kept = self.file.with_extension(name);
        let mut command = Command::new(binary);
        command.args(["token", "--name", name, "--token-file"]).arg(&kept).args(more);
        for scope in scopes {
            command.args(["--scope", scope]);
        }
        let made = command.output().context("make a token")?;
        ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let token = fs::read_to_string(&kept)?.trim().to_owned();
        ensure!(
            token.len() > 40 && !String::from_utf8_lossy(&made.stdout).contains(&token),
            "no token to speak of"
        );
        fs::OpenOptions::new().create(true).append(true).open(&self.file)?.write_all(&made.stdout)?;
        self.held.push(((*name).to_owned(), token));
        Ok(())
    }

    /// More of the file.
    fn append(&self, text: &str) -> Result<()> {
        Ok(fs::OpenOptions::new().create(true).append(true).open(&self.file)?.write_all(text.as_bytes())?)
    }

    /// The token with this name.
    pub(crate) fn of(&self, name: &str) -> &str {
        self.held.iter().find(|(known, _)| known == name).map_or("", |(_, token)| token)
    }

    /// The flags of a server that lets the holders in.
    pub(crate) fn flags(&self) -> [String; 2] {
        ["--access-file".to_owned(), self.file.display().to_string()]
    }

    fn all(&self) -> Vec<&str> {
        self.held.iter().map(|(_, token)| token.as_str()).collect()
    }
}

/// Asks one server with one token.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'a> {
    address: SocketAddr,
    token: Option<&'a str>,
}

impl<'a> Asker<'a> {
    pub(crate) fn new(address: SocketAddr, token: Option<&'a str>) -> Self {
        Self { address, token }
    }

    /// Sends a request and reads the head of the answer.
    pub(crate) fn ask(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Response> {
        self.open(method, target, headers, body).map(|(_, answer)| answer)
    }

    /// As [`ask`](Self::ask), with the connection, on which the body comes.
    pub(crate) fn open(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<(Connection, Response)> {
        let mut connection = Connection::open(self.address)?;
        let length = body.len().to_string();
        let bearer = self.token.map(|token| format!("Bearer {token}"));
        let mut all = headers.to_vec();
        all.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
        if method != "GET" && method != "HEAD" {
            all.push(("content-length", &length));
        }
        connection.begin(method, target, &all)?;
        connection.write(body)?;
        let answer = connection.read_head()?;
        Ok((connection, answer))
    }

    /// As [`ask`](Self::ask), with the body.
    pub(crate) fn whole(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Response> {
        let (mut connection, answer) = self.open(method, target, headers, body)?;
        Ok(connection.read_body(answer, method == "HEAD")?)
    }
}

/// Runs every check.
pub(crate) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    refusals_to_start(binary, report)?;
    for store in [Store::Engine, Store::Sqlite] {
        let scratch = tempfile::tempdir()?;
        let tokens = Tokens::make(binary, scratch.path(), &CALLERS)?;
        let launch = Launch::new(binary, &scratch.path().join("data"), &[]).with_store(store);
        let logged = start(with(launch, &tokens.flags()), scratch.path())?;
        println!("        {store:?}");
        table::check(Door::Server, logged.server.address, &tokens, false, report);
        if store == Store::Engine {
            hidden(logged.server.address, &tokens, report);
            paths(logged.server.address, &tokens, report);
        }
        logged.finish(&format!("{store:?}"), &tokens.all(), report);
    }
    jetstream(binary, report)?;
    signed(binary, report)?;
    open::run(binary, report)?;
    events::run(binary, report)?;
    limits::run(binary, report)?;
    browsers::run(binary, report)?;
    command_line(binary, report)
}

fn with(mut launch: Launch, flags: &[String]) -> Launch {
    launch.flags.extend(flags.iter().cloned());
    launch
}

/// Nobody opens a server to a network by mistake.
fn refusals_to_start(binary: &Path, report: &mut Report) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let tokens = Tokens::make(binary, scratch.path(), &[("t", &["admin"])])?;
    let everywhere = SocketAddr::from(([0, 0, 0, 0], 0));
    report.check("a server that others reach does not start without tokens or a word", || {
        let mut launch = Launch::new(binary, &scratch.path().join("data"), &[]);
        launch.listen = everywhere;
        let output = launch.spawn()?.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(EXIT_CONFIG), "{:?}: {said}", output.status);
        ensure!(said.contains("access-file") && said.contains("insecure"), "{said}");
        ensure!(!scratch.path().join("data").exists(), "it has made a data directory");
        launch.flags = vec!["--insecure".to_owned()];
        launch.start()?.stop()?;
        launch.flags = tokens.flags().to_vec();
        launch.start()?.stop().map(drop)
    });
    report.check("a file that is wrong is told by its place, and no token in it is", || {
        tokens.append(&format!("[[token]]\nname = \"x\"\nhash = \"{}\"\nscopes = []\n", tokens.of("t")))?;
        let launch = with(Launch::new(binary, &scratch.path().join("data"), &[]), &tokens.flags());
        let output = launch.spawn()?.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(EXIT_CONFIG), "{:?}: {said}", output.status);
        ensure!(said.contains("`x`") && !said.contains(&tokens.of("t")[10..]), "{said}");
        Ok(())
    });
    Ok(())
}

/// What there is and what there is not look alike to whoever may not see either.
fn hidden(address: SocketAddr, tokens: &Tokens, report: &mut Report) {
    report.check("whether a stream, bucket or space exists is not told to whoever may not read it", || {
        let operator = Asker::new(address, Some(tokens.of("operator")));
        let json = [("content-type", "application/json")];
        operator.ask("PUT", "/ds/there", &[], b"")?.expect(&[201], "make a bucket")?;
        operator.ask("PUT", "/ds/there/a", &json, b"[1]")?.expect(&[201], "make a stream")?;
        operator.ask("PUT", "/v1/stream/there", &json, b"[1]")?.expect(&[201], "make a stream")?;
        for caller in [None, Some(tokens.of("elsewhere")), Some("alv_of_nobody")] {
            let asker = Asker::new(address, caller);
            for (there, missing) in [
                ("/v1/stream/there", "/v1/stream/missing"),
                ("/ds/there", "/ds/missing"),
                ("/ds/there/streams", "/ds/missing/streams"),
                ("/ds/there/a", "/ds/there/b"),
                ("/ds/there/a/snapshot", "/ds/missing/a/snapshot"),
                ("/feeds/v1/spaces/s/streams/f", "/feeds/v1/spaces/missing/streams/f"),
            ] {
                for method in ["GET", "HEAD", "POST", "PUT", "DELETE"] {
                    let seen = |target: &str| {
                        let answer = asker.whole(method, target, &json, b"")?;
                        let is_told = |header: &&(String, String)| {
                            !matches!(header.0.as_str(), "date" | "x-request-id")
                        };
                        let headers: Vec<_> = answer.headers().iter().filter(is_told).cloned().collect();
                        anyhow::Ok((answer.status, headers, answer.body))
                    };
                    let (one, other) = (seen(there)?, seen(missing)?);
                    ensure!(one == other, "{method} {there} and {missing} differ: {one:?} {other:?}");
                }
            }
        }
        Ok(())
    });
}

/// No spelling of a path leads to what a prefix does not cover.
fn paths(address: SocketAddr, tokens: &Tokens, report: &mut Report) {
    report.check("no spelling of a path gets around a prefix", || {
        let operator = Asker::new(address, Some(tokens.of("operator")));
        let json = [("content-type", "application/json")];
        let secret = b"[\"the secret\"]";
        operator.ask("PUT", "/v1/stream/elsewhere2", &json, secret)?.expect(&[201], "make a stream")?;
        operator.ask("PUT", "/ds/elsewhere2", &[], b"")?.expect(&[201], "make a bucket")?;
        operator.ask("PUT", "/ds/elsewhere2/a", &json, secret)?.expect(&[201], "make a stream")?;
        operator.ask("PUT", "/ds/elsewhere", &[], b"")?.expect(&[201], "make a bucket")?;
        let asker = Asker::new(address, Some(tokens.of("elsewhere")));
        for target in [
            "/v1/stream/elsewhere2",
            "/v1/stream/elsewhere/../elsewhere2",
            "/v1/stream/elsewhere/%2e%2e/elsewhere2",
            "/v1/stream/elsewhere%2F..%2Felsewhere2",
            "/v1/stream/elsewhere/%2E./elsewhere2",
            "/v1/stream//elsewhere2",
            "//v1/stream/elsewhere2",
            "/v1/stream/elsewhere/..%2Felsewhere2",
            "/v1/stream/elsewhere%00/../elsewhere2",
            "/v1/stream/elsewhere/;/../elsewhere2",
            "/v1/./stream/elsewhere2",
            "/V1/stream/elsewhere2",
            "/v1/stream/%65lsewhere2",
            "/ds/elsewhere2/a",
            "/ds/elsewhere/../elsewhere2/a",
            "/ds/elsewhere%2F..%2Felsewhere2/a",
            "/ds/elsewhere/%2e%2e%2Felsewhere2%2Fa",
            "/ds//elsewhere2/a",
            "/ds/elsewhere/elsewhere2/../../elsewhere2/a",
            "/v1/stream/elsewhere/../../../ds/elsewhere2/a",
        ] {
            for spelt in [target.to_owned(), format!("http://{address}{target}")] {
                let answer = asker.whole("GET", &spelt, &[], b"")?;
                let body = String::from_utf8_lossy(&answer.body).into_owned();
                ensure!(matches!(answer.status, 400 | 403 | 404), "{spelt}: status {}", answer.status);
                ensure!(!body.contains("secret"), "{spelt}: {body}");
            }
        }
        for source in ["/v1/stream/elsewhere2", "/ds/elsewhere2/a", "/v1/stream/%65lsewhere2"] {
            let headers = [("content-type", "application/json"), ("stream-forked-from", source)];
            let answer = asker.ask("PUT", "/ds/elsewhere/fork", &headers, b"")?;
            ensure!(answer.status == 403, "a fork of {source}: status {}", answer.status);
        }
        asker.ask("PUT", "/v1/stream/elsewhere", &json, b"[1]")?.expect(&[201], "what is covered")?;
        asker
            .ask("PUT", "/v1/stream/elsewhere/a%2Fb", &json, b"[1]")?
            .expect(&[201], "what is covered")
            .map(drop)
    });
}

/// A Jetstream is read by anyone; its operator has a token.
fn jetstream(binary: &Path, report: &mut Report) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let tokens = Tokens::make(binary, scratch.path(), &CALLERS)?;
    // Nobody is there to follow, which is no matter here.
    let relay = ["--relay", "ws://127.0.0.1:9", "--plc", "http://127.0.0.1:9", "--allow-private"];
    let launch = |name: &str| {
        let mut launch = Launch::new(binary, &scratch.path().join(name), &relay);
        launch.program.push("jetstream".to_owned());
        launch
    };
    let logged = start(with(launch("public"), &tokens.flags()), scratch.path())?;
    table::check(Door::Jetstream, logged.server.address, &tokens, true, report);
    logged.finish("Jetstream", &tokens.all(), report);
    tokens.append("[anyone]\nscopes = []\n")?;
    let logged = start(with(launch("closed"), &tokens.flags()), scratch.path())?;
    table::check(Door::Jetstream, logged.server.address, &tokens, false, report);
    logged.finish("closed Jetstream", &tokens.all(), report);
    report.check("a Jetstream that others reach lets anyone read and nobody operate", || {
        let mut launch = launch("open");
        launch.listen = SocketAddr::from(([0, 0, 0, 0], 0));
        let server = launch.start()?;
        let address = SocketAddr::from(([127, 0, 0, 1], server.address.port()));
        let asker = Asker::new(address, None);
        asker.ask("GET", "/streams/events?offset=-1", &[], b"")?.expect(&[200], "read")?;
        asker.ask("GET", "/status", &[], b"")?.expect(&[401], "ask for the state")?;
        server.stop().map(drop)
    });
    Ok(())
}

/// A key with which tokens are signed here.
pub(crate) struct Signer(Ed25519KeyPair, String);

impl Signer {
    pub(crate) fn new(seed: u8) -> Result<Self> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).map_err(|_| anyhow::anyhow!("no key"))?;
        Ok(Self(pair, format!("key-{seed}")))
    }

    fn jwks(&self) -> String {
        let x = URL_SAFE_NO_PAD.encode(self.0.public_key().as_ref());
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": x, "kid": self.1}]}).to_string()
    }

    /// A token for so many seconds.
    pub(crate) fn sign(&self, scope: &str, seconds: i64) -> Result<String> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
        let exp = i64::try_from(now)? + seconds;
        let claims = json!({"iss": "id", "aud": "us", "sub": "alice", "exp": exp, "scope": scope});
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(&json!({"alg": "EdDSA", "kid": self.1})), part(&claims));
        let signature = URL_SAFE_NO_PAD.encode(self.0.sign(message.as_bytes()).as_ref());
        Ok(format!("{message}.{signature}"))
    }

    /// Lets a server take its tokens, from a file with its keys.
    pub(crate) fn issue(&self, tokens: &Tokens) -> Result<PathBuf> {
        let keys = tokens.file.with_file_name("keys.json");
        fs::write(&keys, self.jwks())?;
        tokens.append(
            "[[issuer]]\nissuer = \"id\"\naudience = \"us\"\nkeys = \"keys.json\"\nscopes = [\"read\", \"write\"]\n\
             leeway-s = 0\n",
        )?;
        Ok(keys)
    }
}

/// Signed tokens, and a key that is replaced while the server runs.
fn signed(binary: &Path, report: &mut Report) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let tokens = Tokens::make(binary, scratch.path(), &[("operator", &["admin"])])?;
    let (old, new) = (Signer::new(1)?, Signer::new(2)?);
    let keys = old.issue(&tokens)?;
    let logged =
        start(with(Launch::new(binary, &scratch.path().join("data"), &[]), &tokens.flags()), scratch.path())?;
    let (by_old, by_new) = (old.sign("read write:/v1/stream/a", 600)?, new.sign("read", 600)?);
    let address = logged.server.address;
    report.check("a signed token is good for what it says, and its key can be replaced", || {
        let json = [("content-type", "application/json")];
        let (old, new) = (Asker::new(address, Some(&by_old)), Asker::new(address, Some(&by_new)));
        old.ask("PUT", "/v1/stream/a", &json, b"[1]")?.expect(&[201], "write where it may")?;
        old.ask("PUT", "/v1/stream/b", &json, b"[1]")?.expect(&[403], "write where it may not")?;
        old.ask("GET", "/v1/stream/a", &[], b"")?.expect(&[200], "read")?;
        new.ask("GET", "/v1/stream/a", &[], b"")?.expect(&[401], "read by an unknown key")?;
        fs::write(&keys, Signer::new(2)?.jwks())?;
        let began = std::time::Instant::now();
        while new.ask("GET", "/v1/stream/a", &[], b"")?.status != 200 {
            ensure!(began.elapsed() < Duration::from_secs(30), "the new key is not taken");
        }
        old.ask("GET", "/v1/stream/a", &[], b"")?.expect(&[401], "read by the old key").map(drop)
    });
    logged.finish("signed tokens", &[&by_old, &by_new, tokens.of("operator")], report);
    Ok(())
}

/// The command line presents a token that it was given, or that a file has.
fn command_line(binary: &Path, report: &mut Report) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let tokens = Tokens::make(binary, scratch.path(), &[("a", &["admin"])])?;
    let server = with(Launch::new(binary, &scratch.path().join("data"), &[]), &tokens.flags()).start()?;
    let url = format!("http://{}", server.address);
    let run = |arguments: &[&str], variable: (&str, &str)| {
        let mut command = Command::new(binary);
        command.args(arguments).env_remove("ALLUVIUM_TOKEN").env("ALLUVIUM_URL", &url).stdin(Stdio::null());
        let db = scratch.path().join("feeds.sqlite");
        command.env("ALLUVIUM_FEEDS_DB", db).env(variable.0, variable.1);
        command.output().with_context(|| format!("{arguments:?}"))
    };
    let file = tokens.file.with_extension("a").display().to_string();
    report.check("commands present the token of a flag, a variable or a file", || {
        let create: &[&str] = &["stream", "create", "x", "--content-type", "text/plain"];
        let denied = run(create, ("UNUSED", ""))?;
        ensure!(!denied.status.success(), "it was let in without");
        let by_flag = [create, &["--token", tokens.of("a")]].concat();
        let by_file = ["stream", "read", "x", "--token-file", &file];
        let feed: &[&str] = &["feed", "append", "--message", "hello", "--sync"];
        for (arguments, variable) in [
            (&by_flag[..], ("UNUSED", "")),
            (&["stream", "append", "x", "--message", "hello"], ("ALLUVIUM_TOKEN", tokens.of("a"))),
            (&["stream", "head", "x"], ("ALLUVIUM_TOKEN_FILE", &file)),
            (&by_file, ("UNUSED", "")),
            (feed, ("ALLUVIUM_TOKEN_FILE", &file)),
        ] {
            let output = run(arguments, variable)?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(output.status.success(), "{:?}: {said}", arguments.first());
            ensure!(!said.contains(tokens.of("a")), "it has shown the token");
        }
        Ok(())
    });
    server.stop().map(drop)
}
