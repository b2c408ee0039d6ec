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

mod calls;
mod cells;
mod declarations;
mod expressions;
mod statements;

use super::SwiftArguments;
use super::ast::{At, Block, Procedure, Program, Statement, Symbol, Variable};
use super::regexes::Regexes;
use super::values::{Cell, CellNo, Key, Names, State, Type};
use crate::error::{Error, ErrorKind, Result, shown};
use crate::limit::Allowance;
use crate::model::{Builder, Workflow};
use eyas_storage::canonical::Url;
use eyas_text::nearest;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;

/// The most variables, elements and members of a script.
const CELLS_MAX: usize = 2_000_000;
/// The most statements that are done or tried.
const STEPS_MAX: u64 = 8_000_000;
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
    work: ItemWork<'a>,
}

#[derive(Default)]
pub(super) struct AppFiles {
    /// The cells that the app gives.
    pub given: Vec<CellNo>,
    /// The files that the app reads.
    pub inputs: Vec<CellNo>,
    /// These files, and those that it writes.
    pub known: FxHashSet<CellNo>,
}

#[derive(Clone, Copy)]
enum ItemWork<'a> {
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

    fn context(&self, scope: Scope, at: At, work: ItemWork<'a>) -> Context<'a> {
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
            let mut cx = self.context(scope, variable.at, ItemWork::Map(variable, cell));
            cx.is_input = self.cells[cell as usize].n_writers == 0;
            let writes = if cx.is_input { vec![cell] } else { vec![] };
            self.add_item(cx, writes);
        }
        Ok(())
    }

    /// The same in a scope inside `outer`, if the block needs one.
    fn enter_inside(&mut self, block: &'a Block, outer: Scope) -> Result<()> {
        let scope = if block.variables.is_empty() { outer } else { self.inner_scope(outer) };
        self.enter(block, scope)
    }

    fn begin(&mut self, statement: &'a Statement, scope: Scope) {
        let writes = statement.assigns.iter().filter_map(|name| self.lookup(scope, *name)).collect();
        let cx = self.context(scope, statement.at, ItemWork::Do(statement));
        self.add_item(cx, writes);
    }
}

/// Whether a variable of the type `of` may be another name of one of the type `from`.
pub(super) fn fits(of: &Type, from: &Type) -> bool {
    of == from
}

/// A file's name as eyas has it. Behind the host, a URL of a file of this machine has a name as the script would write it.
fn plain(name: &str) -> String {
    let path = Url::split(name).and_then(Url::path);
    let name = path.as_deref().map_or(name, |path| path.strip_prefix('/').unwrap_or(path));
    crate::model::plain_name(name).into_owned()
}
