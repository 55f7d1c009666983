//! Secrets and certificates for etcd. They come from the environment or from files, never from an
//! address or a command line.

use std::fmt;

use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};

use crate::error::ConnectError;

/// Largest file read as a certificate, key or password, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// What etcd asks for. `Debug` shows which parts are set and nothing of them.
#[derive(Clone, Default)]
pub struct EtcdCredentials {
    user: Option<(String, String)>,
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for EtcdCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdCredentials")
            .field("user", &self.user.is_some())
            .field("ca", &self.ca.is_some())
            .field("identity", &self.identity.is_some())
            .finish()
    }
}

impl EtcdCredentials {
    /// Reads them through `lookup`, a view of the environment: `KVWIRE_ETCD_USER` with
    /// `KVWIRE_ETCD_PASSWORD` or `KVWIRE_ETCD_PASSWORD_FILE`; for TLS the PEM files named by
    /// `KVWIRE_ETCD_CA`, `KVWIRE_ETCD_CERT` and `KVWIRE_ETCD_KEY`.
    ///
    /// # Errors
    /// [`ConnectError::Config`] names the variable that is missing or the file that cannot be read.
    pub fn from_env(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ConnectError> {
        let set = |name: &str| lookup(name).filter(|v| !v.is_empty());
        let file = |name: &str| set(name).map(|path| read(name, &path)).transpose();
        let mut password = set("KVWIRE_ETCD_PASSWORD");
        if password.is_none()
            && let Some(bytes) = file("KVWIRE_ETCD_PASSWORD_FILE")?
        {
            let text = String::from_utf8(bytes)
                .map_err(|_| config("the file of KVWIRE_ETCD_PASSWORD_FILE is not text"))?;
            password = Some(text.trim_end_matches(['\r', '\n']).to_owned());
        }
        let user = match (set("KVWIRE_ETCD_USER"), password) {
            (Some(user), Some(password)) => Some((user, password)),
            (None, None) => None,
            (Some(_), None) => {
                return Err(config(
                    "KVWIRE_ETCD_USER is set; set KVWIRE_ETCD_PASSWORD or KVWIRE_ETCD_PASSWORD_FILE too",
                ));
            }
            (None, Some(_)) => return Err(config("an etcd password is set; set KVWIRE_ETCD_USER too")),
        };
        let identity = match (file("KVWIRE_ETCD_CERT")?, file("KVWIRE_ETCD_KEY")?) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => {
                return Err(config(
                    "KVWIRE_ETCD_CERT and KVWIRE_ETCD_KEY belong together: set both or neither",
                ));
            }
        };
        Ok(Self { user, ca: file("KVWIRE_ETCD_CA")?, identity })
    }

    /// Adds user and TLS to the client's options.
    pub(crate) fn apply(
        &self,
        mut options: ConnectOptions,
        tls: bool,
    ) -> Result<ConnectOptions, ConnectError> {
        if let Some((user, password)) = &self.user {
            options = options.with_user(user, password);
        }
        if !tls {
            if self.ca.is_some() || self.identity.is_some() {
                return Err(config(
                    "certificates for etcd are set but the address is etcd://: write etcds:// for TLS",
                ));
            }
            return Ok(options);
        }
        let ca = self.ca.as_ref().ok_or_else(|| {
            config("etcds:// needs the cluster's CA certificate: set KVWIRE_ETCD_CA to its PEM file")
        })?;
        let mut with = TlsOptions::new().ca_certificate(Certificate::from_pem(ca));
        if let Some((cert, key)) = &self.identity {
            with = with.identity(Identity::from_pem(cert, key));
        }
        Ok(options.with_tls(with))
    }
}

fn config(text: &str) -> ConnectError {
    ConnectError::Config(text.to_owned())
}

fn read(name: &str, path: &str) -> Result<Vec<u8>, ConnectError> {
    let failed = |e: std::io::Error| ConnectError::Config(format!("{name}: cannot read {path}: {e}"));
    let size = std::fs::metadata(path).map_err(failed)?.len();
    if size > MAX_FILE {
        return Err(ConnectError::Config(format!(
            "{name}: {path} has {size} bytes, more than any certificate or password"
        )));
    }
    std::fs::read(path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(vars: &[(&str, &str)]) -> Result<EtcdCredentials, ConnectError> {
        let vars: Vec<(String, String)> = vars.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        EtcdCredentials::from_env(move |name| vars.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone()))
    }

    #[test]
    fn debug_shows_no_secret() {
        let credentials = from(&[("KVWIRE_ETCD_USER", "root"), ("KVWIRE_ETCD_PASSWORD", "hunter2")]).unwrap();
        assert_eq!(format!("{credentials:?}"), "EtcdCredentials { user: true, ca: false, identity: false }");
    }

    #[test]
    fn a_password_file_loses_its_line_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "pass word\n").unwrap();
        let path = file.path().to_str().unwrap();
        let credentials = from(&[("KVWIRE_ETCD_USER", "u"), ("KVWIRE_ETCD_PASSWORD_FILE", path)]).unwrap();
        assert_eq!(credentials.user, Some(("u".into(), "pass word".into())));
    }

    #[test]
    fn halves_are_refused_by_name() {
        for (vars, part) in [
            (&[("KVWIRE_ETCD_USER", "u")][..], "KVWIRE_ETCD_PASSWORD"),
            (&[("KVWIRE_ETCD_PASSWORD", "p")][..], "KVWIRE_ETCD_USER"),
            (&[("KVWIRE_ETCD_CA", "/nonexistent")][..], "KVWIRE_ETCD_CA"),
        ] {
            assert!(from(vars).unwrap_err().to_string().contains(part));
        }
        let tls = EtcdCredentials::default().apply(ConnectOptions::new(), true);
        assert!(tls.unwrap_err().to_string().contains("KVWIRE_ETCD_CA"));
    }
}
