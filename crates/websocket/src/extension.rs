//! Agreeing on `permessage-deflate` (RFC 7692 §7.1), as pure functions of headers.

use crate::deflate::{WINDOW_BITS_MAX, WINDOW_BITS_MIN};

/// The name of the extension.
const NAME: &str = "permessage-deflate";
/// Bytes of a message below which it is sent as it is, unless said otherwise.
pub const DEFLATE_BYTES_MIN: usize = 128;

/// What an endpoint wants of the compression of messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DeflateOptions {
    /// The level of zlib, 0 to 9, for what this endpoint sends.
    pub level: u8,
    /// Messages with fewer bytes are sent as they are.
    pub bytes_min: usize,
    /// Whether the server compresses each message by itself. Costs bytes on the wire and saves about 300 KiB of memory
    /// for each connection; needed for what many connections share.
    pub server_no_context_takeover: bool,
    /// Whether the client does. Saves the server 40 KiB for each connection.
    pub client_no_context_takeover: bool,
    /// The most that the server may refer back, as a power of two: 9 to 15.
    pub server_max_window_bits: u8,
    /// The most that the client may refer back, likewise.
    pub client_max_window_bits: u8,
}

impl Default for DeflateOptions {
    fn default() -> Self {
        Self {
            level: 6,
            bytes_min: DEFLATE_BYTES_MIN,
            server_no_context_takeover: true,
            client_no_context_takeover: true,
            server_max_window_bits: WINDOW_BITS_MAX,
            client_max_window_bits: WINDOW_BITS_MAX,
        }
    }
}

/// What both ends have agreed on, and how this one keeps its part.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Deflate {
    /// See [`DeflateOptions`].
    pub level: u8,
    /// See [`DeflateOptions`].
    pub bytes_min: usize,
    /// See [`DeflateOptions`].
    pub server_no_context_takeover: bool,
    /// See [`DeflateOptions`].
    pub client_no_context_takeover: bool,
    /// See [`DeflateOptions`].
    pub server_max_window_bits: u8,
    /// See [`DeflateOptions`]. With 8, which zlib has not, the client compresses nothing and only inflates.
    pub client_max_window_bits: u8,
}

/// A server's answer that a client cannot go on with.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the server answers with extensions that were not offered, or not like this")]
pub struct ExtensionError;

/// The parameters of one offer or answer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Parameters {
    server_no_context_takeover: bool,
    client_no_context_takeover: bool,
    server_max_window_bits: Option<u8>,
    client_max_window_bits: Client,
}

/// `client_max_window_bits`, the one parameter that needs no value in an offer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Client {
    #[default]
    Absent,
    Bare,
    Bits(u8),
}

/// What a server agrees to of what a client offers in `Sec-WebSocket-Extensions`, and the header that says so. Offers
/// are looked at in the client's order; one that makes no sense is passed over, as §7.1 wants it.
pub fn negotiate<'a>(
    headers: impl IntoIterator<Item = &'a str>,
    options: &DeflateOptions,
) -> Option<(Deflate, String)> {
    headers.into_iter().flat_map(extensions).find_map(|(name, parameters)| {
        if name != NAME {
            return None;
        }
        agree(parse(&parameters?)?, options)
    })
}

fn agree(offer: Parameters, options: &DeflateOptions) -> Option<(Deflate, String)> {
    let server_bits =
        options.server_max_window_bits.min(offer.server_max_window_bits.unwrap_or(WINDOW_BITS_MAX));
    if server_bits < WINDOW_BITS_MIN {
        return None;
    }
    // The client's window can be bounded only if it says that it knows how.
    let client_bits = match offer.client_max_window_bits {
        Client::Absent => WINDOW_BITS_MAX,
        Client::Bare => options.client_max_window_bits,
        Client::Bits(bits) => options.client_max_window_bits.min(bits),
    };
    let agreed = Deflate {
        level: options.level,
        bytes_min: options.bytes_min,
        server_no_context_takeover: options.server_no_context_takeover || offer.server_no_context_takeover,
        client_no_context_takeover: options.client_no_context_takeover || offer.client_no_context_takeover,
        server_max_window_bits: server_bits,
        client_max_window_bits: client_bits,
    };
    let mut answer = NAME.to_owned();
    if agreed.server_no_context_takeover {
        answer.push_str("; server_no_context_takeover");
    }
    if agreed.client_no_context_takeover {
        answer.push_str("; client_no_context_takeover");
    }
    if server_bits < WINDOW_BITS_MAX || offer.server_max_window_bits.is_some() {
        push_bits(&mut answer, "server_max_window_bits", server_bits);
    }
    if client_bits < WINDOW_BITS_MAX {
        push_bits(&mut answer, "client_max_window_bits", client_bits);
    }
    Some((agreed, answer))
}

