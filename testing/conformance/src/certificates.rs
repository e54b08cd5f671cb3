//! Certificates for tests: a root of one's own, and servers that it vouches for.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// A root and the files that a server and its clients need.
pub(crate) struct Certificates {
    root: CertifiedIssuer<'static, KeyPair>,
    dir: PathBuf,
}

impl Certificates {
    /// Makes a root, and a first certificate in the files.
    pub(crate) fn new(dir: &Path) -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, "a root for tests");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let certificates = Self { root, dir: dir.to_owned() };
        fs::write(certificates.root(), certificates.root.pem())?;
        certificates.renew()?;
        Ok(certificates)
    }

    /// Puts a new certificate and key in the files' places.
    pub(crate) fn renew(&self) -> Result<()> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, "localhost");
        let made = params.signed_by(&key, &self.root)?;
        replace(&self.key(), &key.serialize_pem())?;
        replace(&self.certificate(), &made.pem())
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.join("root.pem")
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.dir.join("cert.pem")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.dir.join("key.pem")
    }
}

/// Has a file take the place of another, as those who renew certificates do.
fn replace(path: &Path, text: &str) -> Result<()> {
    let beside = path.with_extension("new");
    fs::write(&beside, text)?;
    Ok(fs::rename(beside, path)?)
}
