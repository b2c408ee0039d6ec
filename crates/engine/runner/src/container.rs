//! Programs in containers: with the root file system of an image in place of the node's.
//!
//! A program is started by another one that gives it its root: by bubblewrap (`bwrap`) if the image is unpacked, by Apptainer if it
//! is a file of Apptainer's, or by a command of the user's. Here that program's command line is made, and what it says is
//! understood.
//!
//! In the container a program of bubblewrap's finds
//!
//! | what | how |
//! |---|---|
//! | `/` | the image, read-only |
//! | its sandbox, at the path that it has on the node | as ever; it is the working directory |
//! | shared trees among its inputs, at their paths on the node | read-only |
//! | the rest of the executor's folder | empty |
//! | `/dev`, `/proc`, `/sys`, `/tmp`, `/etc/hosts`, `/etc/resolv.conf` | the node's |
//! | the network, other processes, its user | the node's |
//! | variables | those of the image, of the task and of eyas, and of the node's those that do not lead to its programs |
//!
//! bubblewrap waits for the program that it has started and ends as that does; that is how the end of the program is known. It starts the
//! program in a session of its own, so that a signal for the program's process group does not concern bubblewrap itself.
//!
//! Not here: how an image is unpacked (`made/image.rs` in `eyas-runtime`).

use crate::exec_args::{ExecArgs, Helper};
use crate::program::{Finder, NotStarted};
use crate::protocol::{
    ByteString, Container, ContainerKind, ExitKind, InputMode, NotStartedKind, Program, RunSpec,
};
use crate::{sys, tree};
use eyas_text::{shown, shown_bytes};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

/// The root file system in the folder that is made of an image.
pub const ROOT: &str = "root";
/// The file in that folder with the variables that the image sets.
pub const ENV_FILE: &str = "image.env";
/// Where the node's own is mounted, beside its folder of the executor: the image has to have these places.
pub const MOUNT_FOLDERS: [&str; 4] = ["/dev", "/proc", "/sys", "/tmp"];
pub const MOUNT_FILES: [&str; 2] = ["/etc/hosts", "/etc/resolv.conf"];

/// The `PATH` of images that set none.
const USUAL_PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const BUBBLEWRAP: &[u8] = b"bwrap";
/// How bubblewrap begins its own messages.
const OF_BUBBLEWRAP: &[u8] = b"bwrap: ";
/// The programs that read the files of Apptainer, and what they have before the names of variables that are for the container; the first
/// one is its name today.
const APPTAINERS: [(&[u8], &[u8]); 2] =
    [(b"apptainer", b"APPTAINERENV_"), (b"singularity", b"SINGULARITYENV_")];
/// The script in the sandbox with which a container of `--container-command` begins.
const START: &str = ".eyas-start";
/// Symbolic links that lead from one to the next at most.
const LINKS_MAX: u32 = 40;

/// The variables of an image as its [`ENV_FILE`] has them. An entry is `NAME=VALUE`.
pub fn env_text(entries: &[String]) -> Vec<u8> {
    entries.iter().flat_map(|entry| entry.bytes().filter(|byte| *byte != 0).chain([0])).collect()
}

fn read_env(image: &Path) -> Vec<(ByteString, ByteString)> {
    let text = fs::read(image.join(ENV_FILE)).unwrap_or_default();
    let entries = text.split(|byte| *byte == 0).filter_map(|entry| {
        let at = entry.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
        Some((entry[..at].to_vec().into(), entry[at + 1..].to_vec().into()))
    });
    entries.collect()
}

/// Where a program runs.
#[derive(Clone, Copy)]
pub(crate) struct ProgramPlace<'a> {
    pub sandbox: &'a Path,
    /// The executor's folder.
    pub node_folder: &'a Path,
}

