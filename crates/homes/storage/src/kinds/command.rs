//! Homes that are reached by commands of the user: anything that has a command to get, put, look at, list and remove.
//!
//! A declaration ([`Declared`]) gives such a home a scheme of its own, so that its locations are `NAME://HOST/PATH`, and its
//! commands, lines for the shell with holes in them. The contract is in `docs/reference/homes.md`, and [`PRESETS`] are
//! declarations for well-known tools.
//!
//! Every command is asked for one thing and ends. What a command prints as an error decides what kind of error it was: some
//! texts mean that there is no such object, some that this user may not do that, and all others that trying again may help.
//!
//! The size and version of an object are asked before it is read and once more behind its last byte, because the bytes and the
//! version come from two commands.
//!
//! Not here: where declarations come from (`eyas.toml`), time limits of commands.

use crate::canonical::{Refusal, Spelling, Url, is_path_mark, percent_decode, push_encoded};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::kind::Kind;
use crate::parts::{PART_PREFIX, part_path, remove_late_part};
use crate::put::given_up;
use crate::tied::{self, Tie};
use crate::tree::{self, Children, Tree};
use crate::version::Version;
use crate::{Capabilities, Home, HomesConfig, LeftOut, Listed, Listing, Location, Opened, Put, Stat, Whole};
use eyas_folder::NOT_UTF8;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const CAPABILITIES: Capabilities = Capabilities {
    name: "command",
    read: true,
    read_range: true,
    stat: true,
    write: true,
    atomic_rename: true,
    fences: false,
    list: true,
    remove: true,
    local_path: false,
    directories: false,
    rename: false,
    make_directory: false,
    modes: false,
};

/// A command whose source failed has so long to end by itself, and is looked at so often meanwhile.
const END_SOON: Duration = Duration::from_secs(2);
const END_LOOK: Duration = Duration::from_millis(10);

/// So much is kept of the first and of the last words on standard error.
const SAID_BYTES: usize = 32 << 10;
/// How a line of our own commands begins that says what a listing has left out.
const LEFT_OUT: &str = "left out: ";

/// Small objects that `several` is asked for at once.
const SEVERAL_MAX: usize = 100;

/// The commands of a declaration that have to be there, and the others.
pub const COMMANDS: [&str; 8] = ["get", "put", "stat", "list", "remove", "range", "move", "several"];
const N_NEEDED: usize = 5;

/// Texts in what a failed command prints that mean that there is no such object, or that this user may not do that.
const MISSING: &[&str] =
    &["no such file", "no such object", "not found", "does not exist", "doesn't exist", "can't cd to"];
const DENIED: &[&str] =
    &["permission denied", "access denied", "not authorized", "authentication failed", "forbidden"];
/// The same for a name that the home can never have.
const BAD_NAME: &[&str] = &["file name too long", "takes no such name"];

/// A line of a tool that takes other bytes than printable ASCII for something else, and says nothing: the server of Globus leaves
/// them out, and `chirp` asks for another name.
macro_rules! ascii {
    ($tool:literal, $line:expr) => {
        concat!(
            "LC_ALL=C; export LC_ALL; case /{path} in *[!\\ -~]*) echo '",
            $tool,
            " takes no such name, only printable ASCII' >&2; exit 1;; esac; ",
            $line
        )
    };
}

/// A line that has `ask`, which gives an FTP server commands and leaves its answers in `$out`.
macro_rules! gridftp {
    ($line:expr) => {
        ascii!(
            "GridFTP",
            concat!(
                "ask() { out=$(curl -sS -D - \"$@\" ftp://{host}/) || { s=$?; \
                 printf '%s\n' \"$out\" | sed -n 's/.*Error-String: //p' >&2; exit $s; }; }; ",
                $line
            )
        )
    };
}

/// A line that has the path as `$p`. A request of `chirp` holds 1,024 bytes, in which two names may stand; a longer one hangs. A
/// name with a `/` at its end would be that of a file without it.
macro_rules! chirp {
    ($line:expr) => {
        ascii!(
            "chirp",
            concat!(
                "p=/{path}; e=$(printf %s \"$p\" | sed 's|[^A-Za-z0-9/._-]|xxx|g'); \
                 case $p in ?*/) echo 'chirp takes no such name: it ends with /' >&2; exit 1;; esac; \
                 [ ${#e} -le 450 ] || { echo 'chirp takes no such name: it is too long' >&2; exit 1; }; ",
                $line
            )
        )
    };
}

