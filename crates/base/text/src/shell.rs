//! The shell that a line chooses by its first line, as a script does: `#!/bin/sh` or `#!/bin/bash`.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shell {
    Sh,
    Bash,
}

impl Shell {
    /// The shell of a name that users write.
    pub fn of_name(name: &str) -> Result<Shell, String> {
        match name {
            "sh" => Ok(Shell::Sh),
            "bash" => Ok(Shell::Bash),
            _ => Err("the shells are sh and bash".into()),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Shell::Sh => "sh",
            Shell::Bash => "bash",
        }
    }

    /// What a line that chooses this shell begins with, with its line feed.
    pub fn first_line(self) -> &'static str {
        match self {
            Shell::Sh => "#!/bin/sh\n",
            Shell::Bash => "#!/bin/bash\n",
        }
    }

    /// The shell that `line` chooses. `None`: it leaves that to others.
    pub fn chosen_by(line: &[u8]) -> Option<Shell> {
        let first = line.strip_prefix(b"#!")?.split(|c| *c == b'\n').next()?;
        let mut words = first.split(|c| c.is_ascii_whitespace()).filter(|word| !word.is_empty());
        let mut name = words.next()?.rsplit(|c| *c == b'/').next()?;
        if name == b"env" {
            name = words.next()?;
        }
        match (name, words.next()) {
            (b"sh", None) => Some(Shell::Sh),
            (b"bash", None) => Some(Shell::Bash),
            _ => None,
        }
    }

    /// The line without the first one that chooses the shell.
    pub fn without(line: &str) -> &str {
        match (Shell::chosen_by(line.as_bytes()), line.split_once('\n')) {
            (Some(_), Some((_, rest))) => rest,
            _ => line,
        }
    }
}