/// What runs the program of `spec` in its container. Nothing that an image or a task says is a variable of that helper: it starts with
/// the rights of the executor, and a variable can be a library for it. Errors: what the attempt ends with.
pub(crate) fn wrap(
    container: &Container,
    spec: &RunSpec,
    place: ProgramPlace<'_>,
    finder: &mut Finder,
    node: &ExecArgs,
) -> Result<Helper, ExitKind> {
    let ProgramPlace { sandbox, node_folder } = place;
    let refused = |NotStarted { kind, message }| ExitKind::NotStarted { kind, message };
    let sandbox_text = sandbox.as_os_str().as_bytes();
    let mut command = match &spec.program {
        Program::Exec(argv) => argv.clone(),
        Program::Shell(line) => vec!["/bin/sh".into(), "-c".into(), line.clone()],
    };
    // A folder that is named from here would be one in the sandbox.
    let whole = node.base_path().split(|byte| *byte == b':').filter(|folder| folder.starts_with(b"/"));
    let node_path = whole.collect::<Vec<_>>().join(&b':');
    let mut find = |name: &[u8]| finder.find(name, &node_path, sandbox).map(|path| path.into_bytes());
    let mut argv: Vec<ByteString> = vec![];
    let mut env = vec![];
    let mut open = None;
    match &container.kind {
        ContainerKind::Bubblewrap => {
            let found = find(BUBBLEWRAP).map_err(|_| {
                lacks(format!(
                    "this node has no program bwrap, which runs tasks in containers such as {}; install bubblewrap (apt install \
                     bubblewrap, dnf install bubblewrap), or say with --container-command what runs containers here",
                    shown_bytes(&container.name)
                ))
            })?;
            let mut image_env = in_image(container, spec, sandbox);
            let path = image_env.iter().rev().find(|(name, _)| &name[..] == b"PATH");
            let path = path.map_or(USUAL_PATH, |(_, value)| &value[..]);
            check_program(container, &command, path, sandbox, node_folder).map_err(refused)?;
            image_env.extend(spec.env.iter().cloned());
            let set = RunSpec { env: image_env, ..spec.clone() };
            let set = node.inside(&set, &container.kind, sandbox_text).map_err(refused)?;
            // As a file, because everybody on the node sees the words of a command, and variables can be secrets.
            let words = words_file(bubblewrap_words(container, spec, place, set)).map_err(|e| {
                let message = format!("cannot write down the words for bwrap: {e}");
                ExitKind::NotStarted { kind: NotStartedKind::NoResources, message }
            })?;
            argv.extend([
                found.into(),
                "--args".into(),
                words.as_raw_fd().to_string()[..].into(),
                "--".into(),
            ]);
            open = Some(words);
        }
        ContainerKind::Apptainer => {
            let (found, prefix) =
                APPTAINERS.into_iter().find_map(|(name, prefix)| Some((find(name).ok()?, prefix))).ok_or_else(|| {
                    lacks(format!(
                        "this node has neither apptainer nor singularity, and one of them runs {}; install apptainer, or say with \
                         --container-command what runs containers here",
                        shown_bytes(&container.name)
                    ))
                })?;
            argv.push(found.into());
            let words: [&[u8]; 6] = [
                b"exec",
                b"--bind",
                node_folder.as_os_str().as_bytes(),
                b"--pwd",
                sandbox_text,
                &container.image,
            ];
            argv.extend(words.map(|word| word.to_vec().into()));
            let set = node.inside(spec, &container.kind, sandbox_text).map_err(refused)?;
            // It decides about `HOME` itself, and warns where it is set.
            let set = set.into_iter().filter(|(name, _)| &name[..] != b"HOME");
            env.extend(set.map(|(name, value)| ([prefix, &name[..]].concat().into(), value)));
        }
        ContainerKind::Command(words) => {
            let places = Places { sandbox, node_folder, image: &container.root() };
            argv.extend(words.iter().map(|word| places.fill(word)));
            let program = argv.first().cloned().unwrap_or_default();
            let cannot = |why: String| lacks(format!("this node cannot run --container-command: {why}"));
            if program.contains(&b'/') && !program.starts_with(b"/") {
                let name = shown_bytes(&program).to_string();
                return Err(cannot(format!(
                    "{name} would be a program in the sandbox; name it by its whole path"
                )));
            }
            argv[0] = find(&program).map_err(|e| cannot(e.message))?.into();
            let set = node.inside(spec, &container.kind, sandbox_text).map_err(refused)?;
            write_start(sandbox, spec, &set).map_err(refused)?;
            command.splice(0..0, ["/bin/sh".into(), format!("./{START}")[..].into()]);
        }
    }
    argv.extend(command);
    let inherits = container.kind != ContainerKind::Bubblewrap;
    Ok(Helper { argv, inherits, env, open })
}

