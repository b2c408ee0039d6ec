//! What a script computes with: types, values, and the cells that hold them.
//!
//! A cell is a variable, an element of an array, or a member of a struct. It is assigned once.

use super::ast::{At, Symbol};
use crate::model::TaskNo;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::rc::Rc;

#[derive(Clone, Debug)]
pub(super) enum Type {
    Int,
    Float,
    Text,
    Bool,
    /// One file. All marker types are this type.
    File,
    /// Something that only orders tasks.
    External,
    Struct(Rc<StructType>),
    Array(Rc<(KeyType, Type)>),
}

#[derive(Debug)]
pub(super) struct StructType {
    pub name: Rc<str>,
    pub members: Vec<(Symbol, Rc<str>, Type)>,
    /// The most types inside each other.
    pub height: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyType {
    Int,
    Float,
    Text,
    Bool,
    /// Keys that `<<` makes.
    Auto,
}

impl KeyType {
    pub fn name(self) -> &'static str {
        match self {
            KeyType::Int => "int",
            KeyType::Float => "float",
            KeyType::Text => "string",
            KeyType::Bool => "boolean",
            KeyType::Auto => "auto",
        }
    }
}

impl PartialEq for Type {
    fn eq(&self, other: &Type) -> bool {
        match (self, other) {
            (Type::Struct(a), Type::Struct(b)) => a.name == b.name,
            (Type::Array(a), Type::Array(b)) => a.0 == b.0 && a.1 == b.1,
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        }
    }
}

impl Type {
    pub fn array(key: KeyType, item: Type) -> Type {
        Type::Array(Rc::new((key, item)))
    }
    /// The most types inside each other.
    pub fn height(&self) -> u32 {
        match self {
            Type::Struct(of) => of.height,
            Type::Array(of) => of.1.height() + 1,
            _ => 0,
        }
    }
    pub fn is_scalar(&self) -> bool {
        matches!(self, Type::Int | Type::Float | Type::Text | Type::Bool)
    }
    pub fn shown(&self) -> String {
        match self {
            Type::Int => "an int".into(),
            Type::Float => "a float".into(),
            Type::Text => "a string".into(),
            Type::Bool => "a boolean".into(),
            Type::File => "a file".into(),
            Type::External => "an external".into(),
            Type::Struct(of) => format!("a {}", of.name),
            Type::Array(of) => {
                let item = of.1.shown();
                let item = item.strip_prefix("an array of ").map_or(item.as_str(), |_| "arrays");
                let item = item.strip_prefix("an ").or(item.strip_prefix("a ")).unwrap_or(item);
                format!("an array of {item}{}", if item.ends_with('s') { "" } else { "s" })
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    Int(i64),
    Float(f64),
    Text(Rc<str>),
    Bool(bool),
}

impl Scalar {
    pub fn of(&self) -> Type {
        match self {
            Scalar::Int(_) => Type::Int,
            Scalar::Float(_) => Type::Float,
            Scalar::Text(_) => Type::Text,
            Scalar::Bool(_) => Type::Bool,
        }
    }
    pub fn text(&self) -> Rc<str> {
        match self {
            Scalar::Int(n) => n.to_string().into(),
            Scalar::Float(x) => x.to_string().into(),
            Scalar::Text(text) => text.clone(),
            Scalar::Bool(b) => b.to_string().into(),
        }
    }
    pub fn number(&self) -> Option<f64> {
        match self {
            Scalar::Int(n) => Some(*n as f64),
            Scalar::Float(x) => Some(*x),
            _ => None,
        }
    }
}

/// The key of an element; keys are in order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Key {
    Int(i64),
    /// The bits of the number.
    Float(u64),
    Text(Rc<str>),
    Bool(bool),
}

impl Key {
    pub fn scalar(&self) -> Scalar {
        match self {
            Key::Int(n) => Scalar::Int(*n),
            Key::Float(bits) => Scalar::Float(f64::from_bits(*bits)),
            Key::Text(text) => Scalar::Text(text.clone()),
            Key::Bool(b) => Scalar::Bool(*b),
        }
    }
    pub fn of(scalar: &Scalar) -> Key {
        match scalar {
            Scalar::Int(n) => Key::Int(*n),
            Scalar::Float(x) => Key::Float(x.to_bits()),
            Scalar::Text(text) => Key::Text(text.clone()),
            Scalar::Bool(b) => Key::Bool(*b),
        }
    }
}

/// A step from a cell to one inside it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Element(Key),
    Member(Rc<str>),
}

pub(super) type CellNo = u32;

/// What an expression stands for. A cell is a file, a struct, an array or an external.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Scalar(Scalar),
    Cell(CellNo),
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Writer {
    #[default]
    Nobody,
    /// The file is there before the run.
    Input,
    Task(TaskNo),
}

#[derive(Default)]
pub(super) struct Array {
    pub items: BTreeMap<Key, CellNo>,
    /// Keys in the order in which their elements came.
    pub order: Vec<Key>,
    pub next_auto: i64,
    /// Only a loop over the array could still add to it, and no element is left for that loop.
    pub is_at_rest: bool,
}

pub(super) enum State {
    Unset,
    Scalar(Scalar),
    /// The cell is another name of that cell.
    Same(CellNo),
    Array(Box<Array>),
    Struct(Rc<[CellNo]>),
    /// A file or an external.
    File {
        name: Option<Rc<str>>,
        writer: Writer,
    },
}

/// Which file belongs to which place in a variable.
pub(super) enum Mapper {
    /// One file.
    Single(Rc<str>),
    /// Names made of a prefix, the path and a suffix.
    Simple(Simple),
    /// Places with their files: those of `fixed_array_mapper`, `array_mapper`, `filesys_mapper`, `csv_mapper` and
    /// `ext`.
    Table { places: Vec<(Vec<Step>, Rc<str>)>, numbers: FxHashMap<String, usize> },
    /// The files of another variable, renamed.
    Renamed { source: CellNo, matches: Rc<str>, transform: Rc<str> },
}

pub(super) struct Simple {
    /// The folder, with a `/` at its end.
    pub folder: String,
    pub prefix: String,
    pub suffix: String,
    /// Of the glob that finds files that exist.
    pub pattern: String,
    pub padding: usize,
    pub separator: String,
}

/// How the files of a variable are called.
#[derive(Clone)]
pub(super) enum Names {
    /// eyas chooses.
    Free,
    /// The mapping was not evaluated yet.
    Later,
    By(Rc<Mapper>),
}

pub(super) struct Cell {
    pub of: Type,
    /// The cell that this one is inside of, and the step to here.
    pub inside: Option<(CellNo, Step)>,
    pub name: Symbol,
    pub at: At,
    pub state: State,
    pub names: Names,
    /// Statements that have not ended and may assign the variable or something in it.
    pub n_writers: u32,
    pub assigned: Option<At>,
}
