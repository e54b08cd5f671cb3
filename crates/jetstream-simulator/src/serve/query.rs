//! Query strings.

/// The value of a parameter, percent-decoded; `None` if it is missing or not UTF-8.
pub(super) fn get(query: Option<&str>, name: &str) -> Option<String> {
    let pairs = query.unwrap_or_default().split('&');
    let value = pairs.filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name)?.1;
    decode(value)
}

/// Percent-decoded text.
pub(super) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                u8::try_from(high << 4 | low).ok()?
            }
            b'+' => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_and_decoded() {
        let query = Some("did=did%3Aplc%3Aabc&cursor=&limit=5&x=a+b");
        assert_eq!(get(query, "did").as_deref(), Some("did:plc:abc"));
        assert_eq!(get(query, "cursor").as_deref(), Some(""));
        assert_eq!(get(query, "x").as_deref(), Some("a b"));
        assert_eq!(get(query, "y"), None);
        assert_eq!(get(Some("a=%zz&b=%f&c=%ff"), "a"), None);
        assert_eq!(get(Some("a=%zz&b=%f&c=%ff"), "b"), None);
        assert_eq!(get(Some("a=%zz&b=%f&c=%ff"), "c"), None);
        assert_eq!(get(None, "a"), None);
    }
}
