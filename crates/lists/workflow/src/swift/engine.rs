//! Unfolds a script: statements are done as soon as what they read is there, in any order.
//!
//! A statement that waits is done again from its beginning when what it waits for has come. So a statement
//! changes nothing before it has all that it reads; procedures that it has called are remembered by the
//! expression that called them.
//!
//! Invariants:
//!   1. `n_writers` of a variable is the number of statements that have not ended and may assign it. An array
//!      is closed when it, and everything that it is inside of, has no writers;
//!   2. a statement that waits is in a list of the cell that it waits for.

use super::SwiftArguments;
use super::ast::{
    At, Block, Body, Declared, Does, Expression, Is, Operator, Parameter, Procedure, Program, Statement,
    Symbol, TypeName, Variable,
};
use super::functions::{Regexes, is_function, read_data};
use super::mappers::{Mapper, fitting};
use super::values::{
    Array, Cell, CellNo, Key, KeyType, Names, Scalar, State, Step, StructType, Type, Value, Writer,
};
use crate::error::{Error, ErrorKind, Result, shown};
use crate::limit::Allowance;
use crate::model::{Builder, Workflow};
use eyas_text::nearest;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;

/// The most variables, elements and members of a script.
const CELLS_MAX: usize = 4_000_000;
/// The most statements that are done or tried.
const STEPS_MAX: u64 = 30_000_000;
/// The deepest nesting of calls.
const CALLS_MAX: u32 = 1000;

/// The reason why an expression has no value yet.
pub(super) enum Stop {
    /// It waits until the cell is assigned, or its file is known.
    Value(CellNo),
    /// It waits for the element.
    Element(CellNo, Key),
    /// It waits until nothing can add to the array.
    Closed(CellNo),
    /// A loop waits for further elements of the array.
    More(CellNo),
    Fail(Error),
}

impl From<Error> for Stop {
    fn from(e: Error) -> Stop {
        Stop::Fail(e)
    }
}

type Scope = u32;
type ItemNo = u32;
/// The scope of global variables.
const GLOBAL: Scope = 0;

struct ScopeNames {
    parent: Option<Scope>,
    names: Vec<(Symbol, CellNo)>,
    /// Calls around this scope.
    depth: u32,
}

/// What is known while a statement is done.
pub(super) struct Context<'a> {
    pub scope: Scope,
    /// What calls have given, by the number of the expression.
    memo: Vec<(u32, CellNo)>,
    /// In a command of an app: the files that the app writes.
    pub app: Option<AppFiles>,
    /// The variable that is mapped is one that nothing assigns.
    pub is_input: bool,
    at: At,
    work: Work<'a>,
}

#[derive(Default)]
pub(super) struct AppFiles {
    pub outputs: Vec<CellNo>,
    pub inputs: Vec<CellNo>,
}

#[derive(Clone, Copy)]
enum Work<'a> {
    Do(&'a Statement),
    /// A loop over an array, up to the element of that number.
    Each {
        statement: &'a Statement,
        array: CellNo,
        next: usize,
    },
    /// The end of a round of `iterate`.
    Round {
        statement: &'a Statement,
        round: i64,
        scope: Scope,
    },
    Map(&'a Variable, CellNo),
    App(&'a Procedure, u32),
    /// A file is assigned to a variable with a name of its own.
    Copy(CellNo, CellNo),
}

struct Item<'a> {
    cx: Context<'a>,
    writes: Vec<CellNo>,
    waits: Option<Stop>,
}

pub(super) struct Engine<'a> {
    program: &'a Program,
    pub(super) given: &'a SwiftArguments,
    pub(super) folder: Option<&'a Path>,
    print: &'a mut dyn FnMut(&str),
    types: FxHashMap<Symbol, Type>,
    procedures: FxHashMap<Symbol, Vec<&'a Procedure>>,
    pub(super) cells: Vec<Cell>,
    scopes: Vec<ScopeNames>,
    items: Vec<Option<Item<'a>>>,
    free_items: Vec<ItemNo>,
    ready: VecDeque<ItemNo>,
    is_ready: Vec<bool>,
    waiting: FxHashMap<CellNo, Vec<ItemNo>>,
    waiting_for_end: FxHashMap<CellNo, Vec<ItemNo>>,
    waiting_for_element: FxHashMap<(CellNo, Key), Vec<ItemNo>>,
    n_steps: u64,
    /// Of outputs of apps that were called: cells.
    calls: Vec<(Vec<CellNo>, Vec<CellNo>)>,
    pub(super) regexes: Regexes,
    pub(super) text_left: Allowance,
    pub(super) b: Builder,
    pub(super) task_numbers: FxHashMap<Rc<str>, u32>,
    free_names: FxHashMap<String, u32>,
}

