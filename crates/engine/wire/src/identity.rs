//! The members of a cluster, and how they prove it.
//!
//! A dispatcher makes an [`Identity`] once per directory: a random secret, a certificate authority and one
//! member certificate. All of it is in the join file (mode 0600). A process that can read that file is a
//! member; no other gets past the TLS handshake. There is nothing to configure and no way to turn it off.
//! Data-plane tickets are signed with a key derived from the same secret.

use crate::users::{KnownKeys, UserKey};
use eyas_text::line_of;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::client::Resumption;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
    server::WebPkiClientVerifier,
};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The name in every member's certificate; peers are distinguished by address, and members are recognised by
/// the certificate.
const MEMBER_NAME: &str = "member.eyas";

/// The moment at which all certificates of a cluster are judged, whatever the machine's clock says. It is
/// within the years for which `rcgen` makes certificates (1975 to 4096). They are valid as long as the secret
/// beside them in the join file, which has no end. So a node whose clock is a day off, or begins in 1970 at
/// each start, is a member like any other.
#[derive(Debug)]
struct WithinValidity;

impl TimeProvider for WithinValidity {
    fn current_time(&self) -> Option<UnixTime> {
        const START_OF_2026_S: u64 = 1_767_225_600;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(START_OF_2026_S)))
    }
}

/// Version of the join file.
const JOIN_VERSION: u32 = 1;
/// Larger than any join file.
const JOIN_BYTES_MAX: u64 = 1 << 20;

#[derive(thiserror::Error, Debug)]
pub enum IdentityError {
    #[error("cannot read the join file {}: {source}", eyas_text::shown_path(Path::new(path)))]
    Read { path: String, source: io::Error },
    #[error("cannot write {}: {source}", eyas_text::shown_path(Path::new(path)))]
    Write { path: String, source: io::Error },
    #[error("{} is not a join file of this version of eyas: {why}", eyas_text::shown_path(Path::new(path)))]
    Invalid { path: String, why: String },
    #[error(
        "the join file `{path}` is a key to the cluster, and others may read it (mode {mode:04o}); it is not used: \
         `chmod 600 {path}`"
    )]
    ReadByOthers { path: String, mode: u32 },
    #[error("{} is the join file of {kind}; this needs {needed}", eyas_text::shown_path(Path::new(path)))]
    OfAnother { path: String, kind: String, needed: &'static str },
    #[error(
        "a certificate or the key in the join file is damaged ({0}): bring the file anew from where it was written"
    )]
    Damaged(String),
    #[error("cannot make the cluster's certificates: {0}")]
    Certificates(String),
}

/// What a member needs to reach a cluster and to be accepted; the content of `join.json`.
#[derive(Clone, Serialize, Deserialize)]
pub struct Join {
    version: u32,
    /// `host:port` of the dispatcher.
    pub address: String,
    /// The address for processes on the dispatcher's own machine, where `address` is one that somebody gave: it may be
    /// another machine's, which passes connections on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address_here: Option<String>,
    /// The site's name, where this is the join file of a store and not of a dispatcher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// The user's name, where this is the join file of a user and not the cluster's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Whether this is the join file of a hub, at which stores wait for those who want to reach them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_hub: bool,
    /// The join file of the hub through which this store is reached. It has no address of its own then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<Box<Join>>,
    /// The name of this cluster; a new directory makes a new one.
    pub cluster: String,
    /// Directory of the dispatcher on its own machine, for commands that run there.
    pub dir: String,
    /// The addresses of the dispatchers of a group, including this one, as far as they are known (an empty
    /// text stands for an unknown address). Empty if there is only one dispatcher.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
    /// Where relays of this dispatcher take executors in, which go to the dispatcher itself where none does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relays: Vec<String>,
    #[serde(flatten)]
    pub identity: Identity,
}

/// The cluster's secret and certificates.
#[derive(Clone, Serialize, Deserialize)]
pub struct Identity {
    secret: String,
    authority_pem: String,
    certificate_pem: String,
    key_pem: String,
}

