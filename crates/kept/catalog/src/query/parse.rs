//! From a query's text to an [`Expr`].

use super::lex::{Token, tokens};
use super::{Check, Comparison, Expr, Field, Literal};
use crate::error::QueryError;
use crate::tags::{Kind, WORDS, date_of};
use eyas_text::{line_of, shown};

/// Most parentheses and `not`s within each other.
const DEPTH_MAX: usize = 50;
/// Most conditions; the databases limit the depth and the values of a statement.
const CONDITIONS_MAX: usize = 200;
/// Most characters.
const LENGTH_MAX: usize = 65_536;

/// Reads a query.
///
/// # Errors
/// The place of the first mistake, and what was expected there.
pub fn parse(query: &str) -> Result<Expr, QueryError> {
    let wrong = |(at, message): (usize, String)| {
        let (extract, mark) = extract(query, at);
        QueryError { extract, mark, at, message }
    };
    if query.chars().count() > LENGTH_MAX {
        return Err(wrong((LENGTH_MAX, format!("a query has at most {LENGTH_MAX} characters"))));
    }
    let mut parser = Parser { tokens: tokens(query).map_err(wrong)?, next: 0, n_conditions: 0 };
    let read = parser.any_of(0).and_then(|expr| match parser.peek() {
        Token::End => Ok(expr),
        Token::Sign(")") => Err(parser.wrong("no `(` belongs to this `)`")),
        _ => Err(parser.wrong("`and` or `or` is missing between two conditions")),
    });
    read.map_err(wrong)
}

/// Characters of a long query that an error shows before and behind the mistake.
const SHOWN_AROUND: usize = 60;

/// The part of a query around a mistake on one line, and the place of the mistake in it.
fn extract(query: &str, at: usize) -> (String, usize) {
    let flat: Vec<char> =
        query.chars().map(|c| if c.is_whitespace() || eyas_text::is_unsafe(c) { ' ' } else { c }).collect();
    let start = at.saturating_sub(SHOWN_AROUND);
    let end = (at + SHOWN_AROUND).min(flat.len());
    let part: String = flat[start.min(end)..end].iter().collect();
    (line_of(&part).to_string(), at - start)
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    next: usize,
    n_conditions: usize,
}

