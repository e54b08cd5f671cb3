//! Bytes that are not what was written: found by checksum, named, and of no consequence for others.

use std::fs;
use std::path::{Path, PathBuf};

use alluvium_engine::{Engine, OpenError};
use alluvium_env::Env;
use alluvium_protocol::OffsetQuery;

use crate::support::{Fixture, small_options};

/// Changes one byte in the middle of `needle` in a file whose name starts with `prefix`.
pub(crate) fn damage(dir: &Path, prefix: &str, needle: &[u8]) -> PathBuf {
    for shard in fs::read_dir(dir.join("streams")).unwrap() {
        for file in fs::read_dir(shard.unwrap().path()).unwrap() {
            let file = file.unwrap().path();
            let mut bytes = fs::read(&file).unwrap();
            let is_named = file.file_name().unwrap().to_string_lossy().starts_with(prefix);
            if let Some(at) = bytes.windows(needle.len()).position(|window| window == needle)
                && is_named
            {
                bytes[at + needle.len() / 2] ^= 0x20;
                rewrite(&file, &bytes);
                return file;
            }
        }
    }
    panic!("`{}` is in no file", String::from_utf8_lossy(needle));
}

fn rewrite(file: &Path, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    fs::OpenOptions::new().write(true).open(file).unwrap().write_all_at(bytes, 0).unwrap();
}

fn read_fault(fixture: &Fixture, name: &str) -> Option<String> {
    let reader = fixture.reader(name);
    let mut plan = reader.read(reader.resolve(OffsetQuery::Start).unwrap(), u64::MAX).unwrap();
    while let Some(fetched) = plan.fetch() {
        if let Err(fault) = fetched {
            return Some(fault.to_string());
        }
    }
    None
}

#[tokio::test]
async fn damage_in_a_table_is_named_and_concerns_its_stream_only() {
    let mut fixture = Fixture::new();
    for name in ["a", "b"] {
        fixture.create(name, "text/plain").await;
        fixture.append(name, "text/plain", format!("the content of {name}").as_bytes()).await;
    }
    fixture.fold();
    fixture.restart();
    let file = damage(fixture.dir(), "table-", b"the content of a");
    let fault = read_fault(&fixture, "a").expect("the damage is noticed");
    assert!(fault.contains(&file.display().to_string()) && fault.contains("byte"), "{fault}");
    assert_eq!(fixture.read("b"), b"the content of b");
    // Writing goes on, to the damaged stream too.
    fixture.append("a", "text/plain", b"more").await;
}

#[tokio::test]
async fn damage_in_the_journal_is_named_and_concerns_its_stream_only() {
    let mut options = small_options();
    options.recent_bytes = 0;
    let fixture = Fixture::with(options);
    for name in ["a", "b"] {
        fixture.create(name, "text/plain").await;
        fixture.append(name, "text/plain", format!("the content of {name}").as_bytes()).await;
    }
    let file = damage(fixture.dir(), "journal-", b"the content of a");
    let fault = read_fault(&fixture, "a").expect("the damage is noticed");
    assert!(fault.contains(&file.display().to_string()), "{fault}");
    assert_eq!(fixture.read("b"), b"the content of b");
}

#[tokio::test]
async fn a_start_over_a_damaged_journal_is_refused_and_touches_nothing() {
    let mut options = small_options();
    options.shards = 1;
    let fixture = Fixture::with(options.clone());
    fixture.create("a", "text/plain").await;
    for number in 0..20 {
        fixture.append("a", "text/plain", format!("message {number:04}").as_bytes()).await;
    }
    fixture.engine.shutdown();
    let file = damage(fixture.dir(), "journal-", b"message 0007");
    let before = fs::read(&file).unwrap();
    for _ in 0..2 {
        let refused = Engine::open(Env::real(), fixture.dir(), options.clone()).map(drop);
        let Err(OpenError::Journal(error)) = refused else { panic!("{refused:?}") };
        assert!(error.to_string().contains(&file.display().to_string()), "{error}");
    }
    assert!(fs::read(&file).unwrap() == before);
}

#[tokio::test]
async fn files_of_another_shard_are_refused_not_served() {
    let fixture = Fixture::new();
    for number in 0..8 {
        let name = format!("s{number}");
        fixture.create(&name, "text/plain").await;
        fixture.append(&name, "text/plain", format!("the content of {name}").as_bytes()).await;
    }
    fixture.fold();
    fixture.engine.shutdown();
    let streams = fixture.dir().join("streams");
    let swap = |name: &str| {
        let (first, second) = (streams.join("shard-00").join(name), streams.join("shard-01").join(name));
        let aside = streams.join("aside");
        for (from, to) in [(&first, &aside), (&second, &first), (&aside, &second)] {
            Env::real().disk.rename(from, to).unwrap();
        }
    };
    for name in ["table-0000000000000001.tbl", "MANIFEST"] {
        swap(name);
        let refused = Engine::open(Env::real(), fixture.dir(), small_options()).map(drop);
        assert!(matches!(refused, Err(OpenError::Inconsistent { .. })), "{name}: {refused:?}");
        swap(name);
        Engine::open(Env::real(), fixture.dir(), small_options()).unwrap().shutdown();
    }
}
