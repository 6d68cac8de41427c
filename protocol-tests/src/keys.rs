//! Private keys and certificates of one test, made by `openssl`.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// An authority that believes in itself, and a folder for what it issues.
pub struct Keys {
    dir: TempDir,
}

impl Keys {
    #[track_caller]
    pub fn new() -> Keys {
        let keys = Keys { dir: tempfile::tempdir().expect("create a folder for keys") };
        let (key, certificate) = (keys.path("authority.key"), keys.authority());
        request(&key, &certificate, "authority", &[]);
        keys
    }

    /// The authority's certificate: what a trust store holds.
    pub fn authority(&self) -> PathBuf {
        self.path("authority.pem")
    }

    /// A file with a private key and a certificate for `CN=name`; `hosts` as `IP:127.0.0.1` or `DNS:localhost`.
    #[track_caller]
    pub fn issue(&self, name: &str, hosts: &str) -> PathBuf {
        let (key, certificate) = (self.path(&format!("{name}.key")), self.path(&format!("{name}.crt")));
        let (authority, authority_key) = (self.authority(), self.path("authority.key"));
        let hosts = format!("subjectAltName={hosts}");
        let signed = ["-CA", text(&authority), "-CAkey", text(&authority_key)];
        let usual = ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", &hosts];
        request(&key, &certificate, name, &[&signed[..], &usual[..]].concat());
        let both =
            [key, certificate].map(|path| std::fs::read(path).expect("read what openssl wrote")).concat();
        let path = self.path(&format!("{name}.pem"));
        std::fs::write(&path, both).expect("write a key store");
        path
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Default for Keys {
    fn default() -> Keys {
        Keys::new()
    }
}

#[track_caller]
fn request(key: &Path, certificate: &Path, name: &str, more: &[&str]) {
    let subject = format!("/CN={name}");
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]);
    command.args(["-days", "2", "-subj", &subject]).arg("-keyout").arg(key).arg("-out").arg(certificate);
    let output = command.args(more).output().expect("run openssl");
    assert!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a temporary path is text")
}
