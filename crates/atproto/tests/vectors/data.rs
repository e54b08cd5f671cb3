//! DAG-CBOR and JSON.

use alluvium_atproto::cbor::{decode, encode};
use alluvium_atproto::json::{from_json, to_json};
use alluvium_atproto::{Cid, Codec, model};
use serde_json::Value;

use alluvium_vectors::{Files, base64, hex, text};

pub(crate) fn documents_in_both_forms(files: &Files) {
    for path in ["interop/data-model/data-model-fixtures.json", "atmos/cbor/data-model-fixtures.json"] {
        for case in files.cases(path) {
            let (bytes, json) = (base64(text(&case, "cbor_base64")), case["json"].to_string());
            let value = from_json(json.as_bytes()).expect("JSON of the model");
            assert_eq!(decode(&bytes), Ok(value.clone()));
            assert_eq!(encode(&value), bytes);
            assert_eq!(Cid::of(Codec::DagCbor, &bytes).to_string(), text(&case, "cid"));
            assert_eq!(serde_json::from_str::<Value>(&to_json(&value)).expect("JSON"), case["json"]);
            assert_eq!(model::check(&value), Ok(()));
        }
    }
}

/// Both steps together are what a record must pass.
fn is_record(json: &Value) -> bool {
    from_json(json.to_string().as_bytes()).is_ok_and(|value| model::check(&value).is_ok())
}

pub(crate) fn valid_and_invalid_records(files: &Files) {
    for (kind, expected) in [("valid", true), ("invalid", false)] {
        for case in files.cases(&format!("interop/data-model/data-model-{kind}.json")) {
            assert_eq!(is_record(&case["json"]), expected, "{}", text(&case, "note"));
        }
    }
}

pub(crate) fn strict_cbor(files: &Files) {
    let suites = [
        "cid",
        "concat",
        "floats",
        "indefinite",
        "integer_range",
        "map_keys",
        "short_form",
        "simple",
        "tags",
        "utf8",
    ];
    for suite in suites {
        for case in files.cases(&format!("atmos/cbor/dasl-cbor/{suite}.json")) {
            let (kind, name, bytes) = (text(&case, "type"), text(&case, "name"), hex(text(&case, "data")));
            match kind {
                "roundtrip" => {
                    let value = decode(&bytes).unwrap_or_else(|error| panic!("{suite}, {name}: {error}"));
                    assert_eq!(encode(&value), bytes, "{suite}, {name}");
                }
                // What cannot be encoded has no value here; that it cannot be read either is what there is to see.
                "invalid_in" | "invalid_out" => assert!(decode(&bytes).is_err(), "{suite}, {name}"),
                other => panic!("an unknown type of case: {other}"),
            }
        }
    }
    let hello = files.bytes("atmos/cbor/trivial_helloworld.dagcbor");
    assert_eq!(decode(&hello).ok().as_ref().and_then(|value| value.as_text()), Some("Hello, world!"));
}

/// Most of these are not DAG-CBOR. What is accepted must be valid and encode to the same bytes.
pub(crate) fn general_cbor(files: &Files) {
    let mut accepted = 0;
    for case in files.cases("atmos/cbor/rfc8949-vectors.json") {
        let bytes = hex(&text(&case, "hex").to_lowercase());
        let flags: Vec<&str> =
            case["flags"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if let Ok(value) = decode(&bytes) {
            assert_eq!(encode(&value), bytes);
            assert!(flags.contains(&"valid") || flags.is_empty(), "{case}");
            accepted += 1;
        }
    }
    assert!(accepted >= 20, "integers, text, bytes, lists and maps are among them: {accepted}");
}

pub(crate) fn a_map_as_a_key(files: &Files) {
    assert!(decode(&files.bytes("fuzz-seeds/dagcbor__map_with_map_key.bin")).is_err());
}
