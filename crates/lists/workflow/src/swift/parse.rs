//! From tokens to a [`Program`], by recursive descent. The grammar is that of Swift/K 0.96.

use super::ast::{
    AppCommand, At, Block, Body, Declared, Does, Expression, FileNumber, Is, Mapping, Operator, Parameter,
    Procedure, Program, Statement, Symbol, TypeDeclaration, TypeName, Variable,
};
use super::lex::{Kind, Token, tokens};
use crate::error::{Error, ErrorKind, Result};
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// The deepest nesting of blocks and expressions.
const DEPTH_MAX: u32 = 100;
/// The most expressions inside each other; a chain of operators is nested, too.
const HEIGHT_MAX: u32 = 600;

/// A script and its imports, as they are read.
#[derive(Default)]
pub(super) struct ScriptReader {
    pub program: Program,
    symbols: FxHashMap<Rc<str>, Symbol>,
}

impl ScriptReader {
    pub fn symbol(&mut self, name: &str) -> Symbol {
        if let Some(symbol) = self.symbols.get(name) {
            return *symbol;
        }
        let (symbol, name): (Symbol, Rc<str>) = (self.program.names.len() as Symbol, name.into());
        self.symbols.insert(name.clone(), symbol);
        self.program.names.push(name);
        symbol
    }

    /// Adds what stands in `text`; gives the imports, each with its place.
    pub fn read(&mut self, text: &str, file: FileNumber) -> Result<Vec<(Rc<str>, At)>> {
        let tokens = tokens(text, file)?;
        let mut parser = Parser { tokens, next: 0, depth: 0, too_high: None, reader: self };
        let mut imports = vec![];
        let mut body = Block::default();
        while parser.peek().kind != Kind::End {
            if parser.is_word("import") {
                parser.take();
                let at = parser.peek().at;
                let Kind::Text(name) = parser.take().kind else {
                    return Err(at.broken("after `import` stands the name of a script in quotes"));
                };
                parser.expect(";")?;
                imports.push((name, at));
            } else {
                parser.top_level(&mut body)?;
            }
        }
        let all = &mut self.program.body;
        all.variables.append(&mut body.variables);
        all.statements.append(&mut body.statements);
        Ok(imports)
    }
}

struct Parser<'a> {
    tokens: Vec<Token>,
    next: usize,
    depth: u32,
    /// The place of an expression that is higher than [`HEIGHT_MAX`].
    too_high: Option<At>,
    reader: &'a mut ScriptReader,
}

/// Words that are no names of variables.
const RESERVED: [&str; 15] = [
    "app", "case", "default", "else", "false", "foreach", "global", "if", "import", "in", "iterate",
    "switch", "true", "type", "until",
];

