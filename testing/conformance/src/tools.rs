//! The other languages' tools: their pinned packages, installed from lock files on first use.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The folder of this crate, which holds the Node and Python sides.
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The Node project, with `node_modules` as `package-lock.json` says.
pub(crate) fn node_project() -> Result<PathBuf> {
    let dir = Path::new(ROOT).join("node");
    install_once(&dir.join("package-lock.json"), &dir.join("node_modules"), || {
        run(Command::new("npm").args(["ci", "--no-audit", "--no-fund"]).current_dir(&dir))
    })?;
    Ok(dir)
}

/// The Python project and the interpreter of its virtual environment, filled as `requirements.txt` says.
pub(crate) fn python_project() -> Result<(PathBuf, PathBuf)> {
    let dir = Path::new(ROOT).join("python");
    let (requirements, environment) = (dir.join("requirements.txt"), dir.join(".venv"));
    let python = environment.join("bin/python");
    install_once(&requirements, &environment, || {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment))?;
        run(Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--require-hashes", "--requirement"])
            .arg(&requirements))
    })?;
    Ok((dir, python))
}

/// Makes sure that a Debian tool is there, installing it if that is allowed.
pub(crate) fn debian_tool(name: &str) -> Result<()> {
    debian_program(name, name)
}

/// As [`debian_tool`], for one that is in a package of another name.
pub(crate) fn debian_program(name: &str, package: &str) -> Result<()> {
    if Command::new(name).arg("--version").output().is_ok() {
        return Ok(());
    }
    ensure!(
        rustix::process::geteuid().is_root(),
        "`{name}` is needed: install the Debian package `{package}`"
    );
    run(Command::new("apt-get").args(["update", "-qq"]))?;
    run(Command::new("apt-get").args(["install", "-qq", "--yes", "--no-install-recommends", package]))
}

/// As [`debian_tool`], for one that has other names elsewhere. Returns the name that it has here; the first is that of the
/// Debian package.
pub(crate) fn debian_tool_of(names: &[&'static str]) -> Result<&'static str> {
    if let Some(name) =
        names.iter().copied().find(|name| Command::new(name).arg("--version").output().is_ok())
    {
        return Ok(name);
    }
    let name = names.first().copied().context("no name")?;
    debian_tool(name)?;
    Ok(name)
}

/// Runs `install` unless `target` was installed from this very lock file.
fn install_once(lock: &Path, target: &Path, install: impl FnOnce() -> Result<()>) -> Result<()> {
    let wanted = fs::read(lock).with_context(|| format!("read `{}`", lock.display()))?;
    let stamp = target.join(".installed-from");
    if fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    println!("installing what `{}` lists", lock.display());
    install()?;
    fs::write(&stamp, wanted).with_context(|| format!("write `{}`", stamp.display()))
}

/// Runs a command; its output is shown only if it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?} ended with {}:\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
