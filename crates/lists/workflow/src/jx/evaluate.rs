//! The values of expressions.
//!
//! In: expressions, the entries of `define`, and a way to ask for variables of the environment. Out:
//! values. The values that a small text can grow to are limited ([`VALUES_MAX`], [`TEXT_BYTES_MAX`]), and
//! so is the depth of names that stand for names ([`NESTED_MAX`]).

use super::format::format;
use super::parse::{Expr, Item, JxNode, Loop};
use super::{Object, Value};
use crate::error::{Error, ErrorKind, Result, shown};
use crate::pattern::{Pattern, PatternWork};
use crate::words;
use eyas_storage::{LeftOut, NOT_UTF8};
use rustc_hash::FxHashMap;
use std::cell::{Cell, RefCell};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

/// The most values that a text may grow to.
const VALUES_MAX: u64 = 10_000_000;
/// The most bytes of text that operators and functions may make.
const TEXT_BYTES_MAX: u64 = 256 << 20;
/// Looking at this many bytes of text is counted like making one byte.
const TEXT_BYTES_A_STEP: u64 = 16;
/// The longest list of argument kinds in a message.
const KINDS_CHARS_MAX: usize = 300;
/// The deepest nesting of expressions and of names that stand for names.
const NESTED_MAX: u32 = 500;
const FUNCTIONS: &str =
    "range, len, format, template, join, ceil, floor, basename, dirname, escape, like and listdir";

/// The values of names, and the work done so far.
pub(crate) struct Evaluator<'a> {
    /// The expressions that names stand for; each is evaluated when its name is first asked for.
    defined: FxHashMap<Rc<str>, &'a Expr>,
    made: RefCell<FxHashMap<Rc<str>, Value>>,
    environment: &'a dyn Fn(&str) -> Option<String>,
    /// The folder that `listdir` looks in.
    dir: Option<&'a Path>,
    depth: Cell<u32>,
    n_values: Cell<u64>,
    n_bytes: Cell<u64>,
    /// The patterns that `like` has compiled.
    patterns: RefCell<FxHashMap<Rc<str>, Rc<Pattern>>>,
    work: PatternWork,
}

/// The names bound by comprehensions, the innermost last.
type Bound = Vec<(Rc<str>, Value)>;