impl Identity {
    /// A new cluster's identity, from the operating system's randomness.
    pub fn generate() -> Result<Identity, IdentityError> {
        let bad = |e: rcgen::Error| IdentityError::Certificates(line_of(&e.to_string()).to_string());
        let authority_key = KeyPair::generate().map_err(bad)?;
        let mut authority = CertificateParams::new(vec![]).map_err(bad)?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let authority_pem = authority.self_signed(&authority_key).map_err(bad)?.pem();
        let issuer = Issuer::new(authority, authority_key);
        let key = KeyPair::generate().map_err(bad)?;
        let mut member = CertificateParams::new(vec![MEMBER_NAME.to_string()]).map_err(bad)?;
        member.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate_pem = member.signed_by(&key, &issuer).map_err(bad)?.pem();
        // The member key is random and unknown to anybody else, so it can seed the ticket secret.
        let secret = blake3::derive_key("eyas 2026 cluster secret", key.serialized_der());
        let secret = secret.iter().map(|b| format!("{b:02x}")).collect();
        Ok(Identity { secret, authority_pem, certificate_pem, key_pem: key.serialize_pem() })
    }

    /// The secret from which the keys of tickets and of the data plane are derived.
    pub fn secret(&self) -> &[u8] {
        self.secret.as_bytes()
    }

    fn parts(
        &self,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>, RootCertStore), IdentityError> {
        let bad = |e: &dyn std::fmt::Display| IdentityError::Damaged(line_of(&e.to_string()).to_string());
        let certificate =
            CertificateDer::from_pem_slice(self.certificate_pem.as_bytes()).map_err(|e| bad(&e))?;
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).map_err(|e| bad(&e))?;
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(self.authority_pem.as_bytes()).map_err(|e| bad(&e))?;
        roots.add(authority).map_err(|e| bad(&e))?;
        Ok((vec![certificate], key, roots))
    }

    /// For the side that listens: accepts only members.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, IdentityError> {
        self.server_config_with(Arc::default())
    }

    /// For the side that listens: accepts members, and users whose keys are known.
    pub fn server_config_with(&self, users: Arc<KnownKeys>) -> Result<Arc<ServerConfig>, IdentityError> {
        let bad = |e: &dyn std::fmt::Display| IdentityError::Damaged(line_of(&e.to_string()).to_string());
        let (chain, key, roots) = self.parts()?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .build()
            .map_err(|e| bad(&e))?;
        let verifier = Arc::new(MembersAndUsers { members: verifier, users });
        let mut config = ServerConfig::builder_with_details(provider, Arc::new(WithinValidity))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| bad(&e))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|e| bad(&e))?;
        // Members stay connected, and prove themselves anew each time: nobody ever resumes a session.
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    /// For the side that connects: proves membership, and talks only to members.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, IdentityError> {
        let bad = |e: &dyn std::fmt::Display| IdentityError::Damaged(line_of(&e.to_string()).to_string());
        let (chain, key, roots) = self.parts()?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_details(provider, Arc::new(WithinValidity))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| bad(&e))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(|e| bad(&e))?;
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }

    /// A new user's identity: it can talk to this cluster's dispatchers, which have to know its key. It has nothing of the cluster's
    /// secret.
    pub fn for_user(&self) -> Result<Identity, IdentityError> {
        let bad = |e: rcgen::Error| IdentityError::Certificates(line_of(&e.to_string()).to_string());
        let key = KeyPair::generate().map_err(bad)?;
        let mut user = CertificateParams::new(vec![]).map_err(bad)?;
        user.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate_pem = user.self_signed(&key).map_err(bad)?.pem();
        Ok(Identity {
            secret: String::new(),
            authority_pem: self.authority_pem.clone(),
            certificate_pem,
            key_pem: key.serialize_pem(),
        })
    }

    /// The digest of this identity's certificate.
    pub fn key(&self) -> Result<UserKey, IdentityError> {
        let (chain, ..) = self.parts()?;
        Ok(UserKey::of(&chain[0]))
    }

    /// The name that a member's certificate is checked for.
    pub fn server_name() -> ServerName<'static> {
        ServerName::try_from(MEMBER_NAME).expect("the member name is a valid DNS name")
    }

    /// Writes this identity to `path` (mode 0600), for another dispatcher of the same cluster.
    pub fn keep(&self, path: &Path) -> Result<(), IdentityError> {
        write_private(path, &serde_json::to_vec(self).expect("plain strings"))
    }

    /// Reads the identity at `path`, or makes a new one and writes it there (mode 0600), so that a restarted
    /// dispatcher is the same cluster.
    pub fn load_or_generate(path: &Path) -> Result<Identity, IdentityError> {
        match std::fs::read_to_string(path) {
            Ok(text) => serde_json::from_slice(text.as_bytes()).map_err(|e| IdentityError::Invalid {
                path: path.display().to_string(),
                why: line_of(&e.to_string()).to_string(),
            }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let identity = Identity::generate()?;
                identity.keep(path)?;
                Ok(identity)
            }
            Err(source) => Err(IdentityError::Read { path: path.display().to_string(), source }),
        }
    }
}

