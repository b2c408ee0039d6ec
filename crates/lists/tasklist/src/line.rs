//! One line of JSON to one task, strings borrowed from the line wherever it has no escapes.
//!
//! The field table is [`FIELDS`]; `docs/reference/task-list.md` and `task-list.schema.json` say the same.
//! Errors carry the field and, in the words of the JSON reader, what was expected and where.
//!
//! Not here: the meaning of locations and names, and everything between two tasks (`list`).

use crate::error::{Error, shown};
use crate::file::File;
use crate::made::{WISH_FIELDS, Wish};
use crate::units;
use eyas_terms::array::{
    CONTAINER_NAME, Command, GatherHint, Hint, Hints, STDERR_NAME, STDOUT_NAME, WATCH_VARIABLE,
};
use eyas_terms::location::MADE;
use eyas_terms::needs::{AMOUNT_MAX, Needs, PARTS, check_name};
use eyas_text::nearest;
use eyas_text::{Shell, line_of};
use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// The fields of a task, in the order of the documentation.
pub const FIELDS: &[&str] = &[
    "id",
    "command",
    "shell",
    "inputs",
    "outputs",
    "stdout",
    "stderr",
    "env",
    "container",
    "cpus",
    "gpus",
    "resources",
    "memory",
    "walltime",
    "retries",
    "priority",
    "label",
    "reduce",
    "watch",
    "dynamic",
    "promises",
    "hints",
];

/// A task as it is written. Absent fields have their defaults.
pub(crate) struct Task<'a> {
    pub id: Option<Cow<'a, str>>,
    pub command: Command<Cow<'a, str>>,
    pub inputs: Vec<File<'a>>,
    pub outputs: Vec<File<'a>>,
    pub env: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// The location of the image that the program runs in. Not among the inputs yet, see [`crate::contain`].
    pub container: Option<Cow<'a, str>>,
    /// Rounded up.
    pub cpus: u32,
    /// Gpus, named resources, and a part of a cpu.
    pub needs: Option<Box<Needs>>,
    pub memory_bytes: Option<u64>,
    pub walltime_ns: Option<u64>,
    pub retries: u32,
    pub priority: i32,
    pub label: Cow<'a, str>,
    /// The task's program may add tasks to the run.
    pub dynamic: bool,
    /// `run:` files that will be written by tasks which its program adds.
    pub promises: Vec<Cow<'a, str>>,
    pub hints: Hints,
    /// The command may be applied to any part of the inputs, at most this many at a time.
    pub reduce: Option<u32>,
}

impl<'a> Task<'a> {
    /// A task of one slot that runs `command`, with defaults in all other fields.
    pub fn new(command: Command<Cow<'a, str>>) -> Task<'a> {
        Task {
            id: None,
            command,
            inputs: Vec::new(),
            outputs: Vec::new(),
            env: Vec::new(),
            container: None,
            cpus: 1,
            needs: None,
            memory_bytes: None,
            walltime_ns: None,
            retries: 0,
            priority: 0,
            label: Cow::Borrowed(""),
            dynamic: false,
            promises: Vec::new(),
            hints: Hints::default(),
            reduce: None,
        }
    }
}

/// Separates the sentence from its hint inside an error of `serde_json`, which has room for only one text.
const HINT: &str = "\nhint: ";

/// The task on `line`, which is not blank. The error has field, column (in characters) and hint.
pub(crate) fn parse(line: &str) -> Result<Task<'_>, Error> {
    let mut field = None;
    let mut json = serde_json::Deserializer::from_str(line);
    let parsed =
        TaskSeed { field: &mut field }.deserialize(&mut json).and_then(|task| json.end().map(|()| task));
    parsed.map_err(|e| explain(&e, line, field))
}

