//! Argument and environment arrays for `execve`, rebuilt for each task in memory that is kept.
//!
//! A task's variables can be those that make a program load a library or run a command before its own first line. So a helper that
//! starts the task's program elsewhere, in a container, has none of them: it gets them as data and sets them there.

use crate::program::{DEFAULT_PATH, NotStarted};
use crate::protocol::{Account, ByteString, ContainerKind, NotStartedKind, Program, RunSpec};
use eyas_text::shown_bytes;
use std::ffi::CString;
use std::fs::File;

/// Names that the slot sets to the path of the sandbox, unless the task sets them.
pub const SANDBOX_NAMES: [&[u8]; 3] = [b"EYAS_SANDBOX", b"TMPDIR", b"PWD"];

/// A program of the node that starts the program of a task.
pub struct Helper {
    /// Begins with the helper's own path.
    pub argv: Vec<ByteString>,
    /// Whether it has the variables of the node and the account; otherwise only [`Helper::env`].
    pub inherits: bool,
    /// Names that mean nothing to anything but the helper.
    pub env: Vec<(ByteString, ByteString)>,
    /// A file that it has open, by the same number.
    pub open: Option<File>,
}

type Arrays<'a> = (&'a [*const libc::c_char], &'a [*const libc::c_char]);

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

    /// Builds both arrays for the program of a task. They are valid until the next call.
    pub fn build(&mut self, spec: &RunSpec, sandbox: &[u8]) -> Result<Arrays<'_>, NotStarted> {
        self.clear();
        match &spec.program {
            Program::Exec(argv) => self.push_arguments(argv)?,
            Program::Shell(line) if line.contains(&0) => {
                return Err(bad("the command line holds a NUL byte".to_owned()));
            }
            Program::Shell(line) => {
                [b"sh", b"-c", &line[..]].iter().for_each(|argument| self.push_argument(argument));
            }
        }
        let of_account = of_account(spec.account.as_ref(), sandbox);
        each_variable(spec, sandbox, of_account, |name, value| self.push_variable(name, value))?;
        Ok(self.finish(|name| is_left_of_node(name, spec, of_account)))
    }

    /// The same for a helper. It has none of the task's variables.
    pub fn build_helper(
        &mut self,
        helper: &Helper,
        account: Option<&Account>,
        sandbox: &[u8],
    ) -> Result<Arrays<'_>, NotStarted> {
        self.clear();
        self.push_arguments(&helper.argv)?;
        let own = match helper.inherits {
            true => of_account(account, sandbox),
            false => None,
        };
        own.iter().flatten().for_each(|(name, value)| self.push_variable(name, value));
        if helper.inherits {
            self.push_variable(b"PWD", sandbox);
        }
        helper.env.iter().for_each(|(name, value)| self.push_variable(name, value));
        let is_set = |name: &[u8]| name == b"PWD" || own.iter().flatten().any(|(own, _)| *own == name);
        Ok(self.finish(|name| helper.inherits && !is_set(name)))
    }

    /// The variables that a helper sets for the program of a task. bubblewrap has nothing of the node's to hand on, so those are
    /// among them, except for what leads to programs and libraries of the node: the program has another root.
    pub fn inside(
        &self,
        spec: &RunSpec,
        kind: &ContainerKind,
        sandbox: &[u8],
    ) -> Result<Vec<(ByteString, ByteString)>, NotStarted> {
        let is_all = *kind == ContainerKind::Bubblewrap;
        let of_account = if is_all { of_account(spec.account.as_ref(), sandbox) } else { None };
        let mut all = vec![];
        let mut push = |name: &[u8], value: &[u8]| all.push((name.to_vec().into(), value.to_vec().into()));
        each_variable(spec, sandbox, of_account, &mut push)?;
        for (name_bytes, entry) in self.base_env.iter().filter(|_| is_all) {
            let (name, value) = entry.as_bytes().split_at(*name_bytes);
            if is_left_of_node(name, spec, of_account) && !is_of_node(name) {
                push(name, &value[1..]);
            }
        }
        Ok(all)
    }

    fn clear(&mut self) {
        self.strings.clear();
        self.argv_at.clear();
        self.env_at.clear();
    }

    fn push_arguments(&mut self, arguments: &[ByteString]) -> Result<(), NotStarted> {
        for (i, argument) in arguments.iter().enumerate() {
            if argument.contains(&0) {
                return Err(bad(format!("argument {i} holds a NUL byte")));
            }
            self.push_argument(argument);
        }
        Ok(())
    }

    fn push_argument(&mut self, argument: &[u8]) {
        self.argv_at.push(self.strings.len());
        self.strings.extend_from_slice(argument);
        self.strings.push(0);
    }

    fn push_variable(&mut self, name: &[u8], value: &[u8]) {
        self.env_at.push(self.strings.len());
        [name, b"=", value, b"\0"].iter().for_each(|part| self.strings.extend_from_slice(part));
    }

    /// The arrays, with the variables of the node that are inherited.
    fn finish(&mut self, is_inherited: impl Fn(&[u8]) -> bool) -> Arrays<'_> {
        let strings = &self.strings;
        let pointer = |&at: &usize| strings[at..].as_ptr().cast::<libc::c_char>();
        self.argv.clear();
        self.argv.extend(self.argv_at.iter().map(pointer));
        self.argv.push(std::ptr::null());
        self.envp.clear();
        self.envp.extend(self.env_at.iter().map(pointer));
        let inherited = self.base_env.iter();
        let inherited =
            inherited.filter(|(name_bytes, entry)| is_inherited(&entry.as_bytes()[..*name_bytes]));
        self.envp.extend(inherited.map(|(_, entry)| entry.as_ptr()));
        self.envp.push(std::ptr::null());
        (&self.argv, &self.envp)
    }
}

