//! What the data model asks of a value beyond its encoding (<https://atproto.com/specs/data-model>).

use thiserror::Error;

use crate::cbor::{Map, Value};

/// Why a value is outside the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ModelError {
    /// The whole is not a map.
    #[error("not an object")]
    NotAMap,
    /// A float.
    #[error("a number that is not an integer")]
    Float,
    /// `$type` that is not text, or empty.
    #[error("`$type` that names no type")]
    Type,
    /// A blob without a link, a media type or a size.
    #[error("a blob without a link, a media type or a size")]
    Blob,
}

/// Checks the data of a record: a map, in which every `$type` is a name, every blob complete and no number a float.
pub fn check(value: &Value) -> Result<(), ModelError> {
    value.as_map().ok_or(ModelError::NotAMap)?;
    inner(value)
}

/// The type that a record names.
pub fn type_of(value: &Value) -> Option<&str> {
    value.as_map()?.get("$type")?.as_text()
}

fn inner(value: &Value) -> Result<(), ModelError> {
    match value {
        Value::Float(_) => Err(ModelError::Float),
        Value::List(list) => list.iter().try_for_each(inner),
        Value::Map(map) => {
            match map.get("$type").map(Value::as_text) {
                Some(None | Some("")) => return Err(ModelError::Type),
                Some(Some("blob")) => blob(map)?,
                None | Some(Some(_)) => {}
            }
            map.iter().try_for_each(|(_, value)| inner(value))
        }
        _ => Ok(()),
    }
}

fn blob(map: &Map) -> Result<(), ModelError> {
    let link = map.get("ref").and_then(Value::as_link);
    let media = map.get("mimeType").and_then(Value::as_text);
    let size = map.get("size").and_then(Value::as_integer);
    match (link, media, size) {
        (Some(_), Some(media), Some(size)) if !media.is_empty() && size >= 0 => Ok(()),
        _ => Err(ModelError::Blob),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::from_json;

    fn verdict(json: &str) -> Result<(), ModelError> {
        check(&from_json(json.as_bytes()).expect("it is JSON of the model"))
    }

    #[test]
    fn the_rules_hold_at_every_depth() {
        let link = "{\"$link\":\"bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku\"}";
        let good = format!("{{\"$type\":\"blob\",\"ref\":{link},\"mimeType\":\"a/b\",\"size\":0}}");
        assert_eq!(verdict("{}"), Ok(()));
        assert_eq!(verdict(&format!("{{\"a\":[{good}]}}")), Ok(()));
        for json in ["[]", "1", "\"a\"", "null"] {
            assert_eq!(verdict(json), Err(ModelError::NotAMap), "{json}");
        }
        for json in ["null", "1", "\"\"", "{}"] {
            assert_eq!(
                verdict(&format!("{{\"a\":[{{\"$type\":{json}}}]}}")),
                Err(ModelError::Type),
                "{json}"
            );
        }
        for (part, other) in [
            (link, "1"),
            ("\"a/b\"", "\"\""),
            ("size\":0", "size\":\"0\""),
            ("size\":0", "size\":-1"),
            ("size", "sizes"),
        ] {
            assert_eq!(verdict(&good.replace(part, other)), Err(ModelError::Blob), "{part} is {other}");
        }
        let mut map = Map::new();
        map.insert("a", Value::Float(crate::cbor::Finite::new(1.0).expect("finite")));
        assert_eq!(check(&Value::Map(map)), Err(ModelError::Float));
        assert_eq!(type_of(&from_json(b"{\"$type\":\"a.b.c\"}").expect("JSON")), Some("a.b.c"));
    }
}
