//! Calls of apps become tasks.

use super::ast::{At, Body, Expression, Procedure, Symbol};
use super::engine::{AppFiles, Context, Engine, Stop};
use super::values::{CellNo, State, Type, Value, Writer};
use crate::error::{Error, shown};
use crate::model::{Task, Use};
use crate::words;
use eyas_terms::array::Command;
use rustc_hash::FxHashSet;
use std::rc::Rc;

/// The longest text that `writeData` puts into a task.
const WRITTEN_BYTES_MAX: usize = 100 << 10;

impl<'a> Engine<'a> {
    /// The task of a call of an app, when everything that it reads is known.
    pub(super) fn app(
        &mut self,
        procedure: &'a Procedure,
        inputs: &[CellNo],
        outputs: &[CellNo],
        at: At,
        cx: &mut Context<'a>,
    ) -> Result<(), Stop> {
        let Body::App(commands) = &procedure.body else { unreachable!("it is an app") };
        if commands.is_empty() {
            return Err(procedure.at.broken("the app has no command").into());
        }
        let mut read = vec![];
        for input in inputs {
            self.settled(*input)?;
            for leaf in self.leaves(*input) {
                self.wait_for_file(leaf)?;
                read.push(leaf);
            }
        }
        let mut written = vec![];
        for output in outputs {
            let cell = &self.cells[*output as usize];
            if let (State::Same(_), Some(before)) = (&cell.state, cell.assigned) {
                let message = format!("an output of this call was assigned on line {}, too", before.line);
                return Err(at.broken(message).into());
            }
            if cell.of.is_scalar() {
                let message = format!(
                    "the app {} gives {}, and apps give files",
                    shown(&self.name(procedure.name)),
                    cell.of.shown()
                );
                return Err(procedure.at.broken(message).hint("`readData` reads a value from a file").into());
            }
            self.make_places(*output, at)?;
            written.extend(self.leaves(*output));
        }
        for leaf in &written {
            if let State::File { writer: Writer::Task(task), .. } = self.cells[*leaf as usize].state {
                return Err(self.written_twice(*leaf, task, at).into());
            }
            if self.is_file(*leaf) {
                self.file_name(*leaf)?;
            }
        }
        cx.app = Some(AppFiles {
            given: outputs.iter().map(|output| self.resolved(*output)).collect(),
            known: read.iter().chain(&written).copied().collect(),
            inputs: read,
        });
        let lines = self.lines(commands, cx);
        let files = cx.app.take().unwrap_or_default();
        let command = lines?;
        let id = self.name(procedure.name);
        Ok(self.add_task(&id, command, &files.inputs, &written, at)?)
    }

    fn is_file(&self, cell: CellNo) -> bool {
        matches!(self.cells[cell as usize].of, Type::File)
    }

    /// Waits until the file is an input or has a task that writes it, and until its name is known.
    pub(super) fn wait_for_file(&mut self, cell: CellNo) -> Result<(), Stop> {
        let cell = self.resolved(cell);
        if let State::File { writer: Writer::Nobody, .. } = self.cells[cell as usize].state {
            return Err(Stop::Value(cell));
        }
        if self.is_file(cell) {
            self.file_name(cell)?;
        }
        Ok(())
    }

    fn lines(
        &mut self,
        commands: &'a [super::ast::AppCommand],
        cx: &mut Context<'a>,
    ) -> Result<Command<String>, Stop> {
        let mut lines = vec![];
        for command in commands {
            let mut argv = vec![command.program.to_string()];
            for word in &command.words {
                let value = self.value(word, None, cx)?;
                self.words_of(&value, cx, &mut argv)?;
            }
            let mut line = words::line(&argv);
            let mut is_plain = true;
            let streams = [(&command.stdin, "<"), (&command.stdout, ">"), (&command.stderr, "2>")];
            for (stream, mark) in streams {
                let Some(stream) = stream else { continue };
                let value = self.value(stream, None, cx)?;
                let mut file = vec![];
                self.words_of(&value, cx, &mut file)?;
                let [file] = file.as_slice() else {
                    return Err(stream.at.broken("one file is expected here").into());
                };
                line.push_str(&format!(" {mark} {}", words::quoted(file)));
                is_plain = false;
            }
            if is_plain && commands.len() == 1 {
                return Ok(Command::Exec(argv));
            }
            lines.push(line);
        }
        Ok(Command::Shell(lines.join(" && ")))
    }

    /// The words that a value is in a command.
    fn words_of(&mut self, value: &Value, cx: &mut Context<'a>, words: &mut Vec<String>) -> Result<(), Stop> {
        let cell = match value {
            Value::Scalar(scalar) => {
                words.push(scalar.text().to_string());
                return Ok(());
            }
            Value::Cell(cell) => self.resolved(*cell),
        };
        match &self.cells[cell as usize].state {
            State::File { .. } => {
                if self.is_file(cell) {
                    words.push(self.file_name_here(cell, cx)?.to_string());
                }
            }
            State::Array(array) => {
                let items: Vec<CellNo> = array.items.values().copied().collect();
                for item in items {
                    self.settled_here(item, cx)?;
                    let value = self.read(item)?;
                    self.words_of(&value, cx, words)?;
                }
            }
            State::Struct(members) => {
                for member in members.clone().iter() {
                    let value = self.read(*member)?;
                    self.words_of(&value, cx, words)?;
                }
            }
            _ => return Err(Stop::Value(cell)),
        }
        Ok(())
    }

