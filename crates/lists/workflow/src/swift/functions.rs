//! Functions that every script has, with or without `@` before their names; upper and lower case are the same.

use super::ast::At;
use super::engine::{Context, Engine, Stop};
use super::mappers::path_of;
use super::values::{CellNo, Key, KeyType, Scalar, State, Step, Type, Value, Writer};
use crate::error::{Error, ErrorKind, Result, shown};
use std::rc::Rc;

/// All names, as scripts usually write them.
pub(super) const NAMES: [&str; 51] = [
    "abs",
    "arg",
    "args",
    "assert",
    "assertEqual",
    "ceil",
    "dirname",
    "exists",
    "exp",
    "extractFloat",
    "extractInt",
    "filename",
    "filenames",
    "floor",
    "format",
    "fprintf",
    "getEnv",
    "indexOf",
    "isDefined",
    "java",
    "join",
    "length",
    "log",
    "log10",
    "max",
    "min",
    "pad",
    "pow",
    "printf",
    "range",
    "readData",
    "readData2",
    "readStructured",
    "regexp",
    "round",
    "size",
    "split",
    "sprintf",
    "sqrt",
    "strcat",
    "strcut",
    "strjoin",
    "strsplit",
    "strstr",
    "substring",
    "toFloat",
    "toInt",
    "toLower",
    "toString",
    "toUpper",
    "trace",
];
/// Further names.
const MORE: [&str; 12] = [
    "tracef",
    "print",
    "writedata",
    "tolowercase",
    "touppercase",
    "trim",
    "replaceall",
    "matches",
    "parseint",
    "parsefloat",
    "sin",
    "cos",
];

pub(super) fn is_function(name: &str) -> bool {
    NAMES.iter().chain(&MORE).any(|own| own.eq_ignore_ascii_case(name))
}

type Arguments<'v> = &'v [(Value, At)];