/// Declarations of well-known tools, by their names. Each runs against the tool and a real server in tests.
///
/// A line for another machine's shell takes its names from its standard input, one on a line, so that they need no second
/// quoting there.
pub const PRESETS: &[(&str, &[(&str, &str)])] = &[
    // HOST is the name of a remote of `rclone config`.
    (
        "rclone",
        &[
            ("get", "rclone cat {host}:{path}"),
            ("range", "rclone cat --offset {offset} --count {length} {host}:{path}"),
            ("put", "rclone copyto {file} {host}:{path}"),
            ("move", "rclone moveto {host}:{from} {host}:{path}"),
            ("stat", "rclone lsf --files-only --format st --separator ' ' {host}:{path}"),
            ("list", "rclone lsf -R --files-only {host}:{path}"),
            ("remove", "rclone deletefile {host}:{path}"),
        ],
    ),
    // HOST is a host of `ssh`, whose shell has the usual commands. No question is ever asked.
    (
        "ssh",
        &[
            ("get", SSH_GET),
            ("range", SSH_RANGE),
            ("several", SSH_SEVERAL),
            ("put", SSH_PUT),
            ("move", SSH_MOVE),
            ("stat", SSH_STAT),
            ("list", SSH_LIST),
            ("remove", SSH_REMOVE),
        ],
    ),
    // The same with the bytes moved by `rsync`, whose host needs it, too.
    (
        "rsync",
        &[
            ("get", "rsync -s -e 'ssh -o BatchMode=yes' {host}:/{path} {file}"),
            ("range", SSH_RANGE),
            ("several", SSH_SEVERAL),
            ("put", "rsync -s --mkpath -e 'ssh -o BatchMode=yes' {file} {host}:/{path}"),
            ("move", SSH_MOVE),
            ("stat", SSH_STAT),
            ("list", SSH_LIST),
            ("remove", SSH_REMOVE),
        ],
    ),
    // HOST is a server with its port, which lets everybody in: `curl` has no certificates of grids, and Globus has no tool that
    // says size and time.
    (
        "gridftp",
        &[
            ("get", ascii!("GridFTP", "globus-url-copy -q ftp://{host}/{escaped} file://{file}")),
            (
                "range",
                ascii!("GridFTP", "globus-url-copy -q -off {offset} -len {length} ftp://{host}/{escaped} -"),
            ),
            ("several", GRIDFTP_SEVERAL),
            ("put", ascii!("GridFTP", "globus-url-copy -q -cd file://{file} ftp://{host}/{escaped}")),
            ("move", gridftp!("ask -I -Q 'RNFR '/{from} -Q 'RNTO '/{path}")),
            (
                "stat",
                gridftp!(
                    "ask -I -Q 'MLST '/{path}; printf '%s\n' \"$out\" | sed -n 's/^ \\([^ ]*Type=file;[^ ]*\\) .*/\\1/p' | \
                     tr ';' '\n' | awk -F= '/^Size=/{s=$2} /^Modify=/{m=$2} /^Unique=/{u=$2} END{if (s != \"\") print s, m, u}'"
                ),
            ),
            (
                "list",
                gridftp!(
                    "ask -Q 'MLST '/{path} -X 'MLSR '/{path}; \
                     out=$(printf '%s\n' \"$out\" | tr -d '\r'); \
                     printf '%s\n' \"$out\" | sed -n 's/^[^ ]*Type=file;[^ ]* //p'; \
                     printf '%s\n' \"$out\" | sed -n 's/^[^ ]*Type=slink;[^ ]* \\(.*\\)/left out: \\1: it is a symbolic link, \
                     which a GridFTP server lists but does not follow/p' >&2"
                ),
            ),
            ("remove", gridftp!("ask -I -Q 'DELE '/{path}")),
        ],
    ),
    // HOST is a server with its port. `chirp_put` of its standard input says nothing where it fails. A link is
    // listed as a file that everybody may change, whatever it leads to.
    (
        "chirp",
        &[
            ("get", chirp!("chirp_get -t 60 {host} \"$p\" -")),
            (
                "put",
                chirp!(
                    "chirp -t 60 {host} mkdir -p \"$(dirname -- \"$p\")\" && \
                     exec chirp_put -t 60 {file} {host} \"$p\""
                ),
            ),
            ("move", chirp!("exec chirp -t 60 {host} mv /{from} \"$p\"")),
            (
                "stat",
                chirp!(
                    "out=$(chirp -t 60 {host} stat \"$p\") || exit; printf '%s\n' \"$out\" | \
                     awk '/^size:/{s=$2} /^mode:/{m=$2} /^inode:/{i=$2} /^mtime:/{$1=\"\"; t=$0} \
                     END{if (int(m / 4096) % 16 == 8) print s t, i}'"
                ),
            ),
            (
                "list",
                chirp!(
                    "walk() { out=$(chirp -t 60 {host} ls -la \"$1\") || return; printf '%s\n' \"$out\" | \
                     sed -nE 's/^(d|-rwxrwxrwx|-)[^ ]*( +[0-9]+)+ [A-Z][a-z]+ +[0-9]+ [0-9:]+ /\\1 /p' | \
                     while IFS= read -r l; do n=${l#* }; case $l in 'd .'|'d ..') ;; \
                     d*) walk \"$1/$n\" \"$2$n/\" || exit;; -r*) linked \"$1/$n\" \"$2$n\";; \
                     *) printf '%s\n' \"$2$n\";; esac; done; }; \
                     linked() { k=$(chirp -t 60 {host} stat \"$1\" < /dev/null 2>&1 | awk '/^mode:/{print int($2 / 4096) % 16}'); \
                     case $k in 8) printf '%s\n' \"$2\";; \
                     4) echo \"left out: $2: it is a symbolic link to a directory, which chirp lists as a file\" >&2;; \
                     *) echo \"left out: $2: it is a symbolic link that leads nowhere\" >&2;; esac; }; walk \"$p\" ''"
                ),
            ),
            ("remove", chirp!("exec chirp -t 60 {host} rm \"$p\"")),
        ],
    ),
    // HOST is a server with its port. The server follows links and tells them from nothing else, so a listing that goes in circles can
    // only be known by its length.
    (
        "xrootd",
        &[
            ("get", "xrdcp --silent --force root://{host}//{path} {file}"),
            ("put", "xrdcp --silent --force --path {file} root://{host}//{path}"),
            ("move", "xrdfs {host} mv /{from} /{path}"),
            (
                "stat",
                "out=$(xrdfs {host} stat /{path}) || exit; case $out in *IsDir*) exit 0;; esac; \
                 printf '%s\n' \"$out\" | awk '/^Size:/{s=$2} /^Id:/{i=$2} /^MTime:/{m=$2 \"T\" $3} END{print s, m, i}'",
            ),
            (
                "list",
                "{ xrdfs {host} ls -l -R /{path}; echo \"=$?\"; } | P=/{path}/ awk '/^=/{s = substr($0, 2)} \
                 /^d/ && ++d > 50000 {s = 0; print \"left out: more than 50,000 directories: links may lead around in circles\" \
                 > \"/dev/stderr\"; exit} /^-/{p = ENVIRON[\"P\"]; \
                 sub(/^-[^ ]+ +[^ ]+ +[^ ]+ +[0-9]+ [0-9-]+ [0-9:]+ /, \"\"); \
                 print (index($0, p) == 1) ? substr($0, length(p) + 1) : $0} END{exit s}'",
            ),
            ("remove", "xrdfs {host} rm /{path}"),
        ],
    ),
];

/// One connection says what all the objects are, one brings those that are small, and one says again what they are. The tool of Globus
/// writes files, so they lie in a folder of their own meanwhile. What it could not get, or what has another size than was said, is left
/// to be asked for by itself.
const GRIDFTP_SEVERAL: &str = "LC_ALL=C; export LC_ALL; d=$(mktemp -d) || exit; trap 'rm -rf \"$d\"' EXIT; trap 'exit 1' HUP INT TERM; \
     cat > \"$d/names\"; set --; \
     while IFS= read -r p; do case $p in *[!\\ -~]*) ;; *) set -- \"$@\" -Q \"*MLST /$p\";; esac; done < \"$d/names\"; \
     look() { curl -sS -D - -I \"$@\" ftp://{host}/ > \"$d/said\" || exit; tr -d '\r' < \"$d/said\" | \
     awk '/^ [^ ]*Type=file;/{n = split($1, f, \";\"); s = m = u = \"\"; for (i = 1; i <= n; i++) {k = index(f[i], \"=\"); \
     v = substr(f[i], k + 1); k = substr(f[i], 1, k); if (k == \"Size=\") s = v; if (k == \"Modify=\") m = v; \
     if (k == \"Unique=\") u = v} print s \" \" m \" \" u \"\t\" substr($0, length($1) + 3)}'; }; \
     look \"$@\" > \"$d/before\"; \
     H={host} D=$d awk -F '\t' 'BEGIN {for (i = 32; i < 127; i++) code[sprintf(\"%c\", i)] = i} \
     FILENAME == ARGV[1] {split($1, v, \" \"); size[$2] = v[1]; next} {n++; p = \"/\" $0} p in size && size[p] <= {bytes} {e = \"\"; \
     for (i = 1; i <= length(p); i++) {c = substr(p, i, 1); e = e (c ~ /[A-Za-z0-9\\/._-]/ ? c : sprintf(\"%%%02X\", code[c]))} \
     print \"ftp://\" ENVIRON[\"H\"] e \" file://\" ENVIRON[\"D\"] \"/\" n}' \"$d/before\" \"$d/names\" > \"$d/list\"; \
     if [ -s \"$d/list\" ]; then globus-url-copy -q -c -pp -f \"$d/list\" > \"$d/said\" 2>&1; look \"$@\" > \"$d/after\"; \
     (cd \"$d\" && wc -c $(seq -f %.0f $(awk 'END {print NR}' names)) 2> /dev/null) > \"$d/sizes\"; fi; \
     : >> \"$d/after\"; : >> \"$d/sizes\"; \
     awk -F '\t' 'FILENAME == ARGV[1] {b[$2] = $1; next} FILENAME == ARGV[2] {a[$2] = $1; next} \
     FILENAME == ARGV[3] {split($0, v, \" \"); got[v[2]] = v[1]; next} {n++; p = \"/\" $0; split(b[p], v, \" \"); \
     print (n in got && p in a && got[n] == v[1]) ? n \"\t\" b[p] \"\t\" a[p] : \"-\"}' \
     \"$d/before\" \"$d/after\" \"$d/sizes\" \"$d/names\" > \"$d/plan\"; \
     while IFS='\t' read -r n b a; do case $n in -) echo -;; *) printf '%s\n' \"$b\"; cat \"$d/$n\"; printf '%s\n' \"$a\";; esac; \
     done < \"$d/plan\"";

