//! Certificates from files, and what becomes of them when the files change.
//!
//! New connections get what the files held when they were last read; connections that are there keep what they began
//! with. Files that are of no use when they change (half written, expired past parsing, a key of another certificate)
//! are told of in the log, and what was read before stays.

use std::{
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        crypto::ring,
        pki_types::{
            CertificateDer, PrivateKeyDer,
            pem::{self, PemObject},
        },
        server::ServerSessionMemoryCache,
    },
};

use crate::{counters::Counters, limits::CERTIFICATE_LOOK_S};

/// The protocols offered, best first (RFC 7301).
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Sessions that can be taken up again, each of a few kilobytes.
const SESSIONS_MAX: usize = 1024;

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is too large to be one.
    #[error("`{}` has more than {FILE_BYTES_MAX} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// A file is not in the PEM format, or has nothing of the kind it should have.
    #[error("`{}` has no {what} in PEM: {message}", path.display())]
    NotPem {
        /// The file.
        path: PathBuf,
        /// What it should have.
        what: &'static str,
        /// What is wrong.
        message: String,
    },
    /// Certificate and key cannot be used, alone or together.
    #[error("certificate `{}` and key `{}` cannot be used: {source}", certificate.display(), key.display())]
    Unusable {
        /// The file with the certificate.
        certificate: PathBuf,
        /// The file with the key.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
}

/// What a server proves itself with: a certificate chain and its key, from files.
///
/// TLS 1.2 and 1.3 are spoken, HTTP/2 and HTTP/1.1 offered.
#[derive(Debug)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    config: RwLock<Arc<ServerConfig>>,
    /// What the files were when they were last read.
    read: Mutex<Option<Stamps>>,
    counters: Arc<Counters>,
}

/// By what it is seen that the files have changed.
type Stamps = [Stamp; 2];

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Tls {
    /// Reads a certificate chain, its own certificate first, and the key of that (PKCS#8, PKCS#1 or SEC1), all in PEM.
    pub fn load(certificate: &Path, key: &Path, counters: Arc<Counters>) -> Result<Arc<Self>, TlsError> {
        // Before the files are read: what changes meanwhile is then seen as a change.
        let stamps = stamps(certificate, key).ok();
        let config = read_config(certificate, key)?;
        Ok(Arc::new(Self {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            config: RwLock::new(Arc::new(config)),
            read: Mutex::new(stamps),
            counters,
        }))
    }

    /// Reads the files again. When they are of no use, what was read before stays.
    pub fn reload(&self) -> Result<(), TlsError> {
        let stamps = stamps(&self.certificate, &self.key).ok();
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = stamps;
        match read_config(&self.certificate, &self.key) {
            Ok(config) => {
                *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
                self.counters.tls_reloads.add();
                tracing::info!(certificate = %self.certificate.display(), "certificates loaded anew");
                Ok(())
            }
            Err(error) => {
                self.counters.tls_reloads_failed.add();
                tracing::error!(%error, "the new certificates are of no use; the old ones stay in use");
                Err(error)
            }
        }
    }

    /// Reads the files again each time they have changed, until it is dropped. They are looked at every
    /// [`CERTIFICATE_LOOK_S`] seconds.
    pub async fn watch(&self) {
        let mut looks = tokio::time::interval(Duration::from_secs(CERTIFICATE_LOOK_S));
        loop {
            looks.tick().await;
            self.reload_if_changed();
        }
    }

    fn reload_if_changed(&self) {
        // A file that is away for a moment, while it is replaced, is no change yet.
        let Ok(stamps) = stamps(&self.certificate, &self.key) else { return };
        let is_changed = *self.read.lock().unwrap_or_else(PoisonError::into_inner) != Some(stamps);
        if is_changed {
            // What failed has been logged, and counts as read: it is tried again when the files change again.
            drop(self.reload());
        }
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let config = self.config.read().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(Arc::clone(&config))
    }
}

fn stamps(certificate: &Path, key: &Path) -> io::Result<Stamps> {
    Ok([stamp(certificate)?, stamp(key)?])
}

fn stamp(path: &Path) -> io::Result<Stamp> {
    let metadata = std::fs::metadata(path)?;
    Ok(Stamp {
        inode: metadata.ino(),
        bytes: metadata.len(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
    })
}

fn read_config(certificate: &Path, key: &Path) -> Result<ServerConfig, TlsError> {
    let chain = read_pem(certificate, "certificate", |pem| {
        let chain = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>()?;
        if chain.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(chain) }
    })?;
    let private_key = read_pem(key, "private key", PrivateKeyDer::from_pem_slice)?;
    let unusable =
        |source| TlsError::Unusable { certificate: certificate.to_owned(), key: key.to_owned(), source };
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(chain, private_key)
        .map_err(unusable)?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
    config.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
    Ok(config)
}

