//! What each kind of statement does.

use super::{Context, Engine, ItemWork, STEPS_MAX, Scope, Stop, fits};
use crate::error::{Result, shown};
use crate::swift::ast::{At, Block, Does, Expression, Is, Statement, Symbol};
use crate::swift::values::{CellNo, Key, KeyType, Scalar, State, Type, Value};

impl<'a> Engine<'a> {
    pub(super) fn work(&mut self, cx: &mut Context<'a>) -> std::result::Result<(), Stop> {
        match cx.work {
            ItemWork::Do(statement) => self.statement(statement, cx),
            ItemWork::Each { statement, array, next } => self.each(statement, array, next, cx),
            ItemWork::Round { statement, round, scope } => self.round(statement, round, scope, cx),
            ItemWork::Map(variable, cell) => match &variable.mapping {
                Some(mapping) => self.map(mapping, cell, cx),
                None => Ok(()),
            },
            ItemWork::App(procedure, call) => {
                let (inputs, outputs) = std::mem::take(&mut self.calls[call as usize]);
                let result = self.app(procedure, &inputs, &outputs, cx.at, cx);
                if matches!(result, Err(ref stop) if !matches!(stop, Stop::Fail(_))) {
                    self.calls[call as usize] = (inputs, outputs);
                }
                result
            }
            ItemWork::Copy(cell, source) => self.copy(cell, source, cx.at),
        }
    }

    pub(in crate::swift) fn statement(
        &mut self,
        statement: &'a Statement,
        cx: &mut Context<'a>,
    ) -> std::result::Result<(), Stop> {
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
                Ok(self.enter_inside(block, cx.scope)?)
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
                        cx.work = ItemWork::Each { statement, array, next: 0 };
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
                cx.work = ItemWork::Round { statement, round: 0, scope };
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
                    self.enter_inside(body, cx.scope)?;
                }
                Ok(())
            }
        }
    }

    pub(super) fn count_step(&mut self, at: At) -> Result<()> {
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

    pub(in crate::swift) fn assign_many(
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
        cx.work = ItemWork::Each { statement, array, next };
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

    pub(in crate::swift) fn round(
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
            cx.work = ItemWork::Round { statement, round, scope };
        }
    }

    pub(super) fn condition(
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

    pub(in crate::swift) fn shown_type(&self, value: &Value) -> String {
        match value {
            Value::Scalar(scalar) => scalar.of().shown(),
            Value::Cell(cell) => self.cells[*cell as usize].of.shown(),
        }
    }
}