impl<'a> Engine<'a> {
    /// Calls the function `name`, which is in lower case. `None`: it gives nothing.
    pub(super) fn builtin(
        &mut self,
        name: &str,
        given: Arguments<'_>,
        want: Option<&Type>,
        at: At,
        cx: &mut Context<'a>,
    ) -> std::result::Result<Option<Value>, Stop> {
        let call = Call { name, given, at };
        let text = |text: Rc<str>| Ok(Some(Value::Scalar(Scalar::Text(text))));
        let int = |n: i64| Ok(Some(Value::Scalar(Scalar::Int(n))));
        let float = |x: f64| Ok(Some(Value::Scalar(Scalar::Float(x))));
        // Files are only named by these; everything else needs what is in its arguments.
        if !matches!(name, "filename" | "filenames" | "dirname" | "readdata" | "readdata2" | "readstructured")
        {
            for (value, _) in given {
                if let Value::Cell(cell) = value {
                    self.settled(*cell)?;
                }
            }
        }
        match name {
            "arg" => {
                let wanted = call.text(0)?;
                match self.given.values.iter().rev().find(|(own, _)| *own == *wanted) {
                    Some((_, value)) => text(value.as_str().into()),
                    None if given.len() > 1 => {
                        let otherwise = call.scalar(1)?.text();
                        text(otherwise)
                    }
                    None => {
                        let message =
                            format!("the script wants the argument {}, which is not given", shown(&wanted));
                        let hint = format!("give it behind the script: -- -{wanted}=VALUE");
                        Err(at.error(ErrorKind::Missing, message).hint(hint).into())
                    }
                }
            }
            "args" => {
                let all = self.given.values.iter().map(|(name, value)| format!("-{name}={value}"));
                let all = all.collect::<Vec<_>>().join(" ");
                text(all.into())
            }
            "getenv" => {
                let message =
                    "a script that reads variables of the environment means something else on each machine";
                Err(at.unsupported(message).hint("use `arg`, and give the value behind `--`").into())
            }
            "java" => match (&*call.text(0)?, &*call.text(1)?, given.len()) {
                ("java.lang.System", "getProperty", 3) if *call.text(2)? == *"user.dir" => {
                    let folder = self.folder.and_then(|folder| std::path::absolute(folder).ok());
                    match folder {
                        Some(folder) => text(folder.display().to_string().into()),
                        None => Err(at.unsupported("the script has no folder").into()),
                    }
                }
                (class, method, _) => {
                    let message = format!(
                        "`java` would call {}, and eyas has no Java",
                        shown(&format!("{class}.{method}"))
                    );
                    Err(at
                        .unsupported(message)
                        .hint("only java.lang.System.getProperty(\"user.dir\") is known")
                        .into())
                }
            },
            "filename" | "filenames" | "dirname" => {
                let Value::Cell(cell) = call.value(0)? else {
                    let message =
                        format!("`{name}` takes a file, and this is {}", self.shown_type(call.value(0)?));
                    return Err(at.broken(message).into());
                };
                self.settled_here(*cell, cx)?;
                let mut names = vec![];
                for leaf in self.leaves(*cell) {
                    if matches!(self.cells[leaf as usize].of, Type::File) {
                        names.push(self.file_name_here(leaf, cx)?);
                    }
                }
                match name {
                    "filename" => {
                        let joined = names.join(" ");
                        text(joined.into())
                    }
                    "filenames" => Ok(Some(self.text_array(names, at)?)),
                    _ => {
                        let first = names.first().cloned().unwrap_or_default();
                        let folder = first.rsplit_once('/').map_or(".", |(folder, _)| folder);
                        text(if folder.is_empty() { "/".into() } else { folder.into() })
                    }
                }
            }
            "exists" => {
                let file = match call.value(0)? {
                    Value::Scalar(scalar) => scalar.text(),
                    Value::Cell(cell) => self.known_file(*cell, at)?,
                };
                let is_there = self.folder.is_some_and(|folder| folder.join(&*file).exists());
                Ok(Some(Value::Scalar(Scalar::Bool(is_there))))
            }
            "readdata" | "readdata2" | "readstructured" => {
                let file = match call.value(0)? {
                    Value::Scalar(scalar) => scalar.text(),
                    Value::Cell(cell) => self.known_file(*cell, at)?,
                };
                let Some(of) = want else {
                    return Err(at
                        .broken(format!("the type of what `{name}` reads is not known here"))
                        .hint("assign it to a variable")
                        .into());
                };
                let content = self.read_file(&file, at)?;
                Ok(Some(self.filled(&of.clone(), &content, name != "readdata", &file, at)?))
            }
            "extractint" | "extractfloat" => {
                let file = match call.value(0)? {
                    Value::Scalar(scalar) => scalar.text(),
                    Value::Cell(cell) => self.known_file(*cell, at)?,
                };
                let content = self.read_file(&file, at)?;
                let of = if name == "extractint" { Type::Int } else { Type::Float };
                Ok(Some(Value::Scalar(parsed(content.trim(), &of, &file, at)?)))
            }
            "strcat" => {
                let mut texts = vec![];
                for n in 0..given.len() {
                    texts.push(self.any_text(call.value(n)?)?);
                }
                let joined = self.joined(&texts, at)?;
                text(joined)
            }
            "strcut" => {
                let (input, pattern) = (call.text(0)?, call.text(1)?);
                match self.regexes.groups(&input, &pattern, at)? {
                    Some(groups) => text(groups.group(1).into()),
                    None => {
                        let message =
                            format!("the pattern {} does not match {}", shown(&pattern), shown(&input));
                        Err(at.broken(message).into())
                    }
                }
            }
            "regexp" => {
                let (input, pattern, with) = (call.text(0)?, call.text(1)?, call.text(2)?);
                let replaced = match self.regexes.groups(&input, &pattern, at)? {
                    Some(groups) => groups.replaced(&with),
                    None => input.to_string(),
                };
                let replaced = self.joined(&[replaced.into()], at)?;
                text(replaced)
            }
            "replaceall" => {
                let (input, pattern, with) = (call.text(0)?, call.text(1)?, call.text(2)?);
                let parts = self.regexes.split(&input, &pattern, at)?;
                let joined = self.joined(&[parts.join(&*with).into()], at)?;
                text(joined)
            }
            "matches" => {
                let (input, pattern) = (call.text(0)?, call.text(1)?);
                let whole = self.regexes.groups(&input, &format!("^(?:{pattern})$"), at)?.is_some();
                Ok(Some(Value::Scalar(Scalar::Bool(whole))))
            }
            "strsplit" | "split" => {
                let (input, pattern) = (call.text(0)?, call.text(1)?);
                let mut parts = self.regexes.split(&input, &pattern, at)?;
                while parts.len() > 1 && parts.last().is_some_and(String::is_empty) {
                    parts.pop();
                }
                Ok(Some(self.text_array(parts.into_iter().map(Into::into).collect(), at)?))
            }
            "strjoin" | "join" => {
                let Value::Cell(array) = call.value(0)? else {
                    return Err(at.broken(format!("`{name}` joins an array")).into());
                };
                let between = if given.len() > 1 { call.text(1)? } else { "".into() };
                let texts = self.texts(*array, at)?;
                let joined = self.joined(&[texts.join(&*between).into()], at)?;
                text(joined)
            }
            "strstr" | "indexof" => {
                let (input, wanted) = (call.text(0)?, call.text(1)?);
                int(input.find(&*wanted).map_or(-1, |at| input[..at].chars().count() as i64))
            }
            "substring" => {
                let (input, from) = (call.text(0)?, call.int(1)?);
                let to = if given.len() > 2 { call.int(2)? } else { i64::MAX };
                let wanted = input.chars().enumerate().filter(|(n, _)| (from..to).contains(&(*n as i64)));
                let part: String = wanted.map(|(_, c)| c).collect();
                text(part.into())
            }
            "tolower" | "tolowercase" => text(call.text(0)?.to_lowercase().into()),
            "toupper" | "touppercase" => text(call.text(0)?.to_uppercase().into()),
            "trim" => text(call.text(0)?.trim().into()),
            "toint" | "parseint" => match call.scalar(0)? {
                Scalar::Int(n) => int(n),
                Scalar::Float(x) => int(x as i64),
                scalar => {
                    let text = scalar.text();
                    text.trim().parse().map_or_else(
                        |_| Err(at.broken(format!("{} is no whole number", shown(&text))).into()),
                        int,
                    )
                }
            },
            "tofloat" | "parsefloat" => match call.scalar(0)? {
                Scalar::Int(n) => float(n as f64),
                Scalar::Float(x) => float(x),
                scalar => {
                    let text = scalar.text();
                    text.trim().parse().map_or_else(
                        |_| Err(at.broken(format!("{} is no number", shown(&text))).into()),
                        float,
                    )
                }
            },
            "tostring" => {
                let shown = self.any_text(call.value(0)?)?;
                text(shown)
            }
            "pad" => {
                let (width, number) = (call.int(0)?, call.int(1)?);
                text(format!("{number:0>width$}", width = width.clamp(0, 1000) as usize).into())
            }
            "length" | "size" => match call.value(0)? {
                Value::Scalar(Scalar::Text(text)) => int(text.chars().count() as i64),
                Value::Cell(cell) => {
                    let cell = self.resolved(*cell);
                    match &self.cells[cell as usize].state {
                        State::Array(array) => int(array.items.len() as i64),
                        _ => Err(at.broken(format!("`{name}` is for arrays")).into()),
                    }
                }
                _ => Err(at.broken(format!("`{name}` is for arrays")).into()),
            },
            "isdefined" => Ok(Some(Value::Scalar(Scalar::Bool(true)))),
            "range" => Err(at.unsupported("`range` is not known").hint("write `[FROM:TO:STEP]`").into()),
            "abs" => match call.scalar(0)? {
                Scalar::Int(n) => int(n.saturating_abs()),
                _ => float(call.number(0)?.abs()),
            },
            "min" | "max" => match (call.scalar(0)?, call.scalar(1)?) {
                (Scalar::Int(a), Scalar::Int(b)) => int(if name == "min" { a.min(b) } else { a.max(b) }),
                _ => {
                    let (a, b) = (call.number(0)?, call.number(1)?);
                    float(if name == "min" { a.min(b) } else { a.max(b) })
                }
            },
            "floor" => int(call.number(0)?.floor() as i64),
            "ceil" => int(call.number(0)?.ceil() as i64),
            "round" => int(call.number(0)?.round() as i64),
            "sqrt" => float(call.number(0)?.sqrt()),
            "exp" => float(call.number(0)?.exp()),
            "log" => float(call.number(0)?.ln()),
            "log10" => float(call.number(0)?.log10()),
            "sin" => float(call.number(0)?.sin()),
            "cos" => float(call.number(0)?.cos()),
            "pow" => float(call.number(0)?.powf(call.number(1)?)),
            "assert" => match call.scalar(0)? {
                Scalar::Bool(true) => Ok(None),
                _ => {
                    let why = if given.len() > 1 { call.text(1)? } else { "it is not true".into() };
                    Err(at.broken(format!("the script's assertion fails: {}", shown(&why))).into())
                }
            },
            "assertequal" => {
                let (a, b) = (call.scalar(0)?, call.scalar(1)?);
                match a == b || a.number().zip(b.number()).is_some_and(|(a, b)| a == b) {
                    true => Ok(None),
                    false => {
                        let message = format!(
                            "the script's assertion fails: {} and {} differ",
                            shown(&a.text()),
                            shown(&b.text())
                        );
                        Err(at.broken(message).into())
                    }
                }
            }
            "trace" | "print" => {
                let mut parts = vec![];
                for n in 0..given.len() {
                    parts.push(self.any_text(call.value(n)?)?);
                }
                let line = format!("{}\n", parts.join(", "));
                self.print(&line);
                Ok(None)
            }
            "tracef" | "printf" | "fprintf" | "sprintf" | "format" => {
                let first = usize::from(name == "fprintf");
                let made = self.formatted(&call, first)?;
                if matches!(name, "sprintf" | "format") {
                    let made = self.joined(&[made.into()], at)?;
                    return text(made);
                }
                if name == "fprintf" && !matches!(&*call.text(0)?, "stdout" | "stderr") {
                    let message = "`fprintf` would write a file beside the run";
                    return Err(at.unsupported(message).hint("`writeData` writes a file").into());
                }
                self.print(&made);
                Ok(None)
            }
            "writedata" => Err(at
                .unsupported("`writeData` is known where a file is assigned: `f = writeData(x);`")
                .into()),
            _ => unreachable!("all functions are here"),
        }
    }

