//! `POST /admin/v1/trim`: the beginning of one stream is given up, or what that would come to.

use alluvium_engine::{Engine, TrimHold, TrimTo};
use alluvium_protocol::{Offset, StreamPath};
use serde_json::{Value, json};

use super::refusal::Refusal;

/// What is to be given up.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    path: StreamPath,
    to: TrimTo,
    /// Only told, not done.
    dry_run: bool,
}

impl Asked {
    /// Reads a body. What is misspelled is refused: left out, it could mean more than was wanted.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Refusal> {
        let refused = |message: &str| Refusal::Body(message.to_owned());
        let value: Value = serde_json::from_slice(body).map_err(|error| Refusal::Body(error.to_string()))?;
        let fields = value.as_object().ok_or_else(|| refused("expected an object"))?;
        let known = ["path", "keep_bytes", "keep_ms", "from_offset", "dry_run"];
        if let Some(unknown) = fields.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(Refusal::Body(format!("`{unknown}` is not known")));
        }
        let path = value["path"].as_str().and_then(StreamPath::parse_url_path);
        let path = path.ok_or_else(|| refused("`path` is wanted, the URL path of a stream, as in `/v1/stream/logs/a` or `/ds/bucket/stream`"))?;
        let dry_run = match &value["dry_run"] {
            Value::Null => true,
            Value::Bool(dry_run) => *dry_run,
            _ => return Err(refused("`dry_run` is `true` or `false`")),
        };
        let number =
            |name: &str| value[name].as_u64().ok_or_else(|| Refusal::Body(format!("`{name}` is a number")));
        let given: Vec<&str> = ["keep_bytes", "keep_ms", "from_offset"]
            .into_iter()
            .filter(|name| fields.contains_key(*name))
            .collect();
        let to = match given[..] {
            ["keep_bytes"] => TrimTo::Bytes(number("keep_bytes")?),
            ["keep_ms"] => TrimTo::Age(number("keep_ms")?),
            ["from_offset"] => {
                let offset = value["from_offset"].as_str().and_then(|text| text.parse::<Offset>().ok());
                TrimTo::Offset(offset.ok_or_else(|| refused("`from_offset` is an offset of the stream"))?)
            }
            _ => return Err(refused("one of `keep_bytes`, `keep_ms` and `from_offset` is wanted")),
        };
        Ok(Self { path, to, dry_run })
    }
}

/// Gives up what is not to stay; or only tells what that is.
pub(crate) async fn run(engine: Engine, asked: Asked, now_ms: u64) -> Result<Value, Refusal> {
    let Asked { path, to, dry_run } = asked;
    let overlong = engine.overlong_at(&path, to).map_err(Refusal::Lookup)?;
    let trimmed =
        if dry_run { engine.look_at_trim(&overlong).await? } else { engine.trim(&overlong, true).await? };
    if !dry_run && trimmed.bytes > 0 {
        tracing::info!(%path, bytes = trimmed.bytes, floor = %trimmed.floor, "an operator has given up the beginning of a stream");
    }
    let held_by = trimmed.held.map(|hold| match hold {
        TrimHold::Snapshot => "snapshot",
        TrimHold::Checkpoint => "checkpoint",
    });
    Ok(json!({
        "dry_run": dry_run,
        "as_of_ms": now_ms,
        "path": path.url_path(),
        "earliest_offset": trimmed.floor.to_string(),
        "trimmed_bytes": trimmed.bytes,
        "held_by": held_by,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_word_nothing_is_given_up() {
        let asked = Asked::parse(br#"{"path":"/v1/stream/a%20b","keep_bytes":0}"#).expect("valid");
        assert!(asked.dry_run && asked.to == TrimTo::Bytes(0));
        assert_eq!(asked.path.url_path(), "/v1/stream/a%20b");
        let offset = Offset::new(2, 30);
        let body = format!(r#"{{"path":"/ds/docs/s","from_offset":"{offset}","dry_run":false}}"#);
        let asked = Asked::parse(body.as_bytes()).expect("valid");
        assert!(!asked.dry_run && asked.to == TrimTo::Offset(offset));
        let asked = Asked::parse(br#"{"path":"/ds/docs/s","keep_ms":5}"#);
        assert!(asked.is_ok_and(|asked| asked.to == TrimTo::Age(5)));
    }

    #[test]
    fn a_path_of_another_form_is_told_the_form_that_is_wanted() {
        for body in [r#"{"path":"logs/a","keep_bytes":1}"#, r#"{"keep_bytes":1}"#] {
            let Err(Refusal::Body(told)) = Asked::parse(body.as_bytes()) else { panic!("{body}") };
            assert!(told.contains("`/v1/stream/"), "{told}");
        }
    }

    #[test]
    fn what_is_misspelled_is_refused() {
        for body in [
            "",
            "[]",
            "{}",
            r#"{"path":"/v1/stream/a"}"#,
            r#"{"keep_bytes":1}"#,
            r#"{"path":"a","keep_bytes":1}"#,
            r#"{"path":"/v1/stream/","keep_bytes":1}"#,
            r#"{"path":"/v1/stream/a","keep_bytes":-1}"#,
            r#"{"path":"/v1/stream/a","keep_bytes":null}"#,
            r#"{"path":"/v1/stream/a","keep_bytes":1,"keep_ms":1}"#,
            r#"{"path":"/v1/stream/a","from_offset":"-1"}"#,
            r#"{"path":"/v1/stream/a","keep_bytes":1,"dryrun":false}"#,
            r#"{"path":"/v1/stream/a","keep_bytes":1,"dry_run":0}"#,
        ] {
            assert!(matches!(Asked::parse(body.as_bytes()), Err(Refusal::Body(_))), "{body}");
        }
    }
}
