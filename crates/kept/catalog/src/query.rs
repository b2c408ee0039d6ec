//! The language of `eyas data find`: conditions on tags and on what every data set has.
//!
//! ```text
//! query     = and { "or" and }
//! and       = not { "and" not }
//! not       = [ "not" ] ( "(" query ")" | condition )
//! condition = NAME ( "=" | "!=" | "<" | "<=" | ">" | ">=" ) value
//!           | NAME "=" value ".." value            both ends belong to it
//!           | NAME [ "not" ] "in" "(" value { "," value } ")"
//!           | NAME [ "not" ] "like" value          % is any text, _ any character
//!           | "has" NAME
//! ```
//!
//! A value is a word (`adk`, `90`, `2026-11-25`, `1GiB`) or a text in quotes (`'it''s'`, `"a b"`). Words of the language are
//! written small or large. `=`, `!=` and `in` compare the text of the tag, whatever it looks like: many identifiers are digits, or
//! look like a number with an exponent. `<`, `<=`, `>`, `>=` and ranges ask for an order: a word that is a number compares with tags
//! that are numbers, exactly; a date with dates; everything else with the text of the tag, by its bytes; and a text in quotes
//! always compares with the text. So `frames = 90..90` asks for the number 90, however it was written. A condition holds only
//! for sets that have the tag; `not` turns round what is behind it, so `not state = done` holds for sets without `state`, and
//! `state != done` does not.
//!
//! A query becomes SQL in [`sql`]; no part of its text gets into a statement but as a value.

mod lex;
mod parse;
pub(crate) mod sql;

pub use crate::error::QueryError;
pub use parse::parse;

use crate::tags::Kind;

/// A query.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Not(Box<Expr>),
    Test { field: Field, check: Check },
}

/// What a condition looks at.
#[derive(Debug, Clone, PartialEq)]
pub enum Field {
    Label,
    Owner,
    /// When the first version was begun.
    Created,
    /// Bytes of all files of the newest version.
    Size,
    /// Number of files of the newest version.
    Files,
    Tag(String),
}

/// What a condition asks.
#[derive(Debug, Clone, PartialEq)]
pub enum Check {
    Has,
    Compare(Comparison, Literal),
    Range(Literal, Literal),
    In(Vec<Literal>),
    Like(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    fn sql(self) -> &'static str {
        match self {
            Comparison::Equal => "=",
            Comparison::Unequal => "<>",
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
        }
    }
}

/// A value of a condition: its text and what it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Literal {
    pub text: String,
    pub kind: Kind,
    /// What a field that is a number compares with: milliseconds since 1970, bytes, files.
    pub column: Option<i64>,
}
