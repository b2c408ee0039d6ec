//! What can go wrong with a catalog, each in one sentence that names the thing.

/// What is wrong with a query, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the query is wrong at character {}: {message}\n  {}\n  {:>width$}", .at + 1, .extract, "^", width = .mark + 1)]
pub struct QueryError {
    /// The query, or the part of a long one around the mistake, on one line.
    pub extract: String,
    /// Where the mistake is in the extract, in characters.
    pub mark: usize,
    /// Where it is in the query, in characters from the start.
    pub at: usize,
    pub message: String,
}

/// The result of what a catalog is asked.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a catalog did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The query's text is wrong; the error knows where.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// What was given is wrong: a label, a tag, a path, a right.
    #[error("{0}")]
    BadInput(String),
    /// There is no such data set, version, file or site; or the caller may not know that there is one.
    #[error("{0}")]
    NotFound(String),
    /// The caller lacks a right.
    #[error("{0}")]
    Denied(String),
    /// The state of the catalog does not allow it: a site of that name is there, a file has no copy yet.
    #[error("{0}")]
    Conflict(String),
    /// Another process writes, and did not end in time. Trying again can help.
    #[error("another process holds {database} locked; nothing was changed, try again")]
    Locked { database: String },
    /// The database cannot be reached. Trying again can help.
    #[error("cannot reach {database}: {reason}")]
    Away { database: String, reason: String },
    /// The database answers that it takes no connection now. Trying again can help.
    #[error(
        "{database} takes no connection now: {reason}; try again later, or have its owner allow more (`max_connections`, or the \
         limit of the user or the database)"
    )]
    Busy { database: String, reason: String },
    /// A site elsewhere does not answer. Trying again can help.
    #[error("the site `{site}` cannot be reached: {reason}")]
    Unreached { site: String, reason: String },
    /// A site could not do what it was asked: its disk is full or cannot be written.
    #[error("{0}")]
    Failed(String),
    /// The disk under the database has no room. What frees room is still done ([`crate::Catalog::remove`] and repairs).
    #[error(
        "the disk of {database} is full; nothing was changed: `eyas data rm` and then `eyas data repair` make room where the site \
         is on the same disk"
    )]
    Full { database: String },
    /// The database was written by a newer program.
    #[error(
        "{database} has version {found} of the catalog's tables, and this program knows them up to {known}: \
         use the newer eyas that wrote it"
    )]
    Newer { database: String, found: i64, known: i64 },
    /// Another transaction was in the way of this one, which was not done. The catalog tries again by itself.
    #[error("{database}: {reason}")]
    Collided { database: String, reason: String },
    /// The database says something that the catalog does not expect.
    #[error("{database}: {reason}")]
    Database { database: String, reason: String },
}

impl Error {
    pub(crate) fn bad(message: impl Into<String>) -> Error {
        Error::BadInput(message.into())
    }

    /// Why a site cannot be reached, without saying that it cannot.
    pub(crate) fn reason(&self) -> String {
        match self {
            Error::Unreached { reason, .. } => reason.clone(),
            other => other.to_string(),
        }
    }

    /// Whether the same request may succeed later, with nothing changed.
    pub fn is_temporary(&self) -> bool {
        matches!(
            self,
            Error::Locked { .. } | Error::Away { .. } | Error::Busy { .. } | Error::Unreached { .. }
        )
    }

    /// Whether the database itself is in trouble, so that nothing else can be asked of the catalog either.
    pub fn is_of_database(&self) -> bool {
        match self {
            Error::Locked { .. }
            | Error::Away { .. }
            | Error::Busy { .. }
            | Error::Newer { .. }
            | Error::Collided { .. }
            | Error::Database { .. } => true,
            Error::Query(_)
            | Error::BadInput(_)
            | Error::NotFound(_)
            | Error::Denied(_)
            | Error::Conflict(_)
            | Error::Failed(_)
            // A repair goes on with what it can do.
            | Error::Full { .. }
            | Error::Unreached { .. } => false,
        }
    }
}
