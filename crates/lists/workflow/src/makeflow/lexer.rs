//! How Makeflow reads commands, values and lists of files: its own rules, which are not those of the shell.
//!
//! Source: `lexer.c` of cctools 7 and 9. A `\` is taken away before any character, also in single quotes, so `\\` is one for the
//! shell; before a line feed it is a space. In double quotes and in values, `\t`, `\n` and the like are the characters themselves.
//! Blanks outside of quotes are one space. Quotes stay in commands and values, and not in lists of files. A variable in double quotes
//! or in a value stands for its text; elsewhere, that text is read by these rules again.
//!
//! Deviation: cctools joins the line behind `NAME=value # comment` to the value. Here the comment ends it.

use crate::error::{Error, Result};

/// The characters that end a word outside of quotes.
const WORD_ENDS: &str = "\\\"'$#\n\t ";
/// Those that end a name in a list of files.
const FILE_ENDS: &str = "\\\"'$#\n\t :-";

/// What variables stand for.
pub(super) trait Variables {
    /// The name at the beginning of a text.
    fn name<'t>(&self, text: &'t str) -> &'t str;
    /// The text that a name stands for, `depth` substitutions deep.
    fn value(&self, name: &str, depth: u32) -> Result<String>;
    /// A command or list has become so long.
    fn check_length(&self, n_bytes: usize) -> Result<()>;
}

/// A part of a list of files.
#[derive(PartialEq, Debug)]
pub(super) enum Item {
    Name(String),
    Arrow,
    /// Parts of one name stand next to each other.
    Space,
}

pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
    variables: &'a dyn Variables,
    keeps_quotes: bool,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str, variables: &'a dyn Variables) -> Lexer<'a> {
        Lexer { text, at: 0, depth: 0, variables, keeps_quotes: true }
    }

    /// For the text of a variable.
    fn inner<'t>(&self, text: &'t str) -> Lexer<'t>
    where
        'a: 't,
    {
        Lexer {
            text,
            at: 0,
            depth: self.depth + 1,
            variables: self.variables,
            keeps_quotes: self.keeps_quotes,
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn skip_blanks(&mut self) -> bool {
        let from = self.at;
        while matches!(self.peek(), Some(' ' | '\t')) {
            self.at += 1;
        }
        self.at > from
    }

    /// Behind a backslash: the next character. A line feed is a space.
    fn escaped(&mut self) -> Option<char> {
        self.next().map(|c| if c == '\n' { ' ' } else { c })
    }

    /// Characters up to one of `ends`; a `\` takes its meaning away.
    fn until(&mut self, ends: &str, out: &mut String) {
        while let Some(c) = self.peek() {
            if c == '\\' {
                self.at += 1;
                // cctools loses an escaped character with which the text of a variable ends.
                let next = self.escaped();
                let is_lost = self.depth > 0 && self.peek().is_none();
                out.extend(next.filter(|_| !is_lost));
            } else if ends.contains(c) {
                return;
            } else {
                out.push(c);
                self.at += c.len_utf8();
            }
        }
    }

    fn single_quoted(&mut self, out: &mut String) -> Result<()> {
        self.at += 1;
        let quote = |out: &mut String, keeps: bool| {
            if keeps {
                out.push('\'');
            }
        };
        quote(out, self.keeps_quotes);
        self.until("'", out);
        if self.next().is_none() {
            return Err(unclosed());
        }
        quote(out, self.keeps_quotes);
        Ok(())
    }

    fn double_quoted(&mut self, out: &mut String) -> Result<()> {
        self.at += 1;
        if self.keeps_quotes {
            out.push('"');
        }
        self.expandable(Some('"'), out)?;
        if self.keeps_quotes {
            out.push('"');
        }
        Ok(())
    }

    /// Text with variables in it, up to `end`, or to the end of the text.
    fn expandable(&mut self, end: Option<char>, out: &mut String) -> Result<()> {
        self.skip_blanks();
        loop {
            match self.peek() {
                None if end.is_some() => return Err(unclosed()),
                None => return Ok(()),
                Some(c) if Some(c) == end => {
                    self.at += 1;
                    return Ok(());
                }
                Some('\n') if end.is_none() => return Ok(()),
                Some('$') => {
                    let name = self.variable()?;
                    out.push_str(&self.variables.value(name, self.depth + 1)?);
                    self.variables.check_length(out.len())?;
                }
                Some('\'') => self.single_quoted(out)?,
                Some('"') => self.double_quoted(out)?,
                Some('#') if end.is_none() => {
                    self.at = self.text.len();
                }
                Some('\\') => {
                    self.at += 1;
                    out.extend(self.escaped().map(special));
                }
                Some(c) => {
                    out.push(c);
                    self.at += c.len_utf8();
                }
            }
        }
    }

    /// The name behind a `$`.
    fn variable(&mut self) -> Result<&'a str> {
        self.at += 1;
        let close = match self.peek() {
            Some('(') => Some(')'),
            Some('{') => Some('}'),
            _ => None,
        };
        self.at += usize::from(close.is_some());
        let name = self.variables.name(self.rest());
        self.at += name.len();
        let closes = close.is_none_or(|close| self.next() == Some(close));
        match !name.is_empty() && closes {
            true => Ok(name),
            false => Err(Error::broken("a `$` begins no variable")
                .hint("write `\\$` for a dollar that is meant for the shell")),
        }
    }

    /// The value of an assignment.
    pub(super) fn value(mut self) -> Result<String> {
        let mut out = String::new();
        self.expandable(None, &mut out)?;
        Ok(out)
    }

    /// A command, as the shell gets it.
    pub(super) fn command(mut self) -> Result<String> {
        let mut out = String::new();
        self.command_into(&mut out)?;
        Ok(out)
    }

    fn command_into(&mut self, out: &mut String) -> Result<()> {
        if self.skip_blanks() && self.depth > 0 {
            out.push(' ');
        }
        loop {
            match self.peek() {
                None | Some('\n' | '#') => return Ok(()),
                Some(' ' | '\t') => {
                    self.skip_blanks();
                    out.push(' ');
                }
                Some('$') => {
                    let name = self.variable()?;
                    let value = self.variables.value(name, self.depth + 1)?;
                    self.inner(&value).command_into(out)?;
                    self.variables.check_length(out.len())?;
                }
                Some('"') => self.double_quoted(out)?,
                Some('\'') => self.single_quoted(out)?,
                Some(_) => self.until(WORD_ENDS, out),
            }
        }
    }

    /// A list of files.
    pub(super) fn files(mut self) -> Result<Vec<Item>> {
        self.keeps_quotes = false;
        let mut items = vec![];
        self.files_into(&mut items)?;
        Ok(items)
    }

    fn files_into(&mut self, items: &mut Vec<Item>) -> Result<()> {
        self.skip_blanks();
        loop {
            let mut name = String::new();
            match self.peek() {
                None | Some('\n' | '#') => return Ok(()),
                Some(' ' | '\t') => {
                    self.skip_blanks();
                    items.push(Item::Space);
                    continue;
                }
                Some('$') => {
                    let variable = self.variable()?;
                    let value = self.variables.value(variable, self.depth + 1)?;
                    self.inner(&value).files_into(items)?;
                    self.variables.check_length(items.len())?;
                    continue;
                }
                Some('-') if self.rest().starts_with("->") => {
                    self.at += 2;
                    items.push(Item::Arrow);
                    continue;
                }
                Some('"') => self.double_quoted(&mut name)?,
                Some('\'') => self.single_quoted(&mut name)?,
                Some(c @ ('-' | ':')) => {
                    self.at += 1;
                    name.push(c);
                }
                Some(_) => self.until(FILE_ENDS, &mut name),
            }
            match items.last_mut() {
                Some(Item::Name(before)) => before.push_str(&name),
                _ if name.is_empty() => {}
                _ => items.push(Item::Name(name)),
            }
        }
    }
}

fn unclosed() -> Error {
    Error::broken("a quotation does not end")
}

/// The character that an escape in double quotes or in a value means.
fn special(c: char) -> char {
    match c {
        'a' => '\x07',
        'b' => '\x08',
        'f' => '\x0c',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\x0b',
        c => c,
    }
}
