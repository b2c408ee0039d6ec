//! Calls of procedures and functions.

use super::{CALLS_MAX, Context, Engine, GLOBAL, ItemWork, Stop, fits};
use crate::error::{Error, shown};
use crate::swift::ast::{At, Body, Expression, Is, Parameter, Procedure, Symbol};
use crate::swift::functions::{NAMES, is_function, parsed, read_data};
use crate::swift::values::Mapper;
use crate::swift::values::{CellNo, Key, Names, Scalar, Type, Value};
use eyas_text::nearest;
use std::rc::Rc;

impl<'a> Engine<'a> {
    pub(super) fn unknown_call(&self, name: Symbol, at: At) -> Error {
        let text = self.name(name);
        let error = at.unsupported(format!(
            "{} is no procedure of the script and no function that eyas knows",
            shown(&text)
        ));
        let mut known: Vec<Rc<str>> = self.procedures.keys().map(|name| self.name(*name)).collect();
        known.sort();
        let mut known: Vec<&str> = known.iter().map(|name| &**name).collect();
        known.extend(NAMES);
        match nearest(&text, &known) {
            Some(near) => error.hint(format!("is it `{near}`?")),
            None => error,
        }
    }

    pub(in crate::swift) fn function(
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
    pub(super) fn chosen(
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
    pub(super) fn invoke(
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
                let work = ItemWork::App(procedure, self.calls.len() as u32 - 1);
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
    pub(in crate::swift) fn filled(
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
            let scalar = parsed(&scalar, &self.cells[inner as usize].of, name, at)?;
            self.assign(inner, Value::Scalar(scalar), at)?;
        }
        Ok(self.read(cell).unwrap_or(Value::Cell(cell)))
    }

    /// An array of these elements.
    pub(in crate::swift) fn array_of(
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
    pub(in crate::swift) fn make_places(&mut self, cell: CellNo, at: At) -> std::result::Result<(), Stop> {
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