const SSH_GET: &str =
    "printf '%s\n' /{path} | ssh -o BatchMode=yes {host} 'IFS= read -r p && exec cat -- \"$p\"'";
const SSH_RANGE: &str = "printf '%s\n' /{path} | ssh -o BatchMode=yes {host} \
     'IFS= read -r p && tail -c +$(({offset} + 1)) -- \"$p\" | head -c {length}'";
const SSH_SEVERAL: &str = "ssh -o BatchMode=yes {host} 'while IFS= read -r p; do p=/$p; \
     if [ -f \"$p\" ] && s=$(stat -L -c \"%s %y %i\" -- \"$p\") && [ \"${s%% *}\" -le {bytes} ]; \
     then printf \"%s\\n\" \"$s\"; cat -- \"$p\" || exit; stat -L -c \"%s %y %i\" -- \"$p\" || exit; else echo -; fi; done'";
const SSH_PUT: &str = "{ printf '%s\n' /{path} && cat; } | ssh -o BatchMode=yes {host} \
     'IFS= read -r p && mkdir -p -- \"$(dirname -- \"$p\")\" && exec cat > \"$p\"'";
const SSH_MOVE: &str = "printf '%s\n' /{from} /{path} | ssh -o BatchMode=yes {host} \
     'IFS= read -r f && IFS= read -r p && exec mv -f -T -- \"$f\" \"$p\"'";
const SSH_STAT: &str = "printf '%s\n' /{path} | ssh -o BatchMode=yes {host} \
     'IFS= read -r p && if [ -d \"$p\" ]; then exit 0; fi && exec stat -L -c \"%s %y %i\" -- \"$p\"'";
/// What lies behind no link is listed once more and whole, because what lies behind links is listed to a bound.
const SSH_LIST: &str = "printf '%s\n' /{path} | ssh -o BatchMode=yes {host} \
     'IFS= read -r p && cd \"$p\" && { find . -type f 2> /dev/null; echo //; find -L . \\( -type f -o -type l \\); } | \
     awk \"/^\\/\\/\\$/ {n = NR; next} n && NR > 2 * n + 50000 {print w > \\\"/dev/stderr\\\"; exit} {sub(/^\\.\\//, e); print \\$0}\" \
     w=\"left out: links: they lead to directories that were listed before, too often for all to be listed again\" - | \
     LC_ALL=C sort -u'";
const SSH_REMOVE: &str =
    "printf '%s\n' /{path} | ssh -o BatchMode=yes {host} 'IFS= read -r p && exec rm -- \"$p\"'";

/// One home of commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    /// The scheme of its URLs.
    pub name: String,
    /// The lines for the shell, by the names in [`COMMANDS`].
    pub commands: BTreeMap<String, String>,
    /// Texts that mean that there is no such object, in place of the usual ones.
    pub missing: Vec<String>,
    /// Texts that mean that this user may not do that, in place of the usual ones.
    pub denied: Vec<String>,
}

impl Declared {
    /// Errors: a sentence's end that says what is wrong with the declaration.
    pub fn check(&self) -> std::result::Result<(), String> {
        let is_scheme = self.name.starts_with(|c: char| c.is_ascii_lowercase())
            && self.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "+.-".contains(c));
        if !is_scheme {
            return Err("its name is no scheme of a URL: small letters, digits, `+`, `.` and `-`".into());
        }
        if crate::scheme::fixed_schemes().any(|scheme| scheme == self.name) {
            return Err("eyas has a home of that name already".into());
        }
        if self.name == "run" {
            return Err("`run:` is a file of a run, which stays on the nodes".into());
        }
        for name in &COMMANDS[..N_NEEDED] {
            if !self.commands.contains_key(*name) {
                return Err(format!("it has no `{name}`"));
            }
        }
        let holes = |name: &str| -> &[&str] {
            match name {
                "get" => &["host", "path", "escaped", "url", "file"],
                "put" => &["host", "path", "escaped", "url", "file"],
                "range" => &["host", "path", "escaped", "url", "offset", "length"],
                "move" => &["host", "path", "escaped", "url", "from"],
                "several" => &["host", "bytes"],
                _ => &["host", "path", "escaped", "url"],
            }
        };
        for (name, line) in &self.commands {
            if !COMMANDS.contains(&name.as_str()) {
                return Err(format!("`{name}` is none of {}", COMMANDS.join(", ")));
            }
            for hole in holes_of(line) {
                if !holes(name).contains(&hole) {
                    let known = holes(name).join("}, {");
                    return Err(format!("`{name}` has the hole {{{hole}}}; it may have {{{known}}}"));
                }
            }
        }
        Ok(())
    }

    fn line<'a>(&'a self, name: &str) -> Option<&'a str> {
        self.commands.get(name).map(String::as_str)
    }
}

/// The words in braces of a line that look like holes. Programs in the line may have braces of their own.
fn holes_of(line: &str) -> impl Iterator<Item = &str> {
    line.split('{').skip(1).filter_map(|rest| {
        let hole = rest.split_once('}')?.0;
        (!hole.is_empty() && hole.chars().all(|c| c.is_ascii_lowercase())).then_some(hole)
    })
}

static DECLARED: OnceLock<(Vec<Declared>, Vec<&'static str>)> = OnceLock::new();

/// Makes these homes known to this process. Only the first call counts, and it has to come before any location is read. Every
/// declaration has passed [`Declared::check`].
pub fn declare(homes: Vec<Declared>) {
    DECLARED.get_or_init(|| {
        // They live as long as the process.
        let schemes = homes.iter().map(|home| &*home.name.clone().leak()).collect();
        (homes, schemes)
    });
}

fn find(scheme: &str) -> Option<&'static Declared> {
    DECLARED.get()?.0.iter().find(|home| home.name == scheme)
}

/// The kind of all homes of commands.
pub(crate) struct Commands;