impl<'a> Engine<'a> {
    pub fn new(
        program: &'a Program,
        given: &'a SwiftArguments,
        folder: Option<&'a Path>,
        print: &'a mut dyn FnMut(&str),
        stem: &str,
        n_bytes: usize,
    ) -> Result<Engine<'a>> {
        let mut engine = Engine {
            program,
            given,
            folder,
            print,
            types: FxHashMap::default(),
            procedures: FxHashMap::default(),
            cells: vec![],
            scopes: vec![],
            items: vec![],
            free_items: vec![],
            ready: VecDeque::new(),
            is_ready: vec![],
            waiting: FxHashMap::default(),
            waiting_for_end: FxHashMap::default(),
            waiting_for_element: FxHashMap::default(),
            n_steps: 0,
            calls: vec![],
            regexes: Regexes::default(),
            text_left: Allowance::of_file(n_bytes),
            b: Builder::new(stem, n_bytes),
            task_numbers: FxHashMap::default(),
            free_names: FxHashMap::default(),
        };
        engine.declare_types()?;
        engine.declare_procedures()?;
        Ok(engine)
    }

    pub fn name(&self, symbol: Symbol) -> Rc<str> {
        self.program.names[symbol as usize].clone()
    }

    pub fn print(&mut self, text: &str) {
        (self.print)(text);
    }

    // ------------------------------------------------------------ types and procedures

    fn declare_types(&mut self) -> Result<()> {
        let all: FxHashMap<Symbol, usize> =
            self.program.types.iter().enumerate().map(|(n, declaration)| (declaration.name, n)).collect();
        let mut open = FxHashSet::default();
        for declaration in &self.program.types {
            self.declare_type(declaration.name, &all, &mut open)?;
        }
        Ok(())
    }

    fn declare_type(
        &mut self,
        name: Symbol,
        all: &FxHashMap<Symbol, usize>,
        open: &mut FxHashSet<Symbol>,
    ) -> Result<()> {
        let Some(number) = all.get(&name).filter(|_| !self.types.contains_key(&name)) else { return Ok(()) };
        let declaration = &self.program.types[*number];
        if !open.insert(name) {
            let message = format!("the type {} contains itself", shown(&self.name(name)));
            return Err(declaration.at.broken(message));
        }
        let of = match &declaration.is {
            Declared::Marker => Type::File,
            Declared::Same(of) => {
                self.declare_type(of.base, all, open)?;
                self.type_of(of)?
            }
            Declared::Struct(written) => {
                let mut members: Vec<(Symbol, Rc<str>, Type)> = vec![];
                for (of, member) in written {
                    self.declare_type(of.base, all, open)?;
                    if members.iter().any(|(own, ..)| own == member) {
                        let message = format!(
                            "the type {} has two members called {}",
                            shown(&self.name(name)),
                            shown(&self.name(*member))
                        );
                        return Err(of.at.broken(message));
                    }
                    members.push((*member, self.name(*member), self.type_of(of)?));
                }
                Type::Struct(Rc::new(StructType { name: self.name(name), members }))
            }
        };
        open.remove(&name);
        self.types.insert(name, of);
        Ok(())
    }

    fn type_of(&self, written: &TypeName) -> Result<Type> {
        let base = match self.types.get(&written.base) {
            Some(of) => of.clone(),
            None => match &*self.name(written.base) {
                "int" => Type::Int,
                "float" => Type::Float,
                "string" => Type::Text,
                "boolean" => Type::Bool,
                "external" => Type::External,
                "file" => Type::File,
                other => {
                    let known = self.types.keys().map(|name| self.name(*name));
                    let known: Vec<Rc<str>> =
                        known.chain(["int", "float", "string", "boolean", "file"].map(Into::into)).collect();
                    let error = written.at.broken(format!("the type {} is not declared", shown(other)));
                    let near = nearest(other, &known.iter().map(|name| &**name).collect::<Vec<_>>());
                    return Err(error.hint(match near {
                        Some(near) => format!("is it `{near}`?"),
                        None => format!("`type {other};` declares a type of files"),
                    }));
                }
            },
        };
        written.keys.iter().rev().try_fold(base, |item, key| {
            let key = match key.map(|key| self.name(key)).as_deref() {
                None | Some("int") => KeyType::Int,
                Some("string") => KeyType::Text,
                Some("float") => KeyType::Float,
                Some("boolean") => KeyType::Bool,
                Some("auto") => KeyType::Auto,
                Some(other) => {
                    let message = format!("the keys of an array cannot be of the type {}", shown(other));
                    return Err(written
                        .at
                        .broken(message)
                        .hint("they are int, string, float, boolean or auto"));
                }
            };
            Ok(Type::array(key, item))
        })
    }

    fn declare_procedures(&mut self) -> Result<()> {
        for procedure in &self.program.procedures {
            for parameter in procedure.outputs.iter().chain(&procedure.inputs) {
                self.type_of(&parameter.of)?;
            }
            let others = self.procedures.entry(procedure.name).or_default();
            let wanted = |p: &'a Procedure| -> Vec<&'a Parameter> {
                p.inputs.iter().filter(|parameter| parameter.default.is_none()).collect()
            };
            let same = others.iter().copied().find(|other| {
                let (a, b) = (wanted(other), wanted(procedure));
                a.len() == b.len()
                    && a.iter().zip(&b).all(|(a, b)| a.of.base == b.of.base && a.of.keys == b.of.keys)
            });
            others.push(procedure);
            if let Some(other) = same {
                let message = format!(
                    "{} is declared twice with the same inputs; the other is on line {}",
                    shown(&self.name(procedure.name)),
                    other.at.line
                );
                return Err(procedure.at.error(ErrorKind::Conflict, message));
            }
        }
        Ok(())
    }

    // ------------------------------------------------------------ the loop

    pub fn run(mut self) -> Result<Workflow> {
        self.scopes.push(ScopeNames { parent: None, names: vec![], depth: 0 });
        let top = self.scope(GLOBAL, 0);
        let program = self.program;
        self.enter(&program.body, top)?;
        loop {
            while let Some(number) = self.ready.pop_front() {
                self.is_ready[number as usize] = false;
                let Some(item) = self.items[number as usize].take() else { continue };
                self.try_item(number, item)?;
            }
            if self.items.iter().all(Option::is_none) {
                break;
            }
            if !self.end_loops() {
                return Err(self.stuck());
            }
        }
        self.b.finish_also_empty()
    }

    fn try_item(&mut self, number: ItemNo, mut item: Item<'a>) -> Result<()> {
        self.n_steps += 1;
        if self.n_steps > STEPS_MAX {
            let message = format!("the script does more than {STEPS_MAX} statements");
            return Err(item.cx.at.unsupported(message).hint("does an `iterate` never end?"));
        }
        match self.work(&mut item.cx) {
            Ok(()) => {
                self.free_items.push(number);
                item.writes.iter().for_each(|cell| self.no_longer_writes(*cell));
                Ok(())
            }
            Err(Stop::Fail(e)) => Err(e),
            Err(stop) => {
                let cell = match &stop {
                    Stop::Value(cell) | Stop::More(cell) => {
                        self.waiting.entry(*cell).or_default().push(number);
                        *cell
                    }
                    Stop::Element(cell, key) => {
                        self.waiting_for_element.entry((*cell, key.clone())).or_default().push(number);
                        *cell
                    }
                    Stop::Closed(cell) => *cell,
                    Stop::Fail(_) => unreachable!("a failure was returned"),
                };
                if !matches!(stop, Stop::Value(_)) {
                    let blocking = self.closed(cell).err().unwrap_or(cell);
                    self.waiting_for_end.entry(blocking).or_default().push(number);
                }
                item.waits = Some(stop);
                self.items[number as usize] = Some(item);
                Ok(())
            }
        }
    }

    fn wake(&mut self, number: ItemNo) {
        if self.items[number as usize].is_some()
            && !std::mem::replace(&mut self.is_ready[number as usize], true)
        {
            self.ready.push_back(number);
        }
    }

    fn wake_all(&mut self, numbers: Option<Vec<ItemNo>>) {
        numbers.into_iter().flatten().for_each(|number| self.wake(number));
    }

    /// The cell was assigned, got an element, or got a name.
    pub fn changed(&mut self, cell: CellNo) {
        let waiting = self.waiting.remove(&cell);
        self.wake_all(waiting);
    }

    fn no_longer_writes(&mut self, cell: CellNo) {
        self.cells[cell as usize].n_writers -= 1;
        if self.cells[cell as usize].n_writers == 0 {
            self.ended(cell);
        }
    }

    fn ended(&mut self, cell: CellNo) {
        let waiting = self.waiting_for_end.remove(&cell);
        self.wake_all(waiting);
    }

    /// Nothing goes on. Ends loops over arrays that only loops over the same array could still add to.
    fn end_loops(&mut self) -> bool {
        let mut loops: FxHashMap<CellNo, u32> = FxHashMap::default();
        for item in self.items.iter().flatten() {
            if let Some(Stop::More(cell)) = &item.waits {
                let n = loops.entry(*cell).or_default();
                *n += item.writes.iter().filter(|written| *written == cell).count() as u32;
            }
        }
        let mut at_rest: Vec<CellNo> = loops
            .into_iter()
            .filter(|(cell, n)| self.cells[*cell as usize].n_writers == *n && *n > 0)
            .map(|(cell, _)| cell)
            .collect();
        at_rest.sort_unstable();
        for cell in &at_rest {
            if let State::Array(array) = &mut self.cells[*cell as usize].state {
                array.is_at_rest = true;
            }
            self.ended(*cell);
            self.changed(*cell);
        }
        !at_rest.is_empty()
    }

    /// The error of a script in which statements wait for something that never comes.
    fn stuck(&self) -> Error {
        let waits = self.items.iter().flatten().filter_map(|item| Some((item, item.waits.as_ref()?)));
        let mut waits: Vec<(&Item<'a>, &Stop)> = waits.collect();
        let of = |stop: &Stop| match stop {
            Stop::Value(cell) | Stop::Element(cell, _) | Stop::Closed(cell) | Stop::More(cell) => *cell,
            Stop::Fail(_) => unreachable!("it waits"),
        };
        // What waits for a variable that nothing can assign any more is the cause; others wait for it.
        waits.sort_by_key(|(item, stop)| (self.closed(of(stop)).is_err(), item.cx.at));
        let Some((item, stop)) = waits.first() else {
            return Error::broken("the script cannot go on");
        };
        let name = self.cell_text(of(stop));
        let message = match stop {
            Stop::Element(_, key) => {
                format!("{} is read and never assigned", shown(&format!("{name}[{}]", key.scalar().text())))
            }
            Stop::Value(_) if self.closed(of(stop)).is_ok() => {
                format!("{} is read and never assigned", shown(&name))
            }
            _ => format!(
                "{} waits for something that waits for it: no statement that is left can be done",
                shown(&name)
            ),
        };
        item.cx.at.broken(message)
    }

    // ------------------------------------------------------------ cells

    fn cell(&mut self, cell: Cell) -> Result<CellNo> {
        if self.cells.len() >= CELLS_MAX {
            let message = format!("the script has more than {CELLS_MAX} variables and elements");
            return Err(cell.at.unsupported(message));
        }
        self.cells.push(cell);
        Ok(self.cells.len() as CellNo - 1)
    }

    fn new_cell(
        &mut self,
        of: &Type,
        name: Symbol,
        at: At,
        inside: Option<(CellNo, Step)>,
    ) -> Result<CellNo> {
        let state = match of {
            Type::Array(_) => State::Array(Box::default()),
            Type::File | Type::External => State::File { name: None, writer: Writer::Nobody },
            _ => State::Unset,
        };
        let cell = Cell {
            of: of.clone(),
            inside,
            name,
            at,
            state,
            names: Names::Free,
            n_writers: 0,
            assigned: None,
        };
        let number = self.cell(cell)?;
        if let Type::Struct(of) = of {
            let mut members = vec![];
            for (_, member, of) in &of.members {
                members.push(self.new_cell(of, name, at, Some((number, Step::Member(member.clone()))))?);
            }
            self.cells[number as usize].state = State::Struct(members.into());
        }
        Ok(number)
    }

    /// A cell with a value, which is no variable.
    fn value_cell(&mut self, scalar: Scalar, at: At) -> Result<CellNo> {
        let number = self.new_cell(&scalar.of(), 0, at, None)?;
        self.cells[number as usize].state = State::Scalar(scalar);
        Ok(number)
    }

    /// The cell that `cell` is a name of.
    pub fn resolved(&self, mut cell: CellNo) -> CellNo {
        while let State::Same(other) = self.cells[cell as usize].state {
            cell = other;
        }
        cell
    }

    /// Whether nothing can add to the array; if something can, the variable that it may assign.
    pub fn closed(&self, cell: CellNo) -> std::result::Result<(), CellNo> {
        let mut cell = self.resolved(cell);
        loop {
            let this = &self.cells[cell as usize];
            let is_at_rest = matches!(&this.state, State::Array(array) if array.is_at_rest);
            if this.n_writers > 0 && !is_at_rest {
                return Err(cell);
            }
            match &this.inside {
                Some((outer, _)) => cell = *outer,
                None => return Ok(()),
            }
        }
    }

    /// Waits until everything in the cell but files has been assigned.
    pub fn settled(&self, cell: CellNo) -> std::result::Result<(), Stop> {
        let cell = self.resolved(cell);
        match &self.cells[cell as usize].state {
            State::Unset => Err(Stop::Value(cell)),
            State::Array(array) => {
                if self.closed(cell).is_err() {
                    return Err(Stop::Closed(cell));
                }
                array.items.values().try_for_each(|item| self.settled(*item))
            }
            State::Struct(members) => members.iter().try_for_each(|member| self.settled(*member)),
            _ => Ok(()),
        }
    }

    /// The files in a cell, in order. Elements that came later are not among them, so the cell has to be
    /// settled.
    pub fn leaves(&self, cell: CellNo) -> Vec<CellNo> {
        let cell = self.resolved(cell);
        match &self.cells[cell as usize].state {
            State::Array(array) => array.items.values().flat_map(|item| self.leaves(*item)).collect(),
            State::Struct(members) => members.iter().flat_map(|member| self.leaves(*member)).collect(),
            State::File { .. } => vec![cell],
            _ => vec![],
        }
    }

    fn root(&self, mut cell: CellNo) -> CellNo {
        while let Some((outer, _)) = &self.cells[cell as usize].inside {
            cell = *outer;
        }
        cell
    }

    /// The steps from the cell `from`, or else its variable, to `cell`.
    pub fn path_below(&self, mut cell: CellNo, from: CellNo) -> Vec<Step> {
        let mut path = vec![];
        while cell != from
            && let Some((outer, step)) = &self.cells[cell as usize].inside
        {
            path.push(step.clone());
            cell = *outer;
        }
        path.reverse();
        path
    }

    /// The cell as a script writes it.
    fn cell_text(&self, cell: CellNo) -> String {
        let root = self.root(cell);
        let mut text = self.name(self.cells[root as usize].name).to_string();
        for step in self.path_below(cell, root) {
            match step {
                Step::Element(key) => text.push_str(&format!("[{}]", key.scalar().text())),
                Step::Member(name) => text.push_str(&format!(".{name}")),
            }
        }
        text
    }

    /// The element or member, which is made if it is not there. `None`: the type has no such thing.
    pub fn step_into(&mut self, cell: CellNo, step: &Step) -> std::result::Result<Option<CellNo>, Stop> {
        match (self.cells[cell as usize].of.clone(), step) {
            (Type::Struct(of), Step::Member(name)) => {
                let State::Struct(members) = &self.cells[cell as usize].state else { return Ok(None) };
                Ok(of.members.iter().position(|(_, own, _)| own == name).map(|n| members[n]))
            }
            (Type::Array(of), Step::Element(key)) => match fitting(key, of.0) {
                Some(key) => Ok(Some(self.element(cell, key)?)),
                None => Ok(None),
            },
            (Type::Array(of), Step::Member(name)) if of.0 == KeyType::Text => {
                Ok(Some(self.element(cell, Key::Text(name.clone()))?))
            }
            _ => Ok(None),
        }
    }

    /// The element of an array, which is made if it is not there.
    fn element(&mut self, array: CellNo, key: Key) -> Result<CellNo> {
        let this = &self.cells[array as usize];
        let (Type::Array(of), State::Array(inner)) = (this.of.clone(), &this.state) else {
            unreachable!("only arrays have elements")
        };
        if let Some(item) = inner.items.get(&key) {
            return Ok(*item);
        }
        let (name, at) = (this.name, this.at);
        let item = self.new_cell(&of.1, name, at, Some((array, Step::Element(key.clone()))))?;
        if let State::Array(inner) = &mut self.cells[array as usize].state {
            inner.items.insert(key.clone(), item);
            inner.order.push(key.clone());
        }
        let waiting = self.waiting_for_element.remove(&(array, key));
        self.wake_all(waiting);
        self.changed(array);
        Ok(item)
    }

    fn set(&mut self, cell: CellNo, state: State, at: At) -> Result<()> {
        self.cells[cell as usize].state = state;
        self.cells[cell as usize].assigned = Some(at);
        self.changed(cell);
        Ok(())
    }

    /// A converted scalar, or the reason why it does not fit.
    fn converted(&self, scalar: Scalar, of: &Type, at: At, what: &dyn Fn() -> String) -> Result<Scalar> {
        match (scalar, of) {
            (Scalar::Int(n), Type::Float) => Ok(Scalar::Float(n as f64)),
            (scalar, of) if scalar.of() == *of => Ok(scalar),
            (scalar, of) => {
                let message =
                    format!("{} is {}, and this value is {}", what(), of.shown(), scalar.of().shown());
                let error = at.broken(message);
                Err(match (&scalar, of) {
                    (Scalar::Text(_), Type::Int) => error.hint("`toInt` makes an int of a string"),
                    (Scalar::Text(_), Type::Float) => error.hint("`toFloat` makes a float of a string"),
                    (_, Type::Text) => error.hint("`toString` makes a string of a value"),
                    (Scalar::Float(_), Type::Int) => error
                        .hint("`/` gives a float; `%/` divides whole numbers, and `toInt` rounds to zero"),
                    _ => error,
                })
            }
        }
    }

    /// Assigns a value to a cell. Everything that this reads has to be there.
    fn assign(&mut self, cell: CellNo, value: Value, at: At) -> std::result::Result<(), Stop> {
        if let Some(before) = self.cells[cell as usize].assigned {
            return Err(self.assigned_twice(cell, before, at).into());
        }
        let of = self.cells[cell as usize].of.clone();
        let source = match value {
            Value::Scalar(scalar) => {
                let what = || shown(&self.cell_text(cell)).to_string();
                let scalar = self.converted(scalar, &of, at, &what)?;
                return Ok(self.set(cell, State::Scalar(scalar), at)?);
            }
            Value::Cell(source) => self.resolved(source),
        };
        let from = &self.cells[source as usize].of;
        if !fits(&of, from) {
            let message = format!(
                "{} is {}, and this value is {}",
                shown(&self.cell_text(cell)),
                of.shown(),
                from.shown()
            );
            return Err(at.broken(message).into());
        }
        if source == self.resolved(cell) {
            return Err(at.broken(format!("{} is assigned to itself", shown(&self.cell_text(cell)))).into());
        }
        let has_names = !matches!(self.cells[self.root(cell) as usize].names, Names::Free);
        if !has_names || !self.has_files(&of) {
            return Ok(self.same(cell, source, at)?);
        }
        self.settled(source)?;
        match &self.cells[source as usize].state {
            State::Array(array) => {
                let items: Vec<(Key, CellNo)> = array.items.iter().map(|(k, c)| (k.clone(), *c)).collect();
                for (key, item) in items {
                    let element = self.element(cell, key)?;
                    self.assign_settled(element, item, at)?;
                }
            }
            State::Struct(members) => {
                let members = members.clone();
                let State::Struct(own) = &self.cells[cell as usize].state else { return Ok(()) };
                for (own, member) in own.clone().iter().zip(members.iter()) {
                    self.assign_settled(*own, *member, at)?;
                }
            }
            _ => {
                self.cells[cell as usize].assigned = Some(at);
                let cx = self.context(GLOBAL, at, Work::Copy(cell, source));
                self.add_item(cx, vec![cell]);
                return Ok(());
            }
        }
        self.cells[cell as usize].assigned = Some(at);
        Ok(())
    }

    fn assign_settled(&mut self, cell: CellNo, source: CellNo, at: At) -> std::result::Result<(), Stop> {
        let source = self.resolved(source);
        let value = match &self.cells[source as usize].state {
            State::Scalar(scalar) => Value::Scalar(scalar.clone()),
            _ => Value::Cell(source),
        };
        self.assign(cell, value, at)
    }

    fn assigned_twice(&self, cell: CellNo, before: At, at: At) -> Error {
        let message = format!(
            "{} is assigned here and on line {}, and a variable is assigned once",
            shown(&self.cell_text(cell)),
            before.line
        );
        at.error(ErrorKind::Conflict, message)
    }

    /// `cell` becomes another name of `source`.
    fn same(&mut self, cell: CellNo, source: CellNo, at: At) -> Result<()> {
        if let State::Array(array) = &self.cells[cell as usize].state
            && let Some(item) = array.items.values().next()
        {
            let before = self.cells[*item as usize].assigned.unwrap_or(self.cells[*item as usize].at);
            return Err(self.assigned_twice(cell, before, at));
        }
        if let (State::Struct(own), State::Struct(others)) =
            (&self.cells[cell as usize].state, &self.cells[source as usize].state)
        {
            for (own, other) in own.clone().iter().zip(others.clone().iter()) {
                if let Some(before) = self.cells[*own as usize].assigned {
                    return Err(self.assigned_twice(*own, before, at));
                }
                let other = self.resolved(*other);
                self.same(*own, other, at)?;
            }
        }
        if let State::File { writer: Writer::Task(task), .. } = self.cells[cell as usize].state {
            return Err(self.written_twice(cell, task, at));
        }
        self.set(cell, State::Same(source), at)?;
        // What waits for the end of the array, or an element, has to look at the other array.
        self.ended(cell);
        if !matches!(self.cells[cell as usize].of, Type::Array(_)) {
            return Ok(());
        }
        let elements: Vec<(CellNo, Key)> =
            self.waiting_for_element.keys().filter(|(of, _)| *of == cell).cloned().collect();
        for element in elements {
            let waiting = self.waiting_for_element.remove(&element);
            self.wake_all(waiting);
        }
        Ok(())
    }

    pub fn written_twice(&self, cell: CellNo, task: u32, at: At) -> Error {
        let line = self.b.task_line(task).map_or(String::new(), |line| format!(" on line {line}"));
        let message = format!(
            "{} is assigned here and by the task of the call{line}, and a variable is assigned once",
            shown(&self.cell_text(cell))
        );
        at.error(ErrorKind::Conflict, message)
    }

    fn has_files(&self, of: &Type) -> bool {
        match of {
            Type::File => true,
            Type::Array(of) => self.has_files(&of.1),
            Type::Struct(of) => of.members.iter().any(|(_, _, of)| self.has_files(of)),
            _ => false,
        }
    }

    /// The name of the file of a cell, as the script's mappers say, or as eyas chooses.
    pub fn file_name(&mut self, cell: CellNo) -> std::result::Result<Rc<str>, Stop> {
        let cell = self.resolved(cell);
        match &self.cells[cell as usize].state {
            State::File { name: Some(name), .. } => return Ok(name.clone()),
            State::File { .. } => {}
            State::Unset => return Err(Stop::Value(cell)),
            _ => {
                let message = format!("{} is no file", shown(&self.cell_text(cell)));
                return Err(self.cells[cell as usize].at.broken(message).into());
            }
        }
        let root = self.root(cell);
        let path = self.path_below(cell, root);
        let name: Rc<str> = match self.cells[root as usize].names.clone() {
            Names::Later => return Err(Stop::Value(root)),
            Names::By(mapper) => {
                let at = self.cells[root as usize].at;
                match self.mapped(&mapper, &path, at)? {
                    Some(name) => plain(&name).into(),
                    None => {
                        let message =
                            format!("the mapper of {} has no file for it", shown(&self.cell_text(cell)));
                        return Err(at.broken(message).into());
                    }
                }
            }
            Names::Free => {
                let mut stem = self.cell_text(cell).replace([']', '/'], "").replace(['[', '.'], "-");
                stem.retain(|c| c.is_alphanumeric() || "-_".contains(c));
                let number = self.free_names.entry(stem.clone()).or_default();
                *number += 1;
                format!("_concurrent/{stem}.{}", *number - 1).into()
            }
        };
        if name.is_empty() || name.contains('\0') {
            let message = format!("the name of the file {} is empty", shown(&self.cell_text(cell)));
            return Err(self.cells[cell as usize].at.broken(message).into());
        }
        if let State::File { name: known, .. } = &mut self.cells[cell as usize].state {
            *known = Some(name.clone());
        }
        Ok(name)
    }

    /// Whether the script says how the file is called.
    pub fn is_named(&self, cell: CellNo) -> bool {
        !matches!(self.cells[self.root(cell) as usize].names, Names::Free)
    }

    // ------------------------------------------------------------ scopes and blocks

    fn scope(&mut self, parent: Scope, depth: u32) -> Scope {
        self.scopes.push(ScopeNames { parent: Some(parent), names: vec![], depth });
        self.scopes.len() as Scope - 1
    }

    fn inner_scope(&mut self, parent: Scope) -> Scope {
        let depth = self.scopes[parent as usize].depth;
        self.scope(parent, depth)
    }

    fn bind(&mut self, scope: Scope, name: Symbol, cell: CellNo) {
        self.scopes[scope as usize].names.push((name, cell));
    }

    fn lookup(&self, scope: Scope, name: Symbol) -> Option<CellNo> {
        let mut scope = Some(scope);
        while let Some(number) = scope {
            let this = &self.scopes[number as usize];
            if let Some((_, cell)) = this.names.iter().find(|(own, _)| *own == name) {
                return Some(*cell);
            }
            scope = this.parent;
        }
        None
    }

    fn unknown_name(&self, scope: Scope, name: Symbol, at: At) -> Error {
        let text = self.name(name);
        let mut known = vec![];
        let mut next = Some(scope);
        while let Some(number) = next {
            known.extend(self.scopes[number as usize].names.iter().map(|(own, _)| self.name(*own)));
            next = self.scopes[number as usize].parent;
        }
        let error = at.broken(format!("{} is not declared", shown(&text)));
        let outer = &self.program.body.variables;
        if outer.iter().any(|variable| variable.name == name) {
            return error.hint(format!("procedures see `{text}` if its declaration begins with `global`"));
        }
        match nearest(&text, &known.iter().map(|name| &**name).collect::<Vec<_>>()) {
            Some(near) => error.hint(format!("is it `{near}`?")),
            None => error,
        }
    }

    fn context(&self, scope: Scope, at: At, work: Work<'a>) -> Context<'a> {
        Context { scope, memo: vec![], app: None, is_input: false, at, work }
    }

    fn add_item(&mut self, cx: Context<'a>, writes: Vec<CellNo>) {
        writes.iter().for_each(|cell| self.cells[*cell as usize].n_writers += 1);
        let item = Some(Item { cx, writes, waits: None });
        let number = match self.free_items.pop() {
            Some(number) => {
                self.items[number as usize] = item;
                number
            }
            None => {
                self.items.push(item);
                self.is_ready.push(false);
                self.items.len() as ItemNo - 1
            }
        };
        self.wake(number);
    }

    /// Declares the variables of a block and begins its statements.
    fn enter(&mut self, block: &'a Block, scope: Scope) -> Result<()> {
        let first = self.cells.len();
        let mut declared = vec![];
        for variable in &block.variables {
            let of = self.type_of(&variable.of)?;
            let home = if variable.is_global { GLOBAL } else { scope };
            if let Some((_, other)) = self.scopes[home as usize]
                .names
                .iter()
                .find(|(own, cell)| *own == variable.name && *cell as usize >= first)
            {
                let line = self.cells[*other as usize].at.line;
                let message =
                    format!("{} is declared here and on line {line}", shown(&self.name(variable.name)));
                return Err(variable.at.error(ErrorKind::Conflict, message));
            }
            let cell = self.new_cell(&of, variable.name, variable.at, None)?;
            if variable.mapping.is_some() {
                self.cells[cell as usize].names = Names::Later;
            }
            self.bind(home, variable.name, cell);
            declared.push((variable, cell));
        }
        for statement in &block.statements {
            self.begin(statement, scope);
        }
        for (variable, cell) in declared.into_iter().filter(|(variable, _)| variable.mapping.is_some()) {
            if !self.has_files(&self.cells[cell as usize].of) {
                let message = format!(
                    "{} is {}, and only files are mapped",
                    shown(&self.name(variable.name)),
                    self.cells[cell as usize].of.shown()
                );
                return Err(variable.at.broken(message));
            }
            let mut cx = self.context(scope, variable.at, Work::Map(variable, cell));
            cx.is_input = self.cells[cell as usize].n_writers == 0;
            let writes = if cx.is_input { vec![cell] } else { vec![] };
            self.add_item(cx, writes);
        }
        Ok(())
    }

    fn begin(&mut self, statement: &'a Statement, scope: Scope) {
        let writes = statement.assigns.iter().filter_map(|name| self.lookup(scope, *name)).collect();
        let cx = self.context(scope, statement.at, Work::Do(statement));
        self.add_item(cx, writes);
    }

    // ------------------------------------------------------------ statements

    fn work(&mut self, cx: &mut Context<'a>) -> std::result::Result<(), Stop> {
        match cx.work {
            Work::Do(statement) => self.statement(statement, cx),
            Work::Each { statement, array, next } => self.each(statement, array, next, cx),
            Work::Round { statement, round, scope } => self.round(statement, round, scope, cx),
            Work::Map(variable, cell) => match &variable.mapping {
                Some(mapping) => self.map(mapping, cell, cx),
                None => Ok(()),
            },
            Work::App(procedure, call) => {
                let (inputs, outputs) = std::mem::take(&mut self.calls[call as usize]);
                let result = self.app(procedure, &inputs, &outputs, cx.at, cx);
                if matches!(result, Err(ref stop) if !matches!(stop, Stop::Fail(_))) {
                    self.calls[call as usize] = (inputs, outputs);
                }
                result
            }
            Work::Copy(cell, source) => self.copy(cell, source, cx.at),
        }
    }

    fn statement(&mut self, statement: &'a Statement, cx: &mut Context<'a>) -> std::result::Result<(), Stop> {
        match &statement.is {
            Does::Assign(place, value) => {
                let cell = self.place(place, true, cx)?;
                self.assign_expression(cell, value, statement.at, cx)
            }
            Does::AssignMany(outputs, call) => self.assign_many(outputs, call, statement.at, cx),
            Does::Append(place, value) => {
                let array = self.place(place, true, cx)?;
                let array = self.resolved(array);
                let Type::Array(of) = self.cells[array as usize].of.clone() else {
                    let message = format!("{} is no array", shown(&self.cell_text(array)));
                    return Err(statement.at.broken(message).into());
                };
                if of.0 != KeyType::Auto {
                    let message = format!(
                        "`<<` appends to arrays with keys of the type auto, and {} has others",
                        shown(&self.cell_text(array))
                    );
                    return Err(statement.at.broken(message).hint("declare it as in `int[auto] a;`").into());
                }
                let value = self.value(value, Some(&of.1), cx)?;
                let State::Array(inner) = &mut self.cells[array as usize].state else {
                    unreachable!("it is an array")
                };
                let key = Key::Int(inner.next_auto);
                inner.next_auto += 1;
                let element = self.element(array, key)?;
                self.assign(element, value, statement.at)
            }
            Does::Call(call) => {
                let Is::Call(name, arguments) = &call.is else { unreachable!("it is a call") };
                match self.procedures.contains_key(name) {
                    true => {
                        self.invoke(*name, arguments, None, call.at, cx)?;
                    }
                    false => {
                        self.function(*name, arguments, None, call.at, cx)?;
                    }
                }
                Ok(())
            }
            Does::If(condition, then, otherwise) => {
                let block = if self.condition(condition, cx)? { then } else { otherwise };
                let scope = self.inner_scope(cx.scope);
                Ok(self.enter(block, scope)?)
            }
            Does::Foreach { item, index, over, body } => {
                if let Is::Range(from, to, step) = &over.is {
                    let numbers = self.range(from, to, step.as_deref(), cx)?;
                    for (n, scalar) in numbers.enumerate() {
                        self.count_step(statement.at)?;
                        let scope = self.inner_scope(cx.scope);
                        let cell = self.value_cell(scalar, statement.at)?;
                        self.bind(scope, *item, cell);
                        if let Some(index) = index {
                            let cell = self.value_cell(Scalar::Int(n as i64), statement.at)?;
                            self.bind(scope, *index, cell);
                        }
                        self.enter(body, scope)?;
                    }
                    return Ok(());
                }
                let array = self.value(over, None, cx)?;
                match array {
                    Value::Cell(array) if matches!(self.cells[array as usize].of, Type::Array(_)) => {
                        cx.work = Work::Each { statement, array, next: 0 };
                        self.each(statement, array, 0, cx)
                    }
                    other => {
                        let message =
                            format!("`foreach` goes over an array, and this is {}", self.shown_type(&other));
                        Err(over.at.broken(message).into())
                    }
                }
            }
            Does::Iterate { round, body, .. } => {
                let scope = self.begin_round(*round, body, 0, cx)?;
                cx.work = Work::Round { statement, round: 0, scope };
                self.round(statement, 0, scope, cx)
            }
            Does::Switch(on, cases) => {
                let Value::Scalar(value) = self.value(on, None, cx)? else {
                    return Err(on.at.broken("`switch` chooses by a number or a text").into());
                };
                let mut chosen = None;
                for (case, body) in cases {
                    let is_chosen = match case {
                        None => false,
                        Some(case) => {
                            let is_same = |a: &Scalar, b: &Scalar| {
                                a == b || (a.number().is_some() && a.number() == b.number())
                            };
                            matches!(self.value(case, None, cx)?, Value::Scalar(case) if is_same(&case, &value))
                        }
                    };
                    if is_chosen {
                        chosen = Some(body);
                        break;
                    }
                }
                let otherwise = || cases.iter().find(|(case, _)| case.is_none()).map(|(_, body)| body);
                if let Some(body) = chosen.or_else(otherwise) {
                    let scope = self.inner_scope(cx.scope);
                    self.enter(body, scope)?;
                }
                Ok(())
            }
        }
    }

    fn count_step(&mut self, at: At) -> Result<()> {
        self.n_steps += 1;
        match self.n_steps > STEPS_MAX {
            true => Err(at.unsupported(format!("the script does more than {STEPS_MAX} statements"))),
            false => Ok(()),
        }
    }

    fn assign_expression(
        &mut self,
        cell: CellNo,
        value: &'a Expression,
        at: At,
        cx: &mut Context<'a>,
    ) -> std::result::Result<(), Stop> {
        let of = self.cells[cell as usize].of.clone();
        if let Is::Call(name, arguments) = &value.is {
            if self.procedures.contains_key(name) {
                let procedure = self.chosen(*name, arguments, value.at, cx)?;
                let is_bound = match procedure.outputs.as_slice() {
                    [output] => fits(&self.type_of(&output.of)?, &of),
                    _ => false,
                };
                if is_bound {
                    if let Some(before) = self.cells[cell as usize].assigned {
                        return Err(self.assigned_twice(cell, before, at).into());
                    }
                    self.invoke(*name, arguments, Some(vec![cell]), value.at, cx)?;
                    return Ok(());
                }
            } else if matches!(&*self.name(*name).to_ascii_lowercase(), "writedata") {
                return self.write_data(cell, arguments, at, cx);
            }
        }
        let value = self.value(value, Some(&of), cx)?;
        self.assign(cell, value, at)
    }

    fn assign_many(
        &mut self,
        outputs: &'a [(Expression, Option<Symbol>)],
        call: &'a Expression,
        at: At,
        cx: &mut Context<'a>,
    ) -> std::result::Result<(), Stop> {
        let Is::Call(name, arguments) = &call.is else { unreachable!("it is a call") };
        if !self.procedures.contains_key(name) {
            if let [(place, None)] = outputs {
                let cell = self.place(place, true, cx)?;
                return self.assign_expression(cell, call, at, cx);
            }
            return Err(self.unknown_call(*name, call.at).into());
        }
        let procedure = self.chosen(*name, arguments, call.at, cx)?;
        if procedure.outputs.len() != outputs.len() {
            let message = format!(
                "{} has {} outputs, and {} are assigned",
                shown(&self.name(*name)),
                procedure.outputs.len(),
                outputs.len()
            );
            return Err(at.broken(message).into());
        }
        let mut cells: Vec<Option<CellNo>> = vec![None; outputs.len()];
        for (n, (place, own)) in outputs.iter().enumerate() {
            let n = match own {
                None => n,
                Some(own) => match procedure.outputs.iter().position(|output| output.name == *own) {
                    Some(n) => n,
                    None => {
                        let message = format!(
                            "{} has no output called {}",
                            shown(&self.name(*name)),
                            shown(&self.name(*own))
                        );
                        return Err(place.at.broken(message).into());
                    }
                },
            };
            let cell = self.place(place, true, cx)?;
            let wanted = self.type_of(&procedure.outputs[n].of)?;
            if !fits(&self.cells[cell as usize].of, &wanted) {
                let message = format!(
                    "{} is {}, and this output of {} is {}",
                    shown(&self.cell_text(cell)),
                    self.cells[cell as usize].of.shown(),
                    shown(&self.name(*name)),
                    wanted.shown()
                );
                return Err(place.at.broken(message).into());
            }
            if let Some(before) = self.cells[cell as usize].assigned {
                return Err(self.assigned_twice(cell, before, at).into());
            }
            cells[n] = Some(cell);
        }
        let Some(cells) = cells.into_iter().collect::<Option<Vec<_>>>() else {
            return Err(at.broken("one output is assigned twice here").into());
        };
        self.invoke(*name, arguments, Some(cells), call.at, cx)?;
        Ok(())
    }

    fn each(
        &mut self,
        statement: &'a Statement,
        array: CellNo,
        mut next: usize,
        cx: &mut Context<'a>,
    ) -> std::result::Result<(), Stop> {
        let Does::Foreach { item, index, body, .. } = &statement.is else { unreachable!("it is a loop") };
        let array = self.resolved(array);
        loop {
            let State::Array(inner) = &self.cells[array as usize].state else {
                unreachable!("it is an array")
            };
            let Some(key) = inner.order.get(next).cloned() else { break };
            let cell = inner.items[&key];
            next += 1;
            let scope = self.inner_scope(cx.scope);
            self.bind(scope, *item, cell);
            if let Some(index) = index {
                let cell = self.value_cell(key.scalar(), statement.at)?;
                self.bind(scope, *index, cell);
            }
            self.count_step(statement.at)?;
            self.enter(body, scope)?;
        }
        cx.work = Work::Each { statement, array, next };
        match self.closed(array) {
            Ok(()) => Ok(()),
            Err(_) => Err(Stop::More(array)),
        }
    }

    fn begin_round(&mut self, name: Symbol, body: &'a Block, round: i64, cx: &Context<'a>) -> Result<Scope> {
        let scope = self.inner_scope(cx.scope);
        let cell = self.value_cell(Scalar::Int(round), cx.at)?;
        self.bind(scope, name, cell);
        self.enter(body, scope)?;
        Ok(scope)
    }

    fn round(
        &mut self,
        statement: &'a Statement,
        mut round: i64,
        mut scope: Scope,
        cx: &mut Context<'a>,
    ) -> std::result::Result<(), Stop> {
        let Does::Iterate { round: name, body, until } = &statement.is else { unreachable!("it is a loop") };
        loop {
            let inner = self.inner_scope(scope);
            let cell = self.value_cell(Scalar::Int(round + 1), cx.at)?;
            self.bind(inner, *name, cell);
            let outer = std::mem::replace(&mut cx.scope, inner);
            let is_over = self.condition(until, cx);
            cx.scope = outer;
            if is_over? {
                return Ok(());
            }
            self.count_step(statement.at)?;
            round += 1;
            cx.memo.clear();
            scope = self.begin_round(*name, body, round, cx)?;
            cx.work = Work::Round { statement, round, scope };
        }
    }

    fn condition(
        &mut self,
        condition: &'a Expression,
        cx: &mut Context<'a>,
    ) -> std::result::Result<bool, Stop> {
        match self.value(condition, Some(&Type::Bool), cx)? {
            Value::Scalar(Scalar::Bool(b)) => Ok(b),
            other => {
                let message =
                    format!("a condition is true or false, and this is {}", self.shown_type(&other));
                Err(condition.at.broken(message).into())
            }
        }
    }

    pub fn shown_type(&self, value: &Value) -> String {
        match value {
            Value::Scalar(scalar) => scalar.of().shown(),
            Value::Cell(cell) => self.cells[*cell as usize].of.shown(),
        }
    }

    // ------------------------------------------------------------ expressions

    /// The cell of a variable, an element or a member. With `is_made`, an element that is not there is made.
    fn place(
        &mut self,
        place: &'a Expression,
        is_made: bool,
        cx: &mut Context<'a>,
    ) -> std::result::Result<CellNo, Stop> {
        match &place.is {
            Is::Name(name) => match self.lookup(cx.scope, *name) {
                Some(cell) => Ok(cell),
                None => Err(self.unknown_name(cx.scope, *name, place.at).into()),
            },
            Is::Index(outer, key) => {
                let array = self.place(outer, is_made, cx)?;
                let array = self.resolved(array);
                let Type::Array(of) = self.cells[array as usize].of.clone() else {
                    let message = format!(
                        "{} is {} and has no elements",
                        shown(&self.cell_text(array)),
                        self.cells[array as usize].of.shown()
                    );
                    return Err(place.at.broken(message).into());
                };
                let Value::Scalar(scalar) = self.value(key, None, cx)? else {
                    return Err(key.at.broken("an index is a number, a text or a boolean").into());
                };
                let Some(key) = fitting(&Key::of(&scalar), of.0) else {
                    let message = format!(
                        "the keys of {} are {}, and this one is {}",
                        shown(&self.cell_text(array)),
                        of.0.name(),
                        scalar.of().shown()
                    );
                    return Err(key.at.broken(message).into());
                };
                if is_made {
                    return Ok(self.element(array, key)?);
                }
                let State::Array(inner) = &self.cells[array as usize].state else {
                    unreachable!("it is an array")
                };
                match inner.items.get(&key) {
                    Some(item) => Ok(*item),
                    None if self.closed(array).is_ok() => {
                        let text = format!("{}[{}]", self.cell_text(array), key.scalar().text());
                        Err(place.at.broken(format!("{} is read and never assigned", shown(&text))).into())
                    }
                    None => Err(Stop::Element(array, key)),
                }
            }
            Is::Member(outer, member) => {
                let outer_cell = self.place(outer, is_made, cx)?;
                let cell = self.resolved(outer_cell);
                match self.cells[cell as usize].of.clone() {
                    Type::Struct(of) => {
                        let State::Struct(members) = &self.cells[cell as usize].state else {
                            unreachable!("it is a struct")
                        };
                        match of.members.iter().position(|(own, ..)| own == member) {
                            Some(n) => Ok(members[n]),
                            None => {
                                let text = self.name(*member);
                                let known: Vec<&str> =
                                    of.members.iter().map(|(_, name, _)| &**name).collect();
                                let error = place.at.broken(format!(
                                    "{} is a {} and has no member called {}",
                                    shown(&self.cell_text(cell)),
                                    of.name,
                                    shown(&text)
                                ));
                                Err(error.hint(format!("its members: {}", known.join(", "))).into())
                            }
                        }
                    }
                    // `a.m` of an array has the members of all elements.
                    Type::Array(_) if !is_made => self.members(cell, *member, place, cx),
                    other => {
                        let message = format!(
                            "{} is {} and has no members",
                            shown(&self.cell_text(cell)),
                            other.shown()
                        );
                        Err(place.at.broken(message).into())
                    }
                }
            }
            Is::All(inner) => self.place(inner, is_made, cx),
            _ => unreachable!("it is no place"),
        }
    }

    fn members(
        &mut self,
        array: CellNo,
        member: Symbol,
        place: &'a Expression,
        cx: &mut Context<'a>,
    ) -> std::result::Result<CellNo, Stop> {
        if let Some((_, cell)) = cx.memo.iter().find(|(number, _)| *number == place.number) {
            return Ok(*cell);
        }
        if self.closed(array).is_err() {
            return Err(Stop::Closed(array));
        }
        let Type::Array(of) = self.cells[array as usize].of.clone() else { unreachable!("it is an array") };
        let inner = match &of.1 {
            Type::Struct(of) => {
                of.members.iter().position(|(own, ..)| *own == member).map(|n| (n, of.members[n].2.clone()))
            }
            _ => None,
        };
        let Some((n, item)) = inner else {
            let message = format!(
                "the elements of {} have no member called {}",
                shown(&self.cell_text(array)),
                shown(&self.name(member))
            );
            return Err(place.at.broken(message).into());
        };
        let State::Array(inner) = &self.cells[array as usize].state else { unreachable!("it is an array") };
        let elements: Vec<(Key, CellNo)> =
            inner.items.iter().map(|(key, cell)| (key.clone(), *cell)).collect();
        let mut gathered = Array::default();
        for (key, element) in elements {
            let element = self.resolved(element);
            let State::Struct(members) = &self.cells[element as usize].state else { continue };
            gathered.order.push(key.clone());
            gathered.items.insert(key, members[n]);
        }
        let cell =
            self.new_cell(&Type::array(of.0, item), self.cells[array as usize].name, place.at, None)?;
        self.cells[cell as usize].state = State::Array(Box::new(gathered));
        cx.memo.push((place.number, cell));
        Ok(cell)
    }

    /// The value of an expression; `want` is the type of what it is assigned to.
    pub fn value(
        &mut self,
        e: &'a Expression,
        want: Option<&Type>,
        cx: &mut Context<'a>,
    ) -> std::result::Result<Value, Stop> {
        Ok(match &e.is {
            Is::Int(n) => Value::Scalar(match want {
                Some(Type::Float) => Scalar::Float(*n as f64),
                _ => Scalar::Int(*n),
            }),
            Is::Float(x) => Value::Scalar(Scalar::Float(*x)),
            Is::Text(text) => Value::Scalar(Scalar::Text(text.clone())),
            Is::Bool(b) => Value::Scalar(Scalar::Bool(*b)),
            Is::Name(_) | Is::Index(..) | Is::Member(..) | Is::All(_) => {
                let cell = self.place(e, false, cx)?;
                self.read(cell)?
            }
            Is::Call(name, arguments) => {
                if let Some((_, cell)) = cx.memo.iter().find(|(number, _)| *number == e.number) {
                    return self.read(*cell);
                }
                if !self.procedures.contains_key(name) {
                    let value = self.function(*name, arguments, want, e.at, cx)?;
                    return value.ok_or_else(|| {
                        e.at.broken(format!("{} gives no value", shown(&self.name(*name)))).into()
                    });
                }
                let procedure = self.chosen(*name, arguments, e.at, cx)?;
                let [output] = procedure.outputs.as_slice() else {
                    let message = format!(
                        "{} has {} outputs, and one is wanted here",
                        shown(&self.name(*name)),
                        procedure.outputs.len()
                    );
                    return Err(e.at.broken(message).into());
                };
                let of = self.type_of(&output.of)?;
                let cell = self.new_cell(&of, output.name, e.at, None)?;
                self.invoke(*name, arguments, Some(vec![cell]), e.at, cx)?;
                cx.memo.push((e.number, cell));
                self.read(cell)?
            }
            Is::Negate(inner) => match self.value(inner, want, cx)? {
                Value::Scalar(Scalar::Int(n)) => Value::Scalar(Scalar::Int(n.wrapping_neg())),
                Value::Scalar(Scalar::Float(x)) => Value::Scalar(Scalar::Float(-x)),
                other => {
                    let message = format!("`-` is for numbers, and this is {}", self.shown_type(&other));
                    return Err(e.at.broken(message).into());
                }
            },
            Is::Not(inner) => Value::Scalar(Scalar::Bool(!self.condition(inner, cx)?)),
            Is::Binary(operator, left, right) => {
                let left_value = self.value(left, None, cx)?;
                // The right side of `&&` and `||` is read only where it matters.
                if let (Operator::And, Value::Scalar(Scalar::Bool(false)))
                | (Operator::Or, Value::Scalar(Scalar::Bool(true))) = (operator, &left_value)
                {
                    return Ok(left_value);
                }
                let right_value = self.value(right, None, cx)?;
                let (Value::Scalar(a), Value::Scalar(b)) = (&left_value, &right_value) else {
                    let other = if matches!(left_value, Value::Cell(_)) { &left_value } else { &right_value };
                    let message =
                        format!("operators join numbers and texts, and this is {}", self.shown_type(other));
                    return Err(e.at.broken(message).into());
                };
                Value::Scalar(self.computed(*operator, a, b, e.at)?)
            }
            Is::List(items) => {
                let wanted = match want {
                    Some(Type::Array(of)) => Some((**of).clone()),
                    _ => None,
                };
                let mut values = vec![];
                for item in items {
                    values.push(self.value(item, wanted.as_ref().map(|(_, of)| of), cx)?);
                }
                let (key, of) = match (wanted, values.first()) {
                    (Some((key, of)), _) => (key, of),
                    (None, Some(Value::Scalar(scalar))) => (KeyType::Int, scalar.of()),
                    (None, Some(Value::Cell(cell))) => (KeyType::Int, self.cells[*cell as usize].of.clone()),
                    (None, None) => (KeyType::Int, Type::Text),
                };
                let array = self.new_cell(&Type::array(key, of), 0, e.at, None)?;
                for (n, value) in values.into_iter().enumerate() {
                    let Some(key) = fitting(&Key::Int(n as i64), key) else {
                        let message =
                            format!("a list has keys of the type int, and {} keys are wanted", key.name());
                        return Err(e.at.broken(message).hint("write `{key: value, ...}`").into());
                    };
                    let element = self.element(array, key)?;
                    self.assign(element, value, e.at)?;
                }
                Value::Cell(array)
            }
            Is::Range(from, to, step) => {
                let numbers = self.range(from, to, step.as_deref(), cx)?;
                let mut array = None;
                for (n, scalar) in numbers.enumerate() {
                    self.count_step(e.at)?;
                    let array = match array {
                        Some(array) => array,
                        None => *array.insert(self.new_cell(
                            &Type::array(KeyType::Int, scalar.of()),
                            0,
                            e.at,
                            None,
                        )?),
                    };
                    let element = self.element(array, Key::Int(n as i64))?;
                    self.assign(element, Value::Scalar(scalar), e.at)?;
                }
                match array {
                    Some(array) => Value::Cell(array),
                    None => {
                        Value::Cell(self.new_cell(&Type::array(KeyType::Int, Type::Int), 0, e.at, None)?)
                    }
                }
            }
            Is::Pairs(pairs) => self.pairs(e, pairs, want, cx)?,
        })
    }

    fn pairs(
        &mut self,
        e: &'a Expression,
        pairs: &'a [(Expression, Expression)],
        want: Option<&Type>,
        cx: &mut Context<'a>,
    ) -> std::result::Result<Value, Stop> {
        let Some(of @ (Type::Struct(_) | Type::Array(_))) = want else {
            return Err(e.at.broken("`{...}` makes a struct or an array, and neither is wanted here").into());
        };
        let mut steps = vec![];
        for (key, value) in pairs {
            let (step, inner) = match of {
                Type::Struct(of) => {
                    let name = match &key.is {
                        Is::Name(name) => self.name(*name),
                        Is::Text(text) => text.clone(),
                        _ => return Err(key.at.broken("the name of a member is expected here").into()),
                    };
                    let Some((_, name, inner)) = of.members.iter().find(|(_, own, _)| *own == name) else {
                        let message = format!("a {} has no member called {}", of.name, shown(&name));
                        return Err(key.at.broken(message).into());
                    };
                    (Step::Member(name.clone()), inner.clone())
                }
                Type::Array(of) => {
                    let Value::Scalar(scalar) = self.value(key, None, cx)? else {
                        return Err(key.at.broken("a key is a number, a text or a boolean").into());
                    };
                    let Some(key) = fitting(&Key::of(&scalar), of.0) else {
                        let message =
                            format!("the keys are {}, and this one is {}", of.0.name(), scalar.of().shown());
                        return Err(key.at.broken(message).into());
                    };
                    (Step::Element(key), of.1.clone())
                }
                _ => unreachable!("it is a struct or an array"),
            };
            steps.push((step, self.value(value, Some(&inner), cx)?));
        }
        let cell = self.new_cell(of, 0, e.at, None)?;
        for (step, value) in steps {
            if let Some(inner) = self.step_into(cell, &step)? {
                self.assign(inner, value, e.at)?;
            }
        }
        Ok(Value::Cell(cell))
    }

    /// The value in a cell, when it is there.
    pub fn read(&self, cell: CellNo) -> std::result::Result<Value, Stop> {
        let cell = self.resolved(cell);
        match &self.cells[cell as usize].state {
            State::Unset => Err(Stop::Value(cell)),
            State::Scalar(scalar) => Ok(Value::Scalar(scalar.clone())),
            _ => Ok(Value::Cell(cell)),
        }
    }

    pub fn text(
        &mut self,
        e: &'a Expression,
        what: &str,
        cx: &mut Context<'a>,
    ) -> std::result::Result<Rc<str>, Stop> {
        match self.value(e, Some(&Type::Text), cx)? {
            Value::Scalar(Scalar::Text(text)) => Ok(text),
            other => {
                let message = format!("{what} is a string, and this is {}", self.shown_type(&other));
                Err(e.at.broken(message).into())
            }
        }
    }

    fn range(
        &mut self,
        from: &'a Expression,
        to: &'a Expression,
        step: Option<&'a Expression>,
        cx: &mut Context<'a>,
    ) -> std::result::Result<Box<dyn Iterator<Item = Scalar>>, Stop> {
        let mut ends = vec![];
        for end in [Some(from), Some(to), step].into_iter().flatten() {
            match self.value(end, None, cx)? {
                Value::Scalar(scalar) if scalar.number().is_some() => ends.push(scalar),
                other => {
                    let message = format!(
                        "a range goes from number to number, and this is {}",
                        self.shown_type(&other)
                    );
                    return Err(end.at.broken(message).into());
                }
            }
        }
        if let [Scalar::Int(first), Scalar::Int(last), rest @ ..] = ends.as_slice() {
            let step = match rest {
                [Scalar::Int(step)] => Some(*step),
                [] => Some(1),
                _ => None,
            };
            if let Some(by) = step {
                if by == 0 {
                    return Err(to.at.broken("the step of a range is 0").into());
                }
                let (first, last) = (*first, *last);
                let numbers = std::iter::successors(Some(first), move |n| n.checked_add(by));
                return Ok(Box::new(
                    numbers
                        .take_while(move |n| if by > 0 { *n <= last } else { *n >= last })
                        .map(Scalar::Int),
                ));
            }
        }
        let number = |n: usize| ends.get(n).and_then(Scalar::number);
        let (start, stop) = (number(0).unwrap_or(0.0), number(1).unwrap_or(0.0));
        let by = number(2).unwrap_or(1.0);
        if by == 0.0 || !by.is_finite() {
            return Err(to.at.broken("the step of a range is 0").into());
        }
        let n_steps = ((stop - start) / by).floor();
        let n_steps = if n_steps >= 0.0 { n_steps.min(1e15) as u64 + 1 } else { 0 };
        Ok(Box::new((0..n_steps).map(move |n| Scalar::Float(start + n as f64 * by))))
    }

    fn computed(&mut self, operator: Operator, a: &Scalar, b: &Scalar, at: At) -> Result<Scalar> {
        use Operator as O;
        let unfit = |what: &str| {
            Err(at.broken(format!("{what}, and here are {} and {}", a.of().shown(), b.of().shown())))
        };
        if matches!(operator, O::Add) && (matches!(a, Scalar::Text(_)) || matches!(b, Scalar::Text(_))) {
            return Ok(Scalar::Text(self.joined(&[a.text(), b.text()], at)?));
        }
        if let (O::And | O::Or, Scalar::Bool(_), Scalar::Bool(b)) = (operator, a, b) {
            return Ok(Scalar::Bool(*b));
        }
        if let O::Equal | O::NotEqual | O::Less | O::LessOrEqual | O::Greater | O::GreaterOrEqual = operator {
            let order = match (a, b) {
                (Scalar::Text(a), Scalar::Text(b)) => a.partial_cmp(b),
                (Scalar::Bool(a), Scalar::Bool(b)) => a.partial_cmp(b),
                (Scalar::Int(a), Scalar::Int(b)) => a.partial_cmp(b),
                _ => match (a.number(), b.number()) {
                    (Some(a), Some(b)) => a.partial_cmp(&b),
                    _ => return unfit("only values of one kind are compared"),
                },
            };
            return Ok(Scalar::Bool(match operator {
                O::Equal => order.is_some_and(|o| o.is_eq()),
                O::NotEqual => order.is_none_or(|o| o.is_ne()),
                O::Less => order.is_some_and(|o| o.is_lt()),
                O::LessOrEqual => order.is_some_and(|o| o.is_le()),
                O::Greater => order.is_some_and(|o| o.is_gt()),
                _ => order.is_some_and(|o| o.is_ge()),
            }));
        }
        let (Some(x), Some(y)) = (a.number(), b.number()) else {
            return unfit(match operator {
                O::And | O::Or => "`&&` and `||` join booleans",
                O::Add => "`+` adds numbers and joins strings",
                _ => "arithmetic is for numbers",
            });
        };
        if let (Scalar::Int(m), Scalar::Int(n)) = (a, b) {
            let by_zero = || at.broken("this divides by 0");
            let result = match operator {
                O::Add => m.checked_add(*n),
                O::Subtract => m.checked_sub(*n),
                O::Multiply => m.checked_mul(*n),
                O::DivideWhole | O::Remainder if *n == 0 => return Err(by_zero()),
                O::DivideWhole => m.checked_div(*n),
                O::Remainder => m.checked_rem(*n),
                O::Divide if *n == 0 => return Err(by_zero()),
                _ => return Ok(Scalar::Float(x / y)),
            };
            return result.map(Scalar::Int).ok_or_else(|| at.broken("the result is too large for an int"));
        }
        Ok(match operator {
            O::Add => Scalar::Float(x + y),
            O::Subtract => Scalar::Float(x - y),
            O::Multiply => Scalar::Float(x * y),
            O::Divide => Scalar::Float(x / y),
            O::Remainder => Scalar::Float(x % y),
            O::DivideWhole => Scalar::Int((x / y) as i64),
            _ => return unfit("`&&` and `||` join booleans"),
        })
    }

    /// Texts joined, which count against what a script may make.
    pub fn joined(&mut self, texts: &[Rc<str>], at: At) -> Result<Rc<str>> {
        let n_bytes: usize = texts.iter().map(|text| text.len()).sum();
        let taken = self.text_left.take(n_bytes as u64, "the texts of the script have");
        taken.map_err(|e| at.unsupported(e.message.clone()))?;
        Ok(texts.concat().into())
    }

    // ------------------------------------------------------------ calls

    fn unknown_call(&self, name: Symbol, at: At) -> Error {
        let text = self.name(name);
        let error = at.unsupported(format!(
            "{} is no procedure of the script and no function that eyas knows",
            shown(&text)
        ));
        let mut known: Vec<Rc<str>> = self.procedures.keys().map(|name| self.name(*name)).collect();
        known.sort();
        let mut known: Vec<&str> = known.iter().map(|name| &**name).collect();
        known.extend(super::functions::NAMES);
        match nearest(&text, &known) {
            Some(near) => error.hint(format!("is it `{near}`?")),
            None => error,
        }
    }

    fn function(
        &mut self,
        name: Symbol,
        arguments: &'a [(Option<Symbol>, Expression)],
        want: Option<&Type>,
        at: At,
        cx: &mut Context<'a>,
    ) -> std::result::Result<Option<Value>, Stop> {
        let text = self.name(name);
        if !is_function(&text) {
            return Err(self.unknown_call(name, at).into());
        }
        if let Some((Some(own), e)) = arguments.iter().find(|(own, _)| own.is_some()) {
            let message = format!("{} has no argument called {}", shown(&text), shown(&self.name(*own)));
            return Err(e.at.broken(message).into());
        }
        let mut values = vec![];
        for (_, argument) in arguments {
            values.push((self.value(argument, None, cx)?, argument.at));
        }
        self.builtin(&text.to_ascii_lowercase(), &values, want, at, cx)
    }

    /// The procedure that a call means: of those with one name, the first whose inputs fit.
    fn chosen(
        &mut self,
        name: Symbol,
        arguments: &'a [(Option<Symbol>, Expression)],
        at: At,
        cx: &mut Context<'a>,
    ) -> std::result::Result<&'a Procedure, Stop> {
        let all = self.procedures[&name].clone();
        if let [one] = all.as_slice() {
            return Ok(one);
        }
        let mut types = vec![];
        for (_, argument) in arguments {
            let value = self.value(argument, None, cx)?;
            types.push(match value {
                Value::Scalar(scalar) => scalar.of(),
                Value::Cell(cell) => self.cells[cell as usize].of.clone(),
            });
        }
        for is_exact in [true, false] {
            for procedure in &all {
                let n_wanted = procedure.inputs.iter().filter(|input| input.default.is_none()).count();
                let mut fits_all = arguments.len() >= n_wanted && arguments.len() <= procedure.inputs.len();
                for ((argument, of), input) in arguments.iter().zip(&types).zip(&procedure.inputs) {
                    let input = match argument.0 {
                        None => Some(input),
                        Some(own) => procedure.inputs.iter().find(|input| input.name == own),
                    };
                    fits_all &= match input {
                        None => false,
                        Some(input) => {
                            let wanted = self.type_of(&input.of)?;
                            if is_exact {
                                wanted == *of
                            } else {
                                fits(&wanted, of) || (wanted == Type::Float && *of == Type::Int)
                            }
                        }
                    };
                }
                if fits_all {
                    return Ok(procedure);
                }
            }
        }
        let given: Vec<String> = types.iter().map(Type::shown).collect();
        let message = format!("no {} takes these inputs: {}", shown(&self.name(name)), given.join(", "));
        Err(at.broken(message).into())
    }

    /// Calls a procedure; `outputs` are the cells for what it gives. Without them it gives to cells that nobody
    /// reads.
    fn invoke(
        &mut self,
        name: Symbol,
        arguments: &'a [(Option<Symbol>, Expression)],
        outputs: Option<Vec<CellNo>>,
        at: At,
        cx: &mut Context<'a>,
    ) -> std::result::Result<(), Stop> {
        let procedure = self.chosen(name, arguments, at, cx)?;
        let depth = self.scopes[cx.scope as usize].depth + 1;
        if depth > CALLS_MAX {
            let message = format!("calls are nested more than {CALLS_MAX} deep");
            return Err(at.unsupported(message).hint("does a procedure call itself for ever?").into());
        }
        let mut inputs: Vec<Option<CellNo>> = vec![None; procedure.inputs.len()];
        let named: Vec<Symbol> = arguments.iter().filter_map(|(own, _)| *own).collect();
        for (own, argument) in arguments {
            let n = match own {
                Some(own) => procedure.inputs.iter().position(|input| input.name == *own),
                None => (0..inputs.len())
                    .find(|n| inputs[*n].is_none() && !named.contains(&procedure.inputs[*n].name)),
            };
            let Some(n) = n else {
                let text = shown(&self.name(name)).to_string();
                let error = argument.at.broken(match own {
                    Some(own) => format!("{text} has no input called {}", shown(&self.name(*own))),
                    None => format!("{text} has {} inputs, and more are given", procedure.inputs.len()),
                });
                return Err(error.into());
            };
            if inputs[n].is_some() {
                let message =
                    format!("the input {} is given twice", shown(&self.name(procedure.inputs[n].name)));
                return Err(argument.at.broken(message).into());
            }
            inputs[n] = Some(self.argument(argument, &procedure.inputs[n], cx)?);
        }
        for (n, input) in
            procedure.inputs.iter().enumerate().filter(|(n, _)| inputs[*n].is_none()).collect::<Vec<_>>()
        {
            let Some(default) = &input.default else {
                let message = format!(
                    "the input {} of {} is not given",
                    shown(&self.name(input.name)),
                    shown(&self.name(name))
                );
                return Err(at.broken(message).into());
            };
            inputs[n] = Some(self.argument(default, input, cx)?);
        }
        let inputs: Vec<CellNo> = inputs.into_iter().flatten().collect();
        let outputs = match outputs {
            Some(outputs) => outputs,
            None => {
                let mut cells = vec![];
                for output in &procedure.outputs {
                    let of = self.type_of(&output.of)?;
                    cells.push(self.new_cell(&of, output.name, at, None)?);
                }
                cells
            }
        };
        let scope = self.scope(GLOBAL, depth);
        for (parameter, cell) in
            procedure.inputs.iter().zip(&inputs).chain(procedure.outputs.iter().zip(&outputs))
        {
            self.bind(scope, parameter.name, *cell);
        }
        match &procedure.body {
            Body::Compound(block) => self.enter(block, scope)?,
            Body::App(_) => {
                let writes = outputs.clone();
                self.calls.push((inputs, outputs));
                let work = Work::App(procedure, self.calls.len() as u32 - 1);
                let cx = self.context(scope, at, work);
                self.add_item(cx, writes);
            }
        }
        Ok(())
    }

    /// The cell for an input. A variable is handed on as it is, also when it is not assigned yet.
    fn argument(
        &mut self,
        argument: &'a Expression,
        input: &'a Parameter,
        cx: &mut Context<'a>,
    ) -> std::result::Result<CellNo, Stop> {
        let of = self.type_of(&input.of)?;
        let mismatch = |engine: &Self, given: &Type| {
            let message = format!(
                "the input {} is {}, and {} is given",
                shown(&engine.name(input.name)),
                of.shown(),
                given.shown()
            );
            Stop::Fail(argument.at.broken(message))
        };
        if let Is::Name(_) | Is::Index(..) | Is::Member(..) | Is::All(_) = argument.is {
            let cell = self.place(argument, false, cx)?;
            let given = self.cells[cell as usize].of.clone();
            if fits(&of, &given) {
                return Ok(cell);
            }
            if (&of, &given) != (&Type::Float, &Type::Int) {
                return Err(mismatch(self, &given));
            }
        }
        // The cell of a call is known before its value is.
        if let Is::Call(name, _) = &argument.is
            && self.procedures.contains_key(name)
        {
            match self.value(argument, Some(&of), cx) {
                Err(Stop::Fail(e)) => return Err(e.into()),
                Err(stop) if !cx.memo.iter().any(|(number, _)| *number == argument.number) => {
                    return Err(stop);
                }
                _ => {}
            }
            if let Some((_, cell)) = cx.memo.iter().find(|(number, _)| *number == argument.number) {
                let cell = *cell;
                let given = self.cells[cell as usize].of.clone();
                if fits(&of, &given) {
                    return Ok(cell);
                }
            }
        }
        match self.value(argument, Some(&of), cx)? {
            Value::Cell(cell) if fits(&of, &self.cells[cell as usize].of) => Ok(cell),
            Value::Cell(cell) => {
                let given = self.cells[cell as usize].of.clone();
                Err(mismatch(self, &given))
            }
            Value::Scalar(scalar) => {
                let what = || format!("the input {}", shown(&self.name(input.name)));
                let scalar = self.converted(scalar, &of, argument.at, &what)?;
                Ok(self.value_cell(scalar, argument.at)?)
            }
        }
    }

    /// Fills a new cell of the type with what the text of a data file says.
    pub fn filled(
        &mut self,
        of: &Type,
        text: &str,
        is_structured: bool,
        name: &str,
        at: At,
    ) -> std::result::Result<Value, Stop> {
        let cell = self.new_cell(of, 0, at, None)?;
        for (path, scalar) in read_data(of, text, is_structured, name, at)? {
            let mut inner = Some(cell);
            for step in &path {
                inner = match inner {
                    Some(cell) => self.step_into(cell, step)?,
                    None => None,
                };
            }
            let Some(inner) = inner else {
                return Err(at
                    .broken(format!("{} does not fit the type: {}", shown(name), of.shown()))
                    .into());
            };
            let scalar = super::functions::parsed(&scalar, &self.cells[inner as usize].of, name, at)?;
            self.assign(inner, Value::Scalar(scalar), at)?;
        }
        Ok(self.read(cell).unwrap_or(Value::Cell(cell)))
    }

    /// An array of these elements.
    pub fn array_of(
        &mut self,
        of: &Type,
        items: impl Iterator<Item = Scalar>,
        at: At,
    ) -> std::result::Result<Value, Stop> {
        let array = self.new_cell(of, 0, at, None)?;
        for (n, scalar) in items.enumerate() {
            let element = self.element(array, Key::Int(n as i64))?;
            self.assign(element, Value::Scalar(scalar), at)?;
        }
        Ok(Value::Cell(array))
    }

    /// The places that the mapper of an output of an app knows, made.
    pub fn make_places(&mut self, cell: CellNo, at: At) -> std::result::Result<(), Stop> {
        let cell = self.resolved(cell);
        let root = self.root(cell);
        let has_array = |of: &Type| -> bool {
            fn has(of: &Type) -> bool {
                match of {
                    Type::Array(_) => true,
                    Type::Struct(of) => of.members.iter().any(|(_, _, of)| has(of)),
                    _ => false,
                }
            }
            has(of)
        };
        if !has_array(&self.cells[cell as usize].of) {
            return Ok(());
        }
        let mapper = match self.cells[root as usize].names.clone() {
            Names::Later => return Err(Stop::Value(root)),
            Names::By(mapper) if !matches!(*mapper, Mapper::Simple(_)) => mapper,
            Names::By(_) | Names::Free => {
                let message = format!(
                    "the files of {} are known only when the task has written them",
                    shown(&self.cell_text(cell))
                );
                return Err(at
                    .unsupported(message)
                    .hint("map the array with fixed_array_mapper, array_mapper, csv_mapper or ext")
                    .into());
            }
        };
        let prefix = self.path_below(cell, root);
        for path in self.places(&mapper, root)? {
            if !path.starts_with(&prefix) {
                continue;
            }
            let mut inner = Some(cell);
            for step in &path[prefix.len()..] {
                inner = match inner {
                    Some(cell) => self.step_into(cell, step)?,
                    None => None,
                };
            }
        }
        Ok(())
    }
}

/// Whether a variable of the type `of` may be another name of one of the type `from`.
pub(super) fn fits(of: &Type, from: &Type) -> bool {
    of == from
}

/// A file's name as eyas has it: `file://localhost/` means this machine.
fn plain(name: &str) -> String {
    let local = name.strip_prefix("file://localhost/").or_else(|| name.strip_prefix("file:///"));
    let name = match local {
        Some(rest) if name.starts_with("file:///") => format!("/{rest}"),
        Some(rest) => rest.to_owned(),
        None => name.to_owned(),
    };
    crate::model::plain_name(&name).into_owned()
}
