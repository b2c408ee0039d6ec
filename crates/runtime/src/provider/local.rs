//! Nodes on this machine: each is a block of its own, an executor's process.
//!
//! Each process holds the reading end of a pipe that only this process can write to, so none stays behind when this one is
//! killed. A node's cache stays on disk when it goes, and is what the node of that number begins with when it comes back: on one
//! machine there is nobody else to leave the room to, and the budgets of all nodes are spoken for anyway.

use super::{Block, BlockId, BlockState, Source};
use crate::cluster::{ClusterError, Part};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

/// See the module.
pub struct Local {
    pub exe: PathBuf,
    /// Where the nodes' logs go.
    pub log_dir: PathBuf,
    /// A node's name, by its number from 1.
    pub node_name: fn(u32) -> String,
    /// The arguments of its executor, after the binary.
    pub node_args: Box<dyn Fn(u32) -> Vec<String>>,
    nodes: BTreeMap<BlockId, Part>,
}

impl Local {
    pub fn new(
        exe: PathBuf,
        log_dir: PathBuf,
        node_name: fn(u32) -> String,
        node_args: impl Fn(u32) -> Vec<String> + 'static,
    ) -> Local {
        Local { exe, log_dir, node_name, node_args: Box::new(node_args), nodes: BTreeMap::new() }
    }
}

impl Source for Local {
    fn nodes_per_block(&self) -> u32 {
        1
    }

    fn request(&mut self, numbers: &[u32]) -> Result<BlockId, String> {
        let [number] = *numbers else { return Err("a block of this machine has one node".into()) };
        let (name, args) = ((self.node_name)(number), (self.node_args)(number));
        match Part::start(&self.exe, &self.log_dir, &name, &args, true) {
            Ok(part) => {
                let id = BlockId(name);
                self.nodes.insert(id.clone(), part);
                Ok(id)
            }
            Err(ClusterError::Start { source, .. }) => Err(source.to_string()),
            Err(e) => Err(e.to_string()),
        }
    }

    fn list(&mut self) -> Vec<Block> {
        let block = |(id, part): (&BlockId, &mut Part)| Block {
            id: id.clone(),
            state: part.find_end().map_or(BlockState::Running, BlockState::Ended),
            n_nodes: 1,
            ends_at: None,
        };
        self.nodes.iter_mut().map(block).collect()
    }

    fn ask_to_end(&mut self, block: &BlockId) {
        if let Some(part) = self.nodes.get_mut(block) {
            part.ask_to_end();
        }
    }

    fn cancel(&mut self, block: &BlockId) {
        if let Some(mut part) = self.nodes.remove(block) {
            part.kill();
        }
    }

    fn end_all(&mut self, deadline: Instant) {
        self.nodes.values_mut().for_each(Part::ask_to_end);
        self.nodes.values_mut().for_each(|part| part.wait_until(deadline));
        self.nodes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn sh(dir: &std::path::Path, script: &'static str) -> Local {
        // `--until-stdin-closes` comes after the script's arguments, which it ignores.
        Local::new(
            "/bin/sh".into(),
            dir.into(),
            |i| format!("N{i}"),
            move |_| vec!["-c".into(), script.into(), "sh".into()],
        )
    }

    #[test]
    fn a_node_that_ends_by_itself_is_listed_with_its_last_words_until_it_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let mut local = sh(dir.path(), "echo no such partition >&2; exit 3");
        let id = local.request(&[1]).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let ended = loop {
            let [block] = &local.list()[..] else { panic!("one block was requested") };
            assert_eq!((&block.id, block.n_nodes, block.ends_at), (&id, 1, None));
            match &block.state {
                BlockState::Ended(why) => break why.clone(),
                _ => assert!(Instant::now() < deadline, "it ends at once"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(ended.contains("no such partition"), "{ended}");
        local.cancel(&id);
        assert_eq!(local.list(), []);
    }

    #[test]
    fn what_cannot_be_started_is_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let mut local =
            Local::new("/no/such/program".into(), dir.path().into(), |i| format!("N{i}"), |_| vec![]);
        let why = local.request(&[1]).unwrap_err();
        assert!(why.contains("No such file"), "{why}");
        assert_eq!(local.list(), []);
    }
}