impl Kind for Commands {
    fn schemes(&self) -> &'static [&'static str] {
        DECLARED.get().map_or(&[], |(_, schemes)| schemes.as_slice())
    }

    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn schemes_are_declared(&self) -> bool {
        true
    }

    fn canonical(&self, url: Url<'_>, out: &mut String) -> std::result::Result<Spelling, Refusal> {
        let (host, path) = url.rest.split_once('/').unwrap_or((url.rest, ""));
        if host.contains('@') {
            return Err(Refusal::of_credentials());
        }
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
        if host.starts_with('-') || !host.bytes().all(is_name) {
            return Err(Refusal::new("has no valid host name", "write NAME://HOST/PATH"));
        }
        let Some(path) = percent_decode(path) else {
            return Err(Refusal::new("has a `%` that begins no escape", "write %25 for a percent sign"));
        };
        if path.contains('\0') {
            return Err(Refusal::new("holds a NUL byte", None));
        }
        let start = out.len();
        out.push_str(url.scheme);
        out[start..].make_ascii_lowercase();
        out.push_str("://");
        out.push_str(host);
        out.push('/');
        push_encoded(out, &path, is_path_mark, false);
        Ok(Spelling::Url)
    }

    fn open(&self, _config: &HomesConfig) -> Result<Arc<dyn Home>> {
        Ok(Arc::new(CommandHome))
    }
}

/// All homes of commands; a location's scheme says which one it belongs to.
struct CommandHome;

/// One location, taken apart for the holes of commands.
struct LocationParts<'a> {
    home: &'static Declared,
    operation: &'static str,
    location: &'a Location,
    host: &'a str,
    path: String,
}

impl<'a> LocationParts<'a> {
    fn of(operation: &'static str, location: &'a Location) -> Result<LocationParts<'a>> {
        let Some(home) = find(location.scheme()) else {
            let error = Error::unsupported(operation, location, CAPABILITIES.name);
            return Err(error.with_context("scheme", location.scheme()));
        };
        let text = location.as_str();
        let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        Ok(LocationParts { home, operation, location, host, path: percent_decode(path).unwrap_or_default() })
    }

    /// The command `name` for the path `path`, with further holes filled.
    fn command(&self, name: &str, path: &str, more: &[(&str, String)]) -> Result<Command> {
        let Some(line) = self.home.line(name) else {
            return Err(Error::unsupported(self.operation, self.location, &self.home.name));
        };
        let fill = |hole: &str| match hole {
            "host" => Some(quoted(self.host)),
            "path" => Some(quoted(path)),
            // Nothing in it means anything to a shell.
            "escaped" => {
                let mut escaped = String::with_capacity(path.len());
                push_encoded(&mut escaped, path, is_path_mark, false);
                Some(escaped)
            }
            "url" => Some(quoted(&format!("{}://{}/{path}", self.home.name, self.host))),
            // Numbers stay as they are, so that a shell can count with them.
            "offset" | "length" | "bytes" => {
                more.iter().find(|(name, _)| *name == hole).map(|(_, value)| value.clone())
            }
            _ => more.iter().find(|(name, _)| *name == hole).map(|(_, value)| quoted(value)),
        };
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(filled(line, &fill));
        Ok(command)
    }

    /// Runs a command to its end and gives what it printed.
    fn output(&self, name: &str, path: &str, more: &[(&str, String)]) -> Result<Vec<u8>> {
        self.outputs(name, path, more).map(|(out, _)| out)
    }

    /// What a command that ends well printed and what it said on standard error.
    fn outputs(&self, name: &str, path: &str, more: &[(&str, String)]) -> Result<(Vec<u8>, Vec<u8>)> {
        let mut command = self.command(name, path, more)?;
        let mut running = Running::start(self, &mut command, Stdio::null())?;
        let mut out = Vec::new();
        if let Some(mut stdout) = running.child.stdout.take() {
            stdout
                .read_to_end(&mut out)
                .map_err(|error| Error::from_io(self.operation, self.location, error))?;
        }
        let said = running.end(self, name)?;
        Ok((out, said))
    }

    fn stat(&self, path: &str) -> Result<Stat> {
        let out = self.output("stat", path, &[])?;
        let text = String::from_utf8_lossy(&out);
        let line = text.lines().next().unwrap_or_default().trim();
        if let Some(stat) = stat_of(line) {
            return Ok(stat);
        }
        if line.is_empty() {
            let reason = "there is no such object (`stat` printed nothing)";
            return Err(Error::new(
                ErrorKind::NotFound,
                Status::Permanent,
                self.operation,
                self.location,
                reason,
            ));
        }
        let reason = format!("`stat` has to print a size in bytes and a version, and printed `{line}`");
        Err(Error::new(ErrorKind::Io, Status::Permanent, self.operation, self.location, reason))
    }

    /// The path of a name beside the object.
    fn part(&self, part: &crate::Part) -> String {
        let (directory, name) = self.path.rsplit_once('/').unwrap_or(("", &self.path));
        part_path(Path::new(directory), name.as_bytes(), part).to_string_lossy().into_owned()
    }
}

/// What a listing that ended well has left out all the same: `find: './a': Permission denied`, `left out: a: it is a link` of our own
/// lines, and `NOTICE: a: Can't follow symlink` of rclone.
fn left_out_in(said: &[u8]) -> Vec<LeftOut> {
    let said = String::from_utf8_lossy(said);
    let named = |line: &'_ str| {
        let by_rclone = line.split_once(" NOTICE: ").filter(|(_, rest)| rest.contains("symlink"));
        let own = line.strip_prefix("find: ").or_else(|| line.strip_prefix(LEFT_OUT));
        let rest = own.or(by_rclone.map(|(_, rest)| rest))?;
        Some(match rest.split_once(": ") {
            Some((name, why)) => LeftOut::new(name, why),
            None => LeftOut::new("what could not be listed", rest),
        })
    };
    said.lines().filter_map(named).collect()
}

/// What a line says that `stat` printed: a size in bytes, and a version behind it.
fn stat_of(line: &str) -> Option<Stat> {
    let (size, stamp) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
    let size_bytes = size.parse::<u64>().ok()?;
    Some(Stat { size_bytes, version: Version::of_stamp(size_bytes, stamp.trim()) })
}

/// The next of several objects, as `several` prints them: the line of its `stat`, its bytes, the line once more; a line without a
/// size in its place: it does not come. `Err`: what follows cannot be told apart, because the object changed meanwhile or is
/// larger than it may be.
fn next_whole(from: &mut impl BufRead, most_bytes: u64) -> io::Result<Option<Whole>> {
    let (mut first, mut again) = (String::new(), String::new());
    let broken = |reason: &str| Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    if from.read_line(&mut first)? == 0 {
        return broken("it ended too early");
    }
    let Some(stat) = stat_of(&first) else { return Ok(None) };
    if stat.size_bytes > most_bytes {
        return broken("an object is larger than it may be");
    }
    let mut bytes = vec![0; stat.size_bytes as usize];
    from.read_exact(&mut bytes)?;
    from.read_line(&mut again)?;
    if again != first {
        return broken("an object changed while it was read");
    }
    Ok(Some(Whole { stat, bytes }))
}

