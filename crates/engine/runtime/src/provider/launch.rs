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
            // Tasks need what these lines set up, so the first line that fails ends the job.
            let _ = writeln!(text, "set -e\n{{\n{}\n}} < /dev/null\nset +e", setup.join("\n"));
        }
        let folder = match node_dir {
            Some(dir) => Launch::in_double_quotes(dir),
            None => "${TMPDIR:-/tmp}/eyas-nodes-$(id -u)".into(),
        };
        for name in node_dir.iter().flat_map(|dir| variables_of(dir)) {
            let _ = writeln!(text, ": \"${{{name}:?is empty on this node, and --node-dir needs it}}\"");
        }
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

/// The variables that a folder names as `$NAME` or `${NAME}`, each once, in their order.
fn variables_of(folder: &str) -> Vec<&str> {
    let mut found = vec![];
    for part in folder.split('$').skip(1) {
        let (name, is_alone) = match part.strip_prefix('{') {
            Some(rest) => rest.split_once('}').map_or(("", false), |(name, _)| (name, true)),
            None => (part, false),
        };
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let n = name.find(|c| !is_of_name(c)).unwrap_or(name.len());
        let is_name = n > 0 && !name.starts_with(|c: char| c.is_ascii_digit());
        // What else a shell does with braces, such as `${NAME:-/tmp}`, is the user's.
        if is_name && (!is_alone || n == name.len()) && !found.contains(&&name[..n]) {
            found.push(&name[..n]);
        }
    }
    found
}

/// A word for the shell.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"_-./:=@%+,".contains(&b);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Runs the script of a node with these lines of set-up and that folder, whose program is `echo`.
    fn run(setup: &[&str], node_dir: &str, variables: &[(&str, &str)]) -> (bool, String, String) {
        let launch = Launch {
            exe: "/bin/echo".into(),
            node_args: vec![],
            node_dir: Some(node_dir.into()),
            scratch_age: Duration::ZERO,
            setup: setup.iter().map(ToString::to_string).collect(),
            walltime: None,
        };
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &launch.script("-", "n", false)]).env_remove("NODE_DISK");
        let done = command.envs(variables.iter().copied()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
        (done.status.success(), text(&done.stdout), text(&done.stderr))
    }

    #[test]
    fn a_line_of_set_up_that_fails_ends_the_job() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().to_str().unwrap();
        let (is_good, said, _) = run(&["if true", "then no_such_module || true", "fi"], folder, &[]);
        assert!(is_good && said.starts_with("executor --join - --name n "), "{said}");
        let (is_good, said, words) = run(&["no_such_module load blast", "true"], folder, &[]);
        assert!(!is_good && said.is_empty() && words.contains("no_such_module"), "{said} {words}");
    }

    #[test]
    fn a_variable_of_the_folder_that_the_node_does_not_have_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let disk = ("NODE_DISK", dir.path().to_str().unwrap());
        let (is_good, _, words) = run(&[], "$NODE_DISK/x", &[]);
        assert!(!is_good, "{words}");
        assert!(words.ends_with("NODE_DISK: is empty on this node, and --node-dir needs it"), "{words}");
        let (is_good, said, words) = run(&[], "$NODE_DISK/x", &[disk]);
        assert!(is_good && said.contains(&format!("--scratch {}/x ", disk.1)), "{said} {words}");
        let (is_good, said, words) = run(&["NODE_DISK=$HERE"], "${NODE_DISK}/x", &[("HERE", disk.1)]);
        assert!(is_good && said.contains(&format!("--scratch {}/x ", disk.1)), "{said} {words}");
        assert_eq!(variables_of("/a/$B/${C}/${D:-$E}/$1/$B$"), ["B", "C", "E"]);
    }
}