    /// The text of any value: arrays as `{0 = a, 1 = b}`, files by their names.
    fn any_text(&mut self, value: &Value) -> std::result::Result<Rc<str>, Stop> {
        let cell = match value {
            Value::Scalar(scalar) => return Ok(scalar.text()),
            Value::Cell(cell) => self.resolved(*cell),
        };
        match &self.cells[cell as usize].state {
            State::Array(array) => {
                let items: Vec<(Key, CellNo)> = array.items.iter().map(|(k, c)| (k.clone(), *c)).collect();
                let mut parts = vec![];
                for (key, item) in items {
                    let value = self.read(item)?;
                    parts.push(format!("{} = {}", key.scalar().text(), self.any_text(&value)?));
                }
                Ok(format!("{{{}}}", parts.join(", ")).into())
            }
            State::Struct(members) => {
                let mut parts = vec![];
                for member in members.clone().iter() {
                    let value = self.read(*member)?;
                    parts.push(self.any_text(&value)?);
                }
                Ok(format!("{{{}}}", parts.join(", ")).into())
            }
            State::File { .. } if matches!(self.cells[cell as usize].of, Type::File) => self.file_name(cell),
            _ => Ok("external".into()),
        }
    }

    /// The texts of an array's elements.
    pub(super) fn texts(&mut self, array: CellNo, at: At) -> std::result::Result<Vec<Rc<str>>, Stop> {
        let array = self.resolved(array);
        self.settled(array)?;
        let State::Array(inner) = &self.cells[array as usize].state else {
            return Err(at.broken("an array is expected here").into());
        };
        let items: Vec<CellNo> = inner.items.values().copied().collect();
        items
            .into_iter()
            .map(|item| match self.read(item)? {
                Value::Scalar(scalar) => Ok(scalar.text()),
                value => self.any_text(&value),
            })
            .collect()
    }