/// One word for the shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// A line with its holes filled. Braces with anything else between them stay.
fn filled(line: &str, fill: &dyn Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(line.len() + 64);
    let mut rest = line;
    while let Some(at) = rest.find('{') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        match from[1..].split_once('}').and_then(|(hole, after)| Some((fill(hole)?, after))) {
            Some((value, after)) => {
                out.push_str(&value);
                rest = after;
            }
            None => {
                out.push('{');
                rest = &from[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// What a command printed as errors: the beginning and the end of it.
#[derive(Default)]
struct CommandErrors {
    /// Lines of our own commands that say what a listing has left out. They may stand anywhere.
    left_out: Vec<u8>,
    /// All other lines.
    others: Vec<u8>,
}

impl CommandErrors {
    fn read(stderr: impl Read) -> CommandErrors {
        let (mut stderr, mut said) = (BufReader::new(stderr), CommandErrors::default());
        let (mut line, mut is_start, mut is_own) = (Vec::new(), true, false);
        // A line without an end comes in pieces.
        while let Ok(1..) = (&mut stderr).take(4096).read_until(b'\n', &mut line) {
            is_own = if is_start { line.starts_with(LEFT_OUT.as_bytes()) } else { is_own };
            is_start = line.ends_with(b"\n");
            let kept = if is_own { &mut said.left_out } else { &mut said.others };
            kept.append(&mut line);
            // The first words say what went wrong first, the last ones why it ended.
            if kept.len() > 2 * SAID_BYTES {
                kept.drain(SAID_BYTES..kept.len() - SAID_BYTES);
            }
        }
        said
    }
}

/// A command that runs, and what it prints as errors. Whoever drops it ends the command with all that it started.
struct Running {
    child: Child,
    said: Option<std::thread::JoinHandle<CommandErrors>>,
    has_ended: bool,
    _tie: Tie,
}

impl Running {
    fn start(place: &LocationParts<'_>, command: &mut Command, stdin: Stdio) -> Result<Running> {
        let started = tied::spawn(command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()));
        let (mut child, tie) =
            started.map_err(|error| Error::from_io(place.operation, place.location, error))?;
        let stderr = child.stderr.take().expect("it is a pipe");
        let said = std::thread::spawn(move || CommandErrors::read(stderr));
        Ok(Running { child, said: Some(said), has_ended: false, _tie: tie })
    }

    fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait()?;
        self.has_ended = true;
        Ok(status)
    }

    /// Gives a command whose input has ended too early a moment to end by itself. Where its other half runs on another machine,
    /// that half has ended then, too, and makes no part later.
    fn end_soon(&mut self) {
        let deadline = Instant::now() + END_SOON;
        while !self.has_ended && Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(END_LOOK),
                Ok(Some(_)) => self.has_ended = true,
                Err(_) => return,
            }
        }
    }

    /// Waits for the end of the command; a failure is an error. Gives what it said on standard error.
    fn end(mut self, place: &LocationParts<'_>, name: &str) -> Result<Vec<u8>> {
        let status = self.wait().map_err(|error| Error::from_io(place.operation, place.location, error))?;
        let said = self.said.take().and_then(|said| said.join().ok()).unwrap_or_default();
        match status.success() {
            true => Ok([said.left_out, said.others].concat()),
            false => Err(explain(place, name, status, &said.others)),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended {
            // SAFETY: the group is that of the child, which was not waited for yet, so its number is nobody else's.
            unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
            let _ = self.child.wait();
        }
    }
}

/// What a failed command means.
fn explain(place: &LocationParts<'_>, name: &str, status: ExitStatus, said: &[u8]) -> Error {
    let text = String::from_utf8_lossy(said);
    let lower = text.to_lowercase();
    let has = |own: &[String], usual: &[&str]| match own.is_empty() {
        true => usual.iter().any(|mark| lower.contains(mark)),
        false => own.iter().any(|mark| lower.contains(&mark.to_lowercase())),
    };
    let last =
        text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it printed no error");
    let (kind, status_of, why) = if has(&[], BAD_NAME) {
        (ErrorKind::InvalidName, Status::Permanent, "this home takes no such name")
    } else if has(&place.home.missing, MISSING) {
        (ErrorKind::NotFound, Status::Permanent, "there is no such object")
    } else if has(&place.home.denied, DENIED) {
        (ErrorKind::PermissionDenied, Status::Permanent, "permission denied")
    } else if status.code() == Some(127) {
        (ErrorKind::Unsupported, Status::Permanent, "its program is not on this machine")
    } else {
        (ErrorKind::Io, Status::Temporary, "it failed")
    };
    let reason = format!("{why} (`{name}` of {}: {status}: {last})", place.home.name);
    Error::new(kind, status_of, place.operation, place.location, reason)
}

/// A name for a file on this machine that goes away with this value.
struct Scratch(PathBuf);

impl Scratch {
    fn new(place: &LocationParts<'_>) -> Scratch {
        Scratch(part_path(&std::env::temp_dir(), place.path.as_bytes(), &crate::Part::default()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A command that failed may not have made it.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Home for CommandHome {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn stat(&self, location: &Location) -> Result<Stat> {
        let place = LocationParts::of("stat", location)?;
        place.stat(&place.path)
    }

    fn open(&self, location: &Location, range: Option<Range<u64>>) -> Result<Opened> {
        let place = LocationParts::of("read", location)?;
        let stat = place.stat(&place.path)?;
        let range = range.unwrap_or(0..stat.size_bytes);
        if range.start > range.end || range.end > stat.size_bytes {
            return Err(Error::range_outside("read", location, &range, stat.size_bytes));
        }
        let is_part = range != (0..stat.size_bytes);
        let mut bytes = Bytes {
            source: Source::Nothing,
            location: location.clone(),
            stat: stat.clone(),
            skip_bytes: 0,
            left_bytes: range.end - range.start,
            // Whatever a command gives behind the wanted bytes counts only where the whole object was asked for.
            is_whole: !is_part,
        };
        let gets_file = place.home.line("get").is_some_and(|line| holes_of(line).any(|hole| hole == "file"));
        if range.is_empty() {
        } else if is_part && place.home.line("range").is_some() {
            let more =
                [("offset", range.start.to_string()), ("length", (range.end - range.start).to_string())];
            let mut command = place.command("range", &place.path, &more)?;
            bytes.source = Source::Command(Running::start(&place, &mut command, Stdio::null())?, "range");
        } else if gets_file {
            let scratch = Scratch::new(&place);
            place.output("get", &place.path, &[("file", scratch.0.to_string_lossy().into_owned())])?;
            let file = File::open(&scratch.0).map_err(|error| Error::from_io("read", location, error))?;
            bytes.source = Source::File(file);
            bytes.skip_bytes = range.start;
        } else {
            let mut command = place.command("get", &place.path, &[])?;
            bytes.source = Source::Command(Running::start(&place, &mut command, Stdio::null())?, "get");
            bytes.skip_bytes = range.start;
        }
        Ok(Opened {
            location: location.clone(),
            stat,
            range,
            reader: Box::new(bytes),
            file: None,
            times: vec![],
        })
    }

    fn several_max(&self, location: &Location) -> usize {
        if find(location.scheme()).is_some_and(|home| home.line("several").is_some()) {
            SEVERAL_MAX
        } else {
            0
        }
    }

    fn read_several(&self, locations: &[Location], most_bytes: u64) -> Result<Vec<Option<Whole>>> {
        let mut found = vec![None; locations.len()];
        let Some(first) = locations.first() else { return Ok(found) };
        let place = LocationParts::of("read", first)?;
        let mut names = String::new();
        let mut asked = vec![];
        for (n, location) in locations.iter().enumerate() {
            let of = LocationParts::of("read", location)?;
            // A name of several lines, or of another host, is asked for by itself.
            if (of.home.name.as_str(), of.host) == (place.home.name.as_str(), place.host)
                && !of.path.contains('\n')
            {
                names.push_str(&of.path);
                names.push('\n');
                asked.push(n);
            }
        }
        let mut command = place.command("several", "", &[("bytes", most_bytes.to_string())])?;
        let mut running = Running::start(&place, &mut command, Stdio::piped())?;
        let stdin = running.child.stdin.take().expect("it is a pipe");
        let mut stdout = BufReader::new(running.child.stdout.take().expect("it is a pipe"));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut stdin = stdin;
                // A command that has ended says why by its status.
                let _ = stdin.write_all(names.as_bytes());
            });
            for n in asked {
                match next_whole(&mut stdout, most_bytes) {
                    Ok(whole) => found[n] = whole,
                    Err(_) => break,
                }
            }
            let _ = io::copy(&mut stdout, &mut io::sink());
        });
        running.end(&place, "several")?;
        Ok(found)
    }

    fn put(&self, location: &Location, body: &mut dyn Read, put: &Put) -> Result<Stat> {
        let place = LocationParts::of("write", location)?;
        let moves = place.home.line("move").is_some();
        let to = if moves { place.part(&put.part) } else { place.path.clone() };
        let note = PathBuf::from(format!("{}://{}/{to}", place.home.name, place.host));
        if moves {
            put.fence.part_begins(&note);
        }
        let written = write_to(&place, &to, body, put, moves);
        let delete = || match place.output("remove", &to, &[]) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        };
        // Without a `move` there is no part to remove.
        let is_gone = moves && (written.is_ok() || remove_late_part(delete).is_ok());
        if is_gone {
            put.fence.part_ended(&note);
        }
        written?;
        place.stat(&place.path)
    }

    fn remove_part(&self, part: &Path) -> Result<()> {
        let Some((scheme, rest)) = part.to_str().and_then(|text| text.split_once("://")) else {
            return Ok(());
        };
        let is_part = rest.rsplit('/').next().is_some_and(|name| name.starts_with(PART_PREFIX));
        let (Some(_), Some((host, path)), true) = (find(scheme), rest.split_once('/'), is_part) else {
            return Ok(());
        };
        let location: Location = format!("{scheme}://{host}/").parse()?;
        let place = LocationParts::of("remove", &location)?;
        match place.output("remove", path, &[]) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn list(&self, listing: &Listing) -> Result<Listed> {
        let directory = listing.directory();
        let place = LocationParts::of("list", directory)?;
        let (out, said) = place.outputs("list", place.path.trim_end_matches('/'), &[])?;
        let mut left_out = left_out_in(&said);
        let mut names = vec![];
        for line in out.split(|byte| *byte == b'\n') {
            match std::str::from_utf8(line.strip_suffix(b"\r").unwrap_or(line)) {
                Ok(name) => names.push(name),
                Err(_) => left_out.push(LeftOut::of_bytes(line, NOT_UTF8)),
            }
        }
        let is_part = |name: &str| name.rsplit('/').next().is_some_and(|name| name.starts_with(PART_PREFIX));
        names.retain(|name| !name.is_empty() && !is_part(name));
        if names.is_empty() && left_out.is_empty() && matches!(listing, Listing::Under(_)) {
            let reason = "there is no file below it";
            return Err(Error::new(ErrorKind::NotFound, Status::Permanent, "list", directory, reason));
        }
        let names = Names(names);
        let mut found = match listing {
            Listing::Glob { pattern, .. } => tree::glob(&names, pattern)?,
            Listing::Under(_) => tree::Names {
                found: names.0.iter().map(|name| (*name).to_owned()).collect(),
                ..tree::Names::default()
            },
        };
        found.left_out.extend(left_out);
        Ok(Listed::of(directory, found))
    }

    fn remove(&self, location: &Location) -> Result<()> {
        let place = LocationParts::of("remove", location)?;
        // Some commands say nothing of an object that was not there.
        place.stat(&place.path)?;
        place.output("remove", &place.path, &[]).map(drop)
    }
}

/// Writes the bytes of `body` to `to`, and moves them to the object's name if there is a command for that.
fn write_to(place: &LocationParts<'_>, to: &str, body: &mut dyn Read, put: &Put, moves: bool) -> Result<()> {
    let takes_file = place.home.line("put").is_some_and(|line| holes_of(line).any(|hole| hole == "file"));
    let local = |error| Error::from_io("write", place.location, error);
    let appear = || put.fence.may_appear().map_err(|why| given_up("write", place.location, why));
    // Without a `move` the command itself makes the name appear, so its bytes have to be complete before it starts.
    let scratch = (takes_file || !moves).then(|| Scratch::new(place));
    match &scratch {
        Some(scratch) => {
            let mut file = File::options().write(true).create_new(true).open(&scratch.0).map_err(local)?;
            copy(place, body, &mut file, put)?;
            drop(file);
            if !moves {
                appear()?;
            }
            if takes_file {
                place.output("put", to, &[("file", scratch.0.to_string_lossy().into_owned())])?;
            } else {
                let mut command = place.command("put", to, &[])?;
                let stdin = Stdio::from(File::open(&scratch.0).map_err(local)?);
                drain(Running::start(place, &mut command, stdin)?, place)?;
            }
        }
        None => {
            let mut command = place.command("put", to, &[])?;
            let mut running = Running::start(place, &mut command, Stdio::piped())?;
            if let Some(mut stdin) = running.child.stdin.take() {
                match copy(place, body, &mut stdin, put) {
                    // The command does not read on; what it says is the better reason.
                    Err(error) if error.context().iter().any(|(key, _)| *key == "pipe") => {}
                    Err(error) => {
                        drop(stdin);
                        running.end_soon();
                        return Err(error);
                    }
                    Ok(()) => {}
                }
            }
            drain(running, place)?;
        }
    }
    if moves {
        appear()?;
        place.output("move", &place.path, &[("from", to.to_owned())])?;
    }
    Ok(())
}

/// Waits for a command that has nothing to say.
fn drain(mut running: Running, place: &LocationParts<'_>) -> Result<()> {
    if let Some(mut stdout) = running.child.stdout.take() {
        io::copy(&mut stdout, &mut io::sink())
            .map_err(|error| Error::from_io("write", place.location, error))?;
    }
    running.end(place, "put").map(drop)
}

fn copy(place: &LocationParts<'_>, body: &mut dyn Read, to: &mut dyn Write, put: &Put) -> Result<()> {
    let mut block = vec![0; 256 << 10];
    let mut size_bytes: u64 = 0;
    loop {
        put.fence.may_go_on().map_err(|why| given_up("write", place.location, why))?;
        let n = match body.read(&mut block) {
            Ok(0) => return Ok(()),
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                let context = format!("reading byte {size_bytes} of what was to be written");
                return Err(
                    Error::from_read("write", place.location, error).with_context("failed at", context)
                );
            }
        };
        to.write_all(&block[..n]).map_err(|error| {
            Error::from_io("write", place.location, error).with_context("pipe", "the command stopped reading")
        })?;
        size_bytes += n as u64;
    }
}

