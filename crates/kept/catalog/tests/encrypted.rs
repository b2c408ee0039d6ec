//! Encrypted connections to a real PostgreSQL server, whose certificate is looked at as far as was asked for.

mod common;

use common::{NOW, Server};
use eyas_catalog::{Catalog, Error};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

/// Somebody who signs certificates.
fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A server on a port of this machine, which talks encrypted only; its certificate is for `localhost`.
fn server(authority: &CertifiedIssuer<'static, KeyPair>, port: u16) -> Server {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    Server::start_with(|data| {
        let owner = fs::metadata(data).unwrap().uid();
        for (name, text) in [
            ("server.crt", certificate.pem()),
            ("server.key", key.serialize_pem()),
            ("pg_hba.conf", "local all all trust\nhostssl all all samehost trust\n".to_owned()),
        ] {
            let path = data.join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            chown(&path, Some(owner), None).unwrap();
        }
        format!("-c listen_addresses=localhost -c port={port} -c ssl=on")
    })
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn denied(url: &str) -> String {
    match Catalog::init(url, NOW) {
        Err(Error::Denied(reason)) => reason,
        Err(error) => panic!("{url}: {error:?}"),
        Ok(_) => panic!("{url} was opened"),
    }
}

#[test]
fn the_server_is_asked_for_as_much_as_the_url_says() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let (ours, theirs) = (authority(), authority());
    let (ours_at, theirs_at) = (write("ours.crt", &ours.pem()), write("theirs.crt", &theirs.pem()));
    let port = free_port();
    let _server = server(&ours, port);
    let url = |host: &str, mode: &str, root: &Path| {
        format!("postgres://eyas@{host}:{port}/postgres?sslmode={mode}&sslrootcert={}", root.display())
    };
    let plain = format!("postgres://eyas@localhost:{port}/postgres");

    // The server takes no connection that is not encrypted, and the first one makes the tables.
    let error = Catalog::init(&format!("{plain}?sslmode=disable"), NOW).err().unwrap().to_string();
    assert!(error.contains("no encryption"), "{error}");
    Catalog::init(&plain, NOW).unwrap();
    Catalog::open(&format!("{plain}?sslmode=require"), NOW).unwrap();
    for (host, mode) in [("localhost", "verify-full"), ("localhost", "verify-ca"), ("127.0.0.1", "verify-ca")]
    {
        Catalog::open(&url(host, mode, &ours_at), NOW).unwrap();
        let unknown = denied(&url(host, mode, &theirs_at));
        assert!(unknown.contains("UnknownIssuer") || unknown.contains("BadSignature"), "{unknown}");
    }
    let other_name = denied(&url("127.0.0.1", "verify-full", &ours_at));
    assert!(other_name.contains("not valid for name"), "{other_name}");
    denied(&url("localhost", "require", &theirs_at));

    for (path, what) in [
        (folder.path().join("none.crt"), "none.crt"),
        (write("broken.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "broken.crt"),
        (write("empty.crt", ""), "empty.crt"),
    ] {
        let error = Catalog::open(&url("localhost", "verify-full", &path), NOW).err().unwrap().to_string();
        assert!(error.contains(what) && error.contains("sslrootcert"), "{error}");
    }
}

/// A server without certificates is not asked in plain text where encryption is wanted.
#[test]
fn a_server_without_encryption_is_refused_where_it_is_wanted() {
    let port = free_port();
    let _server = Server::start_with(|_| format!("-c listen_addresses=localhost -c port={port}"));
    let url = format!("postgres://eyas@localhost:{port}/postgres");
    let error = denied(&format!("{url}?sslmode=require"));
    assert!(error.contains("does not support TLS"), "{error}");
    Catalog::init(&url, NOW).unwrap();
}
