//! JX, the language of Makeflow's newer files: JSON with comments, names, operators, functions and comprehensions.
//!
//! In: a text, and what names mean. Out: a [`Value`], which is what JSON could say. Source: the JX reference of cctools 7.
//!
//! | taken | |
//! |---|---|
//! | values | as in JSON; a comma may follow the last of a list or object; `#` begins a comment |
//! | names | what a `for` binds, what `define` has, variables of eyas's own environment, in this order |
//! | operators | `-` `+` (one operand), `[i]` `[key]` `[i:j]`, `* / %`, `+ -`, comparisons, `not`, `and`, `or` |
//! | comprehensions | `X for N in LIST if CONDITION`, several after each other, in lists and arguments |
//! | functions | those of [`FUNCTIONS`]; `A.f(B)` is `f(A, B)` |
//!
//! `+` joins texts, also a text and a number. Division of whole numbers gives a whole number.
//!
//! What a small text can grow to is limited ([`VALUES_MAX`], [`TEXT_BYTES_MAX`]), and so is how deep it may nest.

use crate::error::{Error, ErrorKind, Result, shown};
use crate::pattern::{Pattern, Work};
use crate::words;
use rustc_hash::FxHashMap;
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;

/// Values that a text may grow to.
const VALUES_MAX: u64 = 10_000_000;
/// Bytes of text that operators and functions may make.
const TEXT_BYTES_MAX: u64 = 256 << 20;
/// Bytes of text that are looked at in the time in which one is made.
const TEXT_BYTES_A_STEP: u64 = 16;
/// Of the kinds of arguments that a message names.
const KINDS_CHARS_MAX: usize = 300;
/// Brackets in brackets.
const DEPTH_MAX: u32 = 64;
/// Operators of one kind after each other.
const CHAIN_MAX: u32 = 200;
/// Parts of expressions in parts, and names that stand for names.
const NESTED_MAX: u32 = 500;
const FUNCTIONS: &str =
    "range, len, format, template, join, ceil, floor, basename, dirname, escape, like and listdir";

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
    /// The last one of equal keys counts.
    pub pairs: Vec<(Rc<str>, Value)>,
}

impl Object {
    /// What stands under `key`, unless that is `null`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let (_, value) = self.pairs.iter().rev().find(|(k, _)| &**k == key)?;
        (*value != Value::Null).then_some(value)
    }
}

impl Value {
    /// What it is called in messages.
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