/// Writes the script that sets variables in a container of `--container-command`, and then becomes the program. Any such command hands on
/// a working directory; there is no other way to hand on variables that all of them have.
fn write_start(
    sandbox: &Path,
    spec: &RunSpec,
    variables: &[(ByteString, ByteString)],
) -> Result<(), NotStarted> {
    // The place of `/dev/null` may not be there, nor a program `rm`.
    let mut script = b"rm -f \"$0\" 2>&-\n".to_vec();
    for (name, value) in variables {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        if name[0].is_ascii_digit() || !name.iter().all(is_plain) {
            let message = format!(
                "environment variable {} cannot be set in a container of --container-command: a shell does it, whose names are of \
                 letters, digits and _",
                shown_bytes(name)
            );
            return Err(NotStarted::new(NotStartedKind::BadArguments, message));
        }
        script.extend([b"export ", &name[..], b"='"].concat());
        script.extend(value.split(|byte| *byte == b'\'').collect::<Vec<_>>().join(&b"'\\''"[..]));
        script.extend(b"'\n");
    }
    script.extend(b"exec \"$@\"\n");
    let write = || {
        let mut file =
            fs::File::options().write(true).create_new(true).mode(0o600).open(sandbox.join(START))?;
        file.write_all(&script)?;
        spec.account.as_ref().map_or(Ok(()), |account| sys::give(file.as_fd(), account.uid, account.gid))
    };
    write().map_err(|e| {
        let message =
            format!("cannot write {START} in the sandbox, which sets the variables in the container: {e}");
        NotStarted::new(NotStartedKind::Other, message)
    })
}

/// Words in a file that a program reads from its beginning.
fn words_file(words: Vec<ByteString>) -> io::Result<fs::File> {
    // SAFETY: a plain call, which makes a new descriptor.
    let mut file = unsafe {
        let fd = sys::check(libc::memfd_create(c"eyas".as_ptr(), libc::MFD_CLOEXEC))?;
        fs::File::from_raw_fd(fd)
    };
    let text: Vec<u8> = words.iter().flat_map(|word| word.iter().copied().chain([0])).collect();
    file.write_all(&text)?;
    file.rewind()?;
    Ok(file)
}

/// The node lacks something. It is said at once, and not tried again: where no node has it, a run would not end.
fn lacks(message: String) -> ExitKind {
    ExitKind::NotStarted { kind: NotStartedKind::NoContainer, message }
}

/// What the words of a command stand for.
struct Places<'a> {
    sandbox: &'a Path,
    node_folder: &'a Path,
    image: &'a Path,
}

impl Places<'_> {
    fn fill(&self, word: &[u8]) -> ByteString {
        let holes = [("{sandbox}", self.sandbox), ("{node}", self.node_folder), ("{image}", self.image)];
        let mut filled = vec![];
        let mut rest = word;
        'word: while let Some(byte) = rest.first() {
            for (hole, path) in holes {
                if let Some(behind) = rest.strip_prefix(hole.as_bytes()) {
                    filled.extend_from_slice(path.as_os_str().as_bytes());
                    rest = behind;
                    continue 'word;
                }
            }
            filled.push(*byte);
            rest = &rest[1..];
        }
        filled.into()
    }
}

impl Container {
    /// The root file system, or the file of the image.
    fn root(&self) -> PathBuf {
        let image = self.image.as_path();
        if self.is_unpacked { image.join(ROOT) } else { image.to_path_buf() }
    }
}

/// The variables that a program of bubblewrap's gets before those of its task.
fn in_image(container: &Container, spec: &RunSpec, sandbox: &Path) -> Vec<(ByteString, ByteString)> {
    let own = crate::exec_args::SANDBOX_NAMES;
    let mut env = vec![("PATH".into(), USUAL_PATH.to_vec().into()), ("HOME".into(), sandbox.into())];
    env.extend(read_env(container.image.as_path()).into_iter().filter(|(name, _)| !own.contains(&&name[..])));
    env.extend(spec.env.iter().filter(|(name, _)| &name[..] == b"PATH").cloned());
    env
}

