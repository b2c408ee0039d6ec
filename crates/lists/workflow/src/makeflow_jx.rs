//! Makeflow in JX: a JSON object with a list of rules, written with the expressions of [`crate::jx`].
//!
//! Read: `rules` with `command`, `inputs`, `outputs`, `environment`, `category` and `resources` (`cores`,
//! `wall-time` in seconds); `categories` with `environment` and `resources`; `environment`,
//! `default_category`, `define`. A file is a text, or an object with `dag_name` and with `task_name`, its
//! name in the sandbox. As in [`crate::makeflow`], `memory` and `disk` are requests to a batch system,
//! `local_job` has no meaning here, absolute inputs that no task writes are read from their paths, and
//! [`crate::folders`] deals with folders.
//!
//! Refused: rules that are a `workflow` of their own.

use crate::error::{Error, ErrorKind, Result, shown};
use crate::folders;
use crate::jx::{self, Evaluator, Object, Value};
use crate::model::{Builder, Task, Use, Workflow, plain_name};
use crate::words;
use eyas_terms::array::Command;
use rustc_hash::{FxHashMap, FxHashSet};
use std::path::Path;
use std::rc::Rc;

/// Values of names that whoever runs a workflow gives, beside those that the workflow defines; as makeflow's `--jx-args` and
/// `--jx-define`.
#[derive(Default)]
pub struct JxArguments(Vec<(Rc<str>, Value)>);

impl JxArguments {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the values of an object in JX. They may name values that were given before, which they replace.
    pub fn add_object(&mut self, text: &str) -> Result<()> {
        match self.value(text)? {
            Value::Object(object) => {
                for (name, value) in &object.pairs {
                    self.set(name.clone(), value.clone());
                }
                Ok(())
            }
            other => Err(Error::broken(format!(
                "it is {}, and an object of names and values is wanted",
                other.kind()
            ))),
        }
    }

    /// Takes `NAME=EXPRESSION`.
    pub fn add_definition(&mut self, text: &str) -> Result<()> {
        let Some((name, value)) = text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(Error::broken("it is not NAME=EXPRESSION"));
        };
        let value = self.value(value)?;
        self.set(name.into(), value);
        Ok(())
    }

    fn value(&self, text: &str) -> Result<Value> {
        // The text is the only value of an object, so that it is evaluated as any other.
        let root = jx::parse(&format!("{{\"value\":{text}\n}}"))?;
        let value = Evaluator::new(&root, &self.0, &|name| std::env::var(name).ok(), None)
            .value_of(&root, "value")?;
        Ok(value.unwrap_or(Value::Null))
    }

    fn set(&mut self, name: Rc<str>, value: Value) {
        self.0.retain(|(known, _)| *known != name);
        self.0.push((name, value));
    }
}

/// `environment` gives the variables of the reader's own process; `dir` is the folder of the file.
pub(crate) fn parse(
    text: &str,
    stem: &str,
    given: &JxArguments,
    environment: &dyn Fn(&str) -> Option<String>,
    dir: Option<&Path>,
) -> Result<Workflow> {
    let root = jx::parse(text)?;
    let names = Evaluator::new(&root, &given.0, environment, dir);
    let object_of = |key: &str| -> Result<Option<Rc<Object>>> {
        match names.value_of(&root, key)? {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(object)) => Ok(Some(object)),
            Some(other) => Err(wrong(key, "an object", &other)),
        }
    };
    let all_env = object_of("environment")?.map_or_else(|| Ok(vec![]), |all| env_of(&all))?;
    let mut categories: FxHashMap<Rc<str>, Settings> = FxHashMap::default();
    if let Some(all) = object_of("categories")? {
        for (name, value) in &all.pairs {
            let Value::Object(category) = value else {
                return Err(wrong(name, "an object", value).at(all.line));
            };
            categories.insert(name.clone(), Settings::of(category)?);
        }
    }
    let default = match names.value_of(&root, "default_category")? {
        Some(Value::Text(name)) => name,
        _ => "default".into(),
    };
    let rules = match names.value_of(&root, "rules")? {
        Some(Value::List(rules)) => rules,
        Some(other) => return Err(wrong("rules", "a list", &other)),
        None => {
            return Err(Error::broken("this is no Makeflow in JX: it has no `rules`"));
        }
    };
    let mut b = Builder::new(stem, text.len());
    let mut declared: FxHashSet<String> = FxHashSet::default();
    for rule in rules.iter() {
        let Value::Object(rule) = rule else { return Err(wrong("a rule", "an object", rule)) };
        let none = Settings::default();
        let named = match rule.get("category") {
            Some(Value::Text(name)) => Some(name.clone()),
            Some(other) => return Err(wrong("category", "a text", other).at(rule.line)),
            None => None,
        };
        let category = categories.get(named.as_ref().unwrap_or(&default)).unwrap_or(&none);
        let own = Settings::of(rule)?;
        // Of equal names, the last one counts.
        let all = || all_env.iter().chain(&category.env).chain(&own.env);
        let last: FxHashMap<&str, usize> =
            all().enumerate().map(|(place, (name, _))| (name.as_str(), place)).collect();
        let env = all().enumerate().filter(|(place, (name, _))| last[name.as_str()] == *place);
        let env = env.map(|(_, pair)| pair.clone()).collect();
        let task = task(&mut b, rule, &mut declared, named.as_deref())?;
        b.task(Task {
            env,
            cpus: own.cores.or(category.cores).unwrap_or(1),
            walltime_ns: own.walltime_ns.or(category.walltime_ns),
            ..task
        })?;
    }
    folders::settle(&mut b, &declared);
    Ok(Workflow { is_for_sh: true, ..b.finish()? })
}

