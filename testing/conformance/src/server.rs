//! The server under test, as a process: started, killed, stopped, restarted on the same data.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// The longest wait for the line that tells the address.
const START_SECONDS_MAX: Duration = Duration::from_mins(1);
/// The longest wait for the process to end after a signal, or by itself when that is what a test expects.
const STOP_SECONDS_MAX: Duration = Duration::from_mins(1);
/// How often a process that should end is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Lines of output kept for error messages.
const OUTPUT_LINES_MAX: usize = 40;

/// An address that nobody has just now.
pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// What keeps the streams of a server under test.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Store {
    #[default]
    Engine,
    /// One SQLite file.
    Sqlite,
}

/// How to start a server: always the same way for one data directory.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// The program and the arguments before `serve`.
    pub(crate) program: Vec<String>,
    pub(crate) data_dir: PathBuf,
    /// Port 0 lets the server choose; a restart then keeps the port it chose.
    pub(crate) listen: SocketAddr,
    /// Further flags of `serve`.
    pub(crate) flags: Vec<String>,
}

impl Launch {
    /// Starts `binary` on a data directory, with further flags.
    pub(crate) fn new(binary: &Path, data_dir: &Path, flags: &[&str]) -> Self {
        Self {
            program: vec![binary.display().to_string()],
            data_dir: data_dir.to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
        }
    }

    /// Has the server keep its streams elsewhere than in its data directory, but beside that.
    pub(crate) fn with_store(mut self, store: Store) -> Self {
        if store == Store::Sqlite {
            let file = self.data_dir.with_extension("sqlite");
            self.flags.extend(["--store".to_owned(), format!("sqlite:{}", file.display())]);
        }
        self
    }

    /// Has the files looked through that a server has left: nothing may be wrong.
    pub(crate) fn check_files(&self) -> Result<()> {
        let mut command = Command::new(&self.program[0]);
        command.args(&self.program[1..]).arg("check").arg(&self.data_dir);
        let store = self.flags.iter().skip_while(|flag| *flag != "--store").take(2);
        let output = command.args(store).output().context("run a check")?;
        let told = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success(),
            "{}: {told}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    /// Spawns the process without waiting until it answers.
    pub(crate) fn spawn(&self) -> Result<Child> {
        let mut command = Command::new(&self.program[0]);
        command
            .args(&self.program[1..])
            .arg("serve")
            .args(["--listen", &self.listen.to_string()])
            .arg("--data-dir")
            .arg(&self.data_dir)
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ALLUVIUM_") {
                command.env_remove(name);
            }
        }
        command.spawn().with_context(|| format!("start `{}`", self.program.join(" ")))
    }

    /// Starts the server and waits until it tells its address.
    pub(crate) fn start(&self) -> Result<Server> {
        let began = Instant::now();
        let mut child = self.spawn()?;
        let output = Arc::new(Mutex::new(VecDeque::new()));
        let (sender, addresses) = mpsc::channel();
        let streams: [Box<dyn Read + Send>; 2] = [
            Box::new(child.stdout.take().context("no stdout")?),
            Box::new(child.stderr.take().context("no stderr")?),
        ];
        for stream in streams {
            let (sender, output) = (sender.clone(), Arc::clone(&output));
            thread::spawn(move || follow(stream, &sender, &output));
        }
        drop(sender);
        let mut server =
            Server { child, address: self.listen, launch: self.clone(), output, start_time: Duration::ZERO };
        server.address = addresses
            .recv_timeout(START_SECONDS_MAX)
            .map_err(|_| anyhow!("the server did not tell its address; its output:\n{}", server.output()))?;
        server.launch.listen = server.address;
        server.start_time = began.elapsed();
        Ok(server)
    }
}

/// Keeps the last lines of an output stream and reports an address once one is told.
fn follow(stream: impl Read, addresses: &Sender<SocketAddr>, output: &Mutex<VecDeque<String>>) {
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        if let Some((_, rest)) = line.split_once("http://").or_else(|| line.split_once("https://")) {
            let text: String =
                rest.chars().take_while(|c| c.is_ascii_digit() || matches!(c, '.' | ':')).collect();
            if let Ok(address) = text.parse() {
                // The receiver is gone once the server has started; later lines may name the address again.
                let _ = addresses.send(address);
            }
        }
        let mut lines = output.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == OUTPUT_LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

/// A running server; killed when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    launch: Launch,
    output: Arc<Mutex<VecDeque<String>>>,
    /// From the spawn of the process to the line that tells the address.
    pub(crate) start_time: Duration,
}

impl Server {
    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The last lines the server wrote.
    pub(crate) fn output(&self) -> String {
        let lines = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().flat_map(|line| ["    ", line, "\n"]).collect()
    }

    /// SIGKILL: the process gets no chance to tidy up. The returned launch restarts it on the same port and data.
    pub(crate) fn kill(mut self) -> Result<Launch> {
        self.child.kill().context("kill the server")?;
        self.child.wait().context("wait for the killed server")?;
        Ok(self.launch.clone())
    }

    /// SIGTERM: the server must end by itself, with success.
    pub(crate) fn stop(mut self) -> Result<Launch> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).context("signal the server")?;
        let status = self.wait_exit()?;
        ensure!(
            status.success(),
            "the server ended with {status} after SIGTERM; its output:\n{}",
            self.output()
        );
        Ok(self.launch.clone())
    }

    /// Whether the process has ended.
    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits until the process ends by itself.
    pub(crate) fn wait_exit(&mut self) -> Result<ExitStatus> {
        let deadline = Instant::now() + STOP_SECONDS_MAX;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            ensure!(Instant::now() < deadline, "the server did not end; its output:\n{}", self.output());
            thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already ended and waited for in most cases; what is left of a failed check must not outlive it.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
