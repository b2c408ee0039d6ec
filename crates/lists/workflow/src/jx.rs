//! JX, the language of Makeflow's newer files: JSON with comments, names, operators, functions and
//! comprehensions.
//!
//! In: a text, and the values of names. Out: a [`Value`], as JSON could write it. Source: the JX reference
//! of cctools 7.
//!
//! | taken | |
//! |---|---|
//! | values | as in JSON; a comma may follow the last of a list or object; `#` begins a comment |
//! | names | bound by a `for`, defined in `define`, or variables of eyas's own environment, in this order |
//! | operators | `-` `+` (one operand), `[i]` `[key]` `[i:j]`, `* / %`, `+ -`, comparisons, `not`, `and`, `or` |
//! | comprehensions | `X for N in LIST if CONDITION`, several after each other, in lists and arguments |
//! | functions | those of `evaluate::FUNCTIONS`; `A.f(B)` is `f(A, B)` |
//!
//! `+` joins texts, also a text and a number. Division of whole numbers gives a whole number.
//!
//! | module | |
//! |---|---|
//! | `parse` | from the text to expressions |
//! | `evaluate` | the values of expressions |
//! | `format` | the function `format` |

mod evaluate;
mod format;
mod parse;
#[cfg(test)]
mod tests;

pub(crate) use evaluate::Evaluator;
pub(crate) use parse::parse;

use std::rc::Rc;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Rc<str>),
    List(Rc<Vec<Value>>),
    Object(Rc<Object>),
}

#[derive(Debug, PartialEq)]
pub(crate) struct Object {
    pub line: u32,
    /// Of equal keys, the last one counts.
    pub pairs: Vec<(Rc<str>, Value)>,
}

impl Object {
    /// The value under `key`, unless it is `null`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let (_, value) = self.pairs.iter().rev().find(|(k, _)| &**k == key)?;
        (*value != Value::Null).then_some(value)
    }
}

impl Value {
    /// The name of the kind in messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "true or false",
            Value::Int(_) | Value::Float(_) => "a number",
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Object(_) => "an object",
        }
    }

    /// The text of the value when it is joined with a text; `None`: lists and objects have none.
    pub fn text(&self) -> Option<Rc<str>> {
        Some(match self {
            Value::Null => "null".into(),
            Value::Bool(b) => b.to_string().into(),
            Value::Int(n) => n.to_string().into(),
            Value::Float(x) => x.to_string().into(),
            Value::Text(text) => text.clone(),
            Value::List(_) | Value::Object(_) => return None,
        })
    }

    fn number(&self) -> Option<f64> {
        match self {
            Value::Int(n) => Some(*n as f64),
            Value::Float(x) => Some(*x),
            _ => None,
        }
    }
}
