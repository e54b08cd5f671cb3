//! This workspace's own programs, built together with the tests.
//!
//! Cargo chooses the features of every dependency by what is selected to be built. A program that is built alone gets others
//! than in a build of the tests, and with them most of what it consists of is compiled once more. Where everything is built
//! anyway, programs are taken from that.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::tree::root;

/// A program out of a build of the whole workspace and its tests.
pub(crate) fn built(name: &str) -> Result<Command> {
    let selection = ["build", "--workspace", "--bins", "--tests", "--locked", "--quiet"];
    let status = cargo().args(selection).current_dir(root()).status().context("run cargo")?;
    ensure!(status.success(), "the workspace does not build");
    Ok(Command::new(root().join("target/debug").join(name)))
}

/// A program that is built alone: quicker, where nothing else is to be built.
pub(crate) fn alone(name: &str) -> Command {
    let mut run = cargo();
    run.args(["run", "--quiet", "--package", name, "--"]);
    run
}

fn cargo() -> Command {
    Command::new(env!("CARGO"))
}
