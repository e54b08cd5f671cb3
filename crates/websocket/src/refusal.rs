//! Why TLS with a server cannot come about, in a sentence.

use std::error::Error;
use std::io;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, CertificateError, ClientConnection};

use crate::stream::{Tls, default_tls};

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
        let mut connected = Err(io::ErrorKind::NotFound.into());
        for address in (host, port).to_socket_addrs()? {
            connected = TcpStream::connect_timeout(&address, timeout);
            if connected.is_ok() {
                break;
            }
        }
        let mut stream = connected?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
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

fn of_rustls(error: &rustls::Error) -> Option<&'static str> {
    match error {
        rustls::Error::InvalidCertificate(error) => Some(of_certificate(error)),
        rustls::Error::NoCertificatesPresented => Some("it shows no certificate"),
        rustls::Error::InvalidMessage(_) => Some("it does not speak TLS"),
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
        assert_eq!(of(plain), Some("it does not speak TLS"));
        assert_eq!(of(rustls::Error::HandshakeNotComplete), None);
        assert_eq!(tls_refusal(&io::Error::from(io::ErrorKind::ConnectionReset)), None);
        assert_eq!(tls_refusal(&io::Error::other("invalid peer certificate")), None);
    }
}
