//! How the server meets the network: certificates, proxies, limits of connections.

use std::{io, net::SocketAddr, sync::Arc};

use alluvium_http::{Counters, Front, Tls, TlsError};
use tokio::signal::unix;

use crate::config::Config;

/// What the configuration asks for. Reads the certificates, if there are to be some.
pub(crate) fn open_front(config: &Config) -> Result<Front, TlsError> {
    let counters = Arc::new(Counters::default());
    let tls = match (&config.tls_cert, &config.tls_key) {
        (Some(certificate), Some(key)) => Some(Tls::load(certificate, key, Arc::clone(&counters))?),
        // One without the other does not come out of a checked configuration.
        _ => None,
    };
    Ok(Front {
        tls,
        connections_per_address_max: config.connections_per_address_max,
        trusted_proxies: config.trusted_proxies.clone(),
        streams_max: u32::try_from(config.http2_streams_max).unwrap_or(u32::MAX),
        query_bytes_max: 0,
        error_shape: alluvium_http::ErrorShape::Nested,
        counters,
    })
}

/// The scheme of the server's URLs.
pub fn scheme(front: &Front) -> &'static str {
    if front.tls.is_some() { "https" } else { "http" }
}

/// Where a client on this machine reaches a server that listens on `address`. What stands for every address of the machine
/// is none to ask, and no certificate has it.
#[must_use]
pub fn reached_at(address: SocketAddr) -> String {
    if address.ip().is_unspecified() { format!("localhost:{}", address.port()) } else { address.to_string() }
}

/// Reads certificates again when their files change, and on SIGHUP, until it is dropped. Without certificates the
/// signal does nothing, and above all does not end the process.
pub async fn keep_certificates(tls: Option<Arc<Tls>>) -> io::Result<()> {
    let mut hangups = unix::signal(unix::SignalKind::hangup())?;
    let on_signal = async {
        while hangups.recv().await.is_some() {
            if let Some(tls) = &tls {
                // What went wrong is in the log.
                drop(tls.reload());
            } else {
                tracing::info!("SIGHUP, and there are no certificates to load anew");
            }
        }
    };
    let on_change = async {
        match &tls {
            Some(tls) => tls.watch().await,
            None => std::future::pending().await,
        }
    };
    tokio::join!(on_signal, on_change);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_every_address_is_reached_by_a_name_that_a_certificate_may_have() {
        for (address, reached) in [
            ("0.0.0.0:4437", "localhost:4437"),
            ("[::]:80", "localhost:80"),
            ("127.0.0.1:4437", "127.0.0.1:4437"),
            ("[::1]:4437", "[::1]:4437"),
            ("192.0.2.7:1", "192.0.2.7:1"),
        ] {
            assert_eq!(reached_at(address.parse().expect("an address")), reached);
        }
    }
}
