//! Backups of a Jetstream that follows a network which never rests: each is what the archive was at one moment, and an
//! archive that is brought back goes on from there as if nothing had been.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};

use super::paths;
use super::told::Told;
use super::world::{SMALL, World, same, steady};
use crate::check::Report;
use crate::http::Connection;
use crate::server::Launch;

/// Backups that are taken while events come.
const BACKUPS: u64 = 2;

pub(super) fn run(binary: &Path, report: &mut Report) {
    report.check(
        "backups under load: each a first part of the archive, and what is brought back goes on",
        || live(binary),
    );
}

/// Runs the command under test.
fn output(binary: &Path, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ALLUVIUM_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).output().context("run a command")
}

/// Runs one that must succeed; what it printed.
fn done(binary: &Path, arguments: &[&str]) -> Result<String> {
    let output = output(binary, arguments)?;
    let (told, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "`{}`: {}: {told}{said}", arguments.join(" "), output.status);
    Ok(told.into_owned())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path in UTF-8")
}

fn live(binary: &Path) -> Result<()> {
    let mut world = World::new(binary, steady(501), SMALL)?;
    let folder = world.data_dir.with_extension("backups");
    world.launch.flags.extend(["--backup-dir".to_owned(), text(&folder)?.to_owned()]);
    world.run(160)?;
    world.start()?;
    world.conclude(0..24)?;
    world.caught_up()?;
    // What was shown when a backup began, and how far the archive may go that it has.
    let mut floors = Vec::new();
    for nth in 0..BACKUPS {
        let url = world.url();
        let name = format!("live-{nth}");
        let floor = paths::stream(world.address())?.len();
        let (binary_path, taken_name) = (binary.to_owned(), name.clone());
        let taking = std::thread::spawn(move || done(&binary_path, &["backup", "--url", &url, &taken_name]));
        while !taking.is_finished() {
            world.run(4)?;
        }
        let told = taking.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        println!("        {}", told.trim());
        floors.push((name, floor));
    }
    refused(binary, &world)?;
    world.run(30)?;
    world.conclude(0..24)?;
    let events = world.caught_up()?;
    world.stop()?;
    for (name, floor) in floors {
        restored(binary, &mut world, &folder.join(&name), floor, &events).context(name)?;
    }
    Ok(())
}

/// What no backup may be called, and what is there already.
fn refused(binary: &Path, world: &World) -> Result<()> {
    for (name, code) in [("live-0", 4), ("..", 1), ("x.partial", 1)] {
        let output = output(binary, &["backup", "--url", &world.url(), name])?;
        ensure!(output.status.code() == Some(code), "`{name}`: {output:?}");
    }
    let listed = Connection::open(world.address())?.call("GET", "/admin/v1/backups", &[], &[])?;
    let listed: serde_json::Value = serde_json::from_slice(&listed.expect(&[200], "list")?.body)?;
    ensure!(listed["backups"].as_array().map_or(0, Vec::len) as u64 == BACKUPS, "{listed}");
    // The metrics tell of the same.
    let page =
        Connection::open(world.address())?.call("GET", "/metrics", &[], b"")?.expect(&[200], "a scrape")?;
    let shown = alluvium_metrics::parse(std::str::from_utf8(&page.body)?)?;
    let taken = shown.sum("alluvium_backups_total", &[("outcome", "taken")]);
    ensure!((taken - 2.0).abs() < 0.5, "{taken} backups were counted");
    // Without a place for them there are none.
    let bare = Launch::new(binary, &world.data_dir, &["--backup-dir", text(&world.data_dir)?]);
    let mut bare = Launch { flags: [&world.launch.flags[..4], &bare.flags[..]].concat(), ..bare };
    bare.program.push("jetstream".to_owned());
    let ended = bare.spawn()?.wait_with_output()?;
    let said = String::from_utf8_lossy(&ended.stderr);
    ensure!(ended.status.code() == Some(78) && said.contains("--backup-dir"), "{:?}: {said}", ended.status);
    Ok(())
}

/// Brings a backup back and starts a server on it: it has a first part of the events, those that had been shown when it was
/// taken among them, asks the relay from there on, and comes to the same.
fn restored(binary: &Path, world: &mut World, backup: &Path, floor: usize, events: &[Told]) -> Result<()> {
    // Not where backups are: what is served cannot be in there.
    let name = backup.file_name().context("a name")?.display();
    let target: PathBuf = world.data_dir.with_file_name(format!("restored-{name}"));
    done(binary, &["check", text(backup)?])?;
    done(binary, &["restore", text(backup)?, text(&target)?])?;
    let kept: Vec<Told> =
        super::world::stored(&target.join("segments"))?.into_iter().map(|(told, _)| told).collect();
    ensure!(kept.len() >= floor, "{} events, and {floor} had been shown", kept.len());
    same(&kept, &events[..kept.len().min(events.len())]).context("a first part")?;
    ensure!(kept.len() < events.len(), "it has what came after it");
    world.launch.data_dir = target;
    world.start()?;
    let gone_on = world.caught_up()?;
    same(&gone_on[..kept.len()], &kept).context("what was kept")?;
    world.stop()?;
    let target = world.launch.data_dir.clone();
    done(binary, &["check", text(&target)?]).map(drop)
}