impl Parser<'_> {
    fn peek(&self) -> &Token {
        self.ahead(0)
    }
    fn ahead(&self, n: usize) -> &Token {
        &self.tokens[(self.next + n).min(self.tokens.len() - 1)]
    }
    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }
    fn is_mark(&self, mark: &str) -> bool {
        matches!(self.peek().kind, Kind::Mark(m) if m == mark)
    }
    fn is_word(&self, word: &str) -> bool {
        matches!(&self.peek().kind, Kind::Word(w) if **w == *word)
    }
    fn is_name(&self, ahead: usize) -> bool {
        matches!(&self.ahead(ahead).kind, Kind::Word(w) if !RESERVED.contains(&&**w))
    }
    fn is_mark_ahead(&self, ahead: usize, mark: &str) -> bool {
        matches!(self.ahead(ahead).kind, Kind::Mark(m) if m == mark)
    }
    fn accept(&mut self, mark: &str) -> bool {
        let found = self.is_mark(mark);
        if found {
            self.take();
        }
        found
    }
    fn wanted(&self, what: &str) -> Error {
        let token = self.peek();
        let kind = if token.kind == Kind::End { ErrorKind::Truncated } else { ErrorKind::Broken };
        token.at.error(kind, format!("{} stands where {what} is expected", token.shown()))
    }
    fn expect(&mut self, mark: &'static str) -> Result<()> {
        match self.accept(mark) {
            true => Ok(()),
            false => Err(self.wanted(&format!("`{mark}`"))),
        }
    }
    fn name(&mut self, what: &str) -> Result<(Symbol, At)> {
        if !self.is_name(0) {
            return Err(self.wanted(what));
        }
        let token = self.take();
        let Kind::Word(word) = &token.kind else { unreachable!("it was a word") };
        Ok((self.reader.symbol(word), token.at))
    }

    /// Goes one level deeper for `f`.
    fn nested<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == DEPTH_MAX {
            let message = format!("blocks and expressions are nested more than {DEPTH_MAX} deep");
            return Err(self.peek().at.unsupported(message));
        }
        self.depth += 1;
        let result = f(self);
        self.depth -= 1;
        result
    }

    // ------------------------------------------------------------ declarations

    fn top_level(&mut self, body: &mut Block) -> Result<()> {
        if self.is_word("type") {
            return self.type_declaration();
        }
        if self.is_word("app") {
            let at = self.take().at;
            let outputs = if self.is_mark("(") { self.parameters("an output")? } else { vec![] };
            let (name, _) = self.name("the name of the app")?;
            let inputs = self.parameters("an input")?;
            self.expect("{")?;
            let commands = self.app_commands()?;
            let body = Body::App(commands);
            self.reader.program.procedures.push(Procedure { name, outputs, inputs, body, at });
            return Ok(());
        }
        if self.is_procedure() {
            return self.procedure();
        }
        self.statement(body)
    }

    /// Whether a procedure is declared here. A call without outputs looks the same up to its `{`, and several
    /// outputs of a call look the same up to the `)`.
    fn is_procedure(&self) -> bool {
        let closing = |mut ahead: usize| {
            let mut depth = 0u32;
            loop {
                match self.ahead(ahead).kind {
                    Kind::Mark("(") => depth += 1,
                    Kind::Mark(")") => depth -= 1,
                    Kind::End => return None,
                    _ => {}
                }
                if depth == 0 {
                    return Some(ahead);
                }
                ahead += 1;
            }
        };
        if self.is_mark("(") {
            return closing(0).is_some_and(|end| self.is_name(end + 1) && self.is_mark_ahead(end + 2, "("));
        }
        self.is_name(0)
            && self.is_mark_ahead(1, "(")
            && closing(1).is_some_and(|end| self.is_mark_ahead(end + 1, "{"))
    }

    fn procedure(&mut self) -> Result<()> {
        let at = self.peek().at;
        let outputs = if self.is_mark("(") { self.parameters("an output")? } else { vec![] };
        let (name, _) = self.name("the name of the procedure")?;
        let inputs = self.parameters("an input")?;
        let body = match self.is_mark_ahead(0, "{")
            && matches!(&self.ahead(1).kind, Kind::Word(w) if **w == *"app")
        {
            true => {
                // The older form: `(file o) p() { app { echo stdout=@o; } }`.
                self.expect("{")?;
                self.take();
                self.expect("{")?;
                let commands = self.app_commands()?;
                self.expect("}")?;
                Body::App(commands)
            }
            false => Body::Compound(self.block()?),
        };
        self.reader.program.procedures.push(Procedure { name, outputs, inputs, body, at });
        Ok(())
    }

    fn parameters(&mut self, what: &str) -> Result<Vec<Parameter>> {
        self.expect("(")?;
        let mut parameters: Vec<Parameter> = vec![];
        while !self.accept(")") {
            if !parameters.is_empty() {
                self.expect(",")?;
            }
            let mut of = self.type_name(&format!("the type of {what}"))?;
            let (name, _) = self.name(&format!("the name of {what}"))?;
            self.keys(&mut of)?;
            let default = if self.accept("=") { Some(self.expression()?) } else { None };
            parameters.push(Parameter { of, name, default });
        }
        Ok(parameters)
    }

    fn type_name(&mut self, what: &str) -> Result<TypeName> {
        let (base, at) = self.name(what)?;
        let mut of = TypeName { base, keys: vec![], at };
        self.keys(&mut of)?;
        Ok(of)
    }

    fn keys(&mut self, of: &mut TypeName) -> Result<()> {
        while self.accept("[") {
            let key = match self.is_mark("]") {
                true => None,
                false => Some(self.name("the type of the array's keys")?.0),
            };
            self.expect("]")?;
            of.keys.push(key);
        }
        match of.keys.len() > DEPTH_MAX as usize {
            true => Err(of.at.unsupported(format!("arrays are nested more than {DEPTH_MAX} deep"))),
            false => Ok(()),
        }
    }

    fn type_declaration(&mut self) -> Result<()> {
        let at = self.take().at;
        let (name, _) = self.name("the name of the type")?;
        let is = if self.accept(";") {
            Declared::Marker
        } else if self.accept("{") {
            let mut members = vec![];
            while !self.accept("}") {
                let of = self.type_name("the type of a member")?;
                loop {
                    let mut of = of.clone();
                    let (member, _) = self.name("the name of a member")?;
                    self.keys(&mut of)?;
                    members.push((of, member));
                    if !self.accept(",") {
                        break;
                    }
                }
                self.expect(";")?;
            }
            self.accept(";");
            if members.is_empty() { Declared::Marker } else { Declared::Struct(members) }
        } else {
            let of = self.type_name("`;`, `{` or a type")?;
            self.expect(";")?;
            Declared::Same(of)
        };
        self.reader.program.types.push(TypeDeclaration { name, is, at });
        Ok(())
    }

    // ------------------------------------------------------------ apps

    /// The commands up to the `}`.
    fn app_commands(&mut self) -> Result<Vec<AppCommand>> {
        let mut commands = vec![];
        while !self.accept("}") {
            if self.is_word("profile") {
                let message = "`profile` in an app sets something of a site, and eyas has no sites";
                return Err(self.peek().at.unsupported(message).hint("remove the line"));
            }
            let program = match self.take() {
                Token { kind: Kind::Word(word), .. } => word,
                Token { kind: Kind::Text(text), .. } => text,
                token => {
                    return Err(token.at.broken(format!(
                        "{} stands where the program of the app is expected",
                        token.shown()
                    )));
                }
            };
            let mut command = AppCommand { program, words: vec![], stdin: None, stdout: None, stderr: None };
            while !self.accept(";") {
                let at = self.peek().at;
                let stream = ["stdin", "stdout", "stderr"].into_iter().find(|word| self.is_word(word));
                let Some(stream) = stream.filter(|_| self.is_mark_ahead(1, "=")) else {
                    let word = self.app_word()?;
                    command.words.push(word);
                    continue;
                };
                self.take();
                self.take();
                let to = Some(self.expression()?);
                let before = match stream {
                    "stdin" => std::mem::replace(&mut command.stdin, to),
                    "stdout" => std::mem::replace(&mut command.stdout, to),
                    _ => std::mem::replace(&mut command.stderr, to),
                };
                if before.is_some() {
                    return Err(at.broken(format!("`{stream}` is set twice for one command")));
                }
            }
            commands.push(command);
        }
        Ok(commands)
    }

    /// One argument. Blanks separate arguments, so `a [0]` are two and `a[0]` is one.
    fn app_word(&mut self) -> Result<Expression> {
        match self.peek().kind {
            Kind::Mark("@") => self.function(true),
            Kind::Mark("(") => {
                self.take();
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            Kind::Word(_) if self.is_name(0) => match self.is_mark_ahead(1, "(") && self.ahead(1).is_glued {
                true => self.call(),
                false => self.place(true),
            },
            Kind::Mark("-") => {
                let at = self.take().at;
                let inner = self.constant()?;
                Ok(self.made(at, Is::Negate(Box::new(inner))))
            }
            _ => self.constant(),
        }
    }

    // ------------------------------------------------------------ statements

    fn block(&mut self) -> Result<Block> {
        self.nested(|p| {
            p.expect("{")?;
            let mut block = Block::default();
            while !p.accept("}") {
                p.statement(&mut block)?;
            }
            Ok(block)
        })
    }

    fn statement(&mut self, block: &mut Block) -> Result<()> {
        let at = self.peek().at;
        let word = match &self.peek().kind {
            Kind::Word(word) => word.clone(),
            _ => "".into(),
        };
        match &*word {
            "if" => return self.if_statement(block),
            "foreach" => {
                self.take();
                let (item, _) = self.name("the name for an element")?;
                let index = match self.accept(",") {
                    true => Some(self.name("the name for an index")?.0),
                    false => None,
                };
                if !self.is_word("in") {
                    return Err(self.wanted("`in`"));
                }
                self.take();
                let over = self.expression()?;
                let body = self.block()?;
                let assigns = assigned(&body);
                self.push(block, at, Does::Foreach { item, index, over, body }, assigns);
                return Ok(());
            }
            "iterate" => {
                self.take();
                let (round, _) = self.name("the name for the number of the round")?;
                let body = self.block()?;
                if !self.is_word("until") {
                    return Err(self.wanted("`until`"));
                }
                self.take();
                self.expect("(")?;
                let until = self.expression()?;
                self.expect(")")?;
                self.expect(";")?;
                let assigns = assigned(&body);
                self.push(block, at, Does::Iterate { round, body, until }, assigns);
                return Ok(());
            }
            "switch" => return self.switch(block),
            "type" | "import" | "app" => {
                return Err(at.broken(format!("`{word}` stands only at the outermost level of a script")));
            }
            _ => {}
        }
        if self.is_variable() {
            return self.variables(block);
        }
        if self.is_mark("(") {
            return self.assign_many(block);
        }
        if self.is_name(0) && self.is_mark_ahead(1, "(") {
            let call = self.call()?;
            self.expect(";")?;
            self.push(block, at, Does::Call(call), vec![]);
            return Ok(());
        }
        if self.is_mark("@") {
            let call = self.function(false)?;
            self.expect(";")?;
            self.push(block, at, Does::Call(call), vec![]);
            return Ok(());
        }
        if !self.is_name(0) {
            return Err(self.wanted("a statement"));
        }
        let place = self.place(false)?;
        let assigns = vec![root_of(&place)];
        if self.accept("<<") {
            let value = self.expression()?;
            self.expect(";")?;
            self.push(block, at, Does::Append(place, value), assigns);
            return Ok(());
        }
        if !self.accept("=") {
            return Err(self.wanted("`=`, `<<` or `(`"));
        }
        let value = self.expression()?;
        self.expect(";")?;
        self.push(block, at, Does::Assign(place, value), assigns);
        Ok(())
    }

    fn push(&mut self, block: &mut Block, at: At, is: Does, mut assigns: Vec<Symbol>) {
        assigns.sort_unstable();
        assigns.dedup();
        block.statements.push(Statement { at, is, assigns });
    }

    fn if_statement(&mut self, block: &mut Block) -> Result<()> {
        self.nested(|p| {
            let at = p.take().at;
            p.expect("(")?;
            let condition = p.expression()?;
            p.expect(")")?;
            let then = p.block()?;
            let mut otherwise = Block::default();
            if p.is_word("else") {
                p.take();
                match p.is_word("if") {
                    true => p.if_statement(&mut otherwise)?,
                    false => otherwise = p.block()?,
                }
            }
            let assigns = [assigned(&then), assigned(&otherwise)].concat();
            p.push(block, at, Does::If(condition, then, otherwise), assigns);
            Ok(())
        })
    }

    fn switch(&mut self, block: &mut Block) -> Result<()> {
        let at = self.take().at;
        self.expect("(")?;
        let on = self.expression()?;
        self.expect(")")?;
        self.expect("{")?;
        let mut cases = vec![];
        let mut assigns = vec![];
        while !self.accept("}") {
            let value = if self.is_word("case") {
                self.take();
                Some(self.expression()?)
            } else if self.is_word("default") {
                self.take();
                None
            } else {
                return Err(self.wanted("`case`, `default` or `}`"));
            };
            self.expect(":")?;
            let mut body = Block::default();
            self.nested(|p| {
                while !p.is_mark("}") && !p.is_word("case") && !p.is_word("default") {
                    p.statement(&mut body)?;
                }
                Ok(())
            })?;
            assigns.extend(assigned(&body));
            cases.push((value, body));
        }
        self.push(block, at, Does::Switch(on, cases), assigns);
        Ok(())
    }

    /// Whether variables are declared here: two names, with brackets between them at most.
    fn is_variable(&self) -> bool {
        if self.is_word("global") {
            return true;
        }
        if !self.is_name(0) {
            return false;
        }
        let mut ahead = 1;
        while self.is_mark_ahead(ahead, "[") {
            if self.is_name(ahead + 1) && self.is_mark_ahead(ahead + 2, "]") {
                ahead += 3;
            } else if self.is_mark_ahead(ahead + 1, "]") {
                ahead += 2;
            } else {
                return false;
            }
        }
        self.is_name(ahead)
    }

    fn variables(&mut self, block: &mut Block) -> Result<()> {
        let is_global = self.is_word("global");
        if is_global {
            self.take();
        }
        let all = self.type_name("the type of a variable")?;
        loop {
            let mut of = all.clone();
            let (name, at) = self.name("the name of a variable")?;
            self.keys(&mut of)?;
            let mapping = match self.accept("<") {
                true => Some(self.mapping()?),
                false => None,
            };
            block.variables.push(Variable { of, name, at, mapping, is_global });
            if self.accept("=") {
                let value = self.expression()?;
                let place = self.made(at, Is::Name(name));
                self.push(block, at, Does::Assign(place, value), vec![name]);
            }
            if !self.accept(",") {
                break;
            }
        }
        self.expect(";")
    }

    fn mapping(&mut self) -> Result<Mapping> {
        if !(self.is_name(0) && self.is_mark_ahead(1, ";")) {
            // `>` ends the mapping and compares nothing.
            let file = self.sum()?;
            self.expect(">")?;
            return Ok(Mapping::File(file));
        }
        let (name, at) = self.name("a mapper")?;
        self.expect(";")?;
        let mut parameters = vec![];
        while !self.accept(">") {
            if !parameters.is_empty() {
                self.expect(",")?;
            }
            let (parameter, _) = self.name("a parameter of the mapper")?;
            self.expect("=")?;
            parameters.push((parameter, self.sum()?));
        }
        Ok(Mapping::Mapper { name, parameters, at })
    }

    fn assign_many(&mut self, block: &mut Block) -> Result<()> {
        let at = self.peek().at;
        self.expect("(")?;
        let (mut outputs, mut assigns): (Vec<(Expression, Option<Symbol>)>, Vec<Symbol>) = (vec![], vec![]);
        while !self.accept(")") {
            if !outputs.is_empty() {
                self.expect(",")?;
            }
            let place = match self.is_variable() {
                true => {
                    let mut of = self.type_name("the type of a variable")?;
                    let (name, at) = self.name("the name of a variable")?;
                    self.keys(&mut of)?;
                    block.variables.push(Variable { of, name, at, mapping: None, is_global: false });
                    self.made(at, Is::Name(name))
                }
                false => self.place(false)?,
            };
            let own = match self.accept("=") {
                true => Some(self.name("the name of an output")?.0),
                false => None,
            };
            assigns.push(root_of(&place));
            outputs.push((place, own));
        }
        self.expect("=")?;
        let call = match self.is_mark("@") {
            true => self.function(false)?,
            false => self.call()?,
        };
        self.expect(";")?;
        self.push(block, at, Does::AssignMany(outputs, call), assigns);
        Ok(())
    }

    // ------------------------------------------------------------ expressions

    fn made(&mut self, at: At, is: Is) -> Expression {
        let number = self.reader.program.n_expressions;
        self.reader.program.n_expressions += 1;
        let height = is.height() + 1;
        if height > HEIGHT_MAX {
            self.too_high.get_or_insert(at);
        }
        Expression { at, number, height, is }
    }

    fn expression(&mut self) -> Result<Expression> {
        self.nested(|p| p.binary(0))
    }

    /// An expression without comparisons.
    fn sum(&mut self) -> Result<Expression> {
        self.nested(|p| p.binary(SUMS))
    }

    fn binary(&mut self, level: usize) -> Result<Expression> {
        let Some(operators) = OPERATORS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while let Some((_, operator)) = operators.iter().find(|(mark, _)| self.is_mark(mark)) {
            let at = self.take().at;
            if let Some(at) = self.too_high {
                let message = format!("expressions are nested more than {HEIGHT_MAX} deep");
                return Err(at.unsupported(message));
            }
            let right = self.binary(level + 1)?;
            left = self.made(at, Is::Binary(*operator, Box::new(left), Box::new(right)));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expression> {
        let at = self.peek().at;
        if self.accept("-") {
            let inner = self.nested(Self::unary)?;
            return Ok(self.made(at, Is::Negate(Box::new(inner))));
        }
        if self.accept("+") {
            return self.nested(Self::unary);
        }
        if self.accept("!") {
            let inner = self.nested(Self::unary)?;
            return Ok(self.made(at, Is::Not(Box::new(inner))));
        }
        match &self.peek().kind {
            Kind::Mark("(") => {
                self.take();
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            Kind::Mark("@") => self.function(false),
            Kind::Word(_) if self.is_name(0) => match self.is_mark_ahead(1, "(") {
                true => self.call(),
                false => self.place(false),
            },
            _ => self.constant(),
        }
    }

    /// `@name(…)` or `@variable`, which is the name of its file.
    fn function(&mut self, is_in_app: bool) -> Result<Expression> {
        let at = self.peek().at;
        self.expect("@")?;
        if self.is_name(0) && self.is_mark_ahead(1, "(") && (!is_in_app || self.ahead(1).is_glued) {
            return self.call();
        }
        let place = match self.accept("(") {
            true => {
                let place = self.place(false)?;
                self.expect(")")?;
                place
            }
            false => self.place(is_in_app)?,
        };
        let filename = self.reader.symbol("filename");
        Ok(self.made(at, Is::Call(filename, vec![(None, place)])))
    }

    fn call(&mut self) -> Result<Expression> {
        let (name, at) = self.name("the name of a function")?;
        self.expect("(")?;
        let mut arguments = vec![];
        while !self.accept(")") {
            if !arguments.is_empty() {
                self.expect(",")?;
            }
            let own = match self.is_name(0) && self.is_mark_ahead(1, "=") {
                true => {
                    let (own, _) = self.name("the name of an argument")?;
                    self.take();
                    Some(own)
                }
                false => None,
            };
            arguments.push((own, self.expression()?));
        }
        Ok(self.made(at, Is::Call(name, arguments)))
    }

    /// A variable, an element or a member. With `is_glued`, a blank ends it.
    fn place(&mut self, is_glued: bool) -> Result<Expression> {
        let (name, at) = self.name("a variable")?;
        let mut place = self.made(at, Is::Name(name));
        for n in 0.. {
            let at = self.peek().at;
            if is_glued && !self.peek().is_glued {
                break;
            }
            if n > DEPTH_MAX {
                return Err(at.unsupported(format!("more than {DEPTH_MAX} brackets and dots in a row")));
            }
            if self.accept("[") {
                let is = match self.is_mark("*") && self.is_mark_ahead(1, "]") {
                    true => {
                        self.take();
                        Is::All(Box::new(place))
                    }
                    false => Is::Index(Box::new(place), Box::new(self.expression()?)),
                };
                self.expect("]")?;
                place = self.made(at, is);
            } else if self.accept(".") {
                let is = match self.accept("*") {
                    true => Is::All(Box::new(place)),
                    false => Is::Member(Box::new(place), self.name("the name of a member")?.0),
                };
                place = self.made(at, is);
            } else {
                break;
            }
        }
        Ok(place)
    }

    fn constant(&mut self) -> Result<Expression> {
        let at = self.peek().at;
        let is = match self.peek().kind.clone() {
            Kind::Int(n) => Is::Int(n),
            Kind::Float(x) => Is::Float(x),
            Kind::Text(text) => Is::Text(text),
            Kind::Word(word) if *word == *"true" => Is::Bool(true),
            Kind::Word(word) if *word == *"false" => Is::Bool(false),
            Kind::Mark("[") => return self.list(),
            Kind::Mark("{") => return self.pairs(),
            _ => return Err(self.wanted("a value")),
        };
        self.take();
        Ok(self.made(at, is))
    }

    fn list(&mut self) -> Result<Expression> {
        let at = self.take().at;
        let mut items = vec![];
        while !self.accept("]") {
            if !items.is_empty() {
                self.expect(",")?;
                if self.accept("]") {
                    break;
                }
            }
            let item = self.expression()?;
            if items.is_empty() && self.accept(":") {
                let to = self.expression()?;
                let step = if self.accept(":") { Some(Box::new(self.expression()?)) } else { None };
                self.expect("]")?;
                return Ok(self.made(at, Is::Range(Box::new(item), Box::new(to), step)));
            }
            items.push(item);
        }
        Ok(self.made(at, Is::List(items)))
    }

    fn pairs(&mut self) -> Result<Expression> {
        let at = self.take().at;
        let mut pairs = vec![];
        while !self.accept("}") {
            if !pairs.is_empty() {
                self.expect(",")?;
            }
            let key = self.expression()?;
            self.expect(":")?;
            pairs.push((key, self.expression()?));
        }
        Ok(self.made(at, Is::Pairs(pairs)))
    }
}

type Level = &'static [(&'static str, Operator)];

/// From the operators that bind least to those that bind most.
const OPERATORS: [Level; 6] = [
    &[("||", Operator::Or)],
    &[("&&", Operator::And)],
    &[("==", Operator::Equal), ("!=", Operator::NotEqual)],
    &[
        ("<=", Operator::LessOrEqual),
        (">=", Operator::GreaterOrEqual),
        ("<", Operator::Less),
        (">", Operator::Greater),
    ],
    &[("+", Operator::Add), ("-", Operator::Subtract)],
    &[
        ("*", Operator::Multiply),
        ("%/", Operator::DivideWhole),
        ("%%", Operator::Remainder),
        ("/", Operator::Divide),
    ],
];
/// The first level without comparisons.
const SUMS: usize = 4;

/// The variable that a place is in.
fn root_of(place: &Expression) -> Symbol {
    match &place.is {
        Is::Index(inner, _) | Is::Member(inner, _) | Is::All(inner) => root_of(inner),
        Is::Name(name) => *name,
        _ => unreachable!("a place begins with a name"),
    }
}

fn assigned(block: &Block) -> Vec<Symbol> {
    block.statements.iter().flat_map(|statement| statement.assigns.iter().copied()).collect()
}
