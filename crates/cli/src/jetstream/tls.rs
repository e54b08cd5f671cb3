//! The options of TLS that every command of `jetstream` that serves has.

use std::path::PathBuf;
use std::sync::Arc;

use alluvium_http::{Counters, Front, Tls, TlsError};
use clap::Args;

/// What a server proves itself with.
#[derive(Debug, Args)]
pub(super) struct TlsArgs {
    /// Speak TLS, and nothing else, with the certificate chain in this file (PEM). Read again when it changes, and on
    /// SIGHUP.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The file with the key of that certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl TlsArgs {
    /// The network side of a server that is otherwise as in `rest`. Reads the certificates, if there are to be some.
    pub(super) fn front(&self, rest: Front) -> Result<Front, TlsError> {
        let counters = Arc::new(Counters::default());
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Some(Tls::load(certificate, key, Arc::clone(&counters))?),
            // clap lets neither come without the other.
            _ => None,
        };
        Ok(Front { tls, counters, ..rest })
    }
}
