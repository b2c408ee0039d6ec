//! Clusters as values, with real processes: started in a folder, given tasks, watched, and ended.

use eyas_client::{Choice, Client, JoinFile};
use eyas_cluster::Cluster;
use eyas_cluster::options::NodeShape;
use eyas_cluster::plan::{NodeSource, Shape};
use eyas_cluster::standing::{NotEnded, NotWhole, Waited, end_standing, make_whole};
use eyas_cluster::watch::{Broken, Event, Watch};
use eyas_terms::RunId;
use eyas_terms::array::{Command, Pattern, Piece, TaskArray, Template};
use eyas_wire::message::{Keep, RunStatus};
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Runtime;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// What a cluster with so many nodes of two slots each is to be like.
fn shape(dir: &Path, n_nodes: u32) -> Shape {
    let shape = Shape::new(env!("CARGO_BIN_EXE_eyas-part").into(), dir.join("cluster"), n_nodes);
    let node = NodeShape { slots: Some(2), ..NodeShape::default() };
    let nodes = NodeSource::Fixed(vec![node; n_nodes as usize]);
    Shape { nodes, ..shape }
}

/// A cluster of that shape.
fn started(dir: &Path, n_nodes: u32) -> Cluster {
    Cluster::start(&shape(dir, n_nodes)).unwrap()
}

/// So many tasks of one command.
fn tasks(n_tasks: u32, command: &[&str]) -> [Arc<TaskArray>; 1] {
    let command = Command::Exec(command.iter().map(|word| Pattern::literal(*word)).collect());
    let template = Template::new(Pattern(vec![Piece::Literal("t".into()), Piece::Index]), command);
    [Arc::new(TaskArray { n_tasks, first_index: 0, template, columns: vec![], needs: None })]
}

/// Submits tasks, and begins to watch them.
async fn submit<'a>(cluster: &'a mut Cluster, tasks: [Arc<TaskArray>; 1]) -> Watch<'a> {
    let mut client = cluster.connect().await.unwrap();
    let run = client.submit("a test", Keep::default(), tasks, |_| ()).await.unwrap();
    assert_eq!(run, RunId(1));
    Watch::begin(client, run, 50_000_000, Some(cluster)).unwrap()
}

/// The last status of the run, and what happened beside it until then.
async fn to_end(mut watch: Watch<'_>) -> Result<(RunStatus, Vec<Event>), Broken> {
    let mut events = vec![];
    loop {
        match watch.next().await? {
            Event::Run(status) if status.ended.is_some() => return Ok((*status, events)),
            Event::Run(_) => {}
            event => events.push(event),
        }
    }
}

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// The process of the part with that name is killed.
fn kill(pids: &[(String, u32)], name: &str) {
    let (_, pid) = pids.iter().find(|(part, _)| part == name).unwrap();
    // SAFETY: sending a signal to a process of this test.
    unsafe { libc::kill(*pid as i32, libc::SIGKILL) };
}

#[test]
fn a_cluster_is_started_given_tasks_watched_and_ended() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = started(dir.path(), 2);
    let pids = cluster.processes().pids();
    assert_eq!(pids.iter().map(|(name, _)| &name[..]).collect::<Vec<_>>(), ["dispatcher", "node1", "node2"]);
    assert_eq!(cluster.target().dir_here(), Some(&*cluster.dispatcher_dir()));
    runtime().block_on(async {
        let watch = submit(&mut cluster, tasks(20, &["true"])).await;
        assert!(watch.is_own() && !watch.is_lost());
        let (status, events) = to_end(watch).await.unwrap();
        assert_eq!((status.n_tasks, status.n_done, events.len()), (20, 20, 0));
        let nobody = async || std::future::pending().await;
        let left = cluster.end(false, nobody, || ()).await;
        assert!(left.unwrap().is_empty());
    });
    assert!(!pids.iter().any(|(_, pid)| is_alive(*pid)));
    // The same folder has a cluster again, which goes on with the numbers of its runs.
    started(dir.path(), 1).stop();
}

#[test]
fn a_run_goes_on_without_a_node_and_not_without_all() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = started(dir.path(), 2);
    let pids = cluster.processes().pids();
    runtime().block_on(async {
        let mut watch = submit(&mut cluster, tasks(4, &["sleep", "600"])).await;
        kill(&pids, "node1");
        loop {
            match watch.next().await.unwrap() {
                Event::NodeEnded { name, why } => {
                    assert_eq!((&name[..], &why.to_string()[..]), ("node1", "signal: 9 (SIGKILL)"));
                    break;
                }
                event => assert!(matches!(event, Event::Run(_)), "{event:?}"),
            }
        }
        kill(&pids, "node2");
        match to_end(watch).await {
            Err(Broken::NoNode { last }) => assert_eq!(last, "node2"),
            other => panic!("{other:?}"),
        }
    });
    cluster.stop();
}

