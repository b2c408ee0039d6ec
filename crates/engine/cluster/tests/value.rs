//! Clusters as values, with real processes: started in a folder, given tasks, watched, and ended.

use eyas_cluster::Cluster;
use eyas_cluster::options::NodeShape;
use eyas_cluster::plan::{NodeSource, Shape};
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

/// A cluster with so many nodes of two slots each.
fn started(dir: &Path, n_nodes: u32) -> Cluster {
    let shape = Shape::new(env!("CARGO_BIN_EXE_eyas-part").into(), dir.join("cluster"), n_nodes);
    let node = NodeShape { slots: Some(2), ..NodeShape::default() };
    let nodes = NodeSource::Fixed(vec![node; n_nodes as usize]);
    Cluster::start(&Shape { nodes, ..shape }).unwrap()
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
