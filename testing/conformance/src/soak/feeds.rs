//! A feed with two writers and a reader, each a file and a process that follows the server, over its restarts.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::lie::Door;
use super::stats::Operation;
use super::world::World;
use crate::feeds::client::{Client, Fate, Shown};
use crate::random::Random;

const SPACE: &str = "soak";
/// Texts of one feed.
const TEXTS: u32 = 40;
/// How often everyone synchronises at the end: pushes of one are pulls of another.
const SETTLING_PASSES: usize = 2;

/// One feed after another until the end, with its files below `folder`.
pub(super) fn run(
    world: &Arc<World>,
    binary: &Path,
    folder: &Path,
    life: Duration,
    mut random: Random,
) -> Result<()> {
    fs::create_dir_all(folder).context("a folder for replicas")?;
    let mut generation = 0;
    while !world.is_over() {
        let feed = format!("{}-{generation}", world.run);
        let files = Files { folder, feed: &feed };
        let outcome = one(world, binary, &files, life, &mut random);
        // Kept for a look if something is wrong with them.
        if !world.has_fault() && outcome.is_ok() {
            files.remove()?;
        }
        outcome.with_context(|| format!("feed `{feed}`"))?;
        generation += 1;
    }
    Ok(())
}

struct Files<'a> {
    folder: &'a Path,
    feed: &'a str,
}

impl Files<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{}-{name}.sqlite", self.feed))
    }

    /// With what SQLite has put beside them.
    fn remove(&self) -> Result<()> {
        for entry in fs::read_dir(self.folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(&format!("{}-", self.feed)) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

fn one(
    world: &Arc<World>,
    binary: &Path,
    files: &Files<'_>,
    life: Duration,
    random: &mut Random,
) -> Result<()> {
    let url = format!("http://{}", world.address);
    let client = |name: &str| Client::replicating(binary, files.path(name), &url, SPACE, files.feed);
    let mut clients = [client("a")?, client("b")?, client("reader")?];
    clients.iter_mut().try_for_each(Client::follow)?;
    let mut written: HashMap<String, Vec<String>> = HashMap::new();
    for number in 0..TEXTS {
        if world.is_over() {
            break;
        }
        let writer = random.below(2) as usize;
        let text = format!("text {number} of {}: {:x}", files.feed, random.next());
        let began = Instant::now();
        let fate = clients[writer].append(files.feed, std::slice::from_ref(&text), None)?;
        ensure!(fate == Fate::Written, "an append that nobody killed");
        // It waits for no server; counted, but not timed with what does.
        world.record(Operation::Other, began, 1, text.len());
        written.entry(writer.to_string()).or_default().push(text);
        world.pause(life / TEXTS);
    }
    clients.iter_mut().try_for_each(Client::kill)?;
    for _ in 0..SETTLING_PASSES {
        clients.iter().try_for_each(Client::sync)?;
        world.go_on()?;
    }
    let fresh = client("fresh")?;
    fresh.sync()?;
    let first = shown(world, &fresh, files.feed)?;
    check(&first, &written)?;
    for client in &clients {
        let shown = shown(world, client, files.feed)?;
        ensure!(shown == first, "two files show {shown:#?} and {first:#?}");
    }
    Ok(())
}

/// What a file has of the feed.
fn shown(world: &World, client: &Client, feed: &str) -> Result<Vec<Shown>> {
    let mut blocks = client.feeds()?.remove(feed).unwrap_or_default();
    for block in &mut blocks {
        let mut text = std::mem::take(&mut block.3).into_bytes();
        world.hear(Door::Feed, &mut text);
        block.3 = String::from_utf8_lossy(&text).into_owned();
    }
    Ok(blocks)
}

/// Each text once, at a place of its own, those of one writer in its order; and no other text.
fn check(shown: &[Shown], written: &HashMap<String, Vec<String>>) -> Result<()> {
    let positions: Vec<Option<u64>> = shown.iter().map(|block| block.0).collect();
    ensure!(positions.iter().all(Option::is_some), "a block has no place");
    ensure!(positions.is_sorted_by(|one, other| one < other), "blocks are out of order");
    let texts: HashSet<&String> = shown.iter().map(|block| &block.3).collect();
    let due: usize = written.values().map(Vec::len).sum();
    ensure!(texts.len() == shown.len() && shown.len() == due, "{} blocks where {due} are due", shown.len());
    for texts in written.values() {
        let found: Vec<&String> =
            shown.iter().map(|block| &block.3).filter(|text| texts.contains(text)).collect();
        ensure!(found.into_iter().eq(texts), "a writer's texts are lost, altered or out of order");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_doubled_altered_or_misplaced_text_is_noticed() {
        let block = |place: u64, text: &str| (Some(place), place, "actor".to_owned(), text.to_owned());
        let written = HashMap::from([
            ("0".to_owned(), vec!["a".to_owned(), "b".to_owned()]),
            ("1".to_owned(), vec!["c".to_owned()]),
        ]);
        check(&[block(1, "a"), block(2, "c"), block(3, "b")], &written).unwrap();
        for wrong in [
            vec![block(1, "a"), block(2, "c")],
            vec![block(1, "a"), block(2, "b"), block(3, "b"), block(4, "c")],
            vec![block(1, "a"), block(2, "b"), block(3, "d")],
            vec![block(1, "b"), block(2, "a"), block(3, "c")],
            vec![block(2, "a"), block(1, "b"), block(3, "c")],
        ] {
            assert!(check(&wrong, &written).is_err(), "{wrong:?}");
        }
    }
}
