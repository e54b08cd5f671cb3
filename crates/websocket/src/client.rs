//! Opening a connection: `ws://` and `wss://`, with a deadline, and without following redirects.

use std::{io, sync::Arc, time::Duration};

use alluvium_env::Random;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::{
    connection::{ConnectionOptions, WebSocket},
    extension::DeflateOptions,
    handshake::{Agreed, AnswerError, Offer},
    limits::{RESPONSE_HEAD_BYTES_MAX, RESPONSE_HEADERS_MAX},
    refusal::{plain_refusal_of, tls_refusal},
    stream::{Stream, Tls, default_tls, secured},
};

/// Most bytes that are kept of the body of a refusal.
const REFUSAL_BYTES_MAX: usize = 8 * 1024;

/// How a connection is opened.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Further headers, such as `User-Agent` or `Authorization`.
    pub headers: HeaderMap,
    /// The subprotocols to ask for, best first.
    pub subprotocols: Vec<String>,
    /// Whether and how messages may be compressed.
    pub deflate: Option<DeflateOptions>,
    /// Most time until the handshake is done.
    pub timeout: Duration,
    /// How the connection is run.
    pub connection: ConnectionOptions,
    /// Other settings of TLS than the roots of the web and no certificate of one's own.
    pub tls: Option<Tls>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            headers: HeaderMap::new(),
            subprotocols: Vec::new(),
            deflate: None,
            timeout: Duration::from_secs(15),
            connection: ConnectionOptions::default(),
            tls: None,
        }
    }
}

/// Why a connection could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address is no `ws://` or `wss://` address with a host.
    #[error("`{0}` is no address of a WebSocket")]
    Address(String),
    /// A subprotocol or header cannot be written as one.
    #[error("a header or subprotocol to send is not valid")]
    Header,
    /// The network, or TLS.
    #[error("cannot connect to `{host}`: {source}")]
    Io {
        /// The host.
        host: String,
        /// What went wrong.
        source: io::Error,
    },
    /// The server is none that can be trusted, or speaks TLS where the address does not, or the other way round; trying
    /// again mends nothing of it.
    #[error("cannot connect to `{host}`: {why}")]
    Untrusted {
        /// The host.
        host: String,
        /// What is wrong with the server.
        why: &'static str,
    },
    /// The time is up.
    #[error("no connection within {0:?}")]
    Timeout(Duration),
    /// The server answers with something other than 101; redirects are among that.
    #[error("the server answers with status {}", .0.status)]
    Refused(Box<Refusal>),
    /// The server's answer is no HTTP, or too long.
    #[error("the server's answer cannot be read")]
    Answer,
    /// The server's answer is not to this question.
    #[error(transparent)]
    Handshake(#[from] AnswerError),
}

/// A server's answer other than 101.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The first 8 KiB of the body, as far as they came.
    pub body: Bytes,
}

/// An open connection and what was agreed on.
#[derive(Debug)]
pub struct Connected {
    /// The connection.
    pub socket: WebSocket<Stream>,
    /// What the server chose.
    pub agreed: Agreed,
    /// The headers of its answer.
    pub headers: HeaderMap,
}

/// The parts of an address.
#[derive(Debug, Eq, PartialEq)]
struct Address {
    is_secure: bool,
    /// Without the brackets of an IPv6 address.
    host: String,
    port: u16,
    /// As `Host` has it.
    authority: String,
    target: String,
}

impl Address {
    fn parse(url: &str) -> Option<Self> {
        // A query may be longer than a `Uri` can be.
        let url = url.split_once('#').map_or(url, |(url, _)| url);
        let (place, query) = url.split_once('?').map_or((url, None), |(place, query)| (place, Some(query)));
        if query.is_some_and(|query| query.bytes().any(|byte| byte <= b' ' || byte == 0x7f)) {
            return None;
        }
        let uri: Uri = place.parse().ok()?;
        let is_secure = match uri.scheme_str()? {
            "ws" => false,
            "wss" => true,
            _ => return None,
        };
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'))?;
        let host = authority.host();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let has_port = authority.as_str().len() > authority.host().len();
        let port = match authority.port_u16() {
            Some(port) => port,
            None if has_port => return None,
            None if is_secure => 443,
            None => 80,
        };
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        let target = format!("/{}{query}", uri.path().strip_prefix('/').unwrap_or(uri.path()));
        (!host.is_empty()).then(|| Self {
            is_secure,
            host: host.to_owned(),
            port,
            authority: authority.as_str().to_owned(),
            target,
        })
    }
}