    /// The name of a file: in an app the name that its program sees, elsewhere the script's name.
    pub(super) fn file_name_here(&mut self, cell: CellNo, cx: &mut Context<'a>) -> Result<Rc<str>, Stop> {
        let cell = self.resolved(cell);
        let Some(app) = &mut cx.app else { return self.file_name(cell) };
        if !app.known.contains(&cell) {
            self.wait_for_file(cell)?;
            app.known.insert(cell);
            app.inputs.push(cell);
        }
        Ok(in_sandbox(&self.file_name(cell)?).into())
    }

    /// Adds a task and gives its files to their cells.
    fn add_task(
        &mut self,
        kind: &Rc<str>,
        command: Command<String>,
        inputs: &[CellNo],
        outputs: &[CellNo],
        at: At,
    ) -> Result<(), Error> {
        let number = self.task_numbers.entry(kind.clone()).or_default();
        let id = format!("{kind}_{number}");
        *number += 1;
        let mut task = Task {
            id,
            stage: kind.to_string(),
            command: Some(command),
            line: Some(at.line),
            ..Task::default()
        };
        if at.file > 0 {
            task.line = None;
        }
        let mut seen = FxHashSet::default();
        for cell in inputs {
            let cell = self.resolved(*cell);
            let Some((name, writer)) = self.file_of(cell) else { continue };
            match name.filter(|_| self.is_file(cell)) {
                Some(name) => {
                    if seen.insert(name.clone()) {
                        task.inputs.push(self.use_of(&name));
                    }
                }
                // An external orders tasks and has no file.
                None => {
                    if let Writer::Task(parent) = writer {
                        task.parents.push(parent);
                    }
                }
            }
        }
        for cell in outputs {
            let Some((name, _)) = self.file_of(*cell) else { continue };
            if let Some(name) = name.filter(|_| self.is_file(*cell)) {
                let u = self.use_of(&name);
                if self.is_named(*cell) {
                    self.b.file_mut(u.file).result = Some(true);
                }
                task.outputs.push(u);
            }
        }
        task.parents.sort_unstable();
        task.parents.dedup();
        let task = self.b.task(task).map_err(|e| at.unsupported(e.message.clone()))?;
        for cell in outputs {
            if let State::File { writer, .. } = &mut self.cells[*cell as usize].state {
                *writer = Writer::Task(task);
            }
            self.changed(*cell);
        }
        Ok(())
    }

    /// The name, if it is known, and the writer of a file.
    fn file_of(&self, cell: CellNo) -> Option<(Option<Rc<str>>, Writer)> {
        match &self.cells[cell as usize].state {
            State::File { name, writer } => Some((name.clone(), *writer)),
            _ => None,
        }
    }

    fn use_of(&mut self, name: &str) -> Use {
        let own = in_sandbox(name);
        let file = self.b.file(name);
        Use { name: (own != name).then_some(own), ..Use::of(file) }
    }

    /// The task that copies a file to the name that a variable has.
    pub(super) fn copy(&mut self, cell: CellNo, source: CellNo, at: At) -> Result<(), Stop> {
        self.wait_for_file(source)?;
        let (from, to) = (self.file_name(source)?, self.file_name(cell)?);
        if let State::File { writer: Writer::Task(task), .. } = self.cells[cell as usize].state {
            return Err(self.written_twice(cell, task, at).into());
        }
        let argv = ["cp", "--", &in_sandbox(&from), &in_sandbox(&to)].map(str::to_owned);
        let kind: Rc<str> = "copy".into();
        Ok(self.add_task(&kind, Command::Exec(argv.to_vec()), &[source], &[cell], at)?)
    }

    /// `file = writeData(value)`: a task writes the text, as the value is known before the run.
    pub(super) fn write_data(
        &mut self,
        cell: CellNo,
        arguments: &'a [(Option<Symbol>, Expression)],
        at: At,
        cx: &mut Context<'a>,
    ) -> Result<(), Stop> {
        if !self.is_file(cell) {
            return Err(at.broken("`writeData` gives a file").into());
        }
        let [(None, argument)] = arguments else {
            return Err(at.broken("`writeData` takes one value").into());
        };
        let value = self.value(argument, None, cx)?;
        if let Value::Cell(cell) = value {
            self.settled(cell)?;
        }
        let text = self.data_text(&value, argument.at)?;
        if text.len() > WRITTEN_BYTES_MAX {
            let message = format!("`writeData` writes at most {} KiB", WRITTEN_BYTES_MAX >> 10);
            return Err(at.unsupported(message).into());
        }
        let to = self.file_name(cell)?;
        if let State::File { writer: Writer::Task(task), .. } = self.cells[cell as usize].state {
            return Err(self.written_twice(cell, task, at).into());
        }
        let line = format!("printf %s {} > {}", words::quoted(&text), words::quoted(&in_sandbox(&to)));
        Ok(self.add_task(&"writeData".into(), Command::Shell(line), &[], &[cell], at)?)
    }
}

/// The name of a file in the sandbox of a task, which has no files outside of it.
pub(super) fn in_sandbox(name: &str) -> String {
    if let Some((_, path)) = name.split_once("://") {
        return path.split('?').next().unwrap_or(path).rsplit('/').next().unwrap_or(path).to_owned();
    }
    let parts = name.split('/').map(|part| if part == ".." { "__parent__" } else { part });
    let name = parts.collect::<Vec<_>>().join("/");
    match name.strip_prefix('/') {
        Some(rest) => format!("__root__/{rest}"),
        None => name,
    }
}
