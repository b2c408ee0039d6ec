//! From text to tokens, each with its place.

use super::ast::{At, FileNumber};
use crate::error::{Error, ErrorKind, Result};
use std::rc::Rc;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Word(Rc<str>),
    Text(Rc<str>),
    Int(i64),
    Float(f64),
    /// An operator or a bracket.
    Mark(&'static str),
    End,
}

#[derive(Clone, Debug)]
pub(super) struct Token {
    pub kind: Kind,
    pub at: At,
    /// Nothing stands between the token before and this one.
    pub is_glued: bool,
}

impl Token {
    pub fn shown(&self) -> String {
        match &self.kind {
            Kind::Word(text) => eyas_text::shown(text).to_string(),
            Kind::Text(text) => format!("the text {}", eyas_text::shown(text)),
            Kind::Int(n) => format!("the number {n}"),
            Kind::Float(x) => format!("the number {x}"),
            Kind::Mark(mark) => format!("`{mark}`"),
            Kind::End => "the end of the script".into(),
        }
    }
}

/// Longer marks first.
const MARKS: [&str; 31] = [
    "%/", "%%", "==", "!=", "<=", ">=", "<<", "&&", "||", "@", "+", "-", "/", "*", "<", ">", "=", "!", "[",
    "]", "(", ")", "{", "}", ";", ",", ":", ".", "?", "%", "$",
];

/// The tokens of `text`; the last one is [`Kind::End`].
pub(super) fn tokens(text: &str, file: FileNumber) -> Result<Vec<Token>> {
    let mut lexer = Lexer { rest: text, at: At { file, line: 1, column: 1 } };
    let mut tokens = vec![];
    loop {
        let is_glued = !lexer.skip_blanks()? && !tokens.is_empty();
        let at = lexer.at;
        let kind = lexer.token()?;
        let is_last = kind == Kind::End;
        tokens.push(Token { kind, at, is_glued });
        if is_last {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    rest: &'a str,
    at: At,
}

impl<'a> Lexer<'a> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn take(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.rest = &self.rest[c.len_utf8()..];
        match c {
            '\n' => self.at = At { line: self.at.line.saturating_add(1), column: 1, ..self.at },
            _ => self.at.column = self.at.column.saturating_add(1),
        }
        Some(c)
    }

    fn take_while(&mut self, is_wanted: impl Fn(char) -> bool) -> &'a str {
        let start = self.rest;
        while self.peek().is_some_and(&is_wanted) {
            self.take();
        }
        &start[..start.len() - self.rest.len()]
    }

    /// Skips blanks and comments; says whether there were any.
    fn skip_blanks(&mut self) -> Result<bool> {
        let start = self.rest.len();
        loop {
            self.take_while(char::is_whitespace);
            if self.rest.starts_with("//") || self.rest.starts_with('#') {
                self.take_while(|c| c != '\n');
            } else if self.rest.starts_with("/*") {
                let at = self.at;
                let Some(end) = self.rest.find("*/") else {
                    let message = "the comment that begins here has no end";
                    return Err(at.error(ErrorKind::Truncated, message).hint("end it with `*/`"));
                };
                let stop = self.rest.len() - end - "*/".len();
                while self.rest.len() > stop {
                    self.take();
                }
            } else {
                return Ok(self.rest.len() < start);
            }
        }
    }

    fn token(&mut self) -> Result<Kind> {
        let Some(c) = self.peek() else { return Ok(Kind::End) };
        if c.is_ascii_alphabetic() || c == '_' {
            let word = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
            return Ok(Kind::Word(word.into()));
        }
        let is_fraction = c == '.' && self.rest[1..].starts_with(|c: char| c.is_ascii_digit());
        if c.is_ascii_digit() || is_fraction {
            return self.number();
        }
        if c == '"' {
            return self.text();
        }
        let Some(mark) = MARKS.iter().find(|mark| self.rest.starts_with(**mark)) else {
            return Err(self.at.broken(format!("{} means nothing here", eyas_text::shown(&c.to_string()))));
        };
        for _ in mark.chars() {
            self.take();
        }
        Ok(Kind::Mark(mark))
    }

    fn number(&mut self) -> Result<Kind> {
        let (start, at) = (self.rest, self.at);
        let mut is_float = false;
        self.take_while(|c| c.is_ascii_digit());
        if self.rest.starts_with('.') && self.rest[1..].starts_with(|c: char| c.is_ascii_digit()) {
            is_float = true;
            self.take();
            self.take_while(|c| c.is_ascii_digit());
        }
        let exponent = self.rest.strip_prefix(['e', 'E']);
        let exponent = exponent.map(|rest| rest.strip_prefix(['+', '-']).unwrap_or(rest));
        if exponent.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
            is_float = true;
            self.take();
            self.take_while(|c| c == '+' || c == '-');
            self.take_while(|c| c.is_ascii_digit());
        }
        let text = &start[..start.len() - self.rest.len()];
        let number = match is_float {
            true => text.parse().ok().filter(|x: &f64| x.is_finite()).map(Kind::Float),
            false => text.parse().ok().map(Kind::Int),
        };
        number.ok_or_else(|| at.broken(format!("the number {} is too large", eyas_text::shown(text))))
    }

    fn text(&mut self) -> Result<Kind> {
        let at = self.at;
        let unended = |at: At| -> Error {
            at.error(ErrorKind::Truncated, "the text that begins here has no end on its line")
                .hint("end it with `\"`; a line end inside a text is `\\n`")
        };
        self.take();
        let mut text = String::new();
        loop {
            match self.take() {
                None | Some('\n' | '\r') => return Err(unended(at)),
                Some('"') => return Ok(Kind::Text(text.into())),
                Some('\\') => match self.take() {
                    Some('n') => text.push('\n'),
                    Some('r') => text.push('\r'),
                    Some('t') => text.push('\t'),
                    Some('b') => text.push('\u{8}'),
                    Some('f') => text.push('\u{c}'),
                    Some(c @ ('"' | '\\')) => text.push(c),
                    None => return Err(unended(at)),
                    Some(c) => {
                        let shown = eyas_text::shown(&format!("\\{c}")).to_string();
                        return Err(at
                            .broken(format!("the text has {shown}, which stands for nothing"))
                            .hint("known are \\n \\r \\t \\b \\f \\\" and \\\\"));
                    }
                },
                Some(c) => text.push(c),
            }
        }
    }
}