fn push_bits(header: &mut String, name: &str, bits: u8) {
    header.push_str("; ");
    header.push_str(name);
    header.push('=');
    header.push_str(&bits.to_string());
}

/// What a client offers.
pub fn offer(options: &DeflateOptions) -> String {
    let mut offer = NAME.to_owned();
    if options.server_no_context_takeover {
        offer.push_str("; server_no_context_takeover");
    }
    if options.client_no_context_takeover {
        offer.push_str("; client_no_context_takeover");
    }
    if options.server_max_window_bits < WINDOW_BITS_MAX {
        push_bits(&mut offer, "server_max_window_bits", options.server_max_window_bits);
    }
    // Said even without a bound: some servers refuse clients that do not know how to keep one.
    offer.push_str("; client_max_window_bits");
    if options.client_max_window_bits < WINDOW_BITS_MAX {
        offer.push('=');
        offer.push_str(&options.client_max_window_bits.to_string());
    }
    offer
}

/// What a server's answer to [`offer`] means; `None` is no compression. `options` is `None` if nothing was offered.
pub fn accepted<'a>(
    headers: impl IntoIterator<Item = &'a str>,
    options: Option<&DeflateOptions>,
) -> Result<Option<Deflate>, ExtensionError> {
    let mut answers = headers.into_iter().flat_map(extensions);
    let Some((name, parameters)) = answers.next() else { return Ok(None) };
    let (Some(options), Some(parameters), NAME, None) = (options, parameters, name.as_str(), answers.next())
    else {
        return Err(ExtensionError);
    };
    let answer = parse(&parameters).ok_or(ExtensionError)?;
    let server_bits = answer.server_max_window_bits.unwrap_or(WINDOW_BITS_MAX);
    let client_bits = match answer.client_max_window_bits {
        Client::Absent => options.client_max_window_bits,
        Client::Bits(bits) => bits.min(options.client_max_window_bits),
        Client::Bare => return Err(ExtensionError),
    };
    let is_as_asked = server_bits <= options.server_max_window_bits
        && (answer.server_no_context_takeover || !options.server_no_context_takeover);
    if !is_as_asked {
        return Err(ExtensionError);
    }
    Ok(Some(Deflate {
        level: options.level,
        bytes_min: options.bytes_min,
        server_no_context_takeover: answer.server_no_context_takeover,
        client_no_context_takeover: answer.client_no_context_takeover || options.client_no_context_takeover,
        server_max_window_bits: server_bits,
        client_max_window_bits: client_bits,
    }))
}

/// `None` for a parameter that is unknown, doubled or has a value that it cannot have.
fn parse(parameters: &[(String, Option<String>)]) -> Option<Parameters> {
    let mut parsed = Parameters::default();
    for (name, value) in parameters {
        let value = value.as_deref();
        let is_new = match (name.as_str(), value) {
            ("server_no_context_takeover", None) => {
                !std::mem::replace(&mut parsed.server_no_context_takeover, true)
            }
            ("client_no_context_takeover", None) => {
                !std::mem::replace(&mut parsed.client_no_context_takeover, true)
            }
            ("server_max_window_bits", Some(value)) => {
                parsed.server_max_window_bits.replace(bits(value)?).is_none()
            }
            ("client_max_window_bits", value) => {
                let value = value.map_or(Some(Client::Bare), |value| bits(value).map(Client::Bits))?;
                std::mem::replace(&mut parsed.client_max_window_bits, value) == Client::Absent
            }
            _ => return None,
        };
        is_new.then_some(())?;
    }
    Some(parsed)
}

