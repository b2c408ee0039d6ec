//! What a cluster of this machine is to be, and what has to be started for it: a command line for each process.

use crate::dirs::{dispatcher_dir, dispatcher_dir_of, node_name};
use crate::options::{DispatcherShape, NodeShape, ProviderShape};
use eyas_runtime::dispatcher::JOIN_FILE;
use eyas_runtime::locks::{dispatcher_lock, provider_lock};
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What a cluster of this machine is to be like.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The program `eyas`, which all parts are processes of.
    pub program: PathBuf,
    /// Where the cluster keeps its state; made if it is not there.
    pub dir: PathBuf,
    pub n_dispatchers: u32,
    /// All dispatchers together: they share what home storage allows.
    pub dispatcher: DispatcherShape,
    pub nodes: NodeSource,
    /// The parts end when this process does, however it ends.
    pub is_embedded: bool,
}

/// Where the nodes of a cluster come from.
#[derive(Clone, Debug)]
pub enum NodeSource {
    /// These nodes of this machine.
    Fixed(Vec<NodeShape>),
    /// A process of its own starts and ends them.
    Provider(Box<ProviderShape>),
}

impl Shape {
    /// One dispatcher, and so many nodes of this machine that share it, in a folder; the cluster ends with this process.
    pub fn new(program: PathBuf, dir: PathBuf, n_nodes: u32) -> Shape {
        Shape {
            program,
            dir,
            n_dispatchers: 1,
            dispatcher: DispatcherShape::default(),
            nodes: NodeSource::Fixed(vec![NodeShape::default(); n_nodes as usize]),
            is_embedded: true,
        }
    }

    /// Makes the folder, and says what has to be started in it. Errors: the folder cannot be used.
    pub fn plan(&self) -> io::Result<Plan> {
        let first = dispatcher_dir(&self.dir);
        let is_new = !first.exists();
        std::fs::create_dir_all(&first)?;
        if is_new {
            // What is known of all users' runs is the owner's alone.
            std::fs::set_permissions(&first, Permissions::from_mode(0o700))?;
        }
        let dir = self.dir.canonicalize()?;
        let join = dispatcher_dir(&dir).join(JOIN_FILE);
        let mut plan = Plan {
            exe: self.program.clone(),
            dir: dispatcher_dir(&dir),
            dispatchers: (1..=self.n_dispatchers)
                .map(|number| self.dispatcher(&dir, &join, number))
                .collect(),
            executor_args: vec![],
            provider_args: None,
            blocks_outlive: false,
            nodes_min: 0,
            is_elsewhere: false,
            embedded: self.is_embedded,
            lease_ns: self.dispatcher.lease_ns,
        };
        match &self.nodes {
            NodeSource::Fixed(nodes) => {
                plan.nodes_min = nodes.len() as u32;
                let of = |(name, node): (String, &NodeShape)| executor_words(&join, &dir, &name, node);
                plan.executor_args = (1..).map(node_name).zip(nodes).map(of).collect();
            }
            NodeSource::Provider(shape) => {
                let mut list = to_join("provider", &join);
                list.extend(["--dir".into(), dir.display().to_string()]);
                list.extend(shape.words());
                plan.provider_args = Some(list);
                plan.blocks_outlive = shape.kind.blocks_outlive();
                plan.nodes_min = shape.nodes.min;
                plan.is_elsewhere = shape.kind.is_elsewhere();
            }
        }
        Ok(plan)
    }

    /// The folder and the words of the dispatcher with that number, counted from 1.
    fn dispatcher(&self, dir: &Path, join: &Path, number: u32) -> (PathBuf, Vec<String>) {
        let of = dispatcher_dir_of(dir, number);
        let mut list = vec!["dispatcher".into(), "--dir".into(), of.display().to_string()];
        list.extend(self.dispatcher.one_of(self.n_dispatchers).words());
        if self.n_dispatchers > 1 {
            list.extend(["--member".into(), format!("{number}/{}", self.n_dispatchers)]);
        }
        if number > 1 {
            list.extend(["--group".into(), join.display().to_string()]);
        }
        (of, list)
    }
}

/// The command line of the executor of the node with that name, whose folder is in `dir`.
pub fn executor_words(join: &Path, dir: &Path, name: &str, node: &NodeShape) -> Vec<String> {
    let mut list = to_join("executor", join);
    list.extend(["--dir".into(), dir.join(name).display().to_string()]);
    list.extend(["--name".into(), name.into()]);
    list.extend(node.words());
    list
}

fn to_join(verb: &str, join: &Path) -> Vec<String> {
    vec![verb.into(), "--join".into(), join.display().to_string()]
}

/// What to start: arguments for each part, after the binary.
pub struct Plan {
    pub exe: PathBuf,
    /// The directory of the first dispatcher; it also has the parts' logs.
    pub dir: PathBuf,
    /// Directory and arguments of each dispatcher.
    pub dispatchers: Vec<(PathBuf, Vec<String>)>,
    /// One list per node.
    pub executor_args: Vec<Vec<String>>,
    /// Arguments of the provider, where nodes come and go.
    pub provider_args: Option<Vec<String>>,
    /// The provider's nodes go on where it is killed.
    pub blocks_outlive: bool,
    /// So many nodes are there without work.
    pub nodes_min: u32,
    /// Nodes are not processes of this machine.
    pub is_elsewhere: bool,
    /// Parts end when this process ends.
    pub embedded: bool,
    /// Nodes that find no dispatcher for this long end.
    pub lease_ns: u64,
}

impl Plan {
    /// The cluster's folder, in which the folders of all parts are; an absolute path.
    pub fn cluster_dir(&self) -> &Path {
        self.dir.parent().expect("it was made in the cluster's folder")
    }

    /// The join file of the dispatcher at that position in the plan.
    pub fn join_of(&self, dispatcher: usize) -> PathBuf {
        self.dispatchers[dispatcher].0.join(JOIN_FILE)
    }

    /// The lock of the part that starts and ends nodes, see [`eyas_runtime::locks::holder_of`].
    pub fn provider_lock(&self) -> PathBuf {
        provider_lock(&self.dir)
    }

    /// The lock of that dispatcher's directory, see [`eyas_runtime::locks::holder_of`].
    pub fn lock_of(&self, dispatcher: usize) -> PathBuf {
        dispatcher_lock(&self.dispatchers[dispatcher].0)
    }
}

/// Slots and bytes of memory that each of so many nodes of this machine has, as far as nobody says it.
pub fn share_of_machine(n_nodes: u32) -> (u32, u64) {
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let memory = eyas_runtime::machine::memory_bytes() / u64::from(n_nodes);
    ((processors / n_nodes).max(1), memory)
}
