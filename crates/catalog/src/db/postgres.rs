//! A database for many users: a PostgreSQL server.

use super::tls::Tls;
use super::{Db, Dialect, Row, Value};
use crate::error::{Error, Result};
use postgres::error::SqlState;
use postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use postgres::{Client, Config, Statement};
use std::collections::HashMap;
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Statements that are kept ready; with more of them all are forgotten.
const STATEMENTS_MAX: usize = 200;

pub(crate) struct Postgres {
    config: Config,
    tls: Tls,
    client: Client,
    /// The server and the database in words, without the password.
    name: String,
    statements: HashMap<String, Statement>,
}

impl Postgres {
    /// Connects to the server that a `postgres://` URL names. The password may also come from the variable PGPASSWORD.
    pub(crate) fn open(url: &str) -> Result<Postgres> {
        let (url, tls) = Tls::of_url(url)?;
        let mut config: Config = url.parse().map_err(|error: postgres::Error| {
            Error::bad(format!("the URL of the PostgreSQL server is wrong: {}", reason(&error)))
        })?;
        if config.get_password().is_none()
            && let Ok(password) = std::env::var("PGPASSWORD")
        {
            config.password(password);
        }
        config.connect_timeout(CONNECT_TIMEOUT).application_name("eyas").ssl_mode(tls.mode());
        let host = config.get_hosts().first().map_or("this machine".to_owned(), |host| match host {
            postgres::config::Host::Tcp(name) => name.clone(),
            postgres::config::Host::Unix(path) => path.display().to_string(),
        });
        let name = format!("the database `{}` at {host}", config.get_dbname().unwrap_or("postgres"));
        let client = connect(&config, &tls, &name)?;
        Ok(Postgres { config, tls, client, name, statements: HashMap::new() })
    }

    /// The connection, made anew if the server was away since.
    fn ready(&mut self) -> Result<()> {
        if self.client.is_closed() {
            self.statements.clear();
            self.client = connect(&self.config, &self.tls, &self.name)?;
        }
        Ok(())
    }

    fn statement(&mut self, sql: &str) -> Result<Statement> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(&numbered(sql)).map_err(|error| explain(&self.name, &error))?;
        if self.statements.len() >= STATEMENTS_MAX {
            self.statements.clear();
        }
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }
}

fn connect(config: &Config, tls: &Tls, name: &str) -> Result<Client> {
    config.connect(tls.connector()?).map_err(|error| match error.code() {
        Some(code) if *code == SqlState::INVALID_PASSWORD => {
            Error::Denied(format!("{name} refuses the user or the password: {}", reason(&error)))
        }
        Some(code) if *code == SqlState::INVALID_CATALOG_NAME => {
            Error::NotFound(format!("{name} does not exist: create it with `createdb`"))
        }
        // The library says so of what it was given, before it asks the server.
        None if error.to_string().starts_with("invalid configuration") => Error::Denied(format!(
            "{name} cannot be asked: {}; a password comes from the URL or from the variable PGPASSWORD",
            reason(&error)
        )),
        None if is_of_encryption(&error) => Error::Denied(format!(
            "{name} cannot be asked over an encrypted connection: {}; `sslmode` and `sslrootcert` in the URL say what is asked of it",
            reason(&error)
        )),
        _ => Error::Away { database: name.into(), reason: reason(&error) },
    })
}

/// Whether the two sides cannot agree on encryption, and not the network is to blame.
fn is_of_encryption(error: &postgres::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    error.to_string().starts_with("error performing TLS handshake")
        && source.is_none_or(|error| error.kind() == std::io::ErrorKind::InvalidData)
}

/// A statement with its values as this server numbers them, `$1` for `?1`.
fn numbered(sql: &str) -> String {
    sql.replace('?', "$")
}

/// The server's own words, or those of what lies below.
fn reason(error: &postgres::Error) -> String {
    if let Some(said) = error.as_db_error() {
        return said.message().to_owned();
    }
    std::error::Error::source(error).map_or_else(|| error.to_string(), |source| source.to_string())
}

fn explain(name: &str, error: &postgres::Error) -> Error {
    let database = name.to_owned();
    let reason = reason(error);
    // A row that is there already was made by another transaction: the one that comes again finds it.
    let collisions =
        [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED, SqlState::UNIQUE_VIOLATION];
    match error.code() {
        Some(code) if collisions.contains(code) => Error::Collided { database, reason },
        Some(_) => Error::Database { database, reason },
        None => Error::Away { database, reason },
    }
}

impl ToSql for Value {
    fn to_sql(
        &self,
        column: &Type,
        out: &mut bytes::BytesMut,
    ) -> std::result::Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Value::Null => Ok(IsNull::Yes),
            Value::Int(value) => value.to_sql(column, out),
            Value::Real(value) => value.to_sql(column, out),
            Value::Text(value) => value.to_sql(column, out),
            Value::Bytes(value) => value.to_sql(column, out),
        }
    }

    fn accepts(column: &Type) -> bool {
        [Type::INT8, Type::FLOAT8, Type::TEXT, Type::BYTEA].contains(column)
    }

    to_sql_checked!();
}

impl Db for Postgres {
    fn name(&self) -> &str {
        &self.name
    }

    fn dialect(&self) -> Dialect {
        Dialect {
            key: "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
            text: "TEXT COLLATE \"C\"",
            real: "DOUBLE PRECISION",
            bytes: "BYTEA",
            by_key: "",
        }
    }

    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64> {
        self.ready()?;
        let statement = self.statement(sql)?;
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
        self.client.execute(&statement, &values).map_err(|error| explain(&self.name, &error))
    }

    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>> {
        self.ready()?;
        let statement = self.statement(sql)?;
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
        let found = self.client.query(&statement, &values).map_err(|error| explain(&self.name, &error))?;
        let column = |row: &postgres::Row, column: usize| -> Value {
            match *row.columns()[column].type_() {
                Type::INT8 => row.get::<_, Option<i64>>(column).into(),
                Type::INT4 => row.get::<_, Option<i32>>(column).map(i64::from).into(),
                Type::FLOAT8 => row.get::<_, Option<f64>>(column).into(),
                Type::BYTEA => row.get::<_, Option<Vec<u8>>>(column).map_or(Value::Null, Value::Bytes),
                _ => row.get::<_, Option<String>>(column).into(),
            }
        };
        Ok(found.iter().map(|row| Row((0..row.len()).map(|n| column(row, n)).collect())).collect())
    }

    fn batch(&mut self, sql: &str) -> Result<()> {
        self.ready()?;
        self.client.batch_execute(sql).map_err(|error| explain(&self.name, &error))
    }

    fn begin(&mut self) -> Result<()> {
        self.batch("BEGIN ISOLATION LEVEL SERIALIZABLE")
    }

    fn commit(&mut self) -> Result<bool> {
        match self.batch("COMMIT") {
            Ok(()) => Ok(true),
            Err(Error::Collided { .. }) => {
                self.rollback();
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn rollback(&mut self) {
        // A connection that is gone has rolled back.
        let _ = self.client.batch_execute("ROLLBACK");
    }
}
