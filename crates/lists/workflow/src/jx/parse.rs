//! From the text of a JX file to expressions.
//!
//! In: a text. Out: an [`Expr`] with the line that it begins on, or a sentence that says in which line the
//! text is broken. Brackets that nest too deep and too many operators after each other are refused
//! ([`DEPTH_MAX`], [`CHAIN_MAX`]), so no text exhausts the stack.

use super::Value;
use crate::error::{Error, ErrorKind, Result, shown};
use std::rc::Rc;

/// The deepest nesting of brackets.
const DEPTH_MAX: u32 = 64;
/// The most operators of one kind after each other.
const CHAIN_MAX: u32 = 200;

#[derive(Debug)]
pub(crate) struct Expr {
    pub(super) line: u32,
    pub(super) node: JxNode,
}

#[derive(Debug)]
pub(super) enum JxNode {
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

/// An entry of a list, which stands for one value in each round of its loops.
#[derive(Debug)]
pub(super) struct Item {
    pub expr: Expr,
    pub loops: Vec<Loop>,
}

#[derive(Debug)]
pub(super) struct Loop {
    pub name: Rc<str>,
    pub list: Expr,
    pub condition: Option<Expr>,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Value(Value),
    Name(Rc<str>),
    /// A sign or a word of the language.
    Sign(&'static str),
    End,
}

/// Longer signs come before shorter ones.
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
    /// The line of the token.
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
        return Ok(Expr { line, node: JxNode::Unary("not", Box::new(operand)) });
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
        left = Expr { line, node: JxNode::Binary(sign, Box::new(left), Box::new(right)) };
    }
    Ok(left)
}

/// Counts operators after each other, which nest although no bracket shows it.
fn chain(s: &Scanner, n: &mut u32) -> Result<()> {
    *n += 1;
    match *n > CHAIN_MAX {
        false => Ok(()),
        true => {
            Err(Error::broken(format!("more than {CHAIN_MAX} operators follow each other")).at(s.token_line))
        }
    }
}

/// The operand of a sign in front. The operand may have such a sign itself.
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
        return Ok(Expr { line, node: JxNode::Unary(sign, Box::new(operand)) });
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
                    (true, low) => JxNode::Slice(Box::new(expr), low, bound(s)?),
                    (false, Some(index)) => JxNode::Index(Box::new(expr), index),
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
                Expr { line, node: JxNode::Call(name, arguments) }
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
        Token::Value(value) => JxNode::Value(value),
        Token::Name(name) => match skips(s, "(")? {
            true => JxNode::Call(name, parse_items(s, ")", depth)?),
            false => JxNode::Name(name),
        },
        Token::Sign("(") => {
            let inner = parse_or(s, depth + 1)?;
            expect(s, ")")?;
            return Ok(inner);
        }
        Token::Sign("[") => JxNode::List(parse_items(s, "]", depth)?),
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
            JxNode::Object(pairs)
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