/// The names that a listing printed, as directories.
struct Names<'a>(Vec<&'a str>);

impl Tree for Names<'_> {
    fn children(&self, directory: &str, begins: &str) -> Result<Children> {
        let mut children = Children::default();
        for name in self.0.iter().filter_map(|name| name.strip_prefix(directory)) {
            match name.split_once('/') {
                _ if !name.starts_with(begins) => {}
                Some((directory, _)) => children.directories.push(directory.into()),
                None => children.files.push(name.into()),
            }
        }
        children.directories.sort_unstable();
        children.directories.dedup();
        Ok(children)
    }
}

enum Source {
    Nothing,
    Command(Running, &'static str),
    File(File),
}

/// The bytes of an object that a command gives.
struct Bytes {
    source: Source,
    location: Location,
    stat: Stat,
    skip_bytes: u64,
    left_bytes: u64,
    is_whole: bool,
}

impl Bytes {
    fn some(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let read = match &mut self.source {
            Source::Nothing => Ok(0),
            Source::File(file) => file.read(buffer),
            Source::Command(running, _) => match &mut running.child.stdout {
                Some(stdout) => stdout.read(buffer),
                None => Ok(0),
            },
        };
        read.map_err(|error| Error::from_io("read", &self.location, error))
    }

    /// The command ended before the object did.
    fn early(&mut self) -> Error {
        let place = match LocationParts::of("read", &self.location) {
            Ok(place) => place,
            Err(error) => return error,
        };
        if let Source::Command(running, name) = std::mem::replace(&mut self.source, Source::Nothing)
            && let Err(error) = running.end(&place, name)
        {
            return error;
        }
        let reason = format!("the command gave {} bytes fewer than `stat` had said", self.left_bytes);
        Error::new(ErrorKind::Io, Status::Temporary, "read", &self.location, reason)
    }

