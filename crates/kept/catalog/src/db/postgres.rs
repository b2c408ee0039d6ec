//! A database for many users: a PostgreSQL server.
//!
//! It has few connections, and each costs it memory. So a process has one at most, and gives it back when it asks nothing for
//! a second, or has had it for a while ([decision 0097](../../../../../docs/decisions/0097-connections-to-a-catalog.md)).

use super::tls::Tls;
use super::{Db, Dialect, Row, Value, random_part};
use crate::error::{Error, Result};
use postgres::error::SqlState;
use postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use postgres::{Client, Config, Statement};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Statements that are kept ready; with more of them all are forgotten.
const STATEMENTS_MAX: usize = 200;
/// How long a server is waited for that has no free connection, or that was lost.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// The longest pause between two tries to connect.
const PAUSE_MAX: Duration = Duration::from_millis(300);
/// A connection on which nothing was asked for so long is given back.
const IDLE_MAX: Duration = Duration::from_secs(1);
/// A connection that is this old is given back after the next request, so that others that wait for one have a turn.
const TERM: Duration = Duration::from_secs(5);

pub(crate) struct Postgres {
    config: Config,
    tls: Tls,
    /// The server and the database in words, without the password.
    name: String,
    /// The thread that gives an idle connection back has it, too.
    link: Arc<Mutex<Link>>,
}

/// The one connection, while there is one.
#[derive(Default)]
struct Link {
    client: Option<Client>,
    statements: HashMap<String, Statement>,
    /// Between the begin of a transaction and its end.
    in_transaction: bool,
    /// `None`: it was never made.
    made: Option<Instant>,
    used: Option<Instant>,
}

impl Link {
    fn give_back(&mut self) {
        self.client = None;
        self.statements.clear();
    }

    fn is_usable(&self) -> bool {
        self.client.as_ref().is_some_and(|client| !client.is_closed())
    }

    fn statement(&mut self, sql: &str) -> std::result::Result<Statement, postgres::Error> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client().prepare(&numbered(sql))?;
        if self.statements.len() >= STATEMENTS_MAX {
            self.statements.clear();
        }
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    fn client(&mut self) -> &mut Client {
        self.client.as_mut().expect("it was just made")
    }
}

/// Gives the connection back once nothing has been asked on it for a while.
fn watch(link: &Weak<Mutex<Link>>, made: Option<Instant>) {
    let mut pause = IDLE_MAX;
    loop {
        std::thread::sleep(pause);
        let Some(link) = link.upgrade() else { return };
        let mut link = lock(&link);
        let idle = link.used.map_or(IDLE_MAX, |used| used.elapsed());
        if link.client.is_none() || link.made != made {
            return;
        }
        if idle >= IDLE_MAX && !link.in_transaction {
            return link.give_back();
        }
        pause = IDLE_MAX.saturating_sub(idle).max(Duration::from_millis(10));
    }
}