    fn text_array(&mut self, texts: Vec<Rc<str>>, at: At) -> std::result::Result<Value, Stop> {
        let of = Type::array(KeyType::Int, Type::Text);
        self.array_of(&of, texts.into_iter().map(Scalar::Text), at)
    }

    /// The name of a file that is there before the run, whose content is read now.
    pub(super) fn known_file(&mut self, cell: CellNo, at: At) -> std::result::Result<Rc<str>, Stop> {
        let cell = self.resolved(cell);
        if !matches!(self.cells[cell as usize].of, Type::File) {
            return Err(at.broken("a file, or the name of one, is expected here").into());
        }
        self.wait_for_file(cell)?;
        let name = self.file_name(cell)?;
        if let State::File { writer: Writer::Task(task), .. } = self.cells[cell as usize].state {
            let line = self.b.task_line(task).map_or(String::new(), |line| format!(" of line {line}"));
            let message = format!(
                "the script reads {}, which a task{line} writes, to know what to do next",
                shown(&name)
            );
            return Err(at
                .unsupported(message)
                .hint("eyas makes all tasks of a script before the first one runs; split the script there, or let a task read the file")
                .into());
        }
        Ok(name)
    }

    /// The text that `writeData` writes.
    pub(super) fn data_text(&mut self, value: &Value, at: At) -> std::result::Result<String, Stop> {
        let cell = match value {
            Value::Scalar(scalar) => return Ok(scalar.text().to_string()),
            Value::Cell(cell) => self.resolved(*cell),
        };
        let rows = match (&self.cells[cell as usize].state, &self.cells[cell as usize].of) {
            (State::Array(array), Type::Array(of)) if matches!(of.1, Type::Struct(_)) => {
                array.items.values().copied().collect()
            }
            (State::Array(_), Type::Array(of)) if of.1.is_scalar() => {
                return Ok(self.texts(cell, at)?.iter().map(|text| format!("{text}\n")).collect());
            }
            (State::Struct(_), _) => vec![cell],
            (_, of) => {
                let message = format!("`writeData` cannot write {}", of.shown());
                return Err(at.unsupported(message).into());
            }
        };
        let mut lines: Vec<String> = vec![];
        for row in rows {
            let row = self.resolved(row);
            let (State::Struct(members), Type::Struct(of)) =
                (&self.cells[row as usize].state, &self.cells[row as usize].of)
            else {
                continue;
            };
            let members = members.clone();
            if lines.is_empty() {
                lines.push(
                    of.members.iter().map(|(_, name, _)| name.to_string()).collect::<Vec<_>>().join("\t "),
                );
            }
            let mut words = vec![];
            for member in members.iter() {
                words.push(match self.read(*member)? {
                    Value::Scalar(Scalar::Text(text)) => format!("\"{text}\""),
                    Value::Scalar(scalar) => scalar.text().to_string(),
                    Value::Cell(_) => {
                        return Err(at.unsupported("`writeData` writes structs of plain values").into());
                    }
                });
            }
            lines.push(words.join("\t "));
        }
        Ok(lines.iter().map(|line| format!("{line}\n")).collect())
    }

