"""Files that lie on the nodes' own disks, by rules and by what HDFS says: tasks go there, and others still get the files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Eyas, Run, wait_until
from hdfs import Hdfs, hdfs
from weather import Cluster, payload

HOSTS = ("127.0.0.2", "127.0.0.3")


@pytest.fixture
def cluster(eyas: Eyas, tmp_path: Path) -> Cluster:
    return Cluster(eyas, tmp_path / "c", tmp_path / "home")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with hdfs(tmp_path_factory.mktemp("hdfs"), HOSTS) as store:
        yield store


def test_hdfs_keeps_every_promise_of_a_home(lab: Run, store: Hdfs) -> None:
    assert "keeps every promise" in lab("homes", store.url("base")).stdout
    assert store.names("base/new"), "the suite wrote somewhere else"


def test_what_hdfs_refuses_is_said(run: Run, store: Hdfs) -> None:
    gone = run("cat", store.url("none"), status=None)
    assert gone.status != 0 and "File does not exist" in gone.stderr, gone
    store.ask("PUT", "closed", "MKDIRS&permission=700")
    denied = run("cat", store.url("closed/x"), env={"HADOOP_USER_NAME": "other"}, status=None)
    assert denied.status != 0 and "Permission denied" in denied.stderr, denied
    assert "not found" not in denied.stderr


def test_tasks_run_on_the_hosts_of_their_blocks(cluster: Cluster, store: Hdfs) -> None:
    """Each of two executors is on the host of a data node, and reads only what lies there."""
    size = 300_000
    files = {f"in/{n}": payload(size, n) for n in range(40)}
    for name, content in files.items():
        store.put(name, content)
    at = {name: store.hosts(name)[0][0] for name in files}
    # HDFS chooses by chance; with as much on each host nobody has done before the other.
    names = [name for host in HOSTS for name in [n for n in files if at[n] == host][:6]]
    assert len(names) == 12, at
    cluster.dispatcher()
    for name, host in zip(("N1", "N2"), HOSTS, strict=True):
        cluster.executor(name, "--host", host)
    # Long enough that an executor which has done with its own files would have time for the others.
    line = "sleep 0.2; cat input/* > out"
    cluster.submit([cluster.task(f"t{n}", line, inputs=[store.url(name)]) for n, name in enumerate(names)])
    cluster.wait()
    for n, name in enumerate(names):
        assert cluster.output(f"t{n}") == files[name]
    ran_on = dict(line.split() for line in cluster.ran_log.read_text().splitlines())
    host_of = dict(zip(("N1", "N2"), HOSTS, strict=True))
    n_away = sum(host_of[ran_on[f"t{n}"]] != at[name] for n, name in enumerate(names))
    # By chance it would be half of them. The last tasks may go to whoever is idle.
    assert n_away <= 3, (ran_on, at)


def rules(cluster: Cluster, **owners: str) -> dict[str, Path]:
    """Folders at home, each on the own disk of one node, and the file that says so."""
    folders = {}
    text = ""
    for name, owner in owners.items():
        folders[name] = cluster.home / name
        folders[name].mkdir()
        text += f'[[home-on]]\nprefix = "{folders[name]}"\nhosts = ["{owner}"]\n'
    (cluster.folder / "eyas.toml").write_text(text)
    cluster.eyas.env["EYAS_HOMES"] = str(cluster.folder / "eyas.toml")
    return folders


def ways(cluster: Cluster) -> Counter[str]:
    """How many inputs came in which way."""
    found: Counter[str] = Counter()
    for entry in cluster.entries():
        event = entry.get("in")
        if isinstance(event, dict) and "attempt_ended" in event:
            for one in event["attempt_ended"]["report"]["inputs"]:
                outcome = one["outcome"]
                found[outcome if isinstance(outcome, str) else next(iter(outcome))] += 1
    return found


def test_files_on_the_nodes_own_disks_are_read_in_place(cluster: Cluster) -> None:
    folders = rules(cluster, a="N1", b="N2")
    tasks = []
    for n in range(8):
        for name, folder in folders.items():
            (folder / str(n)).write_bytes(payload(50_000, n))
            tasks.append(cluster.task(f"{name}{n}", inputs=[folder / str(n)]))
    cluster.dispatcher()
    cluster.executor("N1")
    cluster.executor("N2")
    cluster.submit(tasks)
    cluster.wait()
    line = cluster.run_line()
    assert line["home_bytes"] == 0
    assert ways(cluster)["in_place"] >= 13, ways(cluster)
    for n in range(8):
        assert cluster.output(f"a{n}") == payload(50_000, n)


def test_a_file_that_only_its_owner_reaches_comes_from_there(cluster: Cluster, tmp_path: Path) -> None:
    """The other node has an empty folder in the place of its neighbour's disk."""
    folders = rules(cluster, a="N1", b="N2")
    for n in range(4):
        for folder in folders.values():
            (folder / str(n)).write_bytes(payload(70_000, n + 10 * len(folder.name)))
    cluster.dispatcher()
    hidden = tmp_path / "hidden"
    hidden.write_text(
        f'#!/bin/sh\nexec unshare --mount sh -c \'mount -t tmpfs none {folders["a"]}; exec "$@"\' sh {cluster.eyas.path} "$@"\n'
    )
    hidden.chmod(0o755)
    cluster.executor("N1")
    cluster.eyas.start(
        "executor", "--join", cluster.join, "--dir", cluster.node_dir("N2"), "--name", "N2", program=hidden
    )
    wait_until(lambda: cluster.state_of("N2") == "connected", "N2")
    cluster.submit([cluster.task(f"t{n}", inputs=[f / str(n) for f in folders.values()]) for n in range(4)])
    cluster.wait()
    assert ways(cluster)["in_place"] == 4 == ways(cluster)["remote_hit"], ways(cluster)
    # A later run asks the owner again.
    cluster.submit([cluster.task("again", inputs=[f / "0" for f in folders.values()])])
    cluster.wait()
    assert cluster.output("again") == cluster.output("t0")


def test_a_rule_for_a_folder_that_is_not_there_is_an_error(cluster: Cluster) -> None:
    folders = rules(cluster, a="N1")
    folders["a"].rmdir()
    cluster.dispatcher()
    done = cluster.run("executor", "--name", "N1", "--dir", cluster.node_dir("N1"), status=2)
    assert f"{folders['a']} is no directory of this machine" in done.stderr.replace("`", ""), done.stderr
