//! Types and procedures of a script, by their names.

use super::Engine;
use crate::error::{ErrorKind, Result, shown};
use crate::swift::ast::{Declared, Parameter, Procedure, Symbol, TypeName};
use crate::swift::values::{KeyType, StructType, Type};
use eyas_text::nearest;
use rustc_hash::{FxHashMap, FxHashSet};
use std::rc::Rc;

/// The most types inside each other.
const HEIGHT_MAX: u32 = 200;

impl<'a> Engine<'a> {
    pub(super) fn declare_types(&mut self) -> Result<()> {
        let all: FxHashMap<Symbol, usize> =
            self.program.types.iter().enumerate().map(|(n, declaration)| (declaration.name, n)).collect();
        let mut open = FxHashSet::default();
        for declaration in &self.program.types {
            self.declare_type(declaration.name, &all, &mut open)?;
        }
        Ok(())
    }

    fn declare_type(
        &mut self,
        name: Symbol,
        all: &FxHashMap<Symbol, usize>,
        open: &mut FxHashSet<Symbol>,
    ) -> Result<()> {
        let Some(number) = all.get(&name).filter(|_| !self.types.contains_key(&name)) else { return Ok(()) };
        let declaration = &self.program.types[*number];
        if open.len() > HEIGHT_MAX as usize {
            return Err(declaration.at.unsupported(format!("types are nested more than {HEIGHT_MAX} deep")));
        }
        if !open.insert(name) {
            let message = format!("the type {} contains itself", shown(&self.name(name)));
            return Err(declaration.at.broken(message));
        }
        let of = match &declaration.is {
            Declared::Marker => Type::File,
            Declared::Same(of) => {
                self.declare_type(of.base, all, open)?;
                self.type_of(of)?
            }
            Declared::Struct(written) => {
                let mut members: Vec<(Symbol, Rc<str>, Type)> = vec![];
                for (of, member) in written {
                    self.declare_type(of.base, all, open)?;
                    if members.iter().any(|(own, ..)| own == member) {
                        let message = format!(
                            "the type {} has two members called {}",
                            shown(&self.name(name)),
                            shown(&self.name(*member))
                        );
                        return Err(of.at.broken(message));
                    }
                    members.push((*member, self.name(*member), self.type_of(of)?));
                }
                let height = members.iter().map(|(_, _, of)| of.height()).max().unwrap_or(0) + 1;
                Type::Struct(Rc::new(StructType { name: self.name(name), members, height }))
            }
        };
        if of.height() > HEIGHT_MAX {
            return Err(declaration.at.unsupported(format!("types are nested more than {HEIGHT_MAX} deep")));
        }
        open.remove(&name);
        self.types.insert(name, of);
        Ok(())
    }

    pub(super) fn type_of(&self, written: &TypeName) -> Result<Type> {
        let base = match self.types.get(&written.base) {
            Some(of) => of.clone(),
            None => match &*self.name(written.base) {
                "int" => Type::Int,
                "float" => Type::Float,
                "string" => Type::Text,
                "boolean" => Type::Bool,
                "external" => Type::External,
                "file" => Type::File,
                other => {
                    let known = self.types.keys().map(|name| self.name(*name));
                    let known: Vec<Rc<str>> =
                        known.chain(["int", "float", "string", "boolean", "file"].map(Into::into)).collect();
                    let error = written.at.broken(format!("the type {} is not declared", shown(other)));
                    let near = nearest(other, &known.iter().map(|name| &**name).collect::<Vec<_>>());
                    return Err(error.hint(match near {
                        Some(near) => format!("is it `{near}`?"),
                        None => format!("`type {other};` declares a type of files"),
                    }));
                }
            },
        };
        written.keys.iter().rev().try_fold(base, |item, key| {
            let key = match key.map(|key| self.name(key)).as_deref() {
                None | Some("int") => KeyType::Int,
                Some("string") => KeyType::Text,
                Some("float") => KeyType::Float,
                Some("boolean") => KeyType::Bool,
                Some("auto") => KeyType::Auto,
                Some(other) => {
                    let message = format!("the keys of an array cannot be of the type {}", shown(other));
                    return Err(written
                        .at
                        .broken(message)
                        .hint("they are int, string, float, boolean or auto"));
                }
            };
            Ok(Type::array(key, item))
        })
    }

    pub(super) fn declare_procedures(&mut self) -> Result<()> {
        for procedure in &self.program.procedures {
            for parameter in procedure.outputs.iter().chain(&procedure.inputs) {
                self.type_of(&parameter.of)?;
            }
            let others = self.procedures.entry(procedure.name).or_default();
            let wanted = |p: &'a Procedure| -> Vec<&'a Parameter> {
                p.inputs.iter().filter(|parameter| parameter.default.is_none()).collect()
            };
            let same = others.iter().copied().find(|other| {
                let (a, b) = (wanted(other), wanted(procedure));
                a.len() == b.len()
                    && a.iter().zip(&b).all(|(a, b)| a.of.base == b.of.base && a.of.keys == b.of.keys)
            });
            others.push(procedure);
            if let Some(other) = same {
                let message = format!(
                    "{} is declared twice with the same inputs; the other is on line {}",
                    shown(&self.name(procedure.name)),
                    other.at.line
                );
                return Err(procedure.at.error(ErrorKind::Conflict, message));
            }
        }
        Ok(())
    }
}