fn explain(e: &serde_json::Error, line: &str, field: Option<&'static str>) -> Error {
    let text = e.to_string();
    let text = text.strip_suffix(&format!(" at line {} column {}", e.line(), e.column())).unwrap_or(&text);
    let (message, hint) = match text.split_once(HINT) {
        Some((message, hint)) => (message, Some(hint.to_owned())),
        None => (text, None),
    };
    let mut message = line_of(message).to_string().replace("EOF while parsing", "the line ends inside");
    let first = line.trim_start().chars().next();
    let hint = match (first, field) {
        _ if hint.is_some() => hint,
        (Some('#'), None) if line.starts_with("#!") => {
            Some("a script is one task: `eyas map --range 0..1 -- sh FILE`; with --commands each line of it is one".into())
        }
        (Some('#'), None) => Some("JSON Lines have no comments; remove the line".into()),
        (Some(c), None) if c.is_alphanumeric() && line.contains([',', ';', '\t']) && !line.contains(' ') => {
            Some("each row of a table is a task of `eyas map --csv FILE -- PROGRAM {COLUMN}`".into())
        }
        (Some(c), None) if c.is_alphabetic() || c == '.' || c == '/' => {
            Some("a list of commands, a line for the shell each, is named like commands.txt or given with --commands".into())
        }
        (Some('['), None) => Some("write one {...} a line, without a list around them".into()),
        _ if message == "key must be a string" => Some("names and texts stand in double quotes".into()),
        _ if e.is_eof() => Some("a task is one line; it may not go on in the next".into()),
        _ if message == "trailing characters" => {
            message = "something follows the task".into();
            Some("write one task a line".into())
        }
        _ => None,
    };
    if let (Some(field), true) = (field, e.is_data()) {
        message = format!("`{field}`: {message}");
    }
    if e.is_syntax() && message != "something follows the task" {
        message = format!("broken JSON: {message}");
    }
    // `serde_json` counts bytes, and its column is that of the byte that it did not expect.
    let before = line.as_bytes().get(..e.column().saturating_sub(1)).unwrap_or(line.as_bytes());
    let column = before.iter().filter(|b| **b & 0xc0 != 0x80).count() as u64 + 1;
    let mut error = Error::invalid(message).at(0, Some(column));
    if let Some(hint) = hint {
        error = error.hint(hint);
    }
    match field {
        Some(field) => error.field(field),
        None => error,
    }
}

/// A string, borrowed unless it has escapes.
struct Text<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_str(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }
    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed(text)))
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
}

struct TaskSeed<'c> {
    /// The field being read; it stays set when reading it fails.
    field: &'c mut Option<&'static str>,
}

impl<'de> DeserializeSeed<'de> for TaskSeed<'_> {
    type Value = Task<'de>;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Task<'de>, D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TaskSeed<'_> {
    type Value = Task<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a task, like {\"command\": [\"program\", \"argument\"]}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Task<'de>, A::Error> {
        let mut task = Task::new(Command::Exec(Vec::new()));
        let mut seen = 0u32;
        let mut needs = Needs::default();
        let mut printed = Vec::new();
        let mut shell = None;
        let mut is_watched = false;
        while let Some(Text(key)) = map.next_key()? {
            let Some(i) = FIELDS.iter().position(|f| *f == key) else {
                return Err(unknown_field(&key));
            };
            let field = FIELDS[i];
            *self.field = Some(field);
            if seen & 1 << i != 0 {
                return Err(de::Error::custom("it is there twice"));
            }
            seen |= 1 << i;
            match field {
                "id" => task.id = Some(map.next_value::<Text>()?.0),
                "command" => task.command = map.next_value::<CommandText>()?.0,
                "shell" => {
                    let Text(name) = map.next_value()?;
                    shell = Some(Shell::of_name(&name).map_err(de::Error::custom)?);
                }
                "inputs" => task.inputs = map.next_value::<Files>()?.0,
                "outputs" => {
                    task.outputs = map.next_value::<Files>()?.0;
                    if task.outputs.iter().any(|file| file.location.starts_with(MADE)) {
                        return Err(de::Error::custom(
                            "only inputs are made of packed files, outputs are paths",
                        ));
                    }
                }
                "stdout" | "stderr" => {
                    let name = if field == "stdout" { STDOUT_NAME } else { STDERR_NAME };
                    let location = map.next_value::<Text>()?.0;
                    printed.push(File { name: Some(Cow::Borrowed(name)), location });
                }
                "env" => task.env = map.next_value::<Env>()?.0,
                "container" => task.container = Some(map.next_value::<Text>()?.0),
                "cpus" => {
                    let Parts(parts) = map.next_value()?;
                    task.cpus = parts.div_ceil(PARTS.into()) as u32;
                    needs.cpu_parts = if parts % u64::from(PARTS) == 0 { 0 } else { parts as u32 };
                }
                "gpus" => {
                    let Parts(parts) = map.next_value()?;
                    needs.gpu_parts = u32::try_from(parts).unwrap_or(u32::MAX);
                    needs.check().map_err(de::Error::custom)?;
                }
                "resources" => {
                    needs.resources = map.next_value::<Amounts>()?.0;
                    needs.check().map_err(de::Error::custom)?;
                }
                "memory" => task.memory_bytes = Some(map.next_value::<Memory>()?.0),
                "walltime" => task.walltime_ns = Some(map.next_value::<Walltime>()?.0),
                "retries" => {
                    task.retries = map.next_value_seed(Whole { min: 0, max: u32::MAX.into() })? as u32
                }
                "priority" => {
                    let seed = Whole { min: i32::MIN.into(), max: i32::MAX.into() };
                    task.priority = map.next_value_seed(seed)? as i32;
                }
                "label" => task.label = map.next_value::<Text>()?.0,
                "watch" => is_watched = map.next_value()?,
                "dynamic" => task.dynamic = map.next_value()?,
                "promises" => {
                    task.promises = map.next_value::<Vec<Text>>()?.into_iter().map(|t| t.0).collect()
                }
                "hints" => task.hints = map.next_value::<HintsText>()?.0,
                _ => task.reduce = Some(map.next_value_seed(Whole { min: 2, max: u32::MAX.into() })? as u32),
            }
            *self.field = None;
        }
        for file in task.inputs.iter().chain(&task.outputs) {
            let field = [("stdout", STDOUT_NAME), ("stderr", STDERR_NAME)];
            if let Some((field, name)) = field.iter().find(|(_, name)| file.name.as_deref() == Some(name)) {
                return Err(de::Error::custom(format!(
                    "the name `{name}` is for what the program prints{HINT}write \"{field}\": \"FILE\""
                )));
            }
            if file.name.as_deref() == Some(CONTAINER_NAME) {
                return Err(de::Error::custom(format!(
                    "the name `{CONTAINER_NAME}` is for the image of a container{HINT}write \"container\": \"FILE\""
                )));
            }
        }
        task.outputs.append(&mut printed);
        if task.env.iter().any(|(name, _)| name == WATCH_VARIABLE) && is_watched {
            return Err(de::Error::custom(format!(
                "`watch` sets the variable {WATCH_VARIABLE}, which is in `env`, too{HINT}leave one of them out"
            )));
        }
        if is_watched {
            // The location follows where the list's own is known.
            task.env.push((WATCH_VARIABLE.into(), "".into()));
        }
        task.needs = (!needs.is_empty()).then(|| Box::new(needs));
        if seen & 0b10 == 0 {
            return Err(de::Error::custom(format!(
                "the task has no `command`{HINT}add \"command\": [\"program\", \"argument\"]"
            )));
        }
        if let Some(shell) = shell {
            let Command::Shell(line) = &task.command else {
                return Err(de::Error::custom(format!(
                    "`shell` is for a command that is one string{HINT}leave out `shell`; a list is started without one"
                )));
            };
            task.command = Command::Shell(format!("{}{line}", shell.first_line()).into());
        }
        Ok(task)
    }
}