    /// As it stands in a text that it is joined with; `None`: lists and objects do not.
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

// ---------------------------------------------------------------- the text

#[derive(Debug)]
pub(crate) struct Expr {
    line: u32,
    node: Node,
}

#[derive(Debug)]
enum Node {
    Value(Value),
    Name(Rc<str>),
    List(Vec<Item>),
    Object(Vec<(Expr, Expr)>),
    Unary(&'static str, Box<Expr>),
    Binary(&'static str, Box<Expr>, Box<Expr>),
    Index(Box<Expr>, Box<Expr>),
    Slice(Box<Expr>, Option<Box<Expr>>, Option<Box<Expr>>),
    Call(Rc<str>, Vec<Item>),
}

/// An entry of a list, once for each round of its loops.
#[derive(Debug)]
struct Item {
    expr: Expr,
    loops: Vec<Loop>,
}

#[derive(Debug)]
struct Loop {
    name: Rc<str>,
    list: Expr,
    condition: Option<Expr>,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Value(Value),
    Name(Rc<str>),
    /// A sign or a word of the language.
    Sign(&'static str),
    End,
}

/// The longest first.
const SIGNS: [&str; 22] = [
    "==", "!=", "<=", ">=", "{", "}", "[", "]", "(", ")", ",", ":", "+", "-", "*", "/", "%", "<", ">", ".",
    "=", ";",
];
const WORDS: [&str; 6] = ["for", "in", "if", "and", "or", "not"];

struct Scanner<'a> {
    text: &'a str,
    at: usize,
    line: u32,
    token: Token,
    /// Of the token.
    token_line: u32,
}

impl<'a> Scanner<'a> {
    fn new(text: &'a str) -> Result<Scanner<'a>> {
        let mut scanner = Scanner { text, at: 0, line: 1, token: Token::End, token_line: 1 };
        scanner.advance()?;
        Ok(scanner)
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Gives the token and goes on to the next.
    fn take(&mut self) -> Result<Token> {
        let next = self.scan()?;
        Ok(std::mem::replace(&mut self.token, next))
    }

    fn advance(&mut self) -> Result<()> {
        self.take().map(drop)
    }

    fn scan(&mut self) -> Result<Token> {
        loop {
            let rest = self.rest();
            let n_blank = rest.len() - rest.trim_start().len();
            self.line += rest[..n_blank].matches('\n').count() as u32;
            self.at += n_blank;
            match self.rest().strip_prefix('#') {
                Some(comment) => self.at += 1 + comment.find('\n').unwrap_or(comment.len()),
                None => break,
            }
        }
        self.token_line = self.line;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok(Token::End) };
        if first == '"' {
            return self.quoted();
        }
        if first.is_ascii_digit() {
            let n = number_len(rest);
            self.at += n;
            let text = &rest[..n];
            let value = match text.parse::<i64>() {
                Ok(n) => Some(Value::Int(n)),
                Err(_) => text.parse::<f64>().ok().filter(|x| x.is_finite()).map(Value::Float),
            };
            let fail = || Error::broken(format!("{} is no number", shown(text))).at(self.line);
            return Ok(Token::Value(value.ok_or_else(fail)?));
        }
        if first.is_alphabetic() || first == '_' {
            let n = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
            self.at += n;
            return Ok(match &rest[..n] {
                "null" => Token::Value(Value::Null),
                "true" => Token::Value(Value::Bool(true)),
                "false" => Token::Value(Value::Bool(false)),
                word => match WORDS.iter().find(|w| **w == word) {
                    Some(word) => Token::Sign(word),
                    None => Token::Name(word.into()),
                },
            });
        }
        match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            Some(sign) => {
                self.at += sign.len();
                Ok(Token::Sign(sign))
            }
            None => Err(Error::broken(format!("{} begins nothing", shown(&first.to_string()))).at(self.line)),
        }
    }

    fn quoted(&mut self) -> Result<Token> {
        let begun = self.line;
        let cut = || Error::new(ErrorKind::Truncated, "the file breaks off inside a text").at(begun);
        let mut out = String::new();
        let mut chars = self.rest().char_indices().skip(1);
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += i + 1;
                    return Ok(Token::Value(Value::Text(out.into())));
                }
                '\\' => {
                    let (_, escaped) = chars.next().ok_or_else(cut)?;
                    out.push(match escaped {
                        'n' => '\n',
                        't' => '\t',
                        'r' => '\r',
                        'b' => '\u{8}',
                        'f' => '\u{c}',
                        'u' => {
                            let digits: String = chars.by_ref().take(4).map(|(_, c)| c).collect();
                            let code = u32::from_str_radix(&digits, 16).ok();
                            let message = || format!("`\\u{}` is no character", digits.escape_default());
                            code.and_then(char::from_u32).ok_or_else(|| Error::broken(message()).at(begun))?
                        }
                        other => other,
                    });
                }
                c => {
                    self.line += u32::from(c == '\n');
                    out.push(c);
                }
            }
        }
        Err(cut())
    }
}

fn number_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digits = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let mut n = digits(0);
    if bytes.get(n) == Some(&b'.') && bytes.get(n + 1).is_some_and(u8::is_ascii_digit) {
        n += 1 + digits(n + 1);
    }
    if matches!(bytes.get(n), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(n + 1), Some(b'+' | b'-')));
        match digits((n + 1 + sign).min(bytes.len())) {
            0 => {}
            k => n += 1 + sign + k,
        }
    }
    n
}

/// Reads one expression, which is all of `text`.
pub(crate) fn parse(text: &str) -> Result<Expr> {
    let mut scanner = Scanner::new(text)?;
    let expr = parse_or(&mut scanner, 0)?;
    match scanner.token {
        Token::End => Ok(expr),
        _ => Err(unexpected(&scanner, "the end")),
    }
}