/// What bubblewrap makes, with the variables that it sets.
fn bubblewrap_words(
    container: &Container,
    spec: &RunSpec,
    ProgramPlace { sandbox, node_folder }: ProgramPlace<'_>,
    variables: Vec<(ByteString, ByteString)>,
) -> Vec<ByteString> {
    let root = container.root();
    let mut words: Vec<ByteString> = vec!["--die-with-parent".into(), "--new-session".into()];
    // A program of root could mount what is read-only anew, and look through other processes at the node.
    words.extend(["--cap-drop".into(), "ALL".into()]);
    let mut mount = |how: &str, from: &OsStr, to: &OsStr| {
        words.extend([how.into(), from.into(), to.into()]);
    };
    let same = |path: &'static str| (OsStr::new(path), OsStr::new(path));
    mount("--ro-bind", root.as_os_str(), OsStr::new("/"));
    for (how, path) in [("--dev-bind", "/dev"), ("--bind", "/proc"), ("--bind", "/sys"), ("--bind", "/tmp")] {
        let (from, to) = same(path);
        mount(how, from, to);
    }
    for path in MOUNT_FILES {
        let (from, to) = same(path);
        mount("--ro-bind-try", from, to);
    }
    words.extend(["--tmpfs".into(), node_folder.into()]);
    let mut mount = |how: &str, path: &ByteString| words.extend([how.into(), path.clone(), path.clone()]);
    mount("--bind", &sandbox.into());
    for input in spec.inputs.iter().filter(|input| input.mode == InputMode::Shared) {
        mount("--ro-bind", &input.source);
    }
    words.extend(["--chdir".into(), sandbox.into()]);
    words.extend(variables.into_iter().flat_map(|(name, value)| ["--setenv".into(), name, value]));
    words
}

/// Whether the program of `command` is in the image and can run here. bubblewrap would only say that a file is not there.
fn check_program(
    container: &Container,
    command: &[ByteString],
    path: &[u8],
    sandbox: &Path,
    node_folder: &Path,
) -> Result<(), NotStarted> {
    let view = View { root: &container.root(), node_folder };
    let program: &[u8] = command.first().map_or(b"", |word| word);
    let image = shown_bytes(&container.name).to_string();
    let name = shown_bytes(program).to_string();
    if program.is_empty() {
        return Err(NotStarted::new(NotStartedKind::CommandNotFound, "the command is empty"));
    }
    let named = Path::new(OsStr::from_bytes(program));
    let file = if !program.contains(&b'/') {
        let folders = path.split(|byte| *byte == b':').filter(|folder| folder.starts_with(b"/"));
        let mut found =
            folders.filter_map(|folder| view.find(&Path::new(OsStr::from_bytes(folder)).join(named)));
        found.find(|file| file.is_file()).ok_or_else(|| {
            let path = String::from_utf8_lossy(path);
            let message = format!("command not found in the container {image}: {name} (PATH={path})");
            NotStarted::new(NotStartedKind::CommandNotFound, message)
        })?
    } else {
        // What is not absolute is in the sandbox, or leads from there by a link.
        view.find(&sandbox.join(named)).unwrap_or_default()
    };
    let meta = fs::metadata(&file).ok().filter(|meta| meta.is_file()).ok_or_else(|| {
        let message = format!("command not found in the container {image}: there is no file {name}");
        NotStarted::new(NotStartedKind::CommandNotFound, message)
    })?;
    if meta.permissions().mode() & 0o111 == 0 {
        let message = format!("command {name} is not executable in the container {image}");
        return Err(NotStarted::new(NotStartedKind::NotExecutable, message));
    }
    match needs(&file) {
        Needs::Machine(machine) => {
            let message = format!(
                "command {name} in the container {image} is built for {}, and this node is {}",
                name_of_machine(machine),
                std::env::consts::ARCH
            );
            Err(NotStarted::new(NotStartedKind::BadFormat, message))
        }
        Needs::Shell => {
            let message = format!(
                "command {name} in the container {image} is neither a program nor a script that starts with `#!`"
            );
            Err(NotStarted::new(NotStartedKind::BadFormat, message))
        }
        Needs::File(other) if view.find(&other).is_none() => {
            let message = format!(
                "command {name} needs {}, which is not in the container {image}",
                shown(&other.to_string_lossy())
            );
            Err(NotStarted::new(NotStartedKind::BadFormat, message))
        }
        _ => Ok(()),
    }
}

