//! What the receiver of a webhook answers.

use serde_json::Value;

/// Whether an answer is `{"done": true}`, whatever else is in it: the wake is done, and everything that it told of is
/// acknowledged. Whatever is no such answer says nothing.
pub fn says_done(body: &[u8]) -> bool {
    let answer: Option<Value> = serde_json::from_slice(body).ok();
    answer.as_ref().and_then(|answer| answer.get("done")).and_then(Value::as_bool) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_true_done_of_an_object_says_so() {
        for body in [&br#"{"done":true}"#[..], br#" {"a":[1],"done":true} "#] {
            assert!(says_done(body), "{}", body.escape_ascii());
        }
        for body in [
            &b""[..],
            b"done",
            b"true",
            b"[true]",
            br#""done""#,
            br#"{"done":"true"}"#,
            br#"{"done":1}"#,
            br#"{"done":null}"#,
            br#"{"Done":true}"#,
            br#"{"done":true"#,
            br#"{"done":true}x"#,
            b"\xff",
        ] {
            assert!(!says_done(body), "{}", body.escape_ascii());
        }
    }
}