/// Lets members in by the cluster's authority, and users by the digests of their certificates.
#[derive(Debug)]
struct MembersAndUsers {
    members: Arc<dyn ClientCertVerifier>,
    users: Arc<KnownKeys>,
}

impl ClientCertVerifier for MembersAndUsers {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // A user's certificate has no authority, so none is named.
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        match self.users.has(&UserKey::of(end_entity)) {
            true => Ok(ClientCertVerified::assertion()),
            false => self.members.verify_client_cert(end_entity, intermediates, now),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.members.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.members.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.members.supported_verify_schemes()
    }
}

impl Join {
    pub fn new(address: String, cluster: String, dir: String, identity: Identity) -> Join {
        Join {
            version: JOIN_VERSION,
            address,
            address_here: None,
            store: None,
            user: None,
            is_hub: false,
            through: None,
            cluster,
            dir,
            members: vec![],
            relays: vec![],
            identity,
        }
    }

    /// Reads the join file of a dispatcher. A file of this user that others may read is refused, as `ssh` does with a private
    /// key.
    pub fn read(path: &Path) -> Result<Join, IdentityError> {
        let (join, _) = Join::read_any(path)?;
        join.must_be(join.store.is_none() && !join.is_hub, path, "the join file of a dispatcher")?;
        Ok(join)
    }

    /// The join file of a new user, and their key.
    pub fn for_user(&self, name: &str) -> Result<(Join, UserKey), IdentityError> {
        let identity = self.identity.for_user()?;
        let key = identity.key()?;
        Ok((Join { user: Some(name.into()), relays: vec![], identity, ..self.clone() }, key))
    }

    /// Reads the join file of a store, in the same way; gives its text, too.
    pub fn read_of_store(path: &Path) -> Result<(Join, String), IdentityError> {
        let (join, text) = Join::read_any(path)?;
        join.must_be(join.store.is_some(), path, "the one that `eyas store` writes")?;
        Ok((join, text))
    }

    /// Reads the join file of a hub, in the same way.
    pub fn read_of_hub(path: &Path) -> Result<Join, IdentityError> {
        let (join, _) = Join::read_any(path)?;
        join.must_be(join.is_hub, path, "the one that `eyas data hub` writes")?;
        Ok(join)
    }

    fn must_be(&self, is: bool, path: &Path, needed: &'static str) -> Result<(), IdentityError> {
        let kind = match &self.store {
            _ if is => return Ok(()),
            Some(store) => format!("the store `{}`", line_of(store)),
            None if self.is_hub => "a hub".into(),
            None => "a dispatcher".into(),
        };
        Err(IdentityError::OfAnother { path: path.display().to_string(), kind, needed })
    }

    fn read_any(path: &Path) -> Result<(Join, String), IdentityError> {
        let name = path.display().to_string();
        let read = || -> io::Result<(String, std::fs::Metadata)> {
            let file = std::fs::File::open(path)?;
            let metadata = file.metadata()?;
            // A pipe has an end; a device may have none.
            if !metadata.is_file() && !metadata.file_type().is_fifo() {
                return Err(io::Error::other("it is no file"));
            }
            let mut text = String::new();
            file.take(JOIN_BYTES_MAX).read_to_string(&mut text)?;
            Ok((text, metadata))
        };
        let (text, metadata) = read().map_err(|source| IdentityError::Read { path: name.clone(), source })?;
        let mode = metadata.mode() & 0o7777;
        if metadata.uid() == rustix::process::geteuid().as_raw() && mode & 0o077 != 0 {
            return Err(IdentityError::ReadByOthers { path: name, mode });
        }
        let join: Join = serde_json::from_slice(text.as_bytes()).map_err(|e| IdentityError::Invalid {
            path: name.clone(),
            why: line_of(&e.to_string()).to_string(),
        })?;
        if join.version != JOIN_VERSION {
            let why = format!("its version is {}, this eyas reads {JOIN_VERSION}", join.version);
            return Err(IdentityError::Invalid { path: name, why });
        }
        Ok((join, text))
    }

