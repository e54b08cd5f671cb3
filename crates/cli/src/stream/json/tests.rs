//! The splitter by example, and under arbitrary chunking against `serde_json`.

use proptest::prelude::*;

use super::*;

fn split(pieces: &[&[u8]]) -> Result<Vec<String>, NotJson> {
    let mut messages = Vec::new();
    let mut keep = |message: &[u8], _| {
        messages.push(String::from_utf8(message.to_vec()).unwrap());
        Ok(())
    };
    let mut splitter = JsonSplitter::new();
    for piece in pieces {
        splitter.push(piece, &mut keep)?;
    }
    splitter.finish(&mut keep)?;
    Ok(messages)
}

fn split_text(text: &str) -> Result<Vec<String>, NotJson> {
    split(&[text.as_bytes()])
}

#[test]
fn a_top_level_array_stands_for_its_elements() {
    assert_eq!(split_text("[]").unwrap(), Vec::<String>::new());
    assert_eq!(
        split_text(r#" [ {"a":[1]} , [2, 3],true,"]," ] "#).unwrap(),
        [r#"{"a":[1]}"#, "[2, 3]", "true", r#""],""#]
    );
}

#[test]
fn values_follow_each_other_with_or_without_space() {
    assert_eq!(
        split_text("{\"a\":1}{\"b\":2}\n3 \"x\"\"y\" [4,5]null").unwrap(),
        [r#"{"a":1}"#, r#"{"b":2}"#, "3", r#""x""#, r#""y""#, "4", "5", "null"]
    );
}

#[test]
fn quotes_and_backslashes_in_strings_end_nothing() {
    let text = r#"{"k\\":"}\"]"}"#;
    assert_eq!(split_text(&format!("[{text},1]")).unwrap(), [text, "1"]);
}

#[test]
fn broken_structure_is_named() {
    for (text, expected) in [
        ("[1,]", NotJson::NoValue),
        ("[,1]", NotJson::NoValue),
        ("[1,,2]", NotJson::NoValue),
        ("1,2", NotJson::NoValue),
        ("[1 2]", NotJson::NoComma),
        ("1]", NotJson::Unbalanced),
        ("}", NotJson::Unbalanced),
        ("[1", NotJson::OpenArray),
        ("[\"a", NotJson::Unfinished),
        ("{\"a\":", NotJson::Unfinished),
        ("\"a", NotJson::Unfinished),
    ] {
        assert_eq!(split_text(text), Err(expected), "{text}");
    }
}

#[test]
fn places_are_counted_over_pieces() {
    let mut splitter = JsonSplitter::new();
    let mut places = Vec::new();
    let mut keep = |_: &[u8], place: Place| {
        places.push((place.line, place.column));
        Ok::<(), NotJson>(())
    };
    splitter.push(b"[1,\n {\"a\":\n2}", &mut keep).unwrap();
    splitter.push(b" ,3]\n4", &mut keep).unwrap();
    assert_eq!(splitter.push(b" }", &mut keep), Err(NotJson::Unbalanced));
    assert_eq!(places, [(1, 2), (2, 2), (3, 5), (4, 1)]);
    assert_eq!(splitter.place(), Place { line: 4, column: 3 });
    assert_eq!(Place { line: 4, column: 3 }.plus(1, 2), Place { line: 4, column: 4 });
    assert_eq!(Place { line: 4, column: 3 }.plus(2, 2), Place { line: 5, column: 2 });
}

fn json_value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        r#"[a\\"\[\]{},: ü\n]{0,8}"#.prop_map(Into::into),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            prop::collection::vec(("[a-z\"]{0,3}", inner), 0..4)
                .prop_map(|fields| serde_json::Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_chunking_of_an_array_gives_its_elements(
        values in prop::collection::vec(json_value(), 0..6),
        pretty: bool,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let whole = serde_json::Value::Array(values.clone());
        let text = if pretty { format!("{whole:#}") } else { whole.to_string() };
        let bytes = text.as_bytes();
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        places.extend([0, bytes.len()]);
        places.sort_unstable();
        let pieces: Vec<&[u8]> = places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        let found: Vec<serde_json::Value> =
            split(&pieces).unwrap().iter().map(|text| serde_json::from_str(text).unwrap()).collect();
        prop_assert_eq!(found, values);
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in prop::collection::vec(prop::sample::select(b"[]{},:\"\\ 1a\n".to_vec()), 0..60),
    ) {
        drop(split(&[&bytes]));
    }
}
