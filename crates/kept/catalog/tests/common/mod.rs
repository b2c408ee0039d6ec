//! Catalogs for tests: in files, and in a PostgreSQL server that each test process starts for itself.

// Each test file uses a part of it.
#![allow(dead_code)]

use eyas_catalog::{Caller, Catalog, Draft, File, NewSite, ReplicaState, Tag};
use eyas_data::Digest;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const NOW: i64 = 1_800_000_000_000;

/// Makes empty catalogs of one kind.
pub trait Databases {
    /// The URL of a new database, without tables.
    fn url(&self, name: &str) -> String;

    fn catalog(&self, name: &str) -> Catalog {
        Catalog::init(&self.url(name), NOW).unwrap()
    }
}

pub struct InFiles(tempfile::TempDir);

impl InFiles {
    pub fn new() -> InFiles {
        InFiles(tempfile::tempdir().unwrap())
    }
}

impl Databases for InFiles {
    fn url(&self, name: &str) -> String {
        format!("sqlite:{}", self.0.path().join(format!("{name}.db")).display())
    }
}

/// A PostgreSQL server on a socket in a folder, which is ended with the test.
pub struct Server {
    folder: tempfile::TempDir,
    programs: PathBuf,
}

impl Server {
    pub fn start() -> Server {
        Server::start_with(|_| "-c listen_addresses=''".to_owned())
    }

    /// The same; `prepare` gets the folder of its data, and returns further options.
    pub fn start_with(prepare: impl FnOnce(&Path) -> String) -> Server {
        let programs = programs().expect(
            "PostgreSQL's programs initdb and pg_ctl are not installed: this test needs the package `postgresql`",
        );
        let folder = tempfile::tempdir().unwrap();
        // The server refuses to run as root, so root starts it as the user that the package has made.
        if rustix::process::geteuid().as_raw() == 0 {
            let user = Command::new("id").args(["-u", "postgres"]).output().unwrap();
            let user: u32 =
                String::from_utf8(user.stdout).unwrap().trim().parse().expect("a user `postgres`");
            chown(folder.path(), Some(user), None).unwrap();
        }
        let server = Server { folder, programs };
        let data = server.folder.path().join("data");
        let socket = server.folder.path().display().to_string();
        server.run(
            "initdb",
            &["-D", text(&data), "-A", "trust", "-U", "eyas", "--no-sync", "-E", "UTF8", "--locale=C.UTF-8"],
        );
        // Nothing is kept, so nothing is flushed.
        let options = format!(
            "-c unix_socket_directories='{socket}' -c fsync=off -c max_connections=20 {}",
            prepare(&data)
        );
        let log = server.folder.path().join("log");
        server.run("pg_ctl", &["-D", text(&data), "-l", text(&log), "-o", &options, "-w", "start"]);
        server
    }

    /// Ends all connections, and is there again soon.
    pub fn restart(&self) {
        let log = self.folder.path().join("log");
        let data = self.folder.path().join("data");
        self.run("pg_ctl", &["-D", text(&data), "-l", text(&log), "-m", "fast", "-w", "restart"]);
    }

    /// Has the superuser do this.
    pub fn command(&self, sql: &str) {
        let socket = self.folder.path().display().to_string();
        self.run("psql", &["-q", "-h", &socket, "-U", "eyas", "-d", "postgres", "-c", sql]);
    }

    /// Has a role do this in a database; what is printed, or why it is refused.
    pub fn ask(&self, role: &str, database: &str, sql: &str) -> Result<String, String> {
        let socket = self.folder.path().display().to_string();
        let asked = [
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            &socket,
            "-U",
            role,
            "-d",
            database,
            "-c",
            sql,
        ];
        let done = Command::new(self.programs.join("psql")).args(asked).current_dir("/").output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().trim().to_owned();
        if done.status.success() { Ok(text(done.stdout)) } else { Err(text(done.stderr)) }
    }

    /// A new database that belongs to a role of its own, and its URL for any role.
    pub fn owned_by(&self, role: &str, name: &str) -> impl Fn(&str) -> String {
        let url = self.url(name);
        self.command(&format!("CREATE ROLE {role} LOGIN"));
        self.command(&format!("ALTER DATABASE {name} OWNER TO {role}"));
        move |role| url.replacen("eyas@", &format!("{role}@"), 1)
    }

    /// All of a database, as text.
    pub fn dump(&self, name: &str) -> PathBuf {
        let (socket, to) = (self.folder.path().display().to_string(), self.folder.path().join("dump.sql"));
        self.run("pg_dump", &["-h", &socket, "-U", "eyas", "--clean", "--if-exists", "-f", text(&to), name]);
        to
    }

    pub fn restore(&self, name: &str, dump: &Path) {
        let socket = self.folder.path().display().to_string();
        let of = ["-q", "-h", &socket, "-U", "eyas", "-d", name, "-v", "ON_ERROR_STOP=1", "-f", text(dump)];
        self.run("psql", &of);
    }

    fn run(&self, program: &str, args: &[&str]) {
        let program = self.programs.join(program);
        let mut command = if rustix::process::geteuid().as_raw() == 0 {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        let done = command.args(args).current_dir("/").output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{command:?}: {said}{}", String::from_utf8_lossy(&done.stdout));
    }
}

impl Databases for Server {
    fn url(&self, name: &str) -> String {
        let socket = self.folder.path().display().to_string();
        self.run("createdb", &["-h", &socket, "-U", "eyas", name]);
        format!("postgres://eyas@{}/{name}", socket.replace('/', "%2F"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.run("pg_ctl", &["-D", text(&self.folder.path().join("data")), "-m", "immediate", "-w", "stop"]);
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let in_path = std::env::split_paths(&std::env::var_os("PATH")?).collect::<Vec<_>>();
    let mut folders: Vec<PathBuf> = versions.flatten().map(|version| version.path().join("bin")).collect();
    folders.sort();
    folders.into_iter().rev().chain(in_path).find(|folder| folder.join("initdb").exists())
}

pub fn alice() -> Caller {
    Caller::user("alice")
}

pub fn bob() -> Caller {
    Caller::user("bob")
}

pub fn tags(text: &[&str]) -> Vec<Tag> {
    text.iter().map(|text| Tag::parse(text).unwrap()).collect()
}

pub fn file(path: &str, bytes: &str) -> File {
    File {
        path: path.into(),
        size_bytes: bytes.len() as u64,
        digest: Digest::of(bytes.as_bytes()),
        is_executable: false,
    }
}

/// Begins a version with these files, whose bytes a site `here` has.
pub fn drafted(catalog: &Catalog, caller: &Caller, label: &str, files: &[File]) -> Draft {
    catalog.add_site(caller, &NewSite { name: "here", address: "/disk", ..NewSite::default() }, NOW).unwrap();
    let draft = catalog.begin(caller, label, None, NOW).unwrap();
    catalog.add(&draft, files).unwrap();
    let digests: Vec<Digest> = files.iter().map(|file| file.digest).collect();
    catalog.note_replicas("here", &digests, ReplicaState::Ready, NOW).unwrap();
    draft
}

/// A data set of one file, with tags.
pub fn put(catalog: &Catalog, caller: &Caller, label: &str, text: &[&str]) {
    let draft = drafted(catalog, caller, label, &[file("a", label)]);
    catalog.commit(caller, &draft, &tags(text), NOW).unwrap();
}

pub fn labels(catalog: &Catalog, caller: &Caller, query: &str) -> Vec<String> {
    let found = catalog.find(caller, Some(query), 1000).unwrap_or_else(|error| panic!("{error}"));
    found.into_iter().map(|set| set.label).collect()
}
