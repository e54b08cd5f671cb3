//! Batching and framing of inputs that arrive in arbitrary pieces.

use std::io::Cursor;

use proptest::prelude::*;

use super::*;

/// Reads its pieces one at a time, as a pipe does.
struct Pieces(VecDeque<Vec<u8>>);

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(piece) = self.0.pop_front() else { return Ok(0) };
        buffer[..piece.len()].copy_from_slice(&piece);
        Ok(piece.len())
    }
}

fn bodies(input: &str, framing: Framing) -> (Vec<String>, Option<String>) {
    let mut batches = Batches::new(Cursor::new(input.as_bytes().to_vec()), framing);
    let mut bodies = Vec::new();
    loop {
        match batches.next() {
            Ok(Some(batch)) => bodies.push(String::from_utf8(batch.body).unwrap()),
            Ok(None) => return (bodies, None),
            Err(failure) => return (bodies, Some(failure.to_string())),
        }
    }
}

/// JSON bodies as the messages that a server makes of them, however they were batched.
fn messages(bodies: &[String]) -> Vec<serde_json::Value> {
    bodies.iter().flat_map(|body| serde_json::from_str::<Vec<serde_json::Value>>(body).unwrap()).collect()
}

#[test]
fn lines_keep_their_ends_and_are_appends_of_their_own() {
    assert_eq!(bodies("a\n\nb\r\nc", Framing::Lines).0, ["a\n", "\n", "b\r\n", "c"]);
}

#[test]
fn json_lines_are_one_message_each_arrays_included() {
    let (bodies, failure) = bodies("{\"a\":1}\n\n [1,2] \n3", Framing::JsonLines);
    assert_eq!(failure, None);
    assert_eq!(messages(&bodies), messages(&["[{\"a\":1},[1,2],3]".to_owned()]));
}

#[test]
fn a_bad_line_is_named_after_those_before_it_were_given_out() {
    let (bodies, failure) = bodies("1\n2\n3,4\n5\n", Framing::JsonLines);
    assert_eq!(messages(&bodies), messages(&["[1,2]".to_owned()]));
    let failure = failure.unwrap();
    assert!(failure.contains("line 3, column 2: not one JSON value: trailing characters;"), "{failure}");
}

#[test]
fn bad_json_is_named_by_its_place_in_the_input() {
    for (input, framing, place) in [
        ("1\n\n  tru\n", Framing::JsonLines, "line 3, column 5: not one JSON value: "),
        ("{\"a\":1}\n{\"b\":}\n", Framing::Json, "line 2, column 6: not JSON: "),
        ("[1,\n {\"a\":\n  nul}]", Framing::Json, "line 3, column 6: not JSON: "),
        ("[1,\n2 3]", Framing::Json, "line 2, column 3: not JSON: two values without a comma"),
        ("1\n[2", Framing::Json, "line 2, column 3: not JSON: the text ends inside an array"),
        ("1\n[2,{\n", Framing::Json, "line 2, column 4: not JSON: this value has no end"),
    ] {
        let failure = bodies(input, framing).1.unwrap();
        assert!(failure.starts_with(&format!("standard input: {place}")), "{input:?}: {failure}");
        assert!(!failure.contains(" at line "), "{failure}");
    }
}

#[test]
fn a_batch_tells_how_much_of_the_input_is_through() {
    for (input, framing, unit, through) in [
        ("abc\nd", Framing::Bytes, "bytes", 5),
        ("abc\n\nd", Framing::Lines, "lines", 3),
        ("1\n\n2\n", Framing::JsonLines, "lines", 3),
        ("[1,2]\n3", Framing::Json, "messages", 3),
    ] {
        let mut batches = Batches::new(Cursor::new(input.as_bytes().to_vec()), framing);
        assert_eq!(batches.unit(), unit);
        let mut last = 0;
        while let Some(batch) = batches.next().unwrap() {
            assert!(batch.through > last);
            last = batch.through;
        }
        assert_eq!(last, through, "{input:?}");
    }
}

#[test]
fn json_input_is_cut_at_values() {
    let (bodies, failure) = bodies("[1,{\"a\":2}] 3\n[[4]]", Framing::Json);
    assert_eq!(failure, None);
    assert_eq!(messages(&bodies), messages(&["[1,{\"a\":2},3,[4]]".to_owned()]));
}

#[test]
fn json_input_that_is_cut_off_fails() {
    let (bodies, failure) = bodies("1 {\"a\":", Framing::Json);
    assert_eq!(messages(&bodies), messages(&["[1]".to_owned()]));
    assert!(failure.unwrap().contains("line 1, column 3: not JSON: this value has no end"));
}

#[test]
fn a_batch_is_bounded_and_the_last_one_says_so() {
    let input = vec![7; 3 * BATCH_BYTES_MAX + 5];
    let mut batches = Batches::new(Cursor::new(input.clone()), Framing::Bytes);
    let mut read = Vec::new();
    let mut last = false;
    while let Some(batch) = batches.next().unwrap() {
        assert!(batch.body.len() <= BATCH_BYTES_MAX && !last);
        last = batch.last;
        read.extend(batch.body);
    }
    assert!(read == input, "the bytes come out as they went in");
}

proptest! {
    #[test]
    fn bytes_and_lines_come_out_as_they_went_in(
        pieces in prop::collection::vec("[ab\n]{1,9}", 0..12),
        lines: bool,
    ) {
        let whole = pieces.concat();
        let input = Pieces(pieces.into_iter().map(String::into_bytes).collect());
        let framing = if lines { Framing::Lines } else { Framing::Bytes };
        let mut batches = Batches::new(input, framing);
        let mut bodies = Vec::new();
        while let Some(batch) = batches.next().unwrap() {
            bodies.push(String::from_utf8(batch.body).unwrap());
        }
        prop_assert_eq!(bodies.concat(), whole.clone());
        if lines {
            let expected: Vec<&str> = whole.split_inclusive('\n').collect();
            prop_assert_eq!(bodies, expected);
        }
    }
}
