//! A script as it is written.

use crate::error::{Error, ErrorKind};
use std::rc::Rc;

/// Number of a file among the script and its imports; the script has the number 0.
pub(super) type FileNumber = u16;

/// A place in a script, counted from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At {
    pub file: FileNumber,
    pub line: u32,
    pub column: u32,
}

impl At {
    pub fn error(self, kind: ErrorKind, message: impl Into<String>) -> Error {
        Error::new(kind, message).at(self.line).column(self.column).part(self.file)
    }
    pub fn broken(self, message: impl Into<String>) -> Error {
        self.error(ErrorKind::Broken, message)
    }
    pub fn unsupported(self, message: impl Into<String>) -> Error {
        self.error(ErrorKind::Unsupported, message)
    }
}

/// Number of a name.
pub(super) type Symbol = u32;

#[derive(Default)]
pub(super) struct Program {
    pub types: Vec<TypeDeclaration>,
    pub procedures: Vec<Procedure>,
    pub body: Block,
    /// By [`Symbol`].
    pub names: Vec<Rc<str>>,
    /// The number of expressions; each has a number below it.
    pub n_expressions: u32,
}

/// A type as it is written: its first word and what stands in brackets behind it.
#[derive(Clone)]
pub(super) struct TypeName {
    pub base: Symbol,
    pub keys: Vec<Option<Symbol>>,
    pub at: At,
}

pub(super) struct TypeDeclaration {
    pub name: Symbol,
    pub is: Declared,
    pub at: At,
}

pub(super) enum Declared {
    /// `type file;`
    Marker,
    /// `type a b;`
    Same(TypeName),
    /// `type a { int b; }`
    Struct(Vec<(TypeName, Symbol)>),
}

pub(super) struct Parameter {
    pub of: TypeName,
    pub name: Symbol,
    pub default: Option<Expression>,
}

pub(super) struct Procedure {
    pub name: Symbol,
    pub outputs: Vec<Parameter>,
    pub inputs: Vec<Parameter>,
    pub body: Body,
    pub at: At,
}

pub(super) enum Body {
    Compound(Block),
    /// Each command is a line of the app.
    App(Vec<AppCommand>),
}

pub(super) struct AppCommand {
    pub program: Rc<str>,
    pub words: Vec<Expression>,
    pub stdin: Option<Expression>,
    pub stdout: Option<Expression>,
    pub stderr: Option<Expression>,
}

#[derive(Default)]
pub(super) struct Block {
    pub variables: Vec<Variable>,
    pub statements: Vec<Statement>,
}

pub(super) struct Variable {
    pub of: TypeName,
    pub name: Symbol,
    pub at: At,
    pub mapping: Option<Mapping>,
    pub is_global: bool,
}

pub(super) enum Mapping {
    /// `<"name">`
    File(Expression),
    /// `<mapper; parameter=value>`
    Mapper { name: Symbol, parameters: Vec<(Symbol, Expression)>, at: At },
}

pub(super) struct Statement {
    pub at: At,
    pub is: Does,
    /// Names that the statement, or one inside it, assigns. Names that are declared inside may be among them.
    pub assigns: Vec<Symbol>,
}

pub(super) enum Does {
    Assign(Expression, Expression),
    /// Outputs with the names of the procedure's own outputs, if they are given, and the call.
    AssignMany(Vec<(Expression, Option<Symbol>)>, Expression),
    Append(Expression, Expression),
    Call(Expression),
    If(Expression, Block, Block),
    Foreach {
        item: Symbol,
        index: Option<Symbol>,
        over: Expression,
        body: Block,
    },
    Iterate {
        round: Symbol,
        body: Block,
        until: Expression,
    },
    Switch(Expression, Vec<(Option<Expression>, Block)>),
}

pub(super) struct Expression {
    pub at: At,
    pub number: u32,
    /// The most expressions inside each other here.
    pub height: u32,
    pub is: Is,
}

impl Is {
    /// The height of the highest expression inside.
    pub fn height(&self) -> u32 {
        let highest = |all: &mut dyn Iterator<Item = &Expression>| all.map(|e| e.height).max().unwrap_or(0);
        match self {
            Is::Int(_) | Is::Float(_) | Is::Text(_) | Is::Bool(_) | Is::Name(_) => 0,
            Is::All(e) | Is::Member(e, _) | Is::Negate(e) | Is::Not(e) => e.height,
            Is::Index(a, b) | Is::Binary(_, a, b) => a.height.max(b.height),
            Is::Call(_, arguments) => highest(&mut arguments.iter().map(|(_, e)| e)),
            Is::List(items) => highest(&mut items.iter()),
            Is::Range(from, to, step) => {
                from.height.max(to.height).max(step.as_ref().map_or(0, |step| step.height))
            }
            Is::Pairs(pairs) => highest(&mut pairs.iter().flat_map(|(key, value)| [key, value])),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    DivideWhole,
    Remainder,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    And,
    Or,
}

pub(super) enum Is {
    Int(i64),
    Float(f64),
    Text(Rc<str>),
    Bool(bool),
    Name(Symbol),
    Index(Box<Expression>, Box<Expression>),
    /// `a[*]`
    All(Box<Expression>),
    Member(Box<Expression>, Symbol),
    Call(Symbol, Vec<(Option<Symbol>, Expression)>),
    Negate(Box<Expression>),
    Not(Box<Expression>),
    Binary(Operator, Box<Expression>, Box<Expression>),
    List(Vec<Expression>),
    Range(Box<Expression>, Box<Expression>, Option<Box<Expression>>),
    /// `{key: value}`
    Pairs(Vec<(Expression, Expression)>),
}
