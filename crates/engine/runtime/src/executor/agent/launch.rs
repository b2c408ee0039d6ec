//! What a slot process needs to know to run a program.

use super::attempts::Attempt;
use super::directory::PrivateCopies;
use super::objects::Objects;
use super::{AttemptId, runner};
use crate::executor::home_io::times_of_private;
use eyas_core::event::Staged;
use eyas_session::executor::Book;
use eyas_terms::array::{CONTAINER_NAME, Command, STDERR_NAME, STDOUT_NAME, TaskSpec};
use eyas_terms::location::{MadeLocation, PACKED_NAME, is_made_tree};
use eyas_terms::{RunId, is_directory};
use eyas_text::Shell;
use eyas_wire::message::Settings;
use eyas_wire::users::Principal;
use std::path::{Path, PathBuf};

/// Variables of programs that may add tasks to their run: the join file, and the run's number.
const JOIN_VARIABLE: &str = "EYAS_JOIN";
const RUN_VARIABLE: &str = "EYAS_RUN";
/// What tells a program which gpus of its node it may use: one variable per maker of gpus.
const GPU_VARIABLES: [&str; 2] = ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"];

/// Whether only programs that may add tasks get the variable `name`, as it leads to the cluster's secret.
pub(super) fn is_for_adders(name: &[u8]) -> bool {
    [JOIN_VARIABLE, RUN_VARIABLE].iter().any(|v| v.as_bytes() == name)
}

/// An attempt whose inputs are all here, and where they are.
pub(super) struct Launch<'a> {
    pub(super) id: AttemptId,
    pub(super) attempt: &'a Attempt,
    pub(super) staged: &'a [Staged],
    /// The attempt gets a copy of each input.
    pub(super) has_private_inputs: bool,
    /// The names of its gpus; `None`: the node has no gpus that it knows of.
    pub(super) gpus: Option<String>,
    pub(super) objects: &'a Objects,
    pub(super) book: &'a Book,
    pub(super) run: RunId,
    pub(super) private: &'a PrivateCopies,
    /// The join file.
    pub(super) join: &'a Path,
    /// What runs programs in containers; `None`: what is usual.
    pub(super) container_command: Option<&'a [String]>,
    /// The shell for lines that choose none; `None`: what is usual.
    pub(super) line_shell: Option<Shell>,
    pub(super) settings: &'a Settings,
    /// Where the supervisor of its program listens, if it is watched.
    pub(super) watched: Option<PathBuf>,
}