fn lock(link: &Mutex<Link>) -> MutexGuard<'_, Link> {
    link.lock().unwrap_or_else(PoisonError::into_inner)
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
        let postgres = Postgres { config, tls, name, link: Arc::default() };
        postgres.connect(&mut lock(&postgres.link))?;
        Ok(postgres)
    }

    /// Statements with the names of the schema of the catalog's tables and of a role in them.
    fn named(&mut self, sql: &str, role: &str) -> Result<String> {
        let of_tables = "SELECT CAST(relnamespace::regnamespace AS TEXT) FROM pg_class WHERE oid = to_regclass('eyas_schema')";
        // The server quotes it where that is needed.
        let schema = self.query(of_tables, &[])?[0].text(0);
        Ok(sql.replace("{schema}", &schema).replace("{role}", &quoted(role)))
    }

    /// Makes the connection. A server that has none to give, or was lost, is waited for.
    fn connect(&self, link: &mut Link) -> Result<()> {
        link.give_back();
        let begun = Instant::now();
        let client = loop {
            match connect(&self.config, &self.tls, &self.name) {
                Err(Error::Busy { .. }) if begun.elapsed() < WAIT_MAX => {}
                // It was there before, so its name is right.
                Err(Error::Away { .. }) if link.made.is_some() && begun.elapsed() < WAIT_MAX => {}
                made => break made?,
            }
            std::thread::sleep(PAUSE_MAX.mul_f64((1.0 + 2.0 * random_part()) / 3.0));
        };
        link.client = Some(client);
        link.made = Some(Instant::now());
        link.used = link.made;
        let (watched, made) = (Arc::downgrade(&self.link), link.made);
        std::thread::spawn(move || watch(&watched, made));
        Ok(())
    }

    /// Asks the server, by a new connection where there is none. `repeats`: it may be asked again where the connection was lost.
    fn ask<T>(
        &mut self,
        repeats: bool,
        mut question: impl FnMut(&mut Link) -> std::result::Result<T, postgres::Error>,
    ) -> Result<T> {
        let link = &mut *lock(&self.link);
        let mut may_repeat = repeats && !link.in_transaction;
        loop {
            if !link.is_usable() {
                if link.in_transaction {
                    let reason =
                        "the connection was lost in the middle of a transaction, which is undone".into();
                    return Err(Error::Away { database: self.name.clone(), reason });
                }
                self.connect(link)?;
            }
            let asked = question(link).map_err(|error| explain(&self.name, &error));
            link.used = Some(Instant::now());
            match asked {
                Err(Error::Away { .. } | Error::Busy { .. }) => {
                    link.give_back();
                    if !std::mem::take(&mut may_repeat) {
                        return asked;
                    }
                }
                asked => {
                    if !link.in_transaction && link.made.is_some_and(|made| made.elapsed() >= TERM) {
                        link.give_back();
                    }
                    return asked;
                }
            }
        }
    }
}