    /// Writes the join file (mode 0600) in one step, so that a process that sees it can use it.
    pub fn write(&self, path: &Path) -> Result<(), IdentityError> {
        write_private(path, &serde_json::to_vec_pretty(self).expect("plain strings"))
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

fn write_private(path: &Path, bytes: &[u8]) -> Result<(), IdentityError> {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    // Not made of the file's own name, which may be as long as a name can be. Two threads may write at once.
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_file_name(format!(".eyas-{}-{number}.tmp", std::process::id()));
    let write = || -> io::Result<()> {
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    };
    write().map_err(|source| {
        let _ = std::fs::remove_file(&temporary);
        IdentityError::Write { path: path.display().to_string(), source }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::PermissionsExt;

    /// Does a TLS handshake and one byte each way over loopback; says whether both sides agreed.
    fn handshake(server: &Identity, client: &Identity) -> io::Result<()> {
        handshake_with(server.server_config().unwrap(), client)
    }

    fn handshake_with(config: Arc<ServerConfig>, client: &Identity) -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let accept = std::thread::spawn(move || -> io::Result<()> {
            let (tcp, _) = listener.accept()?;
            let mut tls = rustls::StreamOwned::new(rustls::ServerConnection::new(config).unwrap(), tcp);
            let mut byte = [0];
            tls.read_exact(&mut byte)?;
            tls.write_all(&byte)?;
            tls.flush()
        });
        let connection =
            rustls::ClientConnection::new(client.client_config().unwrap(), Identity::server_name()).unwrap();
        let mut tls = rustls::StreamOwned::new(connection, TcpStream::connect(address)?);
        let mut byte = [7];
        let spoke = tls.write_all(&byte).and_then(|()| tls.read_exact(&mut byte));
        drop(tls);
        accept.join().expect("the server thread ends").and(spoke)
    }

    #[test]
    fn members_meet_and_strangers_do_not() {
        let (ours, theirs) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        handshake(&ours, &ours).unwrap();
        assert!(handshake(&ours, &theirs).is_err(), "another cluster's member is refused");
    }

    #[test]
    fn a_user_gets_in_while_the_key_is_known_and_is_no_member() {
        let cluster = Identity::generate().unwrap();
        let (user, users) = (cluster.for_user().unwrap(), Arc::new(KnownKeys::default()));
        assert!(user.secret().is_empty() && user.key().unwrap() != cluster.key().unwrap());
        let config = || cluster.server_config_with(users.clone()).unwrap();
        assert!(handshake_with(config(), &user).is_err(), "nobody knows the key yet");
        users.set([user.key().unwrap()]);
        handshake_with(config(), &user).unwrap();
        handshake_with(config(), &cluster).unwrap();
        assert!(handshake_with(config(), &Identity::generate().unwrap()).is_err());
        assert!(handshake_with(config(), &cluster.for_user().unwrap()).is_err(), "another user's");
        assert!(handshake(&cluster, &user).is_err(), "nodes let no users in");
        assert!(handshake(&user, &cluster).is_err(), "a user is nobody's server");
        users.set([]);
        assert!(handshake_with(config(), &user).is_err(), "the key was taken back");
    }

    #[test]
    fn a_join_file_is_private_and_round_trips() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("join.json");
        let join = Join::new("127.0.0.1:1".into(), "c".into(), "/d".into(), Identity::generate().unwrap());
        join.write(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let read = Join::read(&path).unwrap();
        assert_eq!((read.address.as_str(), read.identity.secret()), ("127.0.0.1:1", join.identity.secret()));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let refused = Join::read(&path).err().unwrap().to_string();
        assert!(refused.contains("mode 0640") && refused.contains("chmod 600"), "{refused}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
        Join::read(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, "{").unwrap();
        assert!(matches!(Join::read(&path), Err(IdentityError::Invalid { .. })));
    }

    #[test]
    fn an_identity_outlives_its_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("identity.json");
        let first = Identity::load_or_generate(&path).unwrap();
        let second = Identity::load_or_generate(&path).unwrap();
        assert_eq!(first.secret(), second.secret());
        handshake(&first, &second).unwrap();
    }
}