impl Launch<'_> {
    /// `None`: the task has no program, only inputs and outputs; benchmarks use such tasks.
    pub(super) fn find_spec(&self) -> Option<runner::RunSpec> {
        let task = &self.attempt.spec;
        Some(runner::RunSpec {
            key: self.attempt.key,
            program: find_program(&task.command, self.line_shell)?,
            env: self.env(),
            inputs: self.inputs(),
            outputs: task.outputs.iter().map(|(name, at)| runner_name(name, at)).collect(),
            walltime_ns: task.walltime_ns,
            memory_bytes: task.memory_bytes,
            capture: runner::CaptureLimits {
                head_bytes: self.settings.capture_head_bytes,
                tail_bytes: self.settings.capture_tail_bytes,
            },
            keep_sandbox: false,
            tee: [STDOUT_NAME, STDERR_NAME].map(|name| named_output(task, name)),
            prints_whole: self.attempt.prints_whole,
            account: self.attempt.account().cloned(),
            container: self.find_container().map(Box::new),
            watched: self.watched.as_deref().map(runner::ByteString::from),
        })
    }

    /// The container of the task, which is one of its inputs.
    fn find_container(&self) -> Option<runner::Container> {
        let inputs = &self.attempt.spec.inputs;
        let i = inputs.iter().position(|(name, _)| name == CONTAINER_NAME)?;
        let location = &*inputs[i].1;
        let is_unpacked = is_made_tree(location);
        Some(runner::Container {
            image: runner::ByteString::from(self.source(i as u32, location, &self.staged[i]).as_path()),
            name: bytes(MadeLocation::of(location).map_or(location, |made| made.packed)),
            is_unpacked,
            kind: match self.container_command {
                Some(words) => runner::ContainerKind::Command(words.iter().map(|word| bytes(word)).collect()),
                None if is_unpacked => runner::ContainerKind::Bubblewrap,
                None => runner::ContainerKind::Apptainer,
            },
        })
    }

    fn inputs(&self) -> Vec<runner::Input> {
        let task = &self.attempt.spec;
        let mut inputs = vec![];
        for (i, ((name, location), staged)) in (0..).zip(task.inputs.iter().zip(self.staged)) {
            let next = task.inputs.get(i as usize + 1);
            if *staged == Staged::Unneeded
                || name == CONTAINER_NAME
                || next.is_some_and(|(_, next)| is_only_packed(name, location, next))
            {
                continue;
            }
            inputs.push(runner::Input {
                name: runner_name(name, location),
                source: runner::ByteString::from(self.source(i, location, staged).as_path()),
                mode: self.mode(i, location, staged),
                executable: is_program(task, name),
                permissions: match staged {
                    Staged::Cached(object) => Some(self.objects.mode_of_input(*object, false)),
                    Staged::Private | Staged::InPlace(_) | Staged::Unneeded => None,
                },
                modified_ns: match staged {
                    Staged::Cached(object) => self.objects.modified_ns(*object, self.book),
                    // It has its time.
                    Staged::Private | Staged::InPlace(_) | Staged::Unneeded => None,
                },
                times: self.times(i, location, staged),
                // The owner's files are read with the rights of this process.
                at_home: matches!(staged, Staged::InPlace(_)) && self.attempt.principal != Principal::Owner,
                digest: match staged {
                    Staged::Cached(object) => self.book.digest(*object).map(|digest| digest.0),
                    Staged::Private | Staged::InPlace(_) | Staged::Unneeded => None,
                },
            });
        }
        inputs
    }

    /// Where input `i` lies on this node.
    fn source(&self, i: u32, location: &str, staged: &Staged) -> PathBuf {
        match staged {
            Staged::Cached(object) => {
                self.book.digest(*object).map_or_else(PathBuf::new, |digest| self.objects.path_of(digest))
            }
            Staged::Private => self.private.path(self.id, i),
            Staged::InPlace(_) => PathBuf::from(location),
            Staged::Unneeded => PathBuf::new(),
        }
    }

    /// When the files in input `i` were modified, if it is a directory that is made of an object.
    fn times(&self, i: u32, location: &str, staged: &Staged) -> Vec<i64> {
        match staged {
            _ if !is_directory(location) || is_made_tree(location) => vec![],
            Staged::Cached(object) => {
                let digest = self.book.digest(*object);
                digest.map_or(vec![], |digest| self.objects.store.times_of(&digest.0.into()))
            }
            Staged::Private => times_of_private(&self.private.path(self.id, i)),
            Staged::InPlace(_) | Staged::Unneeded => vec![],
        }
    }

    /// Whether the sandbox links input `i` or copies it.
    fn mode(&self, i: u32, location: &str, staged: &Staged) -> runner::InputMode {
        if is_made_tree(location) {
            return runner::InputMode::Shared;
        }
        let may_be_linked = match staged {
            // Linked only if writes through the link are noticed, and if it shows the right time.
            Staged::Cached(_) => self.attempt.linked.iter().any(|(input, _)| *input == i),
            // A file of this process's user is no good to a program of another one.
            Staged::Private => self.attempt.account().is_none(),
            // Files at home must never be written through a link.
            Staged::InPlace(_) | Staged::Unneeded => false,
        };
        match self.has_private_inputs || !may_be_linked && !is_directory(location) {
            true => runner::InputMode::Copy,
            false => runner::InputMode::Link,
        }
    }

    fn env(&self) -> Vec<(runner::ByteString, runner::ByteString)> {
        let task = &self.attempt.spec;
        let mut env = vec![
            (bytes("EYAS_TASK"), bytes(&task.id)),
            (bytes("EYAS_ATTEMPT"), bytes(&self.id.1.to_string())),
        ];
        if let Some(shell) = self.line_shell {
            env.push((bytes(eyas_runner::shell::VARIABLE), bytes(shell.name())));
        }
        if task.dynamic {
            env.push((bytes(JOIN_VARIABLE), runner::ByteString::from(self.join)));
            env.push((bytes(RUN_VARIABLE), bytes(&self.run.to_string())));
        }
        if let Some(gpus) = &self.gpus {
            env.extend(GPU_VARIABLES.map(|name| (bytes(name), bytes(gpus))));
        }
        env.extend(task.env.iter().map(|(k, v)| (bytes(k), bytes(v))));
        env
    }
}

/// Whether the program of a task does not get this input, of which only the next one is made.
fn is_only_packed(name: &str, location: &str, next: &str) -> bool {
    name.starts_with(PACKED_NAME) && MadeLocation::of(next).is_some_and(|made| made.packed == location)
}

fn find_program(command: &Command<String>, usual: Option<Shell>) -> Option<runner::Program> {
    match command {
        Command::Exec(argv) if argv.is_empty() => None,
        Command::Exec(argv) => Some(runner::Program::Exec(argv.iter().map(|a| bytes(a)).collect())),
        Command::Shell(line) => Some(runner::Program::Shell(match usual {
            Some(shell) if Shell::chosen_by(line.as_bytes()).is_none() => {
                bytes(&format!("{}{line}", shell.first_line()))
            }
            _ => bytes(line),
        })),
    }
}

/// Whether the task's command starts the input `name`.
pub(super) fn is_program(task: &TaskSpec, name: &str) -> bool {
    match &task.command {
        Command::Exec(argv) if argv.is_empty() => false,
        Command::Exec(argv) => {
            argv[0].strip_prefix("./").unwrap_or(&argv[0]) == name && argv[0].contains('/')
        }
        Command::Shell(line) => line.contains(&format!("./{name}")),
    }
}

/// The slot process's name of an input or output: a directory's name ends in `/` there, as its location does
/// here.
fn runner_name(name: &str, location: &str) -> runner::ByteString {
    match is_directory(location) {
        true => bytes(&format!("{name}/")),
        false => bytes(name),
    }
}

/// The output of that name, if the task declares one.
fn named_output(task: &TaskSpec, name: &str) -> Option<runner::ByteString> {
    task.outputs.iter().any(|(output, _)| output == name).then(|| bytes(name))
}

fn bytes(text: &str) -> runner::ByteString {
    runner::ByteString(text.as_bytes().to_vec())
}