fn bad(what: String) -> NotStarted {
    NotStarted::new(NotStartedKind::BadArguments, what)
}

type OfAccount<'a> = Option<[(&'static [u8], &'a [u8]); 3]>;

fn of_account<'a>(account: Option<&'a Account>, sandbox: &'a [u8]) -> OfAccount<'a> {
    account.map(|account| {
        let home = account.home.as_ref().map_or(sandbox, |home| &home[..]);
        [(&b"HOME"[..], home), (b"USER", &account.name[..]), (b"LOGNAME", &account.name[..])]
    })
}

fn is_set_by_task(spec: &RunSpec, name: &[u8]) -> bool {
    spec.env.iter().any(|(own, _)| own[..] == *name)
}

/// Calls `each` for the variables that a task sets, and for those of its sandbox and account that it does not set.
fn each_variable(
    spec: &RunSpec,
    sandbox: &[u8],
    of_account: OfAccount<'_>,
    mut each: impl FnMut(&[u8], &[u8]),
) -> Result<(), NotStarted> {
    for (i, (name, value)) in spec.env.iter().enumerate() {
        check_variable(name, value).map_err(|reason| {
            bad(format!("environment variable {name} {reason}", name = shown_bytes(&name.0)))
        })?;
        if !spec.env[i + 1..].iter().any(|(later, _)| later == name) {
            each(name, value);
        }
    }
    let of_sandbox = SANDBOX_NAMES.map(|name| (name, sandbox));
    for (name, value) in of_sandbox.into_iter().chain(of_account.into_iter().flatten()) {
        if !is_set_by_task(spec, name) {
            each(name, value);
        }
    }
    Ok(())
}

/// Whether a variable of the node's is still that for the program of a task.
fn is_left_of_node(name: &[u8], spec: &RunSpec, of_account: OfAccount<'_>) -> bool {
    let is_of_account = of_account.is_some_and(|own| own.iter().any(|(own, _)| *own == name));
    !SANDBOX_NAMES.contains(&name) && !is_of_account && !is_set_by_task(spec, name)
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
            prints_whole: false,
            account: None,
            container: None,
            watched: None,
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
        let bad = RunSpec { env: vec![("a=b".into(), "".into())], ..spec.clone() };
        assert_eq!(args.build(&bad, b"/box").unwrap_err().kind, NotStartedKind::BadArguments);

        // A helper has nothing of the task's, and may have nothing at all.
        let account = Account { uid: 1, gid: 1, groups: vec![], name: "u".into(), home: None };
        let mut helper = Helper {
            argv: vec!["/h".into()],
            inherits: true,
            env: vec![("H".into(), "1".into())],
            open: None,
        };
        let (argv, envp) = args.build_helper(&helper, Some(&account), b"/box").unwrap();
        assert_eq!(text(argv), ["/h"]);
        let expected = [
            "HOME=/box",
            "USER=u",
            "LOGNAME=u",
            "PWD=/box",
            "H=1",
            "A=base",
            "PATH=/base",
            "TMPDIR=/base-tmp",
            "B=base",
        ];
        assert_eq!(text(envp), expected);
        (helper.inherits, helper.env) = (false, vec![]);
        let (_, envp) = args.build_helper(&helper, Some(&account), b"/box").unwrap();
        assert_eq!(text(envp), Vec::<String>::new());
        let inside = |kind: ContainerKind| -> Vec<String> {
            let all = args.inside(&spec, &kind, b"/box").unwrap();
            all.iter().map(|(name, value)| format!("{name}={value}")).collect()
        };
        let own = ["B=last", "PWD=mine", "EYAS_SANDBOX=/box", "TMPDIR=/box"];
        assert_eq!(inside(ContainerKind::Apptainer), own);
        assert_eq!(inside(ContainerKind::Bubblewrap), [&own[..], &["A=base"]].concat());
    }
}