fn wrong(key: &str, wanted: &str, found: &Value) -> Error {
    Error::broken(format!("{} is {}, and {wanted} is wanted", shown(key), found.kind()))
}

/// The settings of a rule or of its category, apart from its command and files.
#[derive(Default)]
struct Settings {
    env: Vec<(String, String)>,
    cores: Option<u32>,
    walltime_ns: Option<u64>,
}

impl Settings {
    fn of(object: &Object) -> Result<Settings> {
        let mut settings = Settings::default();
        let part = |key: &str| match object.get(key) {
            None => Ok(None),
            Some(Value::Object(part)) => Ok(Some(part.clone())),
            Some(other) => Err(wrong(key, "an object", other).at(object.line)),
        };
        if let Some(env) = part("environment")? {
            settings.env = env_of(&env)?;
        }
        if let Some(resources) = part("resources")? {
            let number = |key: &str| match resources.get(key) {
                None => Ok(None),
                Some(Value::Int(n)) if (0..1 << 40).contains(n) => Ok(Some(*n as u64).filter(|n| *n > 0)),
                Some(other) => Err(wrong(key, "a whole number from 0", other).at(resources.line)),
            };
            settings.cores = number("cores")?.map(|n| n.min(1_000_000) as u32);
            settings.walltime_ns = number("wall-time")?.map(|s| s.saturating_mul(1_000_000_000));
        }
        Ok(settings)
    }
}

fn env_of(object: &Object) -> Result<Vec<(String, String)>> {
    let text = |(name, value): &(Rc<str>, Value)| {
        let text = value.text().ok_or_else(|| wrong(name, "a text", value).at(object.line))?;
        Ok((name.to_string(), text.to_string()))
    };
    // A name with `null` has its value from eyas's own environment, which every task has anyway.
    object.pairs.iter().filter(|(_, value)| *value != Value::Null).map(text).collect()
}

/// The task of a rule.
fn task(
    b: &mut Builder,
    rule: &Object,
    declared: &mut FxHashSet<String>,
    category: Option<&str>,
) -> Result<Task> {
    let line = rule.line;
    let command = match (rule.get("command"), rule.get("workflow")) {
        (Some(Value::Text(command)), None) => command.trim(),
        (None, Some(_)) => {
            let message = "a workflow inside a workflow is more than eyas can run";
            return Err(Error::new(ErrorKind::Unsupported, message)
                .hint("run the inner file by itself, or put its rules into this one")
                .at(line));
        }
        (Some(Value::Text(_)), Some(_)) => {
            return Err(Error::broken("a rule has both `command` and `workflow`").at(line));
        }
        (Some(other), _) => return Err(wrong("command", "a text", other).at(line)),
        (None, None) => return Err(Error::broken("a rule has no `command`").at(line)),
    };
    let mut files = |key: &str, are_written: bool| -> Result<Vec<Use>> {
        let list = match rule.get(key) {
            None => return Ok(vec![]),
            Some(Value::List(list)) => list,
            Some(other) => return Err(wrong(key, "a list", other).at(line)),
        };
        let mut uses = Vec::with_capacity(list.len());
        for file in list.iter() {
            let (name, own) = match file {
                Value::Text(name) => (name.clone(), None),
                Value::Object(object) => {
                    match (object.get("dag_name").or(object.get("name")), object.get("task_name")) {
                        (Some(Value::Text(name)), None) => (name.clone(), None),
                        (Some(Value::Text(name)), Some(Value::Text(own))) => (name.clone(), Some(own)),
                        _ => return Err(Error::broken("a file has no `dag_name`").at(object.line)),
                    }
                }
                other => return Err(wrong(key, "a list of files", other).at(line)),
            };
            if name.starts_with('/') && !are_written {
                continue;
            }
            let plain = plain_name(&name).into_owned();
            if name.ends_with('/') {
                declared.insert(plain.clone());
            }
            let own = own.map(|own| plain_name(own).into_owned()).filter(|own| *own != plain);
            uses.push(Use { name: own, ..Use::of(b.file(&plain)) });
        }
        Ok(uses)
    };
    let (inputs, outputs) = (files("inputs", false)?, files("outputs", true)?);
    let first = outputs.first().map(|u| b.files()[u.file as usize].name.clone());
    Ok(Task {
        id: first.unwrap_or_else(|| format!("line-{line}-{}", b.n_tasks() + 1)),
        stage: category.map_or_else(|| words::program(command), str::to_owned),
        command: Some(Command::Shell(command.to_owned())),
        inputs,
        outputs,
        line: Some(line),
        ..Task::default()
    })
}