/// A window: 8 to 15, without leading zeros.
fn bits(value: &str) -> Option<u8> {
    let is_decimal = value.bytes().all(|byte| byte.is_ascii_digit()) && !value.starts_with('0');
    value.parse().ok().filter(|bits| is_decimal && (8..=WINDOW_BITS_MAX).contains(bits))
}

/// Names and values of an extension.
type Listed = (String, Option<Vec<(String, Option<String>)>>);

/// The extensions of a header (RFC 6455 §9.1). Those whose parameters cannot be read have none.
fn extensions(header: &str) -> Vec<Listed> {
    let listed = split(header, b',').into_iter().map(|extension| {
        let mut parts = split(extension, b';').into_iter();
        let name = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
        (name, parts.map(parameter).collect())
    });
    listed.filter(|(name, _)| !name.is_empty()).collect()
}

fn parameter(part: &str) -> Option<(String, Option<String>)> {
    let (name, value) = match part.split_once('=') {
        None => (part.trim(), None),
        Some((name, value)) => {
            let value = value.trim();
            let unquoted = value.strip_prefix('"').map_or(Some(value), |rest| rest.strip_suffix('"'));
            // What is quoted must still be a token.
            let unquoted = unquoted.filter(|value| is_token(value))?;
            (name.trim(), Some(unquoted.to_owned()))
        }
    };
    is_token(name).then(|| (name.to_ascii_lowercase(), value))
}

/// Splits outside of quotes.
fn split(text: &str, at: u8) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut begin, mut is_quoted) = (0, false);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            byte if byte == at && !is_quoted => {
                parts.push(&text[begin..index]);
                begin = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    parts
}