/// What a program's file says that it cannot run without.
enum Needs {
    Nothing,
    /// The interpreter of a script, or the loader of a program.
    File(PathBuf),
    /// Another machine than this one, by its number in ELF files.
    Machine(u16),
    /// A shell that is not named: bubblewrap would hand the file to one, in which it may call itself for ever.
    Shell,
}

fn needs(file: &Path) -> Needs {
    let mut begin = vec![];
    let Ok(mut open) = fs::File::open(file) else { return Needs::Nothing };
    if Read::by_ref(&mut open).take(8 << 10).read_to_end(&mut begin).is_err() {
        return Needs::Nothing;
    }
    if let Some(line) = begin.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        return match words.next() {
            Some(word) if word.starts_with(b"/") => Needs::File(PathBuf::from(OsStr::from_bytes(word))),
            _ => Needs::Nothing,
        };
    }
    let Some(machine) = machine_of(&begin) else { return Needs::Shell };
    if !runs_here(machine) {
        return Needs::Machine(machine);
    }
    loader(&begin).map_or(Needs::Nothing, Needs::File)
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// The machine that an ELF file is for. The numbers are in the order of bytes that the file itself names.
fn machine_of(elf: &[u8]) -> Option<u16> {
    if !elf.starts_with(b"\x7fELF") {
        return None;
    }
    let bytes = number(elf, 18)?;
    Some(if elf.get(5) == Some(&2) { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
}

/// The loader that a 64-bit ELF file in the order of bytes of most machines names.
fn loader(elf: &[u8]) -> Option<PathBuf> {
    const INTERPRETER: u32 = 3;
    if elf.get(4..6) != Some(&[2, 1]) {
        return None;
    }
    let table = usize::try_from(u64::from_le_bytes(number(elf, 32)?)).ok()?;
    let (size, n) = (u16::from_le_bytes(number(elf, 54)?), u16::from_le_bytes(number(elf, 56)?));
    for i in 0..usize::from(n) {
        let entry = table.checked_add(i * usize::from(size))?;
        if u32::from_le_bytes(number(elf, entry)?) == INTERPRETER {
            let at = usize::try_from(u64::from_le_bytes(number(elf, entry + 8)?)).ok()?;
            let name = elf.get(at..)?.split(|byte| *byte == 0).next()?;
            return Some(PathBuf::from(OsStr::from_bytes(name)));
        }
    }
    None
}

/// The numbers of machines in ELF files.
const MACHINES: [(u16, &str); 8] = [
    (3, "x86"),
    (21, "powerpc64"),
    (22, "s390x"),
    (40, "arm"),
    (62, "x86_64"),
    (183, "aarch64"),
    (243, "riscv64"),
    (258, "loongarch64"),
];

fn runs_here(machine: u16) -> bool {
    let own = std::env::consts::ARCH;
    match MACHINES.iter().find(|(number, _)| *number == machine) {
        // What is not known is left to the kernel.
        None => true,
        Some((_, name)) => {
            *name == own || (*name == "x86" && own == "x86_64") || (*name == "arm" && own == "aarch64")
        }
    }
}

fn name_of_machine(machine: u16) -> &'static str {
    MACHINES.iter().find(|(number, _)| *number == machine).map_or("another machine", |(_, name)| name)
}

/// What a program sees in a container of bubblewrap's.
struct View<'a> {
    root: &'a Path,
    /// The executor's folder.
    node_folder: &'a Path,
}

impl View<'_> {
    /// Where the file with that path in the container is on the node, behind all symbolic links. `None`: it is not there.
    fn find(&self, path: &Path) -> Option<PathBuf> {
        let mut inside = PathBuf::from("/");
        let parts = |path: &Path| -> Vec<PathBuf> {
            path.components().rev().map(|part| part.as_os_str().into()).collect()
        };
        let mut left = parts(path);
        let mut n_links = 0;
        while let Some(part) = left.pop() {
            match part.components().next() {
                Some(Component::Normal(name)) => {
                    inside.push(name);
                    let at = self.on_node(&inside);
                    if !fs::symlink_metadata(&at).ok()?.is_symlink() {
                        continue;
                    }
                    n_links += 1;
                    if n_links > LINKS_MAX {
                        return None;
                    }
                    inside.pop();
                    left.extend(parts(&fs::read_link(&at).ok()?));
                }
                Some(Component::ParentDir) => {
                    inside.pop();
                }
                Some(Component::RootDir) => inside = PathBuf::from("/"),
                _ => {}
            }
        }
        Some(self.on_node(&inside))
    }

    fn on_node(&self, inside: &Path) -> PathBuf {
        let is_own = MOUNT_FOLDERS.map(Path::new).into_iter().any(|own| inside.starts_with(own))
            || inside.starts_with(self.node_folder);
        match is_own {
            true => inside.to_path_buf(),
            false => self.root.join(inside.strip_prefix("/").unwrap_or(inside)),
        }
    }
}