/// Opens a connection to `url`. `random` is for the key and the masks.
pub async fn connect(
    url: &str,
    options: ConnectOptions,
    random: Arc<dyn Random>,
) -> Result<Connected, ConnectError> {
    let address = Address::parse(url).ok_or_else(|| ConnectError::Address(url.to_owned()))?;
    let limit = options.timeout;
    let opening = async {
        let failed = |source: io::Error| {
            let host = address.authority.clone();
            match tls_refusal(&source) {
                Some(why) => ConnectError::Untrusted { host, why },
                None => ConnectError::Io { host, source },
            }
        };
        let stream = open(&address, options.tls.clone()).await.map_err(failed)?;
        shake_hands(stream, &address, options, random).await
    };
    timeout(limit, opening).await.map_err(|_| ConnectError::Timeout(limit))?
}

async fn open(address: &Address, tls: Option<Tls>) -> io::Result<Stream> {
    let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
    stream.set_nodelay(true)?;
    if !address.is_secure {
        return Ok(Stream::plain(stream));
    }
    let tls = match tls {
        Some(tls) => tls,
        None => default_tls()?,
    };
    secured(stream, &address.host, tls).await
}

/// Asks for a WebSocket on an open stream.
async fn shake_hands(
    mut stream: Stream,
    address: &Address,
    options: ConnectOptions,
    random: Arc<dyn Random>,
) -> Result<Connected, ConnectError> {
    let key = random.next_u128().to_ne_bytes();
    let offer = Offer::new(key, options.subprotocols, options.deflate);
    let head = request_head(address, &offer, options.headers)?;
    let failed = |source| ConnectError::Io { host: address.authority.clone(), source };
    let mut sent = stream.write_all(&head).await;
    if sent.is_ok() {
        sent = stream.flush().await;
    }
    let mut input = BytesMut::new();
    let (status, headers) = loop {
        let read = stream.read_buf(&mut input).await;
        // Whoever does not take all of a long head may have said why.
        if let Err(source) = sent
            && !matches!(read, Ok(1..))
        {
            return Err(failed(source));
        }
        sent = Ok(());
        if read.map_err(failed)? == 0 {
            let why = "the server closed the connection before it had answered";
            return Err(failed(io::Error::new(io::ErrorKind::UnexpectedEof, why)));
        }
        if let Some(why) = plain_refusal_of(&input) {
            return Err(ConnectError::Untrusted { host: address.authority.clone(), why });
        }
        if let Some((status, headers, len)) = response_head(&input)? {
            drop(input.split_to(len));
            break (status, headers);
        }
    };
    if status != StatusCode::SWITCHING_PROTOCOLS {
        let body = refusal_body(&mut stream, &headers, input).await;
        return Err(ConnectError::Refused(Box::new(Refusal { status, headers, body })));
    }
    let agreed = offer.check(&headers)?;
    let socket = WebSocket::client(stream, &input, agreed.deflate.as_ref(), options.connection, random);
    Ok(Connected { socket, agreed, headers })
}

fn request_head(address: &Address, offer: &Offer, extra: HeaderMap) -> Result<Vec<u8>, ConnectError> {
    let mut headers = extra;
    let host = HeaderValue::from_str(&address.authority).map_err(|_| ConnectError::Header)?;
    headers.insert(header::HOST, host);
    for (name, value) in offer.headers() {
        headers.insert(name, HeaderValue::from_str(&value).map_err(|_| ConnectError::Header)?);
    }
    let mut head = format!("GET {} HTTP/1.1\r\n", address.target).into_bytes();
    for (name, value) in &headers {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    Ok(head)
}

/// The head at the beginning of `input` and its length; `None` if it is not whole.
fn response_head(input: &[u8]) -> Result<Option<(StatusCode, HeaderMap, usize)>, ConnectError> {
    let mut parsed = [httparse::EMPTY_HEADER; RESPONSE_HEADERS_MAX];
    let mut response = httparse::Response::new(&mut parsed);
    let len = match response.parse(input).map_err(|_| ConnectError::Answer)? {
        httparse::Status::Complete(len) => len,
        httparse::Status::Partial if input.len() < RESPONSE_HEAD_BYTES_MAX => return Ok(None),
        httparse::Status::Partial => return Err(ConnectError::Answer),
    };
    let code = response.code.unwrap_or_default();
    let status = StatusCode::from_u16(code).map_err(|_| ConnectError::Answer)?;
    let mut headers = HeaderMap::new();
    for header in response.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(|_| ConnectError::Answer)?;
        let value = HeaderValue::from_bytes(header.value).map_err(|_| ConnectError::Answer)?;
        headers.append(name, value);
    }
    Ok(Some((status, headers, len)))
}

/// What a refusal says, as far as it comes. The caller's deadline bounds the waiting.
async fn refusal_body(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    headers: &HeaderMap,
    mut read: BytesMut,
) -> Bytes {
    let said = headers.get(header::CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse().ok());
    let len = said.unwrap_or(0).min(REFUSAL_BYTES_MAX);
    while read.len() < len {
        match stream.read_buf(&mut read).await {
            Ok(1..) => {}
            Ok(0) | Err(_) => break,
        }
    }
    read.truncate(REFUSAL_BYTES_MAX);
    read.freeze()
}

#[cfg(test)]
mod tests;
