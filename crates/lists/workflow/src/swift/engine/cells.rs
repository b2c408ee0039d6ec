//! Variables, elements and members: made, assigned once, and waited for.

use super::{CELLS_MAX, Context, Engine, GLOBAL, ItemWork, Stop, fits, plain};
use crate::error::{Error, ErrorKind, Result, shown};
use crate::swift::ast::{At, Symbol};
use crate::swift::mappers::fitting;
use crate::swift::values::{Cell, CellNo, Key, KeyType, Names, Scalar, State, Step, Type, Value, Writer};
use std::rc::Rc;

impl<'a> Engine<'a> {
    fn cell(&mut self, cell: Cell) -> Result<CellNo> {
        if self.cells.len() >= CELLS_MAX {
            let message = format!("the script has more than {CELLS_MAX} variables and elements");
            return Err(cell.at.unsupported(message));
        }
        self.cells.push(cell);
        Ok(self.cells.len() as CellNo - 1)
    }

    pub(super) fn new_cell(
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
    pub(super) fn value_cell(&mut self, scalar: Scalar, at: At) -> Result<CellNo> {
        let number = self.new_cell(&scalar.of(), 0, at, None)?;
        self.cells[number as usize].state = State::Scalar(scalar);
        Ok(number)
    }

    /// The cell that `cell` is a name of.
    pub(in crate::swift) fn resolved(&self, mut cell: CellNo) -> CellNo {
        while let State::Same(other) = self.cells[cell as usize].state {
            cell = other;
        }
        cell
    }

    /// Whether nothing can add to the array; if something can, the variable that it may assign.
    pub(in crate::swift) fn closed(&self, cell: CellNo) -> std::result::Result<(), CellNo> {
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
    pub(in crate::swift) fn settled(&self, cell: CellNo) -> std::result::Result<(), Stop> {
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

    /// The same for a cell whose files are named. What an app gives needs no waiting: its files are known.
    pub(in crate::swift) fn settled_here(
        &self,
        cell: CellNo,
        cx: &Context<'a>,
    ) -> std::result::Result<(), Stop> {
        let given = cx.app.as_ref().map_or(&[][..], |app| &app.given);
        let mut inner = Some(self.resolved(cell));
        while let Some(cell) = inner {
            if given.contains(&cell) {
                return Ok(());
            }
            inner = self.cells[cell as usize].inside.as_ref().map(|(outer, _)| *outer);
        }
        self.settled(cell)
    }

    /// The files in a cell, in order. Elements that came later are not among them, so the cell has to be
    /// settled.
    pub(in crate::swift) fn leaves(&self, cell: CellNo) -> Vec<CellNo> {
        let cell = self.resolved(cell);
        match &self.cells[cell as usize].state {
            State::Array(array) => array.items.values().flat_map(|item| self.leaves(*item)).collect(),
            State::Struct(members) => members.iter().flat_map(|member| self.leaves(*member)).collect(),
            State::File { .. } => vec![cell],
            _ => vec![],
        }
    }

    pub(super) fn root(&self, mut cell: CellNo) -> CellNo {
        while let Some((outer, _)) = &self.cells[cell as usize].inside {
            cell = *outer;
        }
        cell
    }

    /// The steps from the cell `from`, or else its variable, to `cell`.
    pub(in crate::swift) fn path_below(&self, mut cell: CellNo, from: CellNo) -> Vec<Step> {
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
    pub(super) fn cell_text(&self, cell: CellNo) -> String {
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
    pub(in crate::swift) fn step_into(
        &mut self,
        cell: CellNo,
        step: &Step,
    ) -> std::result::Result<Option<CellNo>, Stop> {
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
    pub(in crate::swift) fn element(&mut self, array: CellNo, key: Key) -> Result<CellNo> {
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
    pub(super) fn converted(
        &self,
        scalar: Scalar,
        of: &Type,
        at: At,
        what: &dyn Fn() -> String,
    ) -> Result<Scalar> {
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
    pub(super) fn assign(&mut self, cell: CellNo, value: Value, at: At) -> std::result::Result<(), Stop> {
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
                let cx = self.context(GLOBAL, at, ItemWork::Copy(cell, source));
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

    pub(super) fn assigned_twice(&self, cell: CellNo, before: At, at: At) -> Error {
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

    pub(in crate::swift) fn written_twice(&self, cell: CellNo, task: u32, at: At) -> Error {
        let line = self.b.task_line(task).map_or(String::new(), |line| format!(" on line {line}"));
        let message = format!(
            "{} is assigned here and by the task of the call{line}, and a variable is assigned once",
            shown(&self.cell_text(cell))
        );
        at.error(ErrorKind::Conflict, message)
    }

    pub(super) fn has_files(&self, of: &Type) -> bool {
        match of {
            Type::File => true,
            Type::Array(of) => self.has_files(&of.1),
            Type::Struct(of) => of.members.iter().any(|(_, _, of)| self.has_files(of)),
            _ => false,
        }
    }

    /// The name of the file of a cell, as the script's mappers say, or as eyas chooses.
    pub(in crate::swift) fn file_name(&mut self, cell: CellNo) -> std::result::Result<Rc<str>, Stop> {
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
    pub(in crate::swift) fn is_named(&self, cell: CellNo) -> bool {
        !matches!(self.cells[self.root(cell) as usize].names, Names::Free)
    }
}