fn unexpected(s: &Scanner, wanted: &str) -> Error {
    let found = match &s.token {
        Token::End => {
            let message = format!("the file breaks off where {wanted} should be");
            return Error::new(ErrorKind::Truncated, message).at(s.token_line);
        }
        Token::Value(value) => value.text().map_or_else(String::new, |t| shown(&t).to_string()),
        Token::Name(name) => shown(name).to_string(),
        Token::Sign(sign) => shown(sign).to_string(),
    };
    Error::broken(format!("{found} stands where {wanted} should be")).at(s.token_line)
}

fn expect(s: &mut Scanner, sign: &'static str) -> Result<()> {
    match s.token == Token::Sign(sign) {
        true => s.advance(),
        false => Err(unexpected(s, &format!("`{sign}`"))),
    }
}

/// Goes past `sign` if it is next.
fn skips(s: &mut Scanner, sign: &'static str) -> Result<bool> {
    let is_next = s.token == Token::Sign(sign);
    if is_next {
        s.advance()?;
    }
    Ok(is_next)
}

fn parse_or(s: &mut Scanner, depth: u32) -> Result<Expr> {
    if depth > DEPTH_MAX {
        return Err(Error::broken(format!("brackets are more than {DEPTH_MAX} deep")).at(s.token_line));
    }
    parse_level(s, depth, 0)
}

/// Operators of two operands, the loosest first; `not` stands between `and` and comparisons.
const LEVELS: [&[&str]; 5] =
    [&["or"], &["and"], &["==", "!=", "<=", ">=", "<", ">"], &["+", "-"], &["*", "/", "%"]];

fn parse_level(s: &mut Scanner, depth: u32, level: usize) -> Result<Expr> {
    let Some(signs) = LEVELS.get(level) else { return parse_unary(s, depth) };
    if level == 2 && s.token == Token::Sign("not") {
        let line = s.token_line;
        s.advance()?;
        let operand = parse_nested(s, depth, level)?;
        return Ok(Expr { line, node: Node::Unary("not", Box::new(operand)) });
    }
    let mut left = parse_level(s, depth, level + 1)?;
    let mut n_chained = 0;
    while let Token::Sign(sign) = s.token
        && signs.contains(&sign)
    {
        chain(s, &mut n_chained)?;
        let line = s.token_line;
        s.advance()?;
        let right = parse_level(s, depth, level + 1)?;
        left = Expr { line, node: Node::Binary(sign, Box::new(left), Box::new(right)) };
    }
    Ok(left)
}

/// Counts what nests although no bracket says so.
fn chain(s: &Scanner, n: &mut u32) -> Result<()> {
    *n += 1;
    match *n > CHAIN_MAX {
        false => Ok(()),
        true => {
            Err(Error::broken(format!("more than {CHAIN_MAX} operators follow each other")).at(s.token_line))
        }
    }
}

/// The operand of a sign before it, which may have a sign before it.
fn parse_nested(s: &mut Scanner, depth: u32, level: usize) -> Result<Expr> {
    if depth > DEPTH_MAX {
        return Err(Error::broken(format!("signs are more than {DEPTH_MAX} deep")).at(s.token_line));
    }
    parse_level(s, depth + 1, level)
}

fn parse_unary(s: &mut Scanner, depth: u32) -> Result<Expr> {
    if let Token::Sign(sign @ ("-" | "+")) = s.token {
        let line = s.token_line;
        s.advance()?;
        let operand = parse_nested(s, depth, LEVELS.len())?;
        return Ok(Expr { line, node: Node::Unary(sign, Box::new(operand)) });
    }
    let mut expr = parse_atom(s, depth)?;
    let mut n_chained = 0;
    loop {
        chain(s, &mut n_chained)?;
        let line = s.token_line;
        expr = match s.token {
            Token::Sign("[") => {
                s.advance()?;
                let bound = |s: &mut Scanner| -> Result<Option<Box<Expr>>> {
                    match s.token {
                        Token::Sign(":" | "]") => Ok(None),
                        _ => Ok(Some(Box::new(parse_or(s, depth + 1)?))),
                    }
                };
                let low = bound(s)?;
                let node = match (skips(s, ":")?, low) {
                    (true, low) => Node::Slice(Box::new(expr), low, bound(s)?),
                    (false, Some(index)) => Node::Index(Box::new(expr), index),
                    (false, None) => return Err(unexpected(s, "an index")),
                };
                expect(s, "]")?;
                Expr { line, node }
            }
            Token::Sign(".") => {
                s.advance()?;
                let Token::Name(name) = s.take()? else { return Err(unexpected(s, "a function")) };
                expect(s, "(")?;
                let mut arguments = vec![Item { expr, loops: vec![] }];
                arguments.extend(parse_items(s, ")", depth)?);
                Expr { line, node: Node::Call(name, arguments) }
            }
            _ => return Ok(expr),
        };
    }
}

