//! The report of one run: named checks, each passed or failed, and a closing line that other tools can read.

use std::process::ExitCode;

use anyhow::Result;

/// Counts checks and prints each as it is decided.
#[derive(Debug, Default)]
pub(crate) struct Report {
    passed: usize,
    failed: usize,
}

impl Report {
    /// An empty report.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Runs one check and records how it went; a failure is printed with its causes, and the run goes on.
    pub(crate) fn check(&mut self, name: &str, body: impl FnOnce() -> Result<()>) {
        match body() {
            Ok(()) => {
                self.passed += 1;
                println!("ok      {name}");
            }
            Err(error) => {
                self.failed += 1;
                println!("FAILED  {name}\n        {error:#}");
            }
        }
    }

    /// Adds checks that another test runner has counted.
    pub(crate) fn add(&mut self, passed: usize, failed: usize) {
        self.passed += passed;
        self.failed += failed;
    }

    /// Prints the closing line. Failure if anything failed, or if nothing ran at all.
    pub(crate) fn finish(self) -> ExitCode {
        println!("{} passed, {} failed", self.passed, self.failed);
        if self.failed == 0 && self.passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
