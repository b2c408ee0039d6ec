//! Argument and environment arrays for `execve`, rebuilt for each task in memory that is kept.

use crate::program::{DEFAULT_PATH, NotStarted};
use crate::protocol::{ByteString, ContainerKind, NotStartedKind, Program, RunSpec};
use eyas_text::shown_bytes;
use std::ffi::CString;

/// Names that the slot sets to the path of the sandbox, unless the task sets them.
pub const SANDBOX_NAMES: [&[u8]; 3] = [b"EYAS_SANDBOX", b"TMPDIR", b"PWD"];

pub struct ExecArgs {
    base_env: Vec<(usize, CString)>,
    base_path: Vec<u8>,
    /// The task's own strings, each with its NUL.
    strings: Vec<u8>,
    argv_at: Vec<usize>,
    env_at: Vec<usize>,
    argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
}

impl ExecArgs {
    /// Entries of `base_env` that no environment can hold (NUL, `=` in the name) are left out.
    pub fn new(base_env: &[(ByteString, ByteString)]) -> Self {
        let entries = base_env.iter().filter(|(name, value)| check_variable(name, value).is_ok());
        let joined = entries.filter_map(|(name, value)| {
            Some((name.len(), CString::new([&name[..], b"=", &value[..]].concat()).ok()?))
        });
        let path = base_env.iter().rev().find(|(name, _)| &name[..] == b"PATH");
        Self {
            base_env: joined.collect(),
            base_path: path.map_or(DEFAULT_PATH.to_vec(), |(_, value)| value.to_vec()),
            strings: Vec::new(),
            argv_at: Vec::new(),
            env_at: Vec::new(),
            argv: Vec::new(),
            envp: Vec::new(),
        }
    }

    /// The command's name and the `PATH` to look it up in.
    pub fn program_and_path<'a>(&'a self, spec: &'a RunSpec) -> (&'a [u8], &'a [u8]) {
        let program: &[u8] = match &spec.program {
            Program::Exec(argv) => argv.first().map_or(b"", |program| program),
            Program::Shell(_) => b"/bin/sh",
        };
        let path = spec.env.iter().rev().find(|(name, _)| &name[..] == b"PATH");
        (program, path.map_or(&self.base_path[..], |(_, value)| value))
    }

    /// The `PATH` of the node.
    pub fn base_path(&self) -> &[u8] {
        &self.base_path
    }

    /// Builds both arrays. They are valid until the next call.
    pub fn build(
        &mut self,
        spec: &RunSpec,
        sandbox: &[u8],
    ) -> Result<(&[*const libc::c_char], &[*const libc::c_char]), NotStarted> {
        self.strings.clear();
        self.argv_at.clear();
        self.env_at.clear();
        let bad = |what: String| NotStarted::new(NotStartedKind::BadArguments, what);
        let mut push = |at: &mut Vec<usize>, parts: &[&[u8]]| {
            at.push(self.strings.len());
            parts.iter().for_each(|part| self.strings.extend_from_slice(part));
            self.strings.push(0);
        };
        match &spec.program {
            Program::Exec(argv) => {
                for (i, argument) in argv.iter().enumerate() {
                    if argument.contains(&0) {
                        return Err(bad(format!("argument {i} holds a NUL byte")));
                    }
                    push(&mut self.argv_at, &[argument]);
                }
            }
            Program::Shell(line) => {
                if line.contains(&0) {
                    return Err(bad("the command line holds a NUL byte".to_owned()));
                }
                [b"sh", b"-c", &line[..]].iter().for_each(|argument| push(&mut self.argv_at, &[argument]));
            }
        }
        let is_set_by_task = |name: &[u8]| spec.env.iter().any(|(own, _)| own[..] == *name);
        for (i, (name, value)) in spec.env.iter().enumerate() {
            check_variable(name, value).map_err(|reason| {
                bad(format!("environment variable {name} {reason}", name = shown_bytes(&name.0)))
            })?;
            if !spec.env[i + 1..].iter().any(|(later, _)| later == name) {
                push(&mut self.env_at, &[name, b"=", value]);
            }
        }
        for name in SANDBOX_NAMES.into_iter().filter(|name| !is_set_by_task(name)) {
            push(&mut self.env_at, &[name, b"=", sandbox]);
        }
        let of_account = spec.account.as_ref().map(|account| {
            let home = account.home.as_ref().map_or(sandbox, |home| &home[..]);
            [(&b"HOME"[..], home), (b"USER", &account.name[..]), (b"LOGNAME", &account.name[..])]
        });
        for (name, value) in of_account.into_iter().flatten().filter(|(name, _)| !is_set_by_task(name)) {
            push(&mut self.env_at, &[name, b"=", value]);
        }
        let strings = &self.strings;
        let pointer = |&at: &usize| strings[at..].as_ptr().cast::<libc::c_char>();
        self.argv.clear();
        self.argv.extend(self.argv_at.iter().map(pointer));
        self.argv.push(std::ptr::null());
        self.envp.clear();
        self.envp.extend(self.env_at.iter().map(pointer));
        let has_root_of_image =
            spec.container.as_ref().is_some_and(|container| container.kind == ContainerKind::Bubblewrap);
        let inherited = self.base_env.iter().filter(|(name_bytes, entry)| {
            let name = &entry.as_bytes()[..*name_bytes];
            let is_of_account = of_account.is_some_and(|own| own.iter().any(|(own, _)| *own == name));
            let is_elsewhere = has_root_of_image && is_of_node(name);
            !SANDBOX_NAMES.contains(&name) && !is_of_account && !is_set_by_task(name) && !is_elsewhere
        });
        self.envp.extend(inherited.map(|(_, entry)| entry.as_ptr()));
        self.envp.push(std::ptr::null());
        Ok((&self.argv, &self.envp))
    }
}

