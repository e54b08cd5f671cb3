//! Why a server and this side will not come to speak the same, TLS or plain HTTP, in a sentence.

use std::error::Error;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, CertificateError, ClientConnection};

use crate::stream::{Tls, default_tls};

/// What is wrong with a server that was asked in plain text and does not answer like one of HTTP.
const NO_PLAIN_HTTP: &str = "it does not speak plain HTTP: with certificates, its URL begins with `https://`";
/// The first byte of an alert, which is what TLS has for whoever does not speak it (RFC 8446, 5.1).
const ALERT: u8 = 21;

/// Why a server that was asked in plain text will not answer however often it is asked, if that is what an error of reading
/// its answer tells of: the answer is no HTTP from its first bytes on.
pub fn plain_refusal(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let is_no_http = |text: &str| text.ends_with(&httparse::Error::Version.to_string());
    is_no_http(&error.to_string()).then_some(NO_PLAIN_HTTP)
}

/// The same for the first bytes of an answer.
pub(crate) fn plain_refusal_of(answer: &[u8]) -> Option<&'static str> {
    (answer.first() == Some(&ALERT)).then_some(NO_PLAIN_HTTP)
}

/// Asks a server something in plain text and hangs up: whether it answers like one that speaks TLS. Like [`try_tls`].
pub fn try_plain(host: &str, port: u16, timeout: Duration) -> Option<&'static str> {
    let asked = || -> io::Result<Option<&'static str>> {
        let mut stream = connected(host, port, timeout)?;
        let head = format!("OPTIONS * HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        let mut first = [0];
        stream.read_exact(&mut first)?;
        Ok(plain_refusal_of(&first))
    };
    asked().unwrap_or_default()
}

/// Why TLS with a server will not come about however often it is tried, if that is what an error tells of: what the server
/// shows is not to be trusted, or is no TLS at all. It says what is wrong with the server.
pub fn tls_refusal(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return of_rustls(error);
        }
        // An error of the system may carry one of the library that it gives no cause for.
        let carried = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match carried {
            Some(carried) => Some(carried as &(dyn Error + 'static)),
            None => error.source(),
        };
    }
    None
}

/// Greets a server over TLS and hangs up: why TLS with it will not come about, if so. Whatever else fails, such as a
/// connection, is for whoever comes for more to find. `tls` is whom to trust, if not the roots of the web. Blocks, for each
/// address of the host and for each answer no longer than `timeout`.
pub fn try_tls(host: &str, port: u16, tls: Option<Tls>, timeout: Duration) -> Option<&'static str> {
    let greeted = || -> io::Result<()> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let mut stream = connected(host, port, timeout)?;
        let tls = tls.map_or_else(default_tls, Ok)?;
        let mut connection = ClientConnection::new(tls, name).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        connection.send_close_notify();
        connection.write_tls(&mut stream)?;
        Ok(())
    };
    greeted().err().and_then(|error| tls_refusal(&error))
}

/// Connects to the first address of a host that lets it.
fn connected(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let mut connected = Err(io::ErrorKind::NotFound.into());
    for address in (host, port).to_socket_addrs()? {
        connected = TcpStream::connect_timeout(&address, timeout);
        if connected.is_ok() {
            break;
        }
    }
    let stream = connected?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    Ok(stream)
}

fn of_rustls(error: &rustls::Error) -> Option<&'static str> {
    match error {
        rustls::Error::InvalidCertificate(error) => Some(of_certificate(error)),
        rustls::Error::NoCertificatesPresented => Some("it shows no certificate"),
        rustls::Error::InvalidMessage(_) => {
            Some("it does not speak TLS: without certificates, its URL begins with `http://`")
        }
        rustls::Error::PeerIncompatible(_) => Some("it speaks no version of TLS that is spoken here"),
        _ => None,
    }
}

fn of_certificate(error: &CertificateError) -> &'static str {
    match error {
        CertificateError::UnknownIssuer => "its certificate is signed by nobody who is trusted here",
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "its certificate has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "its certificate is for another name"
        }
        CertificateError::Revoked => "its certificate was revoked",
        // What checks certificates has more reasons than the library that calls it has names for.
        CertificateError::Other(other) if format!("{:?}", other.0) == "CaUsedAsEndEntity" => {
            "its certificate is marked as an authority's, which no server may show as its own: it needs another one, \
             signed by that, or one made with `basicConstraints=CA:FALSE`"
        }
        _ => "its certificate is not valid",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(error: rustls::Error) -> Option<&'static str> {
        // As it comes out of a connection.
        tls_refusal(&io::Error::new(io::ErrorKind::InvalidData, error))
    }

    #[test]
    fn what_trying_again_does_not_mend_is_told_from_what_it_may() {
        let unknown = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        assert_eq!(of(unknown), Some("its certificate is signed by nobody who is trusted here"));
        let plain = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        assert_eq!(
            of(plain),
            Some("it does not speak TLS: without certificates, its URL begins with `http://`")
        );
        assert_eq!(of(rustls::Error::HandshakeNotComplete), None);
        assert_eq!(tls_refusal(&io::Error::from(io::ErrorKind::ConnectionReset)), None);
        assert_eq!(tls_refusal(&io::Error::other("invalid peer certificate")), None);
    }

    #[test]
    fn an_answer_that_is_no_http_is_told_from_one_that_breaks_off() {
        let read = |answer: &[u8]| {
            let mut headers = [httparse::EMPTY_HEADER; 4];
            httparse::Response::new(&mut headers).parse(answer).err()
        };
        // As TLS 1.2 and 1.3 refuse what does not begin like them.
        for alert in [[21, 3, 3, 0, 2, 2, 10], [21, 3, 1, 0, 2, 2, 70]] {
            assert_eq!(plain_refusal(&read(&alert).unwrap()), Some(NO_PLAIN_HTTP));
            assert_eq!(plain_refusal_of(&alert), Some(NO_PLAIN_HTTP));
        }
        for answer in [&b""[..], b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\n\r\n"] {
            assert_eq!((read(answer), plain_refusal_of(answer)), (None, None));
        }
        for other in [read(b"HTTP/1.1 abc\r\n\r\n").unwrap(), httparse::Error::HeaderName] {
            assert_eq!(plain_refusal(&other), None);
        }
        assert_eq!(plain_refusal(&io::Error::from(io::ErrorKind::UnexpectedEof)), None);
    }
}