/// A token of HTTP (RFC 9110 §5.6.2).
pub(crate) fn is_token(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOSE: DeflateOptions = DeflateOptions {
        level: 6,
        bytes_min: 0,
        server_no_context_takeover: false,
        client_no_context_takeover: false,
        server_max_window_bits: 15,
        client_max_window_bits: 15,
    };

    fn answer(offer: &str, options: &DeflateOptions) -> Option<String> {
        negotiate([offer], options).map(|(_, answer)| answer)
    }

    #[test]
    fn a_server_answers_the_first_offer_that_it_can_keep() {
        let small = DeflateOptions { server_max_window_bits: 10, client_max_window_bits: 11, ..LOOSE };
        for (offer, options, expected) in [
            ("permessage-deflate", &LOOSE, Some("permessage-deflate")),
            (" Permessage-Deflate ; client_max_window_bits", &LOOSE, Some("permessage-deflate")),
            (
                "permessage-deflate; client_max_window_bits=12",
                &LOOSE,
                Some("permessage-deflate; client_max_window_bits=12"),
            ),
            (
                "permessage-deflate; client_max_window_bits=8",
                &LOOSE,
                Some("permessage-deflate; client_max_window_bits=8"),
            ),
            (
                "permessage-deflate; server_max_window_bits=\"12\"",
                &LOOSE,
                Some("permessage-deflate; server_max_window_bits=12"),
            ),
            (
                "permessage-deflate; server_max_window_bits=15",
                &LOOSE,
                Some("permessage-deflate; server_max_window_bits=15"),
            ),
            (
                "permessage-deflate; server_no_context_takeover",
                &LOOSE,
                Some("permessage-deflate; server_no_context_takeover"),
            ),
            (
                "permessage-deflate",
                &DeflateOptions::default(),
                Some("permessage-deflate; server_no_context_takeover; client_no_context_takeover"),
            ),
            ("permessage-deflate", &small, Some("permessage-deflate; server_max_window_bits=10")),
            (
                "permessage-deflate; client_max_window_bits",
                &small,
                Some("permessage-deflate; server_max_window_bits=10; client_max_window_bits=11"),
            ),
            (
                "x-webkit-deflate-frame, foo; bar=\"a,b;c\", permessage-deflate",
                &LOOSE,
                Some("permessage-deflate"),
            ),
            // An offer that cannot be kept, and a fallback.
            (
                "permessage-deflate; server_max_window_bits=8, permessage-deflate",
                &LOOSE,
                Some("permessage-deflate"),
            ),
            ("permessage-deflate; server_max_window_bits=8", &LOOSE, None),
            ("permessage-deflate; server_max_window_bits", &LOOSE, None),
            ("permessage-deflate; server_max_window_bits=7", &LOOSE, None),
            ("permessage-deflate; server_max_window_bits=16", &LOOSE, None),
            ("permessage-deflate; server_max_window_bits=+9", &LOOSE, None),
            ("permessage-deflate; server_max_window_bits=09", &LOOSE, None),
            ("permessage-deflate; client_max_window_bits=010", &LOOSE, None),
            ("permessage-deflate; server_no_context_takeover=1", &LOOSE, None),
            ("permessage-deflate; server_no_context_takeover; server_no_context_takeover", &LOOSE, None),
            ("permessage-deflate; client_max_window_bits; client_max_window_bits=9", &LOOSE, None),
            ("permessage-deflate; unknown", &LOOSE, None),
            ("permessage-deflate; server_max_window_bits=\"12", &LOOSE, None),
            ("permessage-deflate;", &LOOSE, None),
            ("permessage-bzip2", &LOOSE, None),
            ("", &LOOSE, None),
        ] {
            assert_eq!(answer(offer, options).as_deref(), expected, "{offer}");
        }
    }

    #[test]
    fn a_client_takes_what_it_offered_and_nothing_else() {
        let small = DeflateOptions { server_max_window_bits: 10, client_max_window_bits: 11, ..LOOSE };
        let plain = Deflate {
            level: 6,
            bytes_min: 0,
            server_no_context_takeover: false,
            client_no_context_takeover: false,
            server_max_window_bits: 15,
            client_max_window_bits: 15,
        };
        assert_eq!(accepted([], Some(&LOOSE)), Ok(None));
        assert_eq!(accepted([], None), Ok(None));
        assert_eq!(accepted(["permessage-deflate"], Some(&LOOSE)), Ok(Some(plain)));
        let own = "permessage-deflate; client_no_context_takeover; server_max_window_bits=12";
        let agreed = Deflate { client_no_context_takeover: true, server_max_window_bits: 12, ..plain };
        assert_eq!(accepted([own], Some(&LOOSE)), Ok(Some(agreed)));
        for bits in 8..16 {
            let agreed = Deflate { client_max_window_bits: bits, ..plain };
            let answer = format!("permessage-deflate; client_max_window_bits={bits}");
            assert_eq!(accepted([answer.as_str()], Some(&LOOSE)), Ok(Some(agreed)));
        }
        for (answer, options) in [
            ("permessage-deflate", None),
            ("permessage-bzip2", Some(&LOOSE)),
            ("permessage-deflate, permessage-deflate", Some(&LOOSE)),
            ("permessage-deflate; client_max_window_bits", Some(&LOOSE)),
            ("permessage-deflate; client_max_window_bits=7", Some(&LOOSE)),
            ("permessage-deflate", Some(&small)),
            ("permessage-deflate; server_max_window_bits=11", Some(&small)),
            ("permessage-deflate", Some(&DeflateOptions::default())),
            ("permessage-deflate; unknown", Some(&LOOSE)),
        ] {
            assert_eq!(accepted([answer], options), Err(ExtensionError), "{answer}");
        }
    }

    #[test]
    fn both_ends_of_an_agreement_agree() {
        for number in 0..256_u32 {
            let has = |bit: u32| number >> bit & 1 == 1;
            let bits = |bit: u32| [15, 12, 10, 9][(number >> bit & 3) as usize];
            let client = DeflateOptions {
                server_no_context_takeover: has(0),
                client_no_context_takeover: has(1),
                server_max_window_bits: bits(2),
                client_max_window_bits: bits(4),
                ..LOOSE
            };
            let server = DeflateOptions {
                server_no_context_takeover: has(6),
                client_no_context_takeover: has(7),
                server_max_window_bits: bits(4),
                client_max_window_bits: bits(2),
                ..LOOSE
            };
            let (agreed, answer) = negotiate([offer(&client).as_str()], &server).unwrap();
            assert_eq!(accepted([answer.as_str()], Some(&client)), Ok(Some(agreed)), "{answer}");
        }
    }
}