/// Whether a variable of the node's environment leads to programs and libraries of the node, and so is not for a program that has
/// another root.
fn is_of_node(name: &[u8]) -> bool {
    name == b"PATH" || name.starts_with(b"LD_") || name.starts_with(b"PYTHON")
}

fn check_variable(name: &[u8], value: &[u8]) -> Result<(), &'static str> {
    if name.is_empty() || name.contains(&b'=') {
        return Err("has an empty name or an equals sign in it");
    }
    if name.contains(&0) || value.contains(&0) {
        return Err("holds a NUL byte");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::CaptureLimits;
    use std::ffi::CStr;

    #[test]
    fn a_task_overrides_the_slot_which_overrides_the_base() {
        let base = [("A", "base"), ("PATH", "/base"), ("TMPDIR", "/base-tmp"), ("B", "base")];
        let base: Vec<_> = base.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        let mut args = ExecArgs::new(&base);
        let own = [("B", "first"), ("B", "last"), ("PWD", "mine")];
        let spec = RunSpec {
            key: 0,
            program: Program::Exec(vec!["x".into(), "".into(), "a b".into()]),
            env: own.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
            inputs: vec![],
            outputs: vec![],
            walltime_ns: None,
            memory_bytes: None,
            capture: CaptureLimits::default(),
            keep_sandbox: false,
            tee: [None, None],
            account: None,
            container: None,
        };
        assert_eq!(args.program_and_path(&spec), (&b"x"[..], &b"/base"[..]));
        let (argv, envp) = args.build(&spec, b"/box").unwrap();
        let text = |array: &[*const libc::c_char]| -> Vec<String> {
            let strings = array.iter().take_while(|p| !p.is_null());
            // SAFETY: the arrays hold NUL-terminated strings that are alive.
            strings.map(|&p| unsafe { CStr::from_ptr(p) }.to_str().unwrap().to_owned()).collect()
        };
        assert_eq!(text(argv), ["x", "", "a b"]);
        let expected = ["B=last", "PWD=mine", "EYAS_SANDBOX=/box", "TMPDIR=/box", "A=base", "PATH=/base"];
        assert_eq!(text(envp), expected);
        let bad = RunSpec { env: vec![("a=b".into(), "".into())], ..spec };
        assert_eq!(args.build(&bad, b"/box").unwrap_err().kind, NotStartedKind::BadArguments);
    }
}
