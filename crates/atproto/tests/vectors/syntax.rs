//! Identifiers, valid and invalid.

use std::str::FromStr;

use alluvium_atproto::cid::is_cid_text;
use alluvium_atproto::{AtIdentifier, AtUri, Cid, Did, Handle, Nsid, RecordKey, Tid};

use alluvium_vectors::Files;

fn judge(files: &Files, name: &str, is_valid: impl Fn(&str) -> bool) {
    for (kind, expected) in [("valid", true), ("invalid", false)] {
        let lines = files.lines(&format!("interop/syntax/{name}_syntax_{kind}.txt"));
        assert!(!lines.is_empty());
        for line in lines {
            assert_eq!(is_valid(&line), expected, "{name} {line:?}");
        }
    }
}

fn parses<T: FromStr>(text: &str) -> bool {
    text.parse::<T>().is_ok()
}

pub(crate) fn dids(files: &Files) {
    judge(files, "did", parses::<Did>);
}

pub(crate) fn handles(files: &Files) {
    judge(files, "handle", parses::<Handle>);
}

pub(crate) fn at_identifiers(files: &Files) {
    judge(files, "atidentifier", parses::<AtIdentifier>);
}

pub(crate) fn nsids(files: &Files) {
    judge(files, "nsid", parses::<Nsid>);
}

pub(crate) fn record_keys(files: &Files) {
    judge(files, "recordkey", parses::<RecordKey>);
}

pub(crate) fn tids(files: &Files) {
    judge(files, "tid", |text| text.parse::<Tid>().is_ok_and(|tid| tid.to_string() == text));
}

pub(crate) fn at_uris(files: &Files) {
    judge(files, "aturi", parses::<AtUri>);
}

/// The fixtures are those of the looser string format; what repositories use is a part of it.
pub(crate) fn cids(files: &Files) {
    judge(files, "cid", is_cid_text);
    for line in files.lines("interop/syntax/cid_syntax_invalid.txt") {
        assert!(line.parse::<Cid>().is_err(), "{line:?}");
    }
}