    fn formatted(&mut self, call: &Call<'_>, first: usize) -> std::result::Result<String, Stop> {
        let pattern = call.text(first)?;
        let mut next = first + 1;
        let mut made = String::new();
        let mut chars = pattern.chars().peekable();
        while let Some(c) = chars.next() {
            if c == '\\' {
                match chars.next() {
                    Some('n') => made.push('\n'),
                    Some('t') => made.push('\t'),
                    Some(c) => made.push(c),
                    None => made.push('\\'),
                }
                continue;
            }
            if c != '%' {
                made.push(c);
                continue;
            }
            let mut flags = String::new();
            while chars.peek().is_some_and(|c| c.is_ascii_digit() || "-+. ".contains(*c)) && flags.len() < 8 {
                flags.extend(chars.next());
            }
            let Some(kind) = chars.next() else {
                return Err(call.at.broken("the text ends after a `%`").into());
            };
            if kind == '%' {
                made.push('%');
                continue;
            }
            if next >= call.given.len() {
                let message = format!("the text has more `%` than there are values: {}", shown(&pattern));
                return Err(call.at.broken(message).into());
            }
            let value = call.value(next)?;
            next += 1;
            let unfit = |wanted: &str| {
                let message =
                    format!("`%{kind}` is for {wanted}, and this value is {}", self.shown_type(value));
                Stop::Fail(call.given[next - 1].1.broken(message))
            };
            let shown: String = match (kind, value) {
                ('k', _) => continue,
                ('i' | 'd', Value::Scalar(scalar @ Scalar::Int(_))) => scalar.text().to_string(),
                ('i' | 'd', _) => return Err(unfit("ints")),
                ('f', Value::Scalar(Scalar::Float(x))) => match flags.split_once('.').map(|(_, n)| n.parse())
                {
                    Some(Ok(places)) => format!("{x:.places$}", places = usize::min(places, 100)),
                    _ => x.to_string(),
                },
                ('f', _) => return Err(unfit("floats")),
                ('b', Value::Scalar(scalar @ Scalar::Bool(_))) => scalar.text().to_string(),
                ('b', _) => return Err(unfit("booleans")),
                ('q', Value::Cell(cell)) => format!("[{}]", self.texts(*cell, call.at)?.join(",")),
                ('q', _) => return Err(unfit("arrays")),
                ('s' | 'p' | 'M', value) => self.any_text(value)?.to_string(),
                (other, _) => {
                    let message = format!("`%{other}` is not known");
                    return Err(call
                        .at
                        .broken(message)
                        .hint("known are %s %i %d %f %b %q %M %k %p and %%")
                        .into());
                }
            };
            let width: usize = flags
                .trim_start_matches(['-', '+', '0', ' '])
                .split('.')
                .next()
                .unwrap_or("")
                .parse()
                .unwrap_or(0);
            let width = width.min(1000);
            made.push_str(&match (flags.starts_with('-'), flags.starts_with('0')) {
                (true, _) => format!("{shown:<width$}"),
                (false, true) => format!("{shown:0>width$}"),
                (false, false) => format!("{shown:>width$}"),
            });
        }
        Ok(made)
    }
}