/// Where a mistake is, in characters, and what it is.
type Mistake = (usize, String);

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.next].1
    }

    fn wrong(&self, message: impl Into<String>) -> Mistake {
        (self.tokens[self.next].0, message.into())
    }

    fn take(&mut self) -> Token {
        let token = self.tokens[self.next].1.clone();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    /// Takes the next token if it is that word of the language.
    fn word(&mut self, expected: &str) -> bool {
        let is_there = matches!(self.peek(), Token::Word(word) if word.eq_ignore_ascii_case(expected));
        if is_there {
            self.take();
        }
        is_there
    }

    fn sign(&mut self, expected: &str) -> bool {
        let is_there = matches!(self.peek(), Token::Sign(sign) if *sign == expected);
        if is_there {
            self.take();
        }
        is_there
    }

    fn any_of(&mut self, depth: usize) -> Result<Expr, Mistake> {
        let mut parts = vec![self.all_of(depth)?];
        while self.word("or") {
            parts.push(self.all_of(depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expr::Or(parts) })
    }

    fn all_of(&mut self, depth: usize) -> Result<Expr, Mistake> {
        let mut parts = vec![self.one(depth)?];
        while self.word("and") {
            parts.push(self.one(depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expr::And(parts) })
    }

    fn one(&mut self, depth: usize) -> Result<Expr, Mistake> {
        if depth > DEPTH_MAX {
            return Err(self.wrong(format!("more than {DEPTH_MAX} parentheses and `not`s within each other")));
        }
        if self.word("not") {
            return Ok(Expr::Not(Box::new(self.one(depth + 1)?)));
        }
        if self.sign("(") {
            let inside = self.any_of(depth + 1)?;
            return match self.sign(")") {
                true => Ok(inside),
                false => Err(self.wrong("`)`, `and` or `or` is expected here")),
            };
        }
        self.condition()
    }

    fn condition(&mut self) -> Result<Expr, Mistake> {
        self.n_conditions += 1;
        if self.n_conditions > CONDITIONS_MAX {
            return Err(self.wrong(format!("a query has at most {CONDITIONS_MAX} conditions")));
        }
        if self.word("has") {
            let field = self.field()?;
            return Ok(Expr::Test { field, check: Check::Has });
        }
        let field = self.field()?;
        let is_turned = self.word("not");
        let check = if self.word("like") {
            let at = self.next;
            match (&field, self.value()?) {
                (Field::Created | Field::Size | Field::Files, _) => {
                    self.next = at;
                    return Err(self.wrong("`like` is for texts, and this field is a number or a date"));
                }
                (_, literal) => Check::Like(literal.text),
            }
        } else if self.word("in") {
            if !self.sign("(") {
                return Err(self.wrong("`(` is expected after `in`"));
            }
            let mut values = vec![self.value_for(&field)?];
            while self.sign(",") {
                self.n_conditions += 1;
                values.push(self.value_for(&field)?);
            }
            if !self.sign(")") {
                return Err(self.wrong("`,` or `)` is expected here"));
            }
            Check::In(values)
        } else if is_turned {
            return Err(self.wrong("`like` or `in` is expected after `not`"));
        } else {
            self.comparison(&field)?
        };
        let test = Expr::Test { field, check };
        Ok(if is_turned { Expr::Not(Box::new(test)) } else { test })
    }

    fn comparison(&mut self, field: &Field) -> Result<Check, Mistake> {
        let comparison = match self.peek() {
            Token::Sign("=") => Comparison::Equal,
            Token::Sign("!=") => Comparison::Unequal,
            Token::Sign("<") => Comparison::Less,
            Token::Sign("<=") => Comparison::LessOrEqual,
            Token::Sign(">") => Comparison::Greater,
            Token::Sign(">=") => Comparison::GreaterOrEqual,
            _ => {
                return Err(
                    self.wrong("`=`, `!=`, `<`, `<=`, `>`, `>=`, `like` or `in` is expected after a name")
                );
            }
        };
        self.take();
        let value = self.value_for(field)?;
        if !self.sign("..") {
            return Ok(Check::Compare(comparison, value));
        }
        if comparison != Comparison::Equal {
            self.next -= 1;
            return Err(self.wrong("a range `a..b` stands behind `=`"));
        }
        let end = self.value_for(field)?;
        if std::mem::discriminant(&value.kind) != std::mem::discriminant(&end.kind) {
            self.next -= 1;
            return Err(self.wrong("both ends of a range are numbers, or both are dates, or both are texts"));
        }
        Ok(Check::Range(value, end))
    }

    fn field(&mut self) -> Result<Field, Mistake> {
        let Token::Word(word) = self.peek() else {
            return Err(self.wrong(match self.peek() {
                Token::Quoted(_) => "a name of a tag is expected here, without quotes",
                Token::End => "a condition is expected here, such as `protein = adk`",
                _ => "a name of a tag is expected here",
            }));
        };
        let lower = word.to_lowercase();
        if WORDS.contains(&lower.as_str()) {
            return Err(self.wrong(format!(
                "a name of a tag is expected here, and `{lower}` is a word of the language"
            )));
        }
        let field = match lower.as_str() {
            "label" => Field::Label,
            "owner" => Field::Owner,
            "created" => Field::Created,
            "size" => Field::Size,
            "files" => Field::Files,
            _ => Field::Tag(word.clone()),
        };
        self.take();
        Ok(field)
    }

    fn value(&mut self) -> Result<Literal, Mistake> {
        let literal = match self.peek() {
            Token::Word(word) => Literal { text: word.clone(), kind: Kind::of(word), column: None },
            Token::Quoted(text) => Literal { text: text.clone(), kind: Kind::Text, column: None },
            _ => return Err(self.wrong("a value is expected here: a word, a number, or a text in quotes")),
        };
        if literal.text.contains('\0') {
            return Err(self.wrong("a value cannot have a NUL character"));
        }
        self.take();
        Ok(literal)
    }

    /// A value that fits the field: a date for `created`, a number of bytes for `size`.
    fn value_for(&mut self, field: &Field) -> Result<Literal, Mistake> {
        let at = self.next;
        let literal = self.value()?;
        // No data set has 2^63 bytes, and no moment is so many milliseconds away.
        let most = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let column = match field {
            Field::Tag(_) => return Ok(literal),
            Field::Label | Field::Owner => return Ok(Literal { kind: Kind::Text, ..literal }),
            Field::Created => date_of(&literal.text).map(|ns| ns.div_euclid(1_000_000) as i64),
            Field::Size => eyas_tasklist::parse_bytes(&literal.text).ok().map(most),
            Field::Files => literal.text.parse::<u64>().ok().map(most),
        };
        if column.is_some() {
            return Ok(Literal { kind: Kind::Text, column, ..literal });
        }
        self.next = at;
        let text = shown(&literal.text);
        Err(self.wrong(match field {
            Field::Created => format!("{text} is no date: write 2026-11-25 or 2026-11-25T12:00"),
            Field::Size => format!("{text} is no size: write 500MB, 2GiB or a number of bytes"),
            _ => format!("{text} is no number of files"),
        }))
    }
}