#[test]
fn a_cluster_is_lost_with_its_dispatcher_and_tasks_end_where_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = started(dir.path(), 1);
    let pids = cluster.processes().pids();
    runtime().block_on(async {
        let mut watch = submit(&mut cluster, tasks(3, &["sleep", "600"])).await;
        watch.cancel();
        let (status, _) = to_end(watch).await.unwrap();
        assert_eq!((status.n_cancelled, status.n_done), (3, 0));
        let client = cluster.connect().await.unwrap();
        let watch = Watch::begin(client, RunId(1), u64::MAX, Some(&mut cluster)).unwrap();
        kill(&pids, "dispatcher");
        // The run had ended before, which may be said first.
        let mut broken = None;
        let mut watch = watch;
        while broken.is_none() {
            broken = watch.next().await.err();
        }
        match broken.unwrap() {
            Broken::OwnLost { ended: Some((name, _)), .. } | Broken::PartEnded { name, .. } => {
                assert_eq!(name, "dispatcher");
            }
            broken => panic!("{broken:?}"),
        }
    });
    drop(cluster);
    assert!(!pids.iter().any(|(_, pid)| is_alive(*pid)));
}

fn waits(waited: Waited) {
    panic!("nothing of before is there: {waited:?}");
}

#[test]
fn a_cluster_that_stays_is_made_whole_and_ended() {
    let dir = tempfile::tempdir().unwrap();
    let plan = Shape { is_embedded: false, ..shape(dir.path(), 2) }.plan().unwrap();
    let target = || JoinFile::new(plan.join_of(0), Choice::Named).read();
    let holder = |lock: &Path| eyas_runtime::locks::holder_of(lock).unwrap();
    runtime().block_on(async {
        let whole = make_whole(&plan, waits).await.unwrap();
        assert_eq!((whole.was_up, &whole.started[..]), (false, &["node1".to_string(), "node2".into()][..]));
        assert!(!whole.was_whole() && make_whole(&plan, waits).await.unwrap().was_whole());
        // A node that was killed is started again, and the other one stays.
        let node = holder(&plan.cluster_dir().join("node1/cache/lock"));
        kill(&[("node1".into(), node)], "node1");
        let mut client = Client::connect(&target().unwrap()).await.unwrap();
        let n_there = async |client: &mut Client| {
            let status = client.status().await.unwrap();
            status.executors.iter().filter(|of| of.state != eyas_terms::NodeState::Silent).count()
        };
        while n_there(&mut client).await == 2 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        let whole = make_whole(&plan, waits).await.unwrap();
        assert_eq!((whole.was_up, &whole.started[..]), (true, &["node1".to_string()][..]));
        client.submit("a test", Keep::default(), tasks(3, &["sleep", "600"]), |_| ()).await.unwrap();
        let ended = end_standing(&target().unwrap(), |_| ()).await.unwrap();
        assert_eq!((ended.was_killed, ended.n_unfinished), (false, 3));
        assert!(target().is_err(), "its join file is gone");
        // What was submitted goes on with the next one. One whose dispatcher is killed is nobody's to end.
        let whole = make_whole(&plan, |_| ()).await.unwrap();
        assert_eq!(whole.status.runs.iter().filter(|run| run.ended.is_none()).count(), 1);
        let joined = target().unwrap();
        let dispatcher = holder(&plan.lock_of(0));
        kill(&[("dispatcher".into(), dispatcher)], "dispatcher");
        while is_alive(dispatcher) && eyas_runtime::locks::holder_of(&plan.lock_of(0)).is_some() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert!(matches!(end_standing(&joined, |_| ()).await, Err(NotEnded::Nobody(_))));
        // It is made whole again with the nodes that live on.
        let whole = make_whole(&plan, |_| ()).await.unwrap();
        assert!(!whole.was_up && whole.started.is_empty(), "{:?}", whole.started);
        let ended = end_standing(&target().unwrap(), |_| ()).await.unwrap();
        assert_eq!((ended.was_killed, ended.n_unfinished), (false, 3));
    });
    let lock = eyas_cluster::starting::hold(&plan.dir).unwrap();
    let held = runtime().block_on(make_whole(&plan, waits));
    assert!(matches!(held, Err(NotWhole::Starting(_))));
    drop(lock);
}