/// A call of a function, with its arguments.
struct Call<'v> {
    name: &'v str,
    given: Arguments<'v>,
    at: At,
}

impl<'v> Call<'v> {
    fn value(&self, n: usize) -> Result<&'v Value> {
        match self.given.get(n) {
            Some((value, _)) => Ok(value),
            None => {
                Err(self.at.broken(format!("`{}` wants {} arguments, and {n} are given", self.name, n + 1)))
            }
        }
    }
    fn scalar(&self, n: usize) -> Result<Scalar> {
        match self.value(n)? {
            Value::Scalar(scalar) => Ok(scalar.clone()),
            Value::Cell(_) => {
                let message =
                    format!("argument {} of `{}` is a number, a text or a boolean", n + 1, self.name);
                Err(self.given[n].1.broken(message))
            }
        }
    }
    fn other_type(&self, n: usize, wanted: &str, given: &Scalar) -> Error {
        let shown = given.of().shown();
        let message = format!("argument {} of `{}` is {wanted}, and {shown} is given", n + 1, self.name);
        self.given[n].1.broken(message)
    }
    fn text(&self, n: usize) -> Result<Rc<str>> {
        match self.scalar(n)? {
            Scalar::Text(text) => Ok(text),
            other => Err(self.other_type(n, "a string", &other)),
        }
    }
    fn number(&self, n: usize) -> Result<f64> {
        self.scalar(n)?.number().ok_or_else(|| {
            self.given[n].1.broken(format!("argument {} of `{}` is a number", n + 1, self.name))
        })
    }
    fn int(&self, n: usize) -> Result<i64> {
        match self.scalar(n)? {
            Scalar::Int(n) => Ok(n),
            other => Err(self.other_type(n, "an int", &other)),
        }
    }
}

