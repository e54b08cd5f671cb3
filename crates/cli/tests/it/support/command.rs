//! The binary as a command.

use std::io::Write;
use std::process::{Child, Command, Stdio};

/// A command line of `alluvium`, without any `ALLUVIUM_*` variable of the caller's.
pub(crate) struct Cli(Command);

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Cli {
    /// `alluvium` with arguments, separated by space.
    pub(crate) fn new(arguments: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_alluvium"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ALLUVIUM_") {
                command.env_remove(name);
            }
        }
        command.args(arguments.split_whitespace());
        Self(command)
    }

    /// `alluvium stream …` for a server.
    pub(crate) fn stream(url: &str, arguments: &str) -> Self {
        Self::new(&format!("stream {arguments}")).env("ALLUVIUM_URL", url)
    }

    pub(crate) fn arg(mut self, argument: &str) -> Self {
        self.0.arg(argument);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.0.env(name, value);
        self
    }

    /// Runs it to its end, with nothing on standard input.
    pub(crate) fn run(self) -> Ended {
        self.run_with(b"")
    }

    /// Runs it to its end, with bytes on standard input.
    pub(crate) fn run_with(self, input: &[u8]) -> Ended {
        let mut child = self.spawn();
        let mut stdin = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            // A command that fails early leaves its input unread; that is not this thread's concern.
            scope.spawn(move || drop(stdin.write_all(input)));
            Ended::of(child)
        })
    }

    /// Starts it with somewhere else for standard output to go.
    pub(crate) fn spawn_into(mut self, output: impl Into<Stdio>) -> Child {
        self.0.stdin(Stdio::null()).stdout(output).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Starts it, with pipes at all three ends.
    pub(crate) fn spawn(mut self) -> Child {
        self.0.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

impl Ended {
    /// Waits for the end of a command.
    pub(crate) fn of(child: Child) -> Self {
        let output = child.wait_with_output().unwrap();
        Self {
            code: output.status.code(),
            stdout: output.stdout,
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Standard output of a command that must have succeeded.
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        String::from_utf8(self.stdout).unwrap()
    }

    /// Standard error of a command that must have ended with this code.
    pub(crate) fn fails_with(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        self.stderr
    }

    /// The offset that the command printed for the next one.
    pub(crate) fn next_offset(&self) -> String {
        let line = self.stderr.lines().find_map(|line| line.strip_prefix("next offset: "));
        let offset = line.and_then(|rest| rest.split_whitespace().next());
        offset.unwrap_or_else(|| panic!("no next offset in {:?}", self.stderr)).to_owned()
    }
}

/// Sends a signal, by name.
pub(crate) fn signal(process: &Child, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &process.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Numbers, one a line, as JSON lines have them.
pub(crate) fn json_lines(numbers: std::ops::Range<u32>) -> String {
    numbers.flat_map(|number| [number.to_string(), "\n".to_owned()]).collect()
}
