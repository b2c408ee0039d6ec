"""Files of a node's cache that are held in memory, too: `--cache-memory`."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest
from harness import Background, Eyas, Run, lacking, wait_until
from lists import write_list
from weather import Cluster

MIB = 1 << 20


@pytest.fixture
def cluster(eyas: Eyas, tmp_path: Path) -> Cluster:
    return Cluster(eyas, tmp_path / "cluster", tmp_path / "home")


def locked_bytes(process: Background) -> int:
    """Memory that the kernel may not take from the process."""
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmLck:"))
    return int(line.split()[1]) << 10


def in_memory(cluster: Cluster) -> dict[str, list[int]]:
    """Of each task's last attempt: which of its inputs were in memory when its program began."""
    ends = [
        line["in"]["attempt_ended"] for line in cluster.entries() if "attempt_ended" in line.get("in", {})
    ]
    names = sorted({end["report"]["task"] for end in ends})
    found = {end["report"]["task"]: end["report"]["in_memory"] for end in ends}
    return {str(name): found[name] for name in names}


def test_what_tasks_read_and_make_is_held_in_memory_within_the_budget(cluster: Cluster) -> None:
    cluster.dispatcher()
    node = cluster.executor("N1", "--cache-memory", "8MiB", "--memory", "64MiB")
    old, new = cluster.file("old", 5 * MIB, 1), cluster.file("new", 4 * MIB + 1, 2)
    assert cluster.counter("N1", "memory_bytes") <= 8 * MIB

    def held() -> int:
        return cluster.counter("N1", "memory_used_bytes")

    def one(name: str, path: Path, line: str = "wc -c < input/0000 > out") -> None:
        cluster.submit([cluster.task(name, line, inputs=[path])])
        cluster.wait()

    one("a", old)
    wait_until(lambda: held() > 5 * MIB, "the file and what was made of it to be in memory")
    assert 5 * MIB < locked_bytes(node) <= 8 * MIB
    one("b", old)
    # There is no room for both. One that is read once does not push the other out; one that is read again does.
    one("c", new)
    assert held() > 5 * MIB
    one("d", new)
    wait_until(lambda: 4 * MIB < held() < 5 * MIB, "the other file in its place")
    assert locked_bytes(node) <= 8 * MIB
    one("e", new)
    one("f", old)
    # What a task made is there, too.
    one("g", cluster.home / "e.out", "cat input/0000 > out")
    found = [bool(positions) for positions in in_memory(cluster).values()]
    assert found == [False, True, False, False, True, False, True]
    cluster.expect(b=b"%d\n" % (5 * MIB), e=b"%d\n" % (4 * MIB + 1))

    story = cluster.run("explain", "b").stdout
    assert "in the node's cache already; in memory when the program began" in story
    table = cluster.run("status").stdout
    assert "in memory" in table and "/ 8.0 MiB" in table
    page = cluster.folder / "report.html"
    cluster.eyas.run("report", "--dir", cluster.dir, "--all", "--out", page)
    assert "<th>in memory, " in page.read_text()
    requests = json.loads(page.with_suffix(".json").read_text())["executors"][0]["requests"]
    assert requests["in_memory"]["n_requests"] == 3 and requests["in_memory"]["bytes"] > 9 * MIB


def test_a_file_that_is_dropped_from_the_cache_leaves_memory(cluster: Cluster) -> None:
    cluster.dispatcher()
    node = cluster.executor("N1", "--cache-memory", "32MiB", "--cache", "8MiB")
    for name in ("a", "b", "c"):
        cluster.submit([cluster.task(name, "true > out", inputs=[cluster.file(name, 6 * MIB, ord(name))])])
        cluster.wait()
    wait_until(lambda: 6 * MIB <= cluster.counter("N1", "memory_used_bytes") <= 7 * MIB, "one file in memory")
    wait_until(lambda: locked_bytes(node) <= 7 * MIB, "the pages of the others to be free")


def test_a_system_that_locks_no_memory_is_said_once_and_the_disk_serves(
    cluster: Cluster, tmp_path: Path
) -> None:
    if not shutil.which("setpriv"):
        lacking("needs setpriv")
    bounded = tmp_path / "bounded"
    bounded.write_text(
        "#!/bin/sh\nulimit -l 64\n"
        f'exec setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock {shlex.quote(str(cluster.eyas.path))} "$@"\n'
    )
    bounded.chmod(0o755)
    cluster.dispatcher()
    options: list[str | Path] = [
        "--join",
        cluster.join,
        "--dir",
        cluster.node_dir("N1"),
        "--name",
        "N1",
        "--cache-memory",
        "8MiB",
    ]
    node = cluster.eyas.start("executor", *options, program=bounded)
    wait_until(lambda: cluster.state_of("N1") == "connected", "the executor to join", alive=node)
    files = [cluster.file(f"f{i}", MIB, i) for i in range(3)]
    tasks = [cluster.task(f"t{i}", inputs=[path]) for i, path in enumerate(files)]
    cluster.submit(tasks)
    cluster.wait()
    cluster.expect(**{f"t{i}": path.read_bytes() for i, path in enumerate(files)})
    node.wait_for_text("no more files of the cache can be held in memory now")
    assert node.stderr.count("can be held in memory") == 1 and "memlock" in node.stderr
    wait_until(lambda: cluster.counter("N1", "memory_bytes") < 8 * MIB, "the smaller budget in the status")


def test_memory_of_the_cache_is_no_memory_of_tasks(run: Run, tmp_path: Path) -> None:
    task = {"id": "t", "command": "true", "memory": 600 * MIB}
    write_list(tmp_path / "tasks.jsonl", task)
    node = ("--memory", "1GiB", "--cache-memory")
    refused = run("run", "tasks.jsonl", *node, "1GiB", cwd=tmp_path, status=2).stderr
    assert "--cache-memory takes 1.0 GiB of each node's memory, and a node has 1.0 GiB" in refused
    refused = run("run", "tasks.jsonl", *node, "512MiB", cwd=tmp_path, status=2).stderr
    assert "task `t` needs 600.0 MiB of memory, and each node has 512.0 MiB for tasks" in refused
    run("run", "tasks.jsonl", *node, "256MiB", cwd=tmp_path)