/// `text` as a value of the type, from the file `file`.
pub(super) fn parsed(text: &str, of: &Type, file: &str, at: At) -> Result<Scalar> {
    let unquoted = || text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let value = match of {
        Type::Int => text.parse().ok().map(Scalar::Int),
        Type::Float => text.parse().ok().map(Scalar::Float),
        Type::Bool => text.parse().ok().map(Scalar::Bool),
        Type::Text => Some(Scalar::Text(unquoted().into())),
        _ => None,
    };
    value.ok_or_else(|| {
        at.broken(format!("{} has {} where {} is expected", shown(file), shown(text), of.shown()))
    })
}

/// What the text of a data file says: places, and the texts of their values.
///
/// A value is the whole text; an array of values has one on each line; a struct has a line with the names of
/// its members and one with their values, and an array of structs more of these. With `is_structured`, each
/// line is `place = value`.
pub(super) fn read_data(
    of: &Type,
    text: &str,
    is_structured: bool,
    file: &str,
    at: At,
) -> Result<Vec<(Vec<Step>, String)>> {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if is_structured {
        let place = |line: &&str| {
            let (place, value) = line.split_once('=')?;
            Some((path_of(place.trim())?, value.trim().to_owned()))
        };
        return lines
            .iter()
            .map(|line| {
                place(line).ok_or_else(|| {
                    at.broken(format!("{} has a line without `=`: {}", shown(file), shown(line)))
                })
            })
            .collect();
    }
    let rows = |lines: &[&str]| -> Result<Vec<Vec<(Step, String)>>> {
        let header: Vec<&str> =
            lines.first().map(|line| line.split_whitespace().collect()).unwrap_or_default();
        lines
            .iter()
            .skip(1)
            .map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                if words.len() != header.len() {
                    let message = format!(
                        "{} has {} columns, and a line with {}: {}",
                        shown(file),
                        header.len(),
                        words.len(),
                        shown(line)
                    );
                    return Err(at.broken(message));
                }
                Ok(header
                    .iter()
                    .zip(words)
                    .map(|(name, word)| (Step::Member((*name).into()), word.to_owned()))
                    .collect())
            })
            .collect()
    };
    let element = |n: usize| Step::Element(Key::Int(n as i64));
    Ok(match of {
        Type::Array(of) if matches!(of.1, Type::Struct(_)) => {
            let rows = rows(&lines)?.into_iter().enumerate();
            rows.flat_map(|(n, row)| row.into_iter().map(move |(step, word)| (vec![element(n), step], word)))
                .collect()
        }
        Type::Array(of) if of.1.is_scalar() => {
            lines.iter().enumerate().map(|(n, line)| (vec![element(n)], (*line).to_owned())).collect()
        }
        Type::Struct(_) => {
            rows(&lines)?.into_iter().take(1).flatten().map(|(step, word)| (vec![step], word)).collect()
        }
        of if of.is_scalar() => vec![(vec![], text.trim().to_owned())],
        of => return Err(at.unsupported(format!("`readData` cannot read {}", of.shown()))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_function() {
        for name in NAMES.iter().chain(&MORE) {
            assert!(is_function(name));
        }
        assert!(is_function("strCat") && !is_function("system"));
    }
}