    /// Behind the last byte: is it still the version that was looked at?
    fn finish(&mut self) -> Result<()> {
        let source = std::mem::replace(&mut self.source, Source::Nothing);
        if matches!(source, Source::Nothing) {
            return Ok(());
        }
        let place = LocationParts::of("read", &self.location)?;
        if let (Source::Command(mut running, name), true) = (source, self.is_whole) {
            let more = running.child.stdout.as_mut().map(|stdout| stdout.read(&mut [0; 1]));
            if let Some(Ok(1)) = more {
                let difference = format!("it is longer than {} B", self.stat.size_bytes);
                return Err(Error::changed("read", &self.location, difference));
            }
            running.end(&place, name)?;
        }
        let now = place.stat(&place.path)?;
        match now.version.contradicts(&self.stat.version) {
            false => Ok(()),
            true => {
                let difference = Version::describe_change(&self.stat.version, &now.version);
                Err(Error::changed("read", &self.location, difference))
            }
        }
    }
}

impl Read for Bytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        while self.skip_bytes > 0 {
            let mut waste = vec![0; self.skip_bytes.min(64 << 10) as usize];
            match self.some(&mut waste)? {
                0 => return Err(self.early().into()),
                n => self.skip_bytes -= n as u64,
            }
        }
        if self.left_bytes == 0 {
            return Ok(0);
        }
        let want = buffer.len().min(usize::try_from(self.left_bytes).unwrap_or(usize::MAX));
        match self.some(&mut buffer[..want])? {
            0 => Err(self.early().into()),
            n => {
                self.left_bytes -= n as u64;
                if self.left_bytes == 0 {
                    // A caller that knows the size may never ask for more.
                    self.finish()?;
                }
                Ok(n)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(commands: &[(&str, &str)]) -> Declared {
        let commands = commands.iter().map(|(name, line)| ((*name).into(), (*line).into())).collect();
        Declared { name: "plain".into(), commands, ..Declared::default() }
    }

    /// A folder by the plain commands of every system.
    fn plain() -> Declared {
        declared(&[
            ("get", "cat /{path}"),
            ("range", "tail -c +$(({offset} + 1)) /{path} | head -c {length}"),
            ("put", "mkdir -p \"$(dirname /{path})\" && cat > /{path}"),
            ("move", "mv /{from} /{path}"),
            ("stat", "stat -c '%s %y' /{path}"),
            ("list", "cd /{path} && find . -type f | sed 's|^./||'"),
            ("remove", "rm /{path}"),
        ])
    }

    /// All homes of these tests, as a process can declare homes only once.
    fn declare_for_tests() {
        let mut whole = plain();
        whole.name = "whole".into();
        // Without a command for parts of objects, and with files of this machine.
        for name in ["range", "get", "put"] {
            whole.commands.remove(name);
        }
        whole.commands.insert("get".into(), "cp /{path} {file}".into());
        whole.commands.insert("put".into(), "mkdir -p \"$(dirname /{path})\" && cp {file} /{path}".into());
        // The other half of `put` runs in a session of its own, like that of `ssh` on another machine: it begins late, and is
        // not killed with the command.
        let late = |name: &str, put: &str| {
            let mut late = plain();
            late.name = name.into();
            late.commands.insert("put".into(), put.into());
            late
        };
        let waits = late("late", "setsid -w sh -c 'sleep 0.3; cat > /{path}'");
        let gives_up =
            "cat > /dev/null; setsid sh -c 'sleep 0.3; echo > /{path}' < /dev/null > /dev/null 2>&1 & exit 1";
        let with_several = |name: &str, line: &str| {
            let mut home = plain();
            home.name = name.into();
            home.commands.insert("several".into(), line.into());
            home
        };
        let this_machine = SSH_SEVERAL.strip_prefix("ssh -o BatchMode=yes {host} ").unwrap();
        let mut several = with_several("several", &format!("sh -c {this_machine}"));
        several.commands.insert("stat".into(), "stat -L -c '%s %y %i' /{path}".into());
        // The second object is said to be another one behind its bytes.
        let changes = "for s in '1 a' '1 b' '1 c'; do read p; echo \"$s\"; printf x; \
                       case $s in *b) echo '1 other';; *) echo \"$s\";; esac; done";
        let changes = with_several("changes", changes);
        let fails = with_several("fails", "echo gone away >&2; exit 1");
        let short = late("short", "head -c 2 > /{path}");
        declare(vec![plain(), whole, waits, late("lost", gives_up), several, changes, fails, short]);
    }

    #[test]
    fn several_small_objects_come_with_one_command() {
        declare_for_tests();
        let dir = tempfile::tempdir().unwrap();
        let files = [("a b", 30), ("empty", 0), ("it's", 50), ("large", 51)];
        for (name, size) in files {
            std::fs::write(dir.path().join(name), vec![b'\n'; size]).unwrap();
        }
        std::fs::create_dir(dir.path().join("directory")).unwrap();
        let base: Location = format!("several://h{}", dir.path().display()).parse().unwrap();
        let names = ["a b", "missing", "large", "empty", "directory", "two\nlines", "it's"];
        let locations = names.map(|name| base.join(name).unwrap());
        assert!(CommandHome.several_max(&base) >= locations.len());
        let found = CommandHome.read_several(&locations, 50).unwrap();
        for ((name, location), found) in names.iter().zip(&locations).zip(found) {
            let size = files.iter().find(|(file, _)| file == name).map(|(_, size)| *size);
            match size.filter(|size| *size <= 50) {
                Some(size) => {
                    let stat = CommandHome.stat(location).unwrap();
                    assert_eq!(found, Some(Whole { stat, bytes: vec![b'\n'; size] }), "{name}");
                }
                None => assert_eq!(found, None, "{name}"),
            }
        }
        let of = |home: &str| -> Vec<Location> {
            (0..3).map(|n| format!("{home}://h/{n}").parse().unwrap()).collect()
        };
        // Behind an object that changed nothing can be told apart.
        let found = CommandHome.read_several(&of("changes"), 50).unwrap();
        assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, false]);
        let error = CommandHome.read_several(&of("fails"), 50).unwrap_err();
        assert_eq!(error.status(), Status::Temporary);
        assert!(error.to_string().contains("gone away"), "{error}");
        assert_eq!(CommandHome.several_max(&of("plain")[0]), 0);
    }