fn parse_atom(s: &mut Scanner, depth: u32) -> Result<Expr> {
    let line = s.token_line;
    if !matches!(s.token, Token::Value(_) | Token::Name(_) | Token::Sign("[" | "{" | "(")) {
        return Err(unexpected(s, "a value"));
    }
    let node = match s.take()? {
        Token::Value(value) => Node::Value(value),
        Token::Name(name) => match skips(s, "(")? {
            true => Node::Call(name, parse_items(s, ")", depth)?),
            false => Node::Name(name),
        },
        Token::Sign("(") => {
            let inner = parse_or(s, depth + 1)?;
            expect(s, ")")?;
            return Ok(inner);
        }
        Token::Sign("[") => Node::List(parse_items(s, "]", depth)?),
        _ => {
            let mut pairs = vec![];
            while !skips(s, "}")? {
                let key = parse_or(s, depth + 1)?;
                expect(s, ":")?;
                pairs.push((key, parse_or(s, depth + 1)?));
                if s.token != Token::Sign("}") {
                    expect(s, ",")?;
                }
            }
            Node::Object(pairs)
        }
    };
    Ok(Expr { line, node })
}

fn parse_items(s: &mut Scanner, end: &'static str, depth: u32) -> Result<Vec<Item>> {
    let mut items = vec![];
    while !skips(s, end)? {
        let expr = parse_or(s, depth + 1)?;
        let mut loops = vec![];
        while skips(s, "for")? {
            let Token::Name(name) = s.take()? else { return Err(unexpected(s, "a name")) };
            expect(s, "in")?;
            let list = parse_or(s, depth + 1)?;
            let condition = if skips(s, "if")? { Some(parse_or(s, depth + 1)?) } else { None };
            loops.push(Loop { name, list, condition });
        }
        items.push(Item { expr, loops });
        if s.token != Token::Sign(end) {
            expect(s, ",")?;
        }
    }
    Ok(items)
}

// ---------------------------------------------------------------- what it means

/// What names mean, and what has been used up.
pub(crate) struct Evaluator<'a> {
    /// Values that names stand for, made when they are first asked for.
    defined: FxHashMap<Rc<str>, &'a Expr>,
    made: RefCell<FxHashMap<Rc<str>, Value>>,
    environment: &'a dyn Fn(&str) -> Option<String>,
    /// The folder that `listdir` looks in.
    dir: Option<&'a Path>,
    depth: Cell<u32>,
    n_values: Cell<u64>,
    n_bytes: Cell<u64>,
    /// Those that `like` has compiled.
    patterns: RefCell<FxHashMap<Rc<str>, Rc<Pattern>>>,
    work: Work,
}

/// What comprehensions have bound, the innermost last.
type Bound = Vec<(Rc<str>, Value)>;

