//! Nodes that are processes on this machine. Each node is one process and one block.
//!
//! The process is an executor, or it runs an executor on another host and passes its standard input on ([`super::Hosts`]).
//!
//! The provider holds the only writing end of a pipe to each process. When the provider is killed, the pipes close, and the
//! processes end. The cache of a node that ends stays on the disk, and a later node with the same number begins with it. This
//! takes no room from others, because the budgets of all nodes are set aside on the machine anyway.

use super::Source;
use crate::part::{Part, PartError};
use eyas_core::provisioning::blocks::{BlockConfig, BlockState, Listed};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

/// How long a node of this machine may take to join.
const JOIN_MAX_NS: u64 = 60_000_000_000;

/// What starts a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Start {
    pub program: PathBuf,
    pub args: Vec<String>,
    /// What people know the place by, where it is not this machine.
    pub label: Option<String>,
}

/// See the module. A block's id is its name.
pub struct Local {
    /// Where the nodes' logs go.
    log_dir: PathBuf,
    /// What starts the node with that name.
    start: Box<dyn Fn(&str) -> Result<Start, String> + Send>,
    /// The first line on each process's standard input.
    first_line: Option<String>,
    nodes: BTreeMap<String, LocalNode>,
}

struct LocalNode {
    part: Part,
    label: Option<String>,
    was_asked_to_end: bool,
}

impl LocalNode {
    fn ask_to_end(&mut self) {
        match self.label {
            None => self.part.ask_to_end(),
            // A signal would end the connection to the host before the executor there has left in order.
            Some(_) => self.part.let_go(),
        }
    }
}

impl Local {
    /// Nodes of this machine. `node_args`: of the executor with that name, after the program.
    pub fn new(
        exe: PathBuf,
        log_dir: PathBuf,
        node_args: impl Fn(&str) -> Vec<String> + Send + 'static,
    ) -> Local {
        let start = move |name: &str| Ok(Start { program: exe.clone(), args: node_args(name), label: None });
        Local { log_dir, start: Box::new(start), first_line: None, nodes: BTreeMap::new() }
    }

    /// Nodes of other hosts, which read `first_line` first.
    pub fn of_hosts(
        log_dir: PathBuf,
        first_line: String,
        start: impl Fn(&str) -> Result<Start, String> + Send + 'static,
    ) -> Local {
        Local { log_dir, start: Box::new(start), first_line: Some(first_line), nodes: BTreeMap::new() }
    }

    /// What blocks of this machine are like. `prefix`: of the nodes' names, before their numbers.
    pub fn block_config(prefix: &str) -> BlockConfig {
        BlockConfig {
            prefix: prefix.into(),
            nodes_per_block: 1,
            submit_every_ns: 0,
            list_every_ns: 0,
            unlisted_max: 1,
            join_within_ns: JOIN_MAX_NS,
            end_within_ns: 0,
            reuses_numbers: true,
            number_max: u32::MAX,
            ended_max: 0,
        }
    }
}

impl Source for Local {
    fn submit(&mut self, name: &str, n_nodes: u32) -> Result<String, String> {
        if n_nodes != 1 {
            return Err("a block of this machine has one node".into());
        }
        let Start { program, args, label } = (self.start)(name)?;
        match Part::start(&program, &self.log_dir, name, &args, true) {
            Ok(mut part) => {
                if let Some(line) = &self.first_line {
                    // A process that has ended already is listed as such.
                    let _ = part.write_line(line);
                }
                self.nodes.insert(name.into(), LocalNode { part, label, was_asked_to_end: false });
                Ok(name.into())
            }
            Err(PartError { source, .. }) => match label {
                Some(_) => Err(format!("cannot run {}: {source}", eyas_text::shown_path(&program))),
                None => Err(source.to_string()),
            },
        }
    }

    fn list(&mut self) -> Result<Vec<Listed>, String> {
        let line = |(name, node): (&String, &mut LocalNode)| Listed {
            id: name.clone(),
            name: name.clone(),
            n_nodes: Some(1),
            why: String::new(),
            state: match (node.part.find_end(), &node.label) {
                (None, _) => BlockState::Running,
                (Some(end), None) => BlockState::Ended(end.to_string()),
                (Some(end), Some(label)) => BlockState::Ended(format!("{label}: {end}")),
            },
        };
        Ok(self.nodes.iter_mut().map(line).collect())
    }

    fn cancel(&mut self, id: &str, _: &str) -> Result<(), String> {
        if let Some(node) = self.nodes.get_mut(id) {
            match std::mem::replace(&mut node.was_asked_to_end, true) {
                false => node.ask_to_end(),
                true => node.part.kill(),
            }
        }
        Ok(())
    }

    /// The last line of its log is the reason of its end.
    fn last_words(&mut self, _: &str) -> Option<String> {
        None
    }

    fn forget(&mut self, name: &str) {
        if let Some(mut node) = self.nodes.remove(name) {
            node.part.kill();
        }
    }

    /// Nothing is left: a process that does not end by the deadline is killed.
    fn end_all(&mut self, _: &[(Option<String>, String)], deadline: Instant) -> Vec<String> {
        self.nodes.values_mut().for_each(LocalNode::ask_to_end);
        self.nodes.values_mut().for_each(|node| node.part.wait_until(deadline));
        self.nodes.clear();
        vec![]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn sh(dir: &std::path::Path, script: &'static str) -> Local {
        // `--until-stdin-closes` comes after the script's arguments, which it ignores.
        Local::new("/bin/sh".into(), dir.into(), move |_| vec!["-c".into(), script.into(), "sh".into()])
    }

    #[test]
    fn a_node_that_ends_by_itself_is_listed_with_its_last_words_until_it_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let mut local = sh(dir.path(), "echo no such partition >&2; exit 3");
        let id = local.submit("N1", 1).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let ended = loop {
            let [block] = &local.list().unwrap()[..] else { panic!("one block was requested") };
            assert_eq!((&block.id, block.name.as_str()), (&id, "N1"));
            match &block.state {
                BlockState::Ended(why) => break why.clone(),
                _ => assert!(Instant::now() < deadline, "it ends at once"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(ended.contains("no such partition"), "{ended}");
        local.forget("N1");
        assert_eq!(local.list(), Ok(vec![]));
    }

    #[test]
    fn a_node_that_cannot_be_started_is_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let mut local = Local::new("/no/such/program".into(), dir.path().into(), |_| vec![]);
        let why = local.submit("N1", 1).unwrap_err();
        assert!(why.contains("No such file"), "{why}");
        assert_eq!(local.list(), Ok(vec![]));
    }

    #[test]
    fn a_node_that_does_not_end_when_asked_is_killed_when_asked_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut local = sh(dir.path(), "trap '' TERM; echo ready >&2; while :; do sleep 0.05; done");
        let id = local.submit("N1", 1).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let log = dir.path().join("N1.log");
        while !std::fs::read_to_string(&log).is_ok_and(|text| text.contains("ready")) {
            assert!(Instant::now() < deadline, "it begins at once");
            std::thread::sleep(Duration::from_millis(5));
        }
        let is_running = |local: &mut Local| local.list().unwrap()[0].state == BlockState::Running;
        local.cancel(&id, "N1").unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert!(is_running(&mut local), "it does not hear");
        local.cancel(&id, "N1").unwrap();
        assert!(!is_running(&mut local));
    }
}