/// A name as a statement has it.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn connect(config: &Config, tls: &Tls, name: &str) -> Result<Client> {
    config.connect(tls.connector()?).map_err(|error| match error.code() {
        Some(code) if *code == SqlState::INVALID_CATALOG_NAME => {
            Error::NotFound(format!("{name} does not exist: create it with `createdb`"))
        }
        // Of a right that is missing, and nothing that passes.
        Some(code) if ["28", "42"].iter().any(|class| code.code().starts_with(class)) => {
            Error::Denied(format!("{name} refuses the user or the password: {}", reason(&error)))
        }
        Some(code) if passes(code, &error) => Error::Busy { database: name.into(), reason: reason(&error) },
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

/// Whether the server says that it takes no connection or statement now, and will take it later: all connections of the server, the
/// database or the user are in use, or it starts, stops or recovers.
fn passes(code: &SqlState, error: &postgres::Error) -> bool {
    let states = [
        SqlState::TOO_MANY_CONNECTIONS,
        SqlState::OUT_OF_MEMORY,
        SqlState::INSUFFICIENT_RESOURCES,
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::IDLE_SESSION_TIMEOUT,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    ];
    // What stands before a server, as pgbouncer, has one state for all that it refuses.
    let of_pooler = || {
        let reason = reason(error);
        code.code().starts_with("08")
            && ["too many", "no more connections"].iter().any(|words| reason.contains(words))
    };
    states.contains(code) || of_pooler()
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
        Some(code) if passes(code, error) => Error::Busy { database, reason },
        // Also where a row is not this user's to change.
        Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => Error::Denied(format!(
            "{name} does not let its user do this: {reason}; whoever keeps the catalog can, and lets users in: eyas data user add NAME"
        )),
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
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
        self.ask(false, |link| {
            let statement = link.statement(sql)?;
            link.client().execute(&statement, &values)
        })
    }

    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>> {
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
        let found = self.ask(sql.trim_start().starts_with("SELECT"), |link| {
            let statement = link.statement(sql)?;
            link.client().query(&statement, &values)
        })?;
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
        self.ask(false, |link| link.client().batch_execute(sql))
    }

    fn begin(&mut self) -> Result<()> {
        self.ask(true, |link| {
            link.client().batch_execute("BEGIN ISOLATION LEVEL SERIALIZABLE")?;
            link.in_transaction = true;
            Ok(())
        })
    }

    fn commit(&mut self) -> Result<bool> {
        let committed = self.batch("COMMIT");
        match committed {
            Ok(()) => {
                lock(&self.link).in_transaction = false;
                Ok(true)
            }
            Err(error) => {
                self.rollback();
                if matches!(error, Error::Collided { .. }) { Ok(false) } else { Err(error) }
            }
        }
    }

    fn has_tables(&mut self) -> Result<bool> {
        let sql = "SELECT CAST(to_regclass('eyas_schema') IS NOT NULL AS INT)";
        Ok(self.query(sql, &[])?[0].int(0) == 1)
    }

    /// Whoever has the rights of the tables' owner is held by no row's security, and keeps the catalog.
    fn role(&mut self) -> Result<Option<String>> {
        let sql = "SELECT CAST(pg_has_role(current_user, relowner, 'USAGE') AS INT), CAST(current_user AS TEXT) \
                   FROM pg_class WHERE oid = to_regclass('eyas_schema')";
        let rows = self.query(sql, &[])?;
        Ok(rows.first().filter(|row| row.int(0) == 0).map(|row| row.text(1)))
    }

    fn guard(&mut self) -> Result<()> {
        let sql = self.named(include_str!("guards.sql"), "")?;
        self.batch(&sql)
    }

    fn claim(&mut self, digests: &[Value]) -> Result<()> {
        let rows: Vec<String> = (1..=digests.len()).map(|n| format!("(CAST(?{n} AS BYTEA))")).collect();
        let sql = format!(
            "SELECT eyas_claim(CAST(current_user AS TEXT), said.column1) FROM (VALUES {}) AS said WHERE NOT \
             pg_has_role(current_user, (SELECT relowner FROM pg_class WHERE oid = to_regclass('object')), 'USAGE')",
            rows.join(", ")
        );
        self.query(&sql, digests).map(|_| ())
    }

    fn admit(&mut self, user: &str) -> Result<()> {
        let sql = "SELECT 1 FROM pg_roles WHERE CAST(rolname AS TEXT) = ?1";
        if self.query(sql, &[user.into()])?.is_empty() {
            return Err(Error::Conflict(format!(
                "{} has no user {}, whom its owner makes: createuser --pwprompt {user}",
                self.name,
                eyas_text::shown(user)
            )));
        }
        let sql = self.named(include_str!("admit.sql"), user)?;
        self.batch(&sql)
    }

    fn expel(&mut self, user: &str) -> Result<()> {
        let sql = "SELECT 1 FROM pg_roles WHERE CAST(rolname AS TEXT) = ?1";
        if self.query(sql, &[user.into()])?.is_empty() {
            return Ok(());
        }
        let sql = self.named(include_str!("expel.sql"), user)?;
        self.batch(&sql)
    }

    /// Which server it is, on which of its timelines, and its own number of the table: a restore makes the table anew.
    fn marks_outside(&mut self) -> Result<Vec<String>> {
        let sql = "SELECT CAST(coalesce(has_function_privilege(to_regprocedure(name), 'EXECUTE'), false) AS INT) \
                   FROM (VALUES ('pg_control_system()'), ('pg_control_checkpoint()')) AS asked (name)";
        let may_ask = self.query(sql, &[])?.iter().all(|row| row.int(0) == 1);
        let server = match may_ask {
            true => {
                "(SELECT system_identifier FROM pg_control_system()) || '/' || \
                     (SELECT timeline_id FROM pg_control_checkpoint()) || '/' ||"
            }
            false => "",
        };
        let sql = format!(
            "SELECT {server} (SELECT oid FROM pg_database WHERE datname = current_database()) || '/' || oid || '/' || \
             pg_relation_filenode(oid) FROM pg_class WHERE oid = 'last_change'::regclass"
        );
        Ok(self.query(&sql, &[])?.iter().map(|row| row.text(0)).collect())
    }

    fn next_mark(&mut self, _: Option<&str>) -> Result<String> {
        let marks = self.marks_outside()?;
        marks.into_iter().next().ok_or_else(|| Error::Database {
            database: self.name.clone(),
            reason: "the server does not know its own tables".into(),
        })
    }

    fn rollback(&mut self) {
        let mut link = lock(&self.link);
        // A connection that is gone has rolled back.
        if let Some(client) = &mut link.client {
            let _ = client.batch_execute("ROLLBACK");
        }
        link.in_transaction = false;
    }
}