impl<'a> Evaluator<'a> {
    /// For the root of a file, whose `define` says what names mean.
    pub fn new(
        root: &'a Expr,
        environment: &'a dyn Fn(&str) -> Option<String>,
        dir: Option<&'a Path>,
    ) -> Evaluator<'a> {
        let mut defined = FxHashMap::default();
        if let Some(Expr { node: Node::Object(pairs), .. }) = find(root, "define") {
            for (key, value) in pairs {
                if let Node::Value(Value::Text(name)) = &key.node {
                    defined.insert(name.clone(), value);
                }
            }
        }
        Evaluator {
            defined,
            made: RefCell::default(),
            environment,
            dir,
            depth: Cell::new(0),
            n_values: Cell::new(0),
            n_bytes: Cell::new(0),
            patterns: RefCell::default(),
            work: Work::default(),
        }
    }

    /// What stands under `key` of the root, if it is there.
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
            Node::Value(value) => Ok(value.clone()),
            Node::Name(name) => self.named(name, bound),
            Node::List(items) => Ok(Value::List(Rc::new(self.items(items, bound)?))),
            Node::Object(pairs) => {
                let mut out = Vec::with_capacity(pairs.len());
                for (key, value) in pairs {
                    let Value::Text(key) = self.value(key, bound)? else {
                        return Err(Error::broken("a key of an object is no text").at(key.line));
                    };
                    out.push((key, self.value(value, bound)?));
                }
                Ok(Value::Object(Rc::new(Object { line, pairs: out })))
            }
            Node::Unary(sign, operand) => match (*sign, self.value(operand, bound)?) {
                ("not", Value::Bool(b)) => Ok(Value::Bool(!b)),
                ("-", Value::Int(n)) => Ok(Value::Int(n.wrapping_neg())),
                ("-", Value::Float(x)) => Ok(Value::Float(-x)),
                ("+", value @ (Value::Int(_) | Value::Float(_) | Value::Text(_))) => Ok(value),
                (sign, value) => {
                    Err(Error::broken(format!("`{sign}` cannot be applied to {}", value.kind())))
                }
            },
            Node::Binary(sign, left, right) => {
                let left = self.value(left, bound)?;
                // What decides alone leaves the other side alone.
                match (*sign, &left) {
                    ("and", Value::Bool(false)) | ("or", Value::Bool(true)) => return Ok(left),
                    _ => {}
                }
                let right = self.value(right, bound)?;
                self.combined(sign, left, right, line)
            }
            Node::Index(list, index) => {
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
            Node::Slice(list, low, high) => {
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
            Node::Call(name, arguments) => {
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

    /// Names may stand for one list many times over, so that comparing takes longer than making.
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
                let mut names = vec![];
                for entry in std::fs::read_dir(&dir).map_err(fail)? {
                    names.extend(entry.map_err(fail)?.file_name().into_string());
                }
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

    /// `{NAME}` becomes what the name means, `{{` and `}}` a bracket.
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
    let Node::Object(pairs) = &root.node else { return None };
    let is_it = |name: &Expr| matches!(&name.node, Node::Value(Value::Text(text)) if &**text == key);
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

/// `%d`, `%i`, `%s`, `%f`, `%e`, `%g` and `%%`, with a width and a precision as in C. `grows_by` hears of bytes of text before
/// they are made.
fn format(form: &str, values: &[Value], grows_by: &dyn Fn(usize) -> Result<()>) -> Result<String> {
    const WIDTH_MAX: usize = 1000;
    grows_by(form.len())?;
    let mut out = String::with_capacity(form.len());
    let mut values = values.iter();
    let mut parts = form.split('%');
    out.push_str(parts.next().unwrap_or(""));
    while let Some(part) = parts.next() {
        if part.is_empty() {
            // `%%`, and what follows it.
            out.push('%');
            out.push_str(parts.next().unwrap_or(""));
            continue;
        }
        let at = part.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(part.len());
        let (spec, rest) = part.split_at(at);
        let wrong =
            || Error::broken(format!("{} is no placeholder that is understood", shown(&format!("%{part}"))));
        let mut chars = rest.chars();
        let kind = chars.next().ok_or_else(wrong)?;
        let flags = spec.len() - spec.trim_start_matches(['-', '0', '+', ' ']).len();
        let (flags, size) = spec.split_at(flags);
        let (width, precision) = match size.split_once('.') {
            Some((width, precision)) => (width, Some(precision)),
            None => (size, None),
        };
        let number = |text: &str| -> Result<usize> {
            let value = if text.is_empty() { Ok(0) } else { text.parse() };
            value.ok().filter(|n| *n <= WIDTH_MAX).ok_or_else(wrong)
        };
        let (width, precision) = (number(width)?, precision.map(number).transpose()?);
        let value = values.next().ok_or_else(|| {
            Error::broken(format!("{} has more placeholders than values follow it", shown(form)))
        })?;
        let text = match (kind, value) {
            ('d' | 'i', Value::Int(n)) => n.to_string(),
            ('d' | 'i', Value::Float(x)) => (x.trunc() as i64).to_string(),
            ('f' | 'F', v) if v.number().is_some() => {
                format!("{:.*}", precision.unwrap_or(6), v.number().unwrap_or(0.0))
            }
            ('e' | 'E' | 'g' | 'G', v) if v.number().is_some() => v.number().unwrap_or(0.0).to_string(),
            ('s', v) if v.text().is_some() => {
                let text = v.text().unwrap_or_default();
                grows_by(text.len())?;
                text.chars().take(precision.unwrap_or(usize::MAX)).collect()
            }
            (kind, value) => {
                return Err(Error::broken(format!("`%{kind}` does not fit {}", value.kind())));
            }
        };
        let n_missing = width.saturating_sub(text.chars().count());
        grows_by(n_missing + usize::from(kind != 's') * text.len())?;
        match (flags.contains('-'), flags.contains('0') && kind != 's') {
            (true, _) => out.extend([text, " ".repeat(n_missing)]),
            (false, false) => out.extend([" ".repeat(n_missing), text]),
            (false, true) => {
                let (sign, digits) = text.split_at(usize::from(text.starts_with('-')));
                out.extend([sign, &"0".repeat(n_missing), digits]);
            }
        }
        out.push_str(chars.as_str());
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<Value> {
        let define = r#"{"define": {"A": 10, "L": [A + i for i in range(3)], "S": "x", "O": {"k": S}, "R": R2, "R2": R}, "v": "#;
        let text = format!("{define}{text}}}");
        let root = parse(&text)?;
        let environment = |name: &str| (name == "HOME_OF").then(|| "/me".to_owned());
        let value = Evaluator::new(&root, &environment, None).value_of(&root, "v");
        value.map(|value| value.unwrap())
    }

    /// What `text` means, as JSON without blanks.
    fn json(value: &Value) -> String {
        match value {
            Value::Text(text) => format!("{text:?}"),
            Value::List(list) => format!("[{}]", list.iter().map(json).collect::<Vec<_>>().join(",")),
            Value::Object(object) => {
                let pairs: Vec<_> = object.pairs.iter().map(|(k, v)| format!("{k:?}:{}", json(v))).collect();
                format!("{{{}}}", pairs.join(","))
            }
            value => value.text().unwrap().to_string(),
        }
    }

    #[test]
    fn what_expressions_mean() {
        for (text, expect) in [
            ("[1, 2.5, true, null, \"a\\n\\u0041\",]", "[1,2.5,true,null,\"a\\nA\"]"),
            ("# note\n {\"a\": 1, # more\n \"b\": [], }", "{\"a\":1,\"b\":[]}"),
            ("1 + 2 * 3 - 4 / 3 % 5", "6"),
            ("-A + (2 - 5) * 2", "-16"),
            ("7 / 2.0", "3.5"),
            ("\"f.\" + A + \".txt\"", "\"f.10.txt\""),
            ("[1] + [2]", "[1,2]"),
            ("not A == 10 or A > 3 and A <= 10 and \"a\" < \"b\"", "true"),
            ("1 == 1.0 and [1] != [2] and null == null", "true"),
            ("L", "[10,11,12]"),
            ("L[0] + L[-1]", "22"),
            ("L[1:] + L[:1] + L[5:]", "[11,12,10]"),
            ("O[\"k\"]", "\"x\""),
            ("HOME_OF + \"/b\"", "\"/me/b\""),
            ("[[i, j] for i in range(3) for j in range(i) if i + j != 2]", "[[1,0],[2,1]]"),
            ("[\"a\", x + x for x in [\"b\"], \"c\"]", "[\"a\",\"bb\",\"c\"]"),
            ("range(5, 0, -2)", "[5,3,1]"),
            ("range(7, 3)", "[]"),
            ("len(L) + len(\"abc\") + len(O)", "7"),
            ("ceil(A / 3) + ceil(2.1) + floor(2.9)", "8"),
            ("join(L) + join([\"a\", 1], \", \")", "\"10 11 12a, 1\""),
            ("format(\"%s_%03d|%-4d|%5.2f%%\", \"q\", 7, 8, 1.0)", "\"q_007|8   | 1.00%\""),
            ("template(\"{S}{i}{{}}\", {\"i\": A + 1})", "\"x11{}\""),
            ("[template(\"f.{i}\") for i in range(2)]", "[\"f.0\",\"f.1\"]"),
            (
                "[basename(\"a/b.csv\", \".csv\"), basename(\"/a/b/\"), dirname(\"a/b\"), dirname(\"a\")]",
                "[\"b\",\"b\",\"a\",\".\"]",
            ),
            ("\"a b\".escape()", "\"'a b'\""),
            ("\"test\".like(\".es.*\")", "true"),
        ] {
            match value(text) {
                Ok(value) => assert_eq!(json(&value), expect, "{text}"),
                Err(e) => panic!("{text}: {e}"),
            }
        }
    }

    #[test]
    fn what_means_nothing_is_said_with_its_line() {
        for (text, expect) in [
            ("\n\nUNKNOWN", "line 3: the name `UNKNOWN` is not defined"),
            ("R", "names stand for each other without end"),
            ("1 / 0", "line 1: a division by zero"),
            ("9223372036854775807 + 1", "a number is too large"),
            ("[1] - 2", "`-` cannot be applied to a list and a number"),
            ("L[9]", "a list of 3 has no number 9"),
            ("O[\"z\"]", "an object has no key `z`"),
            ("fetch(\"x\")", "the function `fetch` is not known here"),
            ("range(\"x\")", "`range` cannot be applied to (a text)"),
            ("range(1, 2, 0)", "`range` cannot be applied"),
            ("range(99999999999)", "grows beyond"),
            ("[x for x in 3]", "a `for` over `x` wants a list"),
            ("[x for x in L if x]", "what follows `if` is not true or false"),
            ("format(\"%d\")", "more placeholders than values"),
            ("format(\"%d\", \"a\")", "`%d` does not fit a text"),
            ("format(\"%99999d\", 1)", "no placeholder that is understood"),
            ("template(\"{S\")", "has no other end"),
            ("template(\"{L}\")", "is a list, which no text holds"),
            ("[1 2]", "line 1: `2` stands where `,` should be"),
            ("{\"a\" 1}", "`1` stands where `:` should be"),
            ("\"a", "the file breaks off inside a text"),
            ("[1,", "`}` stands where a value should be"),
            ("$", "`$` begins nothing"),
        ] {
            let error = value(text).err().unwrap_or_else(|| panic!("{text} is taken")).to_string();
            assert!(error.contains(expect), "{text}: {error}");
        }
        let deep = "[".repeat(100_000);
        assert!(value(&deep).unwrap_err().to_string().contains("deep"));
        let deep = "-".repeat(100_000);
        assert!(value(&deep).unwrap_err().to_string().contains("deep"));
        let deep = "not ".repeat(100_000);
        assert!(value(&deep).unwrap_err().to_string().contains("deep"));
        for chained in ["1 + ".repeat(100_000), "L".to_owned() + &"[0]".repeat(100_000)] {
            let error = value(&(chained + "1")).unwrap_err().to_string();
            assert!(error.contains("more than 200 operators"), "{error}");
        }
        assert!(parse("[1, 2").unwrap_err().to_string().contains("breaks off"));
    }

    #[test]
    fn a_small_text_does_not_fill_memory() {
        let mut text = String::from("{\"define\": {\"V0\": \"0123456789012345\"");
        for n in 1..60 {
            text.push_str(&format!(", \"V{n}\": V{} + V{}", n - 1, n - 1));
        }
        text.push_str("}, \"v\": V59}");
        let root = parse(&text).unwrap();
        let error = Evaluator::new(&root, &|_| None, None).value_of(&root, "v").unwrap_err();
        assert!(error.to_string().contains("grows beyond"), "{error}");
    }
}
