//! `alluvium jetstream inspect`, on files that the segment crate writes.

use std::path::{Path, PathBuf};

use alluvium_env::{Disk as _, OpenMode, RealDisk};
use alluvium_jss::{Event, Kind, WriteLimits, Writer};
use serde_json::Value;

use crate::support::Cli;

/// A file with seven rows in blocks of three.
fn write(dir: &Path, name: &str, seal: bool) -> PathBuf {
    let path = dir.join(name);
    let limits = WriteLimits { block_rows: 3, ..WriteLimits::default() };
    let mut writer = Writer::create(&RealDisk, &path, limits).unwrap();
    for seq in 1..=7 {
        let commit = seq != 4;
        let event = Event {
            witnessed_at: 1_783_000_000_000_000 + i64::try_from(seq).unwrap(),
            indexed_at: 0,
            kind: if commit { Kind::Create } else { Kind::Account },
            did: format!("did:plc:{}", seq % 2),
            collection: if commit { "app.bsky.feed.post".into() } else { String::new() },
            rkey: "r".into(),
            rev: "v".into(),
            payload: vec![0xa0].into(),
        };
        if writer.append(event.at(seq)).unwrap() {
            writer.flush().unwrap();
        }
    }
    writer.flush().unwrap();
    if seal {
        writer.seal().unwrap();
    }
    path
}

fn inspect(arguments: &str, paths: &[&Path]) -> crate::support::Ended {
    let cli = Cli::new(&format!("jetstream inspect {arguments}"));
    paths.iter().fold(cli, |cli, path| cli.arg(path.to_str().unwrap())).run()
}

#[test]
fn sealed_and_active_files_are_shown() {
    let dir = tempfile::tempdir().unwrap();
    let sealed = write(dir.path(), "seg_0000000000.jss", true);
    let active = write(dir.path(), "seg_0000000001.jss", false);
    let shown = inspect("--blocks", &[&sealed, &active]);
    let text = String::from_utf8(shown.stdout).unwrap();
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    for part in [
        "sealed, version",
        "7 in 3 blocks, of 2 accounts",
        "1 to 7",
        "2026-07-02T13:46:40.000001Z to 2026-07-02T13:46:40.000007Z",
        "6 create, 1 account",
        "app.bsky.feed.post",
        "$account",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert_eq!(text.matches("first seen").count(), 2);
    let lines = inspect("--json --blocks", &[&sealed, &active]);
    let text = String::from_utf8(lines.stdout).unwrap();
    let objects: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (objects[0]["state"].as_str(), objects[1]["state"].as_str()),
        (Some("sealed"), Some("active"))
    );
    for object in &objects {
        assert_eq!((&object["eventCount"], &object["blockCount"]), (&7.into(), &3.into()));
        assert_eq!(object["blocks"][2]["minSeq"], 7);
        assert_eq!(object["kinds"]["account"], 1);
        assert_eq!(object["collections"][0]["events"], 6);
    }
    assert_eq!(objects[0]["checksum"].as_str().unwrap().len(), 16);
    assert_eq!(objects[0]["maxSeq"], 7);
}

#[test]
fn a_damaged_file_is_told_and_does_not_hide_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let good = write(dir.path(), "seg_0000000000.jss", true);
    let bad = write(dir.path(), "seg_0000000001.jss", true);
    let byte = std::fs::read(&bad).unwrap()[300];
    let file = RealDisk.open(&bad, OpenMode::ReadWrite).unwrap();
    file.write_all_at(&[&[byte ^ 1]], 300).unwrap();
    let missing = dir.path().join("seg_0000000002.jss");
    let shown = inspect("", &[&bad, &missing, &good]);
    assert_eq!(shown.code, Some(1));
    assert!(String::from_utf8(shown.stdout).unwrap().contains("7 in 3 blocks"));
    assert!(shown.stderr.contains("seg_0000000001.jss: damaged at byte 256"), "{}", shown.stderr);
    assert!(shown.stderr.contains("seg_0000000002.jss"), "{}", shown.stderr);
    let lines = inspect("--json", &[&bad, &good]);
    let text = String::from_utf8(lines.stdout).unwrap();
    let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert!(first["error"].as_str().unwrap().contains("damaged"));
    assert_eq!((lines.code, text.lines().count()), (Some(1), 2));
    assert_eq!(inspect("", &[]).code, Some(2));
}
