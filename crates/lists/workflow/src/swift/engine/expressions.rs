//! The values of expressions.

use super::{Context, Engine, Stop};
use crate::error::{Result, shown};
use crate::swift::ast::{At, Expression, Is, Operator, Symbol};
use crate::swift::mappers::fitting;
use crate::swift::values::{Array, CellNo, Key, KeyType, Scalar, State, Step, Type, Value};
use std::rc::Rc;

impl<'a> Engine<'a> {
    /// The cell of a variable, an element or a member. With `is_made`, an element that is not there is made.
    pub(in crate::swift) fn place(
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
    pub(in crate::swift) fn value(
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

    pub(in crate::swift) fn pairs(
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
    pub(in crate::swift) fn read(&self, cell: CellNo) -> std::result::Result<Value, Stop> {
        let cell = self.resolved(cell);
        match &self.cells[cell as usize].state {
            State::Unset => Err(Stop::Value(cell)),
            State::Scalar(scalar) => Ok(Value::Scalar(scalar.clone())),
            _ => Ok(Value::Cell(cell)),
        }
    }

    pub(in crate::swift) fn text(
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

    pub(super) fn range(
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
    pub(in crate::swift) fn joined(&mut self, texts: &[Rc<str>], at: At) -> Result<Rc<str>> {
        let n_bytes: usize = texts.iter().map(|text| text.len()).sum();
        let taken = self.text_left.take(n_bytes as u64, "the texts of the script have");
        taken.map_err(|e| at.unsupported(e.message.clone()))?;
        Ok(texts.concat().into())
    }
}
