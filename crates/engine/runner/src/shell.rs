//! Which shell a line is for.
//!
//! `bash -o pipefail` where bash is, so that a pipe fails with any of its parts (see [`crate::pipes`]); else `/bin/sh`. A first
//! line such as `#!/bin/sh`, as scripts have it, chooses: `sh` is `/bin/sh` as the node has it, and `bash` has to be there.

use crate::pipes;
use crate::protocol::ByteString;
use eyas_text::Shell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Where bash is looked for before the `PATH` of the node.
const USUAL: &[u8] = b"/bin:/usr/bin:/usr/local/bin";

/// The words that run a line. `find_bash` looks for bash in folders of that form of `PATH`; `path`: those of the task.
pub fn words(
    line: &[u8],
    path: &[u8],
    mut find_bash: impl FnMut(&[u8]) -> Option<Vec<u8>>,
) -> Vec<ByteString> {
    let shell = Shell::chosen_by(line);
    let bash = match shell {
        Some(Shell::Sh) => None,
        Some(Shell::Bash) | None => find_bash(USUAL).or_else(|| find_bash(path)),
    };
    match (bash, shell) {
        (None, Some(Shell::Sh) | None) => vec!["/bin/sh".into(), "-c".into(), line.to_vec().into()],
        (found, _) => {
            let bash = found.unwrap_or_else(|| b"bash".to_vec());
            vec![bash.into(), "-o".into(), "pipefail".into(), "-c".into(), pipes::for_bash(line).into()]
        }
    }
}

/// The same in a container, in which nothing can be looked for from here.
pub(crate) fn words_inside(line: &[u8]) -> Vec<ByteString> {
    const LOOK: &str = "if command -v bash > /dev/null 2>&1; then exec bash -o pipefail -c \"$1\"; fi; \
        if (set -o pipefail) 2> /dev/null; then set -o pipefail; fi; eval \"$2\"";
    match Shell::chosen_by(line) {
        None => vec![
            "/bin/sh".into(),
            "-c".into(),
            LOOK.into(),
            "sh".into(),
            pipes::for_bash(line).into(),
            line.to_vec().into(),
        ],
        Some(_) => words(line, b"", |_| None),
    }
}

/// Names the shell for lines that choose none, to programs that run lines as tasks do.
pub const VARIABLE: &str = "EYAS_LINE_SHELL";

/// The words that run a line on this machine, as this process would.
pub fn words_here(line: &str) -> Vec<String> {
    let chosen = std::env::var(VARIABLE).ok().and_then(|name| Shell::of_name(&name).ok());
    let line = &match chosen.filter(|_| Shell::chosen_by(line.as_bytes()).is_none()) {
        Some(shell) => format!("{}{line}", shell.first_line()),
        None => line.to_owned(),
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let find = |path: &[u8]| {
        let mut files = path.split(|c| *c == b':').map(|folder| [folder, b"/bash"].concat());
        files.find(|file| Path::new(OsStr::from_bytes(file)).is_file())
    };
    let words = words(line.as_bytes(), path.as_bytes(), find);
    words.iter().map(ByteString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_line_chooses_the_shell() {
        let of = |line: &str, has_bash: bool| -> Vec<String> {
            let words = words(line.as_bytes(), b"", |_| has_bash.then(|| b"/bin/bash".to_vec()));
            words.iter().map(ByteString::to_string).collect()
        };
        let bash = |line: &str| {
            vec!["/bin/bash", "-o", "pipefail", "-c", line].into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(of("ls", true), bash("ls"));
        assert_eq!(of("ls", false), ["/bin/sh", "-c", "ls"]);
        for first in ["#!/bin/sh", "#! /usr/bin/env sh"] {
            let line = format!("{first}\nls");
            assert_eq!(of(&line, true), ["/bin/sh", "-c", &line]);
        }
        for first in ["#!/bin/bash", "#!/usr/bin/env bash"] {
            let line = format!("{first}\nls");
            assert_eq!(of(&line, true), bash(&line));
            assert_eq!(of(&line, false)[0], "bash", "it is not replaced by another shell");
        }
        assert_eq!(of("#!/usr/bin/env python3\nls", false)[0], "/bin/sh");
    }
}
