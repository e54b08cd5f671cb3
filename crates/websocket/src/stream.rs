//! The stream under a client's connection: TCP, or TLS over it.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore, crypto,
        pki_types::{CertificateDer, ServerName, pem::PemObject},
    },
};

/// Settings of TLS, for [`ConnectOptions::tls`](crate::ConnectOptions::tls).
pub type Tls = Arc<ClientConfig>;

/// The stream of a client.
#[derive(Debug)]
pub struct Stream(Kind);

#[derive(Debug)]
enum Kind {
    Plain(TcpStream),
    Secure(Box<TlsStream<TcpStream>>),
}

impl Stream {
    pub(crate) const fn plain(stream: TcpStream) -> Self {
        Self(Kind::Plain(stream))
    }
}

/// The roots of the web, and no certificate of one's own.
pub(crate) fn default_tls() -> io::Result<Tls> {
    tls(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() })
}

/// Settings of TLS that trust the certificates in `pem`, and no others. Fails where there is none, or one that is none.
pub fn trusting(pem: &[u8]) -> io::Result<Tls> {
    let invalid = |error: String| io::Error::new(io::ErrorKind::InvalidData, error);
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| invalid(error.to_string()))?;
        roots.add(certificate).map_err(|error| invalid(error.to_string()))?;
    }
    if roots.is_empty() { Err(invalid("there is no certificate".to_owned())) } else { tls(roots) }
}

/// TLS that trusts these certificates, in DER, in place of the roots of the web; for
/// [`ConnectOptions::tls`](crate::ConnectOptions::tls).
pub fn tls_with_roots(certificates: &[Vec<u8>]) -> io::Result<Tls> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        let added = roots.add(certificate.clone().into());
        added.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    }
    tls(roots)
}

fn tls(roots: RootCertStore) -> io::Result<Tls> {
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// TLS over a stream.
pub(crate) async fn secured(stream: TcpStream, host: &str, tls: Arc<ClientConfig>) -> io::Result<Stream> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let stream = TlsConnector::from(tls).connect(name, stream).await?;
    Ok(Stream(Kind::Secure(Box::new(stream))))
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Kind::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Kind::Secure(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().0 {
            Kind::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Kind::Secure(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().0 {
            Kind::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Kind::Secure(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.0 {
            Kind::Plain(stream) => stream.is_write_vectored(),
            Kind::Secure(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Kind::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Kind::Secure(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Kind::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Kind::Secure(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