fn unknown_field<E: de::Error>(key: &str) -> E {
    let hint = match nearest(key, FIELDS) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the fields are {}", FIELDS.join(", ")),
    };
    E::custom(format!("unknown field {}{HINT}{hint}", shown(key)))
}

struct CommandText<'a>(Command<Cow<'a, str>>);

impl<'de> Deserialize<'de> for CommandText<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = CommandText<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of strings, or one string for the shell")
            }
            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(CommandText(Command::Shell(Cow::Borrowed(text))))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(CommandText(Command::Shell(Cow::Owned(text.to_owned()))))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut argv = Vec::with_capacity(8);
                while let Some(Text(word)) = seq.next_element()? {
                    argv.push(word);
                }
                Ok(CommandText(Command::Exec(argv)))
            }
        }
        d.deserialize_any(V)
    }
}

struct Files<'a>(Vec<File<'a>>);

/// Adds the file, and before it the packed file if nodes make it.
fn push_form<'a, E: de::Error>(
    files: &mut Vec<File<'a>>,
    name: Option<Cow<'a, str>>,
    form: Form<'a>,
) -> Result<(), E> {
    match form {
        Form::Location(location) if location.starts_with(MADE) => Err(E::custom(format!(
            "{} is how eyas itself names a file that nodes make{HINT}write {{\"from\": \"FILE\", \"unpack\": \"tar\"}}",
            shown(&location)
        ))),
        Form::Location(location) => {
            files.push(File { name, location });
            Ok(())
        }
        Form::Made(wish) => {
            let [packed, made] = wish.files(name).map_err(|(why, hint)| {
                E::custom(match hint {
                    Some(hint) => format!("{why}{HINT}{hint}"),
                    None => why,
                })
            })?;
            files.push(packed);
            files.push(made);
            Ok(())
        }
    }
}

