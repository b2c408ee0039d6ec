"""Watched tasks while processes die: what they made is there once and whole, and nothing else."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from harness import Eyas, wait_until
from lists import write_list
from weather import Cluster, kill_now, listing


@pytest.mark.parametrize("killed", ["executor", "dispatcher"])
def test_a_process_is_killed_in_the_middle_of_a_watched_task(eyas: Eyas, tmp_path: Path, killed: str) -> None:
    cluster = Cluster(eyas, tmp_path / "cluster", tmp_path / "home")
    (cluster.home / "in").write_text("b\na\n")
    (cluster.home / "later").write_text("c\n")
    dispatcher = cluster.dispatcher()
    first = cluster.executor("a")
    gate = tmp_path / "gate"
    wait = f"echo >> {cluster.ran_log}; until test -e {gate}; do sleep 0.05; done"
    line = f"sort in > half; {wait}; cat half later > out; rm half"
    write_list(tmp_path / "t.jsonl", {"id": "t", "command": line, "watch": True})
    client = eyas.start("run", tmp_path / "t.jsonl", "--join", cluster.join, cwd=cluster.home)
    wait_until(cluster.ran_log.exists, "the program to run", alive=client)
    if killed == "executor":
        kill_now(first)
        cluster.executor("b")
        gate.touch()
    else:
        kill_now(dispatcher)
        gate.touch()
        cluster.dispatcher()
    client.wait(120)
    assert listing(cluster.home) == {"in": b"b\na\n", "later": b"c\n", "out": b"a\nb\nc\n"}


def test_an_executor_dies_while_its_program_waits_for_a_file(eyas: Eyas, tmp_path: Path) -> None:
    """The dispatcher does not answer, so the call that opens the file waits in the kernel."""
    cluster = Cluster(eyas, tmp_path / "cluster", tmp_path / "home")
    (cluster.home / "in").write_text("b\na\n")
    dispatcher = cluster.dispatcher()
    first = cluster.executor("a")
    gate, asked = tmp_path / "gate", tmp_path / "asked"
    wait = f"echo >> {cluster.ran_log}; until test -e {gate}; do sleep 0.05; done"
    line = f"ls -l in > list; {wait}; echo >> {asked}; sort in > out || echo wrong > out"
    write_list(tmp_path / "t.jsonl", {"id": "t", "command": line, "watch": True})
    client = eyas.start("run", tmp_path / "t.jsonl", "--join", cluster.join, cwd=cluster.home)
    wait_until(cluster.ran_log.exists, "the program to run", alive=client)
    dispatcher.signal(signal.SIGSTOP)
    gate.touch()
    wait_until(asked.exists, "the program to open the file")
    kill_now(first)
    dispatcher.signal(signal.SIGCONT)
    cluster.executor("b")
    client.wait(120)
    kept = listing(cluster.home)
    assert kept.pop("list").split()[4] == b"4"
    assert kept == {"in": b"b\na\n", "out": b"a\nb\n"}