impl<'a> Evaluator<'a> {
    /// An evaluator for the root of a file, whose `define` gives the values of names that are not among the `given`.
    pub fn new(
        root: &'a Expr,
        given: &[(Rc<str>, Value)],
        environment: &'a dyn Fn(&str) -> Option<String>,
        dir: Option<&'a Path>,
    ) -> Evaluator<'a> {
        let mut defined = FxHashMap::default();
        if let Some(Expr { node: JxNode::Object(pairs), .. }) = find(root, "define") {
            for (key, value) in pairs {
                if let JxNode::Value(Value::Text(name)) = &key.node {
                    defined.insert(name.clone(), value);
                }
            }
        }
        Evaluator {
            defined,
            made: RefCell::new(given.iter().cloned().collect()),
            environment,
            dir,
            depth: Cell::new(0),
            n_values: Cell::new(0),
            n_bytes: Cell::new(0),
            patterns: RefCell::default(),
            work: PatternWork::default(),
        }
    }

    /// The value under `key` of the root, if there is one.
    pub fn value_of(&self, root: &Expr, key: &str) -> Result<Option<Value>> {
        find(root, key).map(|expr| self.value(expr, &mut vec![])).transpose()
    }

    fn count(&self, n_values: u64, n_bytes: u64, line: u32) -> Result<()> {
        self.n_values.set(self.n_values.get().saturating_add(n_values));
        self.n_bytes.set(self.n_bytes.get().saturating_add(n_bytes));
        match self.n_values.get() > VALUES_MAX || self.n_bytes.get() > TEXT_BYTES_MAX {
            false => Ok(()),
            true => {
                let message = format!(
                    "the workflow grows beyond {VALUES_MAX} values or {} MiB of text",
                    TEXT_BYTES_MAX >> 20
                );
                Err(Error::broken(message).at(line))
            }
        }
    }

    fn value(&self, expr: &Expr, bound: &mut Bound) -> Result<Value> {
        let line = expr.line;
        if self.depth.get() > NESTED_MAX {
            return Err(Error::broken("names stand for each other without end").at(line));
        }
        self.depth.set(self.depth.get() + 1);
        let value = self.value_in(expr, bound).map_err(|e| if e.line.is_none() { e.at(line) } else { e });
        self.depth.set(self.depth.get() - 1);
        value
    }

    fn value_in(&self, expr: &Expr, bound: &mut Bound) -> Result<Value> {
        let line = expr.line;
        self.count(1, 0, line)?;
        match &expr.node {
            JxNode::Value(value) => Ok(value.clone()),
            JxNode::Name(name) => self.named(name, bound),
            JxNode::List(items) => Ok(Value::List(Rc::new(self.items(items, bound)?))),
            JxNode::Object(pairs) => {
                let mut out = Vec::with_capacity(pairs.len());
                for (key, value) in pairs {
                    let Value::Text(key) = self.value(key, bound)? else {
                        return Err(Error::broken("a key of an object is no text").at(key.line));
                    };
                    out.push((key, self.value(value, bound)?));
                }
                Ok(Value::Object(Rc::new(Object { line, pairs: out })))
            }
            JxNode::Unary(sign, operand) => match (*sign, self.value(operand, bound)?) {
                ("not", Value::Bool(b)) => Ok(Value::Bool(!b)),
                ("-", Value::Int(n)) => Ok(Value::Int(n.wrapping_neg())),
                ("-", Value::Float(x)) => Ok(Value::Float(-x)),
                ("+", value @ (Value::Int(_) | Value::Float(_) | Value::Text(_))) => Ok(value),
                (sign, value) => {
                    Err(Error::broken(format!("`{sign}` cannot be applied to {}", value.kind())))
                }
            },
            JxNode::Binary(sign, left, right) => {
                let left = self.value(left, bound)?;
                // If the left side decides alone, the right side is not evaluated.
                match (*sign, &left) {
                    ("and", Value::Bool(false)) | ("or", Value::Bool(true)) => return Ok(left),
                    _ => {}
                }
                let right = self.value(right, bound)?;
                self.combined(sign, left, right, line)
            }
            JxNode::Index(list, index) => {
                let (list, index) = (self.value(list, bound)?, self.value(index, bound)?);
                match (&list, &index) {
                    (Value::List(list), Value::Int(n)) => {
                        let at = if *n < 0 { n + list.len() as i64 } else { *n };
                        let found = usize::try_from(at).ok().and_then(|at| list.get(at));
                        let message = || format!("a list of {} has no number {n}", list.len());
                        found.cloned().ok_or_else(|| Error::broken(message()))
                    }
                    (Value::Object(object), Value::Text(key)) => {
                        self.count(object.pairs.len() as u64 / TEXT_BYTES_A_STEP, 0, line)?;
                        let found = object.pairs.iter().rev().find(|(k, _)| k == key);
                        let message = || format!("an object has no key {}", shown(key));
                        found.map(|(_, value)| value.clone()).ok_or_else(|| Error::broken(message()))
                    }
                    _ => Err(Error::broken(format!("{} has no {}", list.kind(), index.kind()))),
                }
            }
            JxNode::Slice(list, low, high) => {
                let Value::List(list) = self.value(list, bound)? else {
                    return Err(Error::broken("only of a list a part can be taken"));
                };
                let mut bound_of = |expr: &Option<Box<Expr>>, otherwise: usize| -> Result<usize> {
                    let Some(expr) = expr else { return Ok(otherwise) };
                    let Value::Int(n) = self.value(expr, bound)? else {
                        return Err(Error::broken("a part of a list begins and ends at whole numbers"));
                    };
                    let n = if n < 0 { n + list.len() as i64 } else { n };
                    Ok(n.clamp(0, list.len() as i64) as usize)
                };
                let (low, high) = (bound_of(low, 0)?, bound_of(high, list.len())?);
                self.count(high.saturating_sub(low) as u64, 0, line)?;
                Ok(Value::List(Rc::new(list.get(low..high).unwrap_or_default().to_vec())))
            }
            JxNode::Call(name, arguments) => {
                let arguments = self.items(arguments, bound)?;
                self.call(name, &arguments, bound, line)
            }
        }
    }

    fn named(&self, name: &Rc<str>, bound: &Bound) -> Result<Value> {
        if let Some((_, value)) = bound.iter().rev().find(|(n, _)| n == name) {
            return Ok(value.clone());
        }
        if let Some(value) = self.made.borrow().get(name) {
            return Ok(value.clone());
        }
        if let Some(expr) = self.defined.get(name) {
            let value = self.value(expr, &mut vec![])?;
            self.made.borrow_mut().insert(name.clone(), value.clone());
            return Ok(value);
        }
        match (self.environment)(name) {
            Some(text) => Ok(Value::Text(text.into())),
            None => Err(Error::broken(format!("the name {} is not defined", shown(name)))
                .hint("put it into `define`; a text may also come from a variable of the environment")),
        }
    }

    fn items(&self, items: &[Item], bound: &mut Bound) -> Result<Vec<Value>> {
        let mut out = vec![];
        for item in items {
            self.rounds(item, &item.loops, bound, &mut out)?;
        }
        Ok(out)
    }

    fn rounds(&self, item: &Item, loops: &[Loop], bound: &mut Bound, out: &mut Vec<Value>) -> Result<()> {
        let Some((first, inner)) = loops.split_first() else {
            out.push(self.value(&item.expr, bound)?);
            return Ok(());
        };
        let Value::List(list) = self.value(&first.list, bound)? else {
            let message = format!("a `for` over {} wants a list", shown(&first.name));
            return Err(Error::broken(message).at(first.list.line));
        };
        for value in list.iter() {
            bound.push((first.name.clone(), value.clone()));
            let is_wanted = match &first.condition {
                None => Ok(true),
                Some(condition) => match self.value(condition, bound) {
                    Ok(Value::Bool(b)) => Ok(b),
                    Ok(_) => Err(Error::broken("what follows `if` is not true or false").at(condition.line)),
                    Err(e) => Err(e),
                },
            };
            let done = is_wanted.and_then(|b| if b { self.rounds(item, inner, bound, out) } else { Ok(()) });
            bound.pop();
            done?;
        }
        Ok(())
    }

    /// One list may be reached through many names, so comparing may take longer than making the values.
    fn are_equal(&self, left: &Value, right: &Value, line: u32) -> Result<bool> {
        self.count(1, 0, line)?;
        match (left, right) {
            (Value::List(a), Value::List(b)) => {
                if a.len() != b.len() {
                    return Ok(false);
                }
                for (a, b) in a.iter().zip(b.iter()) {
                    if !self.are_equal(a, b, line)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Value::Object(a), Value::Object(b)) => {
                if a.pairs.len() != b.pairs.len() {
                    return Ok(false);
                }
                for ((key, a), (other, b)) in a.pairs.iter().zip(&b.pairs) {
                    if key != other || !self.are_equal(a, b, line)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Value::Text(a), Value::Text(b)) => {
                self.count(0, a.len().min(b.len()) as u64 / TEXT_BYTES_A_STEP, line)?;
                Ok(a == b)
            }
            (left, right) => Ok(left == right),
        }
    }

    fn combined(&self, sign: &str, left: Value, right: Value, line: u32) -> Result<Value> {
        use Value::*;
        let cannot = || {
            let message = format!("`{sign}` cannot be applied to {} and {}", left.kind(), right.kind());
            Error::broken(message)
        };
        if matches!(sign, "==" | "!=") {
            let equal = match (left.number(), right.number()) {
                (Some(a), Some(b)) => a == b,
                _ => self.are_equal(&left, &right, line)?,
            };
            return Ok(Bool(equal == (sign == "==")));
        }
        Ok(match (sign, &left, &right) {
            ("and", Bool(a), Bool(b)) => Bool(*a && *b),
            ("or", Bool(a), Bool(b)) => Bool(*a || *b),
            ("+", List(a), List(b)) => {
                self.count((a.len() + b.len()) as u64, 0, line)?;
                List(Rc::new(a.iter().chain(b.iter()).cloned().collect()))
            }
            ("+", Text(_), _) | ("+", _, Text(_)) => {
                let (Some(a), Some(b)) = (left.text(), right.text()) else { return Err(cannot()) };
                self.count(0, (a.len() + b.len()) as u64, line)?;
                Text(format!("{a}{b}").into())
            }
            ("<" | "<=" | ">" | ">=", Text(a), Text(b)) => Bool(holds(sign, a.cmp(b))),
            ("/" | "%", Int(_), Int(0)) => return Err(Error::broken("a division by zero")),
            (_, Int(a), Int(b)) => {
                let result = match sign {
                    "+" => a.checked_add(*b),
                    "-" => a.checked_sub(*b),
                    "*" => a.checked_mul(*b),
                    "/" => a.checked_div(*b),
                    "%" => a.checked_rem(*b),
                    _ => return if is_order(sign) { Ok(Bool(holds(sign, a.cmp(b)))) } else { Err(cannot()) },
                };
                Int(result.ok_or_else(|| Error::broken("a number is too large"))?)
            }
            _ => {
                let (Some(a), Some(b)) = (left.number(), right.number()) else { return Err(cannot()) };
                match sign {
                    "+" => Float(a + b),
                    "-" => Float(a - b),
                    "*" => Float(a * b),
                    "/" | "%" if b == 0.0 => return Err(Error::broken("a division by zero")),
                    "/" => Float(a / b),
                    "%" => Float(a % b),
                    _ if is_order(sign) => Bool(a.partial_cmp(&b).is_some_and(|order| holds(sign, order))),
                    _ => return Err(cannot()),
                }
            }
        })
    }

    fn call(&self, name: &str, arguments: &[Value], bound: &Bound, line: u32) -> Result<Value> {
        use Value::*;
        let value = match (name, arguments) {
            ("range", [Int(end)]) => self.range(0, *end, 1, line)?,
            ("range", [Int(begin), Int(end)]) => self.range(*begin, *end, 1, line)?,
            ("range", [Int(begin), Int(end), Int(step)]) if *step != 0 => {
                self.range(*begin, *end, *step, line)?
            }
            ("len", [List(list)]) => Int(list.len() as i64),
            ("len", [Text(text)]) => Int(text.chars().count() as i64),
            ("len", [Object(object)]) => Int(object.pairs.len() as i64),
            ("ceil" | "floor", [Int(n)]) => Int(*n),
            ("ceil", [Float(x)]) => Int(x.ceil() as i64),
            ("floor", [Float(x)]) => Int(x.floor() as i64),
            ("join", [List(list), rest @ ..]) if rest.len() <= 1 => {
                let between = match rest.first() {
                    None => " ".into(),
                    Some(value) => value.text().unwrap_or_default(),
                };
                let texts: Option<Vec<Rc<str>>> = list.iter().map(Value::text).collect();
                let Some(texts) = texts else { return Err(Error::broken("`join` wants a list of texts")) };
                let n_bytes: usize = texts.iter().map(|text| text.len() + between.len()).sum();
                self.count(0, n_bytes as u64, line)?;
                Text(texts.join(&between).into())
            }
            ("format", [Text(form), values @ ..]) => {
                let grows_by = |n_bytes: usize| self.count(0, n_bytes as u64, line);
                Text(format(form, values, &grows_by)?.into())
            }
            ("template", [Text(form)]) => Text(self.template(form, None, bound, line)?.into()),
            ("template", [Text(form), Object(own)]) => {
                Text(self.template(form, Some(own), bound, line)?.into())
            }
            ("basename", [Text(path), rest @ ..]) if rest.len() <= 1 => {
                let path = path.trim_end_matches('/');
                let name = path.rsplit('/').next().unwrap_or(path);
                let ending = rest.first().and_then(Value::text).unwrap_or_default();
                let bare = name.strip_suffix(&*ending).filter(|bare| !bare.is_empty());
                Text(bare.unwrap_or(name).into())
            }
            ("dirname", [Text(path)]) => {
                let path = path.trim_end_matches('/');
                Text(
                    path.rsplit_once('/')
                        .map_or(".", |(dir, _)| if dir.is_empty() { "/" } else { dir })
                        .into(),
                )
            }
            ("escape", [Text(text)]) => {
                self.count(0, (text.len() + 3 * text.matches('\'').count()) as u64, line)?;
                Text(words::quoted(text).into())
            }
            ("like", [Text(text), Text(pattern)]) => {
                let pattern = self.pattern(pattern)?;
                Bool(pattern.matches(text, &self.work).ok_or_else(too_much_work)?)
            }
            ("listdir", [Text(path)]) => {
                let dir = self.dir.unwrap_or(Path::new(".")).join(&**path);
                let fail = |e| Error::io("read", format!("cannot list {}", shown(&dir.to_string_lossy())), e);
                let (mut names, mut left_out) = (vec![], vec![]);
                for entry in std::fs::read_dir(&dir).map_err(fail)? {
                    match entry.map_err(fail)?.file_name().into_string() {
                        Ok(name) => names.push(name),
                        Err(name) => {
                            left_out.push(LeftOut::of_bytes(dir.join(name).as_os_str().as_bytes(), NOT_UTF8));
                        }
                    }
                }
                LeftOut::say_all(&left_out);
                names.sort_unstable();
                self.count(names.len() as u64, 0, line)?;
                List(Rc::new(names.into_iter().map(|name| Text(name.into())).collect()))
            }
            ("range" | "len" | "ceil" | "floor" | "join" | "format" | "template", _)
            | ("basename" | "dirname" | "escape" | "like" | "listdir", _) => {
                let kinds: Vec<&str> = arguments.iter().map(Value::kind).collect();
                let kinds = kinds.join(", ");
                let kinds = eyas_text::line_of(&kinds).at_most(KINDS_CHARS_MAX);
                let message = format!("`{name}` cannot be applied to ({kinds})");
                return Err(Error::broken(message));
            }
            _ => {
                let message = format!("the function {} is not known here", shown(name));
                return Err(Error::new(ErrorKind::Unsupported, message).hint(format!(
                    "known are {FUNCTIONS}; `makeflow --jx` writes plain JSON that has none"
                )));
            }
        };
        Ok(value)
    }

    fn pattern(&self, text: &Rc<str>) -> Result<Rc<Pattern>> {
        if let Some(known) = self.patterns.borrow().get(text) {
            return Ok(known.clone());
        }
        let pattern = Pattern::new(text).map_err(|e| {
            let (text, why) = (shown(text), eyas_text::line_of(&e));
            Error::broken(format!("{text} is no regular expression that is understood: {why}"))
        })?;
        if !self.work.count_compiling(&pattern) {
            return Err(too_much_work());
        }
        let pattern = Rc::new(pattern);
        self.patterns.borrow_mut().insert(text.clone(), pattern.clone());
        Ok(pattern)
    }

    fn range(&self, begin: i64, end: i64, step: i64, line: u32) -> Result<Value> {
        let span = if step > 0 { end.saturating_sub(begin) } else { begin.saturating_sub(end) };
        let n = span.max(0).unsigned_abs().div_ceil(step.unsigned_abs());
        self.count(n, 0, line)?;
        Ok(Value::List(Rc::new((0..n as i64).map(|i| Value::Int(begin + i * step)).collect())))
    }

    /// `{NAME}` becomes the value of the name, `{{` and `}}` become a bracket.
    fn template(&self, form: &str, own: Option<&Object>, bound: &Bound, line: u32) -> Result<String> {
        self.count(0, form.len() as u64, line)?;
        let mut out = String::with_capacity(form.len());
        let mut rest = form;
        while let Some(at) = rest.find(['{', '}']) {
            out.push_str(&rest[..at]);
            let (sign, after) = rest[at..].split_at(1);
            if let Some(after) = after.strip_prefix(sign) {
                out.push_str(sign);
                rest = after;
                continue;
            }
            let Some((name, after)) = after.split_once('}').filter(|_| sign == "{") else {
                return Err(Error::broken(format!("a bracket in {} has no other end", shown(form))));
            };
            let name: Rc<str> = name.trim().into();
            let value = match own.and_then(|own| own.pairs.iter().rev().find(|(key, _)| *key == name)) {
                Some((_, value)) => value.clone(),
                None => self.named(&name, bound)?,
            };
            let message =
                || Error::broken(format!("{} is {}, which no text holds", shown(&name), value.kind()));
            let text = value.text().ok_or_else(message)?;
            self.count(0, text.len() as u64, line)?;
            out.push_str(&text);
            rest = after;
        }
        out.push_str(rest);
        Ok(out)
    }
}

fn find<'e>(root: &'e Expr, key: &str) -> Option<&'e Expr> {
    let JxNode::Object(pairs) = &root.node else { return None };
    let is_it = |name: &Expr| matches!(&name.node, JxNode::Value(Value::Text(text)) if &**text == key);
    pairs.iter().rev().find(|(name, _)| is_it(name)).map(|(_, value)| value)
}

fn too_much_work() -> Error {
    Error::broken(
        "`like` takes too long: the regular expressions are too large, or too many texts are compared",
    )
}

fn is_order(sign: &str) -> bool {
    matches!(sign, "<" | "<=" | ">" | ">=")
}

fn holds(sign: &str, order: std::cmp::Ordering) -> bool {
    match sign {
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        _ => order.is_ge(),
    }
}