/// A file as it is written in `inputs`: where it is, or how nodes make it.
enum Form<'a> {
    Location(Cow<'a, str>),
    Made(Wish<'a>),
}

impl<'de> Deserialize<'de> for Form<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Form<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a path, or an object such as {\"from\": \"data.tar.gz\", \"unpack\": \"tar\"}")
            }
            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Form::Location(Cow::Borrowed(text)))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Form::Location(Cow::Owned(text.to_owned())))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut wish = Wish::default();
                while let Some(Text(key)) = map.next_key()? {
                    match &*key {
                        "from" => wish.from = Some(map.next_value::<Text>()?.0),
                        "unpack" => wish.unpack = Some(map.next_value::<Text>()?.0),
                        "environment" => wish.environment = Some(map.next_value::<Text>()?.0),
                        "make" => {
                            let words = map.next_value::<Vec<Text>>()?;
                            wish.make = Some(words.into_iter().map(|Text(word)| word.into_owned()).collect());
                        }
                        _ => {
                            let hint = match nearest(&key, WISH_FIELDS) {
                                Some(near) => format!("did you mean `{near}`?"),
                                None => format!("an input has {}", WISH_FIELDS.join(", ")),
                            };
                            return Err(de::Error::custom(format!(
                                "an input has no field {}{HINT}{hint}",
                                shown(&key)
                            )));
                        }
                    }
                }
                Ok(Form::Made(wish))
            }
        }
        d.deserialize_any(V)
    }
}

impl<'de> Deserialize<'de> for Files<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Files<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of names and paths, or a list of paths")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut files = Vec::new();
                while let Some((Text(name), form)) = map.next_entry::<_, Form>()? {
                    push_form(&mut files, Some(name), form)?;
                }
                Ok(Files(files))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut files = Vec::new();
                while let Some(form) = seq.next_element::<Form>()? {
                    push_form(&mut files, None, form)?;
                }
                Ok(Files(files))
            }
        }
        d.deserialize_any(V)
    }
}

struct Env<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'de> Deserialize<'de> for Env<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Env<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of names and values, all strings")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut env = Vec::new();
                while let Some((Text(name), Text(value))) = map.next_entry()? {
                    env.push((name, value));
                }
                Ok(Env(env))
            }
        }
        d.deserialize_map(V)
    }
}

/// Thousandths of a number such as 2 or 0.25, at least 1.
struct Parts(u64);

impl<'de> Deserialize<'de> for Parts {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl Visitor<'_> for V {
            type Value = Parts;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number above 0, such as 2 or 0.25")
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Parts, E> {
                match n {
                    1..=4_294_967_295 => Ok(Parts(n * u64::from(PARTS))),
                    n => Err(E::invalid_value(de::Unexpected::Unsigned(n), &self)),
                }
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Parts, E> {
                Err(E::invalid_value(de::Unexpected::Signed(n), &self))
            }
            fn visit_f64<E: de::Error>(self, n: f64) -> Result<Parts, E> {
                units::parts_of(n).map(Parts).ok_or_else(|| E::invalid_value(de::Unexpected::Float(n), &self))
            }
        }
        d.deserialize_any(V)
    }
}

/// Named resources.
struct Amounts(BTreeMap<String, u32>);

impl<'de> Deserialize<'de> for Amounts {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Amounts;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of names and whole numbers, such as {\"licence.vcs\": 1}")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut amounts = BTreeMap::new();
                while let Some(Text(name)) = map.next_key()? {
                    check_name(&name)
                        .map_err(|why| de::Error::custom(format!("the resource {}: {why}", shown(&name))))?;
                    let n = map.next_value_seed(Whole { min: 1, max: AMOUNT_MAX.into() })? as u32;
                    if amounts.insert(name.clone().into_owned(), n).is_some() {
                        return Err(de::Error::custom(format!("{} is there twice", shown(&name))));
                    }
                }
                Ok(Amounts(amounts))
            }
        }
        d.deserialize_map(V)
    }
}

struct HintsText(Hints);

impl<'de> Deserialize<'de> for HintsText {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = HintsText;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object such as {\"multicast\": \"never\"}")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut hints = Hints::default();
                while let Some((Text(name), Text(value))) = map.next_entry()? {
                    match &*name {
                        "multicast" => hints.multicast = choice(&name, &value, &MULTICAST_HINTS)?,
                        "scatter" => hints.scatter = choice(&name, &value, &HINTS)?,
                        "gather" => hints.gather = choice(&name, &value, &GATHER_HINTS)?,
                        _ => {
                            let known = ["multicast", "scatter", "gather"];
                            let hint = match nearest(&name, &known) {
                                Some(near) => format!("did you mean `{near}`?"),
                                None => format!("there are hints for {}", known.join(", ")),
                            };
                            return Err(de::Error::custom(format!("no hint {}{HINT}{hint}", shown(&name))));
                        }
                    }
                }
                Ok(HintsText(hints))
            }
        }
        d.deserialize_map(V)
    }
}