    #[test]
    fn what_a_listing_leaves_out_is_named() {
        let said = "find: './a': Permission denied\n2026/11/28 15:12:23 NOTICE: b/c: Can't follow symlink without -L/--copy-links\n\
                    left out: d: it is a symbolic link\nsomething else\n2026/11/28 15:12:23 NOTICE: other\n";
        let found: Vec<_> =
            left_out_in(said.as_bytes()).iter().map(|left| format!("{} {}", left.name, left.why)).collect();
        let expect = [
            "`./a` Permission denied",
            "`b/c` Can't follow symlink without -L/--copy-links",
            "`d` it is a symbolic link",
        ];
        assert_eq!(found.iter().map(|text| text.replace("'./a'", "./a")).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn what_our_own_commands_leave_out_is_kept_among_many_lines() {
        let line = format!("find: loop {}\n", "x".repeat(90));
        let many = line.repeat(4 * SAID_BYTES / line.len());
        let printed = format!("{many}left out: links: too often\n{many}end");
        let said = CommandErrors::read(printed.as_bytes());
        assert_eq!(said.left_out, b"left out: links: too often\n");
        assert!(said.others.len() <= 2 * SAID_BYTES && said.others.starts_with(line.as_bytes()));
        assert!(said.others.ends_with(b"end"));
    }

    /// Gives some bytes and then an error.
    struct Breaks(usize);

    impl Read for Breaks {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0 {
                0 => Err(io::Error::other("the source broke")),
                left => {
                    let n = left.min(buffer.len());
                    buffer[..n].fill(7);
                    self.0 -= n;
                    Ok(n)
                }
            }
        }
    }

    /// Of a source that breaks, or a command that fails while its other half still runs.
    #[test]
    fn a_part_that_the_far_side_makes_late_is_removed() {
        declare_for_tests();
        let homes = crate::Homes::new(HomesConfig::default()).unwrap();
        for (scheme, breaks) in [("late", true), ("lost", false)] {
            let dir = tempfile::tempdir().unwrap();
            let object: Location = format!("{scheme}://host{}/x", dir.path().display()).parse().unwrap();
            let error = match breaks {
                true => homes.get(&object).put(&object, &mut Breaks(1000), &Put::simple(None)),
                false => homes.get(&object).put(&object, &mut &b"some"[..], &Put::simple(None)),
            };
            let reason = if breaks { "the source broke" } else { "it failed" };
            assert!(error.as_ref().is_err_and(|error| error.to_string().contains(reason)), "{error:?}");
            std::thread::sleep(Duration::from_millis(700));
            let left: Vec<_> = dir.path().read_dir().unwrap().map(|e| e.unwrap().file_name()).collect();
            assert!(left.is_empty(), "{scheme}: {left:?}");
        }
    }

    #[test]
    fn a_command_that_keeps_a_part_of_the_bytes_has_not_written_the_object() {
        declare_for_tests();
        let homes = crate::Homes::new(HomesConfig::default()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let object: Location = format!("short://host{}/x", dir.path().display()).parse().unwrap();
        let error = homes.write(&object, &mut &b"bytes"[..], None).unwrap_err();
        assert!(error.to_string().ends_with("5 B were written, and there are 2 B now"), "{error}");
        assert_eq!(error.status(), Status::Permanent, "nobody waits for that home");
        homes.write(&object, &mut &b"ok"[..], None).unwrap();
    }

    #[test]
    fn conformance_of_plain_commands() {
        declare_for_tests();
        let homes = crate::Homes::new(HomesConfig::default()).unwrap();
        for scheme in ["plain", "whole"] {
            let dir = tempfile::tempdir().unwrap();
            let base: Location = format!("{scheme}://host{}", dir.path().display()).parse().unwrap();
            crate::conformance::run_without_line_breaks(&**homes.get(&base), &base);
            let left: Vec<_> = homes.list(&Listing::Under(base.clone())).unwrap_or_default().found;
            assert!(left.iter().all(|location| !location.as_str().contains(PART_PREFIX)), "{left:?}");
        }
    }

    #[test]
    fn declarations_with_mistakes_say_what_is_wrong() {
        let check = |change: &dyn Fn(&mut Declared), expect: &str| {
            let mut home = plain();
            change(&mut home);
            let error = home.check().unwrap_err();
            assert!(error.contains(expect), "{error}");
        };
        assert_eq!(plain().check(), Ok(()));
        check(&|home| home.name = "a b".into(), "scheme");
        check(&|home| home.name = "http".into(), "already");
        check(&|home| home.name = "run".into(), "a file of a run");
        check(&|home| drop(home.commands.remove("stat")), "no `stat`");
        check(&|home| drop(home.commands.insert("got".into(), "x".into())), "`got` is none of");
        check(&|home| drop(home.commands.insert("get".into(), "cat {pth}".into())), "hole {pth}");
        for (name, commands) in PRESETS {
            assert_eq!(Declared { name: "x".into(), ..declared(commands) }.check(), Ok(()), "{name}");
        }
    }

    #[test]
    fn names_are_quoted() {
        let fill = |hole: &str| (hole == "path").then(|| quoted("a'b c"));
        assert_eq!(filled("awk '{print}' {path} {", &fill), "awk '{print}' 'a'\\''b c' {");
    }
}