fn read_pem<T>(
    path: &Path,
    what: &'static str,
    parse: impl FnOnce(&[u8]) -> Result<T, pem::Error>,
) -> Result<T, TlsError> {
    let unreadable = |source| TlsError::Unreadable { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(unreadable)?.len() > FILE_BYTES_MAX {
        return Err(TlsError::TooLarge { path: path.to_owned() });
    }
    let pem = std::fs::read(path).map_err(unreadable)?;
    // A message of the parser never has what it parsed.
    parse(&pem).map_err(|error| TlsError::NotPem { path: path.to_owned(), what, message: error.to_string() })
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "certificates are files, and this is about their changing")]
mod tests {
    use super::*;
    use std::fs;

    struct Files(tempfile::TempDir);

    impl Files {
        fn new() -> Self {
            let files = Self(tempfile::tempdir().expect("a directory"));
            files.write(&Pair::new());
            files
        }

        fn certificate(&self) -> PathBuf {
            self.0.path().join("cert.pem")
        }

        fn key(&self) -> PathBuf {
            self.0.path().join("key.pem")
        }

        fn write(&self, pair: &Pair) {
            fs::write(self.certificate(), &pair.certificate).expect("written");
            fs::write(self.key(), &pair.key).expect("written");
        }

        fn load(&self) -> Result<Arc<Tls>, TlsError> {
            Tls::load(&self.certificate(), &self.key(), Arc::default())
        }
    }

    struct Pair {
        certificate: String,
        key: String,
    }

    impl Pair {
        fn new() -> Self {
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
            Self { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() }
        }
    }

    fn current(tls: &Tls) -> Arc<ServerConfig> {
        Arc::clone(&tls.config.read().expect("not poisoned"))
    }

    fn counts(tls: &Tls) -> (u64, u64) {
        let counters = tls.counters.snapshot();
        (counters.tls_reloads, counters.tls_reloads_failed)
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_the_file_that_is_to_blame() {
        let files = Files::new();
        files.load().expect("a pair");
        let good = Pair::new();
        for (certificate, key, blamed) in [
            ("", good.key.as_str(), "cert.pem"),
            ("nothing", good.key.as_str(), "cert.pem"),
            (good.key.as_str(), good.key.as_str(), "cert.pem"),
            (good.certificate.as_str(), "", "key.pem"),
            (good.certificate.as_str(), good.certificate.as_str(), "key.pem"),
            (&good.certificate[..good.certificate.len() / 2], good.key.as_str(), "cert.pem"),
            (good.certificate.as_str(), &Pair::new().key, "key.pem"),
        ] {
            files.write(&Pair { certificate: certificate.to_owned(), key: key.to_owned() });
            let error = files.load().expect_err(blamed).to_string();
            assert!(error.contains(blamed), "{error}");
        }
        fs::remove_file(files.key()).expect("removed");
        assert!(matches!(files.load(), Err(TlsError::Unreadable { .. })));
        files.write(&Pair { certificate: good.certificate, key: "x".repeat(2 * 1024 * 1024) });
        assert!(matches!(files.load(), Err(TlsError::TooLarge { .. })));
    }

    #[test]
    fn files_are_read_again_when_they_change_and_what_is_of_no_use_changes_nothing() {
        let files = Files::new();
        let tls = files.load().expect("a pair");
        let first = current(&tls);
        tls.reload_if_changed();
        assert!(Arc::ptr_eq(&first, &current(&tls)));
        // Half of a change: a new certificate with the key of the old one.
        let next = Pair::new();
        fs::write(files.certificate(), &next.certificate).expect("written");
        tls.reload_if_changed();
        assert!(Arc::ptr_eq(&first, &current(&tls)));
        assert_eq!(counts(&tls), (0, 1));
        // It is told of once.
        tls.reload_if_changed();
        assert_eq!(counts(&tls), (0, 1));
        // The other half, as a file that takes the place of another.
        let beside = files.0.path().join("key.new");
        fs::write(&beside, &next.key).expect("written");
        fs::rename(&beside, files.key()).expect("renamed");
        tls.reload_if_changed();
        let second = current(&tls);
        assert!(!Arc::ptr_eq(&first, &second));
        assert_eq!(counts(&tls), (1, 1));
        // Files that are away are no news; those that come are.
        fs::remove_file(files.key()).expect("removed");
        tls.reload_if_changed();
        assert!(Arc::ptr_eq(&second, &current(&tls)));
        files.write(&Pair::new());
        tls.reload_if_changed();
        assert!(!Arc::ptr_eq(&second, &current(&tls)));
        // Asked for, they are read whether they have changed or not.
        assert!(tls.reload().is_ok());
        assert_eq!(counts(&tls), (3, 1));
    }
}
