//! How an executor is started on another machine: lines for its shell.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// What a node runs.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program, as nodes find it.
    pub exe: PathBuf,
    /// Arguments of the executor, after the join file, the name and the folder.
    pub node_args: Vec<String>,
    /// Where a node keeps its cache and its sandboxes: a folder of the executor's own is in it. `$NAME` is replaced on
    /// the node. `None`: its folder for temporary files.
    pub node_dir: Option<String>,
    /// How long such a folder may be unused, see [`crate::executor::scratch`].
    pub scratch_age: Duration,
    /// Lines for the shell of the node before the executor starts.
    pub setup: Vec<String>,
    /// How long a block may live, for who requests it.
    pub walltime: Option<Duration>,
}

impl Launch {
    /// Arguments of the executor hold an option with that name.
    pub(super) fn has_argument(&self, name: &str) -> bool {
        self.node_args.iter().any(|word| word == name)
    }

    /// The text as it stands between double quotes for a shell, in which only `$` keeps its meaning.
    pub fn in_double_quotes(text: &str) -> String {
        text.replace('\\', r"\\").replace('"', "\\\"").replace('`', "\\`")
    }

    /// Lines that set up the node and become the executor called `name`. `join` is a word for the shell; `-`: the key comes
    /// by standard input, of which lines of set-up read nothing. `takes_more`: the arguments of the shell are further ones
    /// of the executor.
    pub(super) fn script(&self, join: &str, name: &str, takes_more: bool) -> String {
        self.script_with(&quoted(&self.exe.to_string_lossy()), join, name, takes_more)
    }

    /// The same with another word for the program.
    pub(super) fn script_with(&self, exe: &str, join: &str, name: &str, takes_more: bool) -> String {
        let Launch { node_args, node_dir, scratch_age, setup, .. } = self;
        let mut text = String::new();
        // The walltime counts from the start of the job, so lines of set-up are part of it.
        let walltime_s = self.walltime.map(|walltime| walltime.as_secs());
        if walltime_s.is_some() {
            text.push_str("began=$(date +%s)\n");
        }
        if !setup.is_empty() {
            let _ = writeln!(text, "{{\n{}\n}} < /dev/null", setup.join("\n"));
        }
        let folder = match node_dir {
            Some(dir) => Launch::in_double_quotes(dir),
            None => "${TMPDIR:-/tmp}/eyas-nodes-$(id -u)".into(),
        };
        let _ = writeln!(text, "mkdir -p -m 700 \"{folder}\" || exit 1");
        let args: Vec<String> = node_args.iter().map(|word| quoted(word)).collect();
        let more = if takes_more { " \"$@\"" } else { "" };
        let args = args.join(" ");
        let _ = write!(
            text,
            "exec {exe} executor --join {join} --name {name} --scratch \"{folder}\" --scratch-age {}ms {args}",
            scratch_age.as_millis()
        );
        if let Some(s) = walltime_s {
            let _ = write!(text, " --walltime {s}s --walltime-end $((began + {s}))");
        }
        text.push_str(more);
        text
    }
}

/// A word for the shell.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"_-./:=@%+,".contains(&b);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}