/// The values that a hint may have.
pub(crate) const HINTS: [(&str, Hint); 3] =
    [("auto", Hint::Auto), ("always", Hint::Always), ("never", Hint::Never)];
pub(crate) const MULTICAST_HINTS: [(&str, Hint); 4] =
    [("auto", Hint::Auto), ("always", Hint::Always), ("never", Hint::Never), ("once", Hint::Once)];
pub(crate) const GATHER_HINTS: [(&str, GatherHint); 5] = [
    ("auto", GatherHint::Auto),
    ("always", GatherHint::Always),
    ("collective", GatherHint::Collective),
    ("async", GatherHint::Async),
    ("never", GatherHint::Never),
];

fn choice<T: Copy, E: de::Error>(name: &str, value: &str, known: &[(&str, T)]) -> Result<T, E> {
    let found = known.iter().find(|(word, _)| *word == value).map(|(_, hint)| *hint);
    found.ok_or_else(|| {
        let words: Vec<String> = known.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        E::custom(format!("{name} cannot be {}; choose one of {}", shown(value), words.join(", ")))
    })
}

/// A whole number within bounds.
struct Whole {
    min: i64,
    max: i64,
}

impl<'de> DeserializeSeed<'de> for Whole {
    type Value = i64;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<i64, D::Error> {
        d.deserialize_i64(self)
    }
}

impl Visitor<'_> for Whole {
    type Value = i64;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {} to {}", self.min, self.max)
    }
    fn visit_i64<E: de::Error>(self, n: i64) -> Result<i64, E> {
        match (self.min..=self.max).contains(&n) {
            true => Ok(n),
            false => Err(E::invalid_value(de::Unexpected::Signed(n), &self)),
        }
    }
    fn visit_u64<E: de::Error>(self, n: u64) -> Result<i64, E> {
        match i64::try_from(n) {
            Ok(n) => self.visit_i64(n),
            Err(_) => Err(E::invalid_value(de::Unexpected::Unsigned(n), &self)),
        }
    }
}

/// Turns an error of [`units`] into an error of JSON.
fn from_units<E: de::Error>(e: &Error) -> E {
    match &e.hint {
        Some(hint) => E::custom(format!("{}{HINT}{hint}", e.message)),
        None => E::custom(&e.message),
    }
}

struct Memory(u64);

impl<'de> Deserialize<'de> for Memory {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl Visitor<'_> for V {
            type Value = Memory;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size of at least 1 byte, like \"512MiB\" or 536870912")
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Memory, E> {
                match n {
                    0 => Err(E::invalid_value(de::Unexpected::Unsigned(0), &self)),
                    n => Ok(Memory(n)),
                }
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Memory, E> {
                self.visit_u64(units::parse_bytes(text).map_err(|e| from_units(&e))?)
            }
        }
        d.deserialize_any(V)
    }
}

struct Walltime(u64);

impl<'de> Deserialize<'de> for Walltime {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl V {
            fn whole<E: de::Error>(self, ns: Option<u64>) -> Result<Walltime, E> {
                match ns {
                    Some(0) | None => Err(E::custom(format!(
                        "the time is out of range; expected {}",
                        &self as &dyn de::Expected
                    ))),
                    Some(ns) => Ok(Walltime(ns)),
                }
            }
        }
        impl Visitor<'_> for V {
            type Value = Walltime;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time above 0, like \"90s\", \"1h30m\" or a number of seconds")
            }
            fn visit_u64<E: de::Error>(self, s: u64) -> Result<Walltime, E> {
                self.whole(s.checked_mul(1_000_000_000))
            }
            fn visit_f64<E: de::Error>(self, s: f64) -> Result<Walltime, E> {
                // Above this, the time no longer fits into 64 bits of nanoseconds.
                self.whole((0.0..1.8e10).contains(&s).then(|| (s * 1e9).round() as u64))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Walltime, E> {
                let length = units::parse_duration(text).map_err(|e| from_units(&e))?;
                self.whole(u64::try_from(length.as_nanos()).ok())
            }
        }
        d.deserialize_any(V)
    }
}