/// The process that bubblewrap, process `pid`, has started: the program, which leads a session of its own. `None`: there is none yet.
pub(crate) fn program_of(pid: libc::pid_t) -> Option<libc::pid_t> {
    tree::children_of(pid as u32).first().copied()
}

/// How a program in a container ended, as far as the status of the program that started it says.
///
/// bubblewrap ends with 128 and the number of a signal where the program was ended by that, and with 1 where it cannot start it.
/// `printed`: the beginnings of both streams, and whether there is more.
pub(crate) fn exit_of(container: &Container, exit: ExitKind, stdout: &[u8], stderr: &[u8]) -> ExitKind {
    if container.kind != ContainerKind::Bubblewrap {
        return exit;
    }
    match exit {
        ExitKind::Exited(status @ 129..=192) => ExitKind::Signaled { signal: status - 128, core: false },
        ExitKind::Exited(1) if stdout.is_empty() && stderr.starts_with(OF_BUBBLEWRAP) => {
            not_begun(container, &String::from_utf8_lossy(&stderr[OF_BUBBLEWRAP.len()..]))
        }
        exit => exit,
    }
}

/// What it means that bubblewrap did not start the program.
fn not_begun(container: &Container, why: &str) -> ExitKind {
    let why = why.lines().next().unwrap_or("").trim();
    let name = shown_bytes(&container.name);
    if let Some(what) = why.strip_prefix("execvp ") {
        let message = format!("command {} cannot be started in the container {name}", shown(what));
        return ExitKind::NotStarted { kind: NotStartedKind::Other, message };
    }
    if ["Resource temporarily unavailable", "Cannot allocate memory"].iter().any(|part| why.contains(part)) {
        let message = format!("no process or memory left to make the container {name}: {why}");
        return ExitKind::NotStarted { kind: NotStartedKind::NoResources, message };
    }
    let is_forbidden = ["namespace", "uid map", "gid map"].iter().any(|part| why.contains(part));
    lacks(match is_forbidden {
        true => format!(
            "this node does not let bwrap make the container {name} ({why}): its kernel forbids user namespaces; allow them \
             (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns), or say with \
             --container-command what runs containers here"
        ),
        false => format!("this node cannot make the container {name}: {why}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;
    use std::os::unix::fs::symlink;

    fn container(image: &Path) -> Container {
        Container {
            image: image.into(),
            name: "i.tar".into(),
            is_unpacked: true,
            kind: ContainerKind::Bubblewrap,
        }
    }

    fn put(path: PathBuf, content: &[u8]) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_program_is_looked_for_in_the_image() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let (image, sandbox) = (dir.join("image"), dir.join("node/sandbox"));
        let root = image.join(ROOT);
        put(root.join("usr/bin/tool"), b"#!/usr/bin/absent -x\n");
        put(root.join("usr/bin/plain"), &[]);
        put(root.join("usr/bin/text"), b"text\n");
        fs::copy("/proc/self/exe", root.join("usr/bin/plain")).unwrap();
        let own = fs::read("/proc/self/exe").unwrap();
        let loader = loader(&own).unwrap();
        put(root.join(loader.strip_prefix("/").unwrap()), b"");
        put(root.join("usr/bin/script"), b"#! /bin/plain\n");
        put(root.join("usr/bin/foreign"), &elf(if cfg!(target_arch = "aarch64") { 62 } else { 183 }));
        symlink("usr/bin", root.join("bin")).unwrap();
        symlink("/usr/bin/plain", root.join("usr/bin/absolute")).unwrap();
        symlink("../../../../../../bin/plain", root.join("usr/bin/up")).unwrap();
        symlink("round", root.join("usr/bin/round")).unwrap();
        put(sandbox.join("own"), b"#!/bin/plain\n");
        put(root.join("usr/bin/not"), b"");
        fs::set_permissions(root.join("usr/bin/not"), fs::Permissions::from_mode(0o644)).unwrap();
        let image = container(&image);
        let check = |program: &str| {
            let checked =
                check_program(&image, &[program.into()], b"rel:/nowhere:/bin", &sandbox, &dir.join("node"));
            checked.err().map(|e| e.message)
        };
        // A link in the sandbox leads to where it leads in the container.
        symlink("/usr/bin/plain", sandbox.join("link")).unwrap();
        for good in [
            "./link",
            "plain",
            "script",
            "absolute",
            "up",
            "/bin/plain",
            "./own",
            "/usr/bin/../../bin/script",
        ] {
            assert_eq!(check(good), None, "{good}");
        }
        for (bad, said) in [
            ("absent", "command not found in the container `i.tar`: `absent` (PATH=rel:/nowhere:/bin)"),
            ("round", "command not found in the container `i.tar`"),
            ("/etc/passwd", "there is no file `/etc/passwd`"),
            ("./absent", "there is no file `./absent`"),
            ("/bin", "there is no file `/bin`"),
            ("not", "not executable"),
            ("text", "neither a program nor a script"),
            ("tool", "needs `/usr/bin/absent`, which is not in the container"),
            ("foreign", "is built for "),
        ] {
            let message = check(bad).expect(bad);
            assert!(message.contains(said), "{bad}: {message}");
        }
    }

    /// The beginning of a file for that machine.
    fn elf(machine: u16) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(64, 0);
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes
    }

    #[test]
    fn a_loader_is_found_in_a_program_of_this_machine() {
        let own = fs::read("/proc/self/exe").unwrap();
        let loader = loader(&own).expect("the test is linked dynamically");
        assert!(loader.exists(), "{loader:?}");
        assert!(machine_of(&own).is_some_and(runs_here) && machine_of(b"#!/bin/sh\n").is_none());
    }

    #[test]
    fn the_words_of_a_command_are_filled() {
        let places = Places {
            sandbox: Path::new("/n/s"),
            node_folder: Path::new("/n"),
            image: Path::new("/n/{sandbox}"),
        };
        let filled = ["{image}", "--bind={sandbox}:{sandbox}", "{node}/", "{", "{other}"]
            .map(|word| places.fill(word.as_bytes()).to_string());
        assert_eq!(filled, ["/n/{sandbox}", "--bind=/n/s:/n/s", "/n/", "{", "{other}"]);
    }

    #[test]
    fn what_bubblewrap_says_is_told_from_what_programs_say() {
        let image = container(Path::new("/i"));
        let exit = |status: i32, out: &str, err: &str| {
            exit_of(&image, ExitKind::Exited(status), out.as_bytes(), err.as_bytes())
        };
        assert_eq!(exit(1, "", "sh: no\n"), ExitKind::Exited(1));
        assert_eq!(exit(1, "x", "bwrap: no\n"), ExitKind::Exited(1));
        assert_eq!(exit(143, "", ""), ExitKind::Signaled { signal: 15, core: false });
        let forbidden = exit(1, "", "bwrap: setting up uid map: Permission denied\n");
        assert_eq!(forbidden.status(), Status::Permanent);
        assert!(
            matches!(forbidden, ExitKind::NotStarted { message, .. } if message.contains("user namespaces"))
        );
        let bad = exit(1, "", "bwrap: execvp x: Exec format error\n");
        assert!(
            matches!(bad, ExitKind::NotStarted { message, .. } if message.contains("`x: Exec format error`"))
        );
    }

    #[test]
    fn the_variables_of_an_image_are_read_as_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let entries = ["A=b c", "EMPTY=", "MANY=a=b\nc", "bad", "=x"].map(str::to_string);
        fs::write(dir.path().join(ENV_FILE), env_text(&entries)).unwrap();
        let read = read_env(dir.path());
        let pairs: Vec<_> = read.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
        let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
        assert_eq!(pairs, [pair("A", "b c"), pair("EMPTY", ""), pair("MANY", "a=b\nc")]);
    }
}
