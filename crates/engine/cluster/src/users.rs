//! A new user of a cluster: the join file that is their key, and the dispatcher that knows the key.

use eyas_client::{Client, Target};
use eyas_net::NetError;
use eyas_text::{shown, shown_path};
use eyas_wire::identity::IdentityError;
use eyas_wire::message::UserLine;
use eyas_wire::users::{ClusterRights, why_no_name};
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Why a user was not let in.
#[derive(thiserror::Error, Debug)]
pub enum NotLetIn {
    #[error("{0}")]
    Name(String),
    #[error(
        "{} is the join file of user {}; a user is added with the cluster's own",
        shown_path(join),
        shown(user)
    )]
    ByUser { join: PathBuf, user: String },
    #[error("{} is there already", shown_path(.0))]
    IsThere(PathBuf),
    #[error(transparent)]
    File(#[from] IdentityError),
    #[error(transparent)]
    Dispatcher(#[from] NetError),
}

/// Lets a user in. Writes their join file to `out`, which must not exist; there is none after an error. `None` for the rights or the
/// weight: what the dispatcher gives a user for whom nothing is said.
pub async fn let_in(
    target: &Target,
    name: &str,
    out: &Path,
    rights: Option<ClusterRights>,
    weight: Option<u32>,
) -> Result<UserLine, NotLetIn> {
    if let Some(why) = why_no_name(name) {
        return Err(NotLetIn::Name(why));
    }
    let own = target.join();
    if let Some(user) = &own.user {
        return Err(NotLetIn::ByUser { join: target.path().into(), user: user.clone() });
    }
    // A key that nobody can write down opens nothing, so the file comes first. Whoever makes it has its name, and nobody else's is
    // replaced.
    let mut new = OpenOptions::new();
    if let Err(source) = new.write(true).create_new(true).mode(0o600).open(out) {
        return Err(match source.kind() {
            ErrorKind::AlreadyExists => NotLetIn::IsThere(out.into()),
            _ => IdentityError::Write { path: out.display().to_string(), source }.into(),
        });
    }
    let added = async {
        let (join, key) = own.for_user(name)?;
        join.write(out)?;
        let mut client = Client::connect(target).await?;
        Ok::<_, NotLetIn>(client.set_user(name, Some(key), rights, weight).await?)
    };
    match added.await {
        Ok(users) => Ok(users.into_iter().find(|user| user.name == name).unwrap_or_default()),
        Err(error) => {
            // A file that cannot be removed is empty, or opens nothing.
            let _ = std::fs::remove_file(out);
            Err(error)
        }
    }
}
