"""A dispatcher's directory that is copied, moved, replaced by another one's, or started again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from group import Group, written
from harness import Eyas, Run, Start, wait_until
from weather import Cluster, kill_now


@pytest.fixture
def cluster(eyas: Eyas, tmp_path: Path) -> Cluster:
    return Cluster(eyas, tmp_path / "cluster", tmp_path / "home")


def gated(cluster: Cluster, name: str, gate: Path) -> dict[str, object]:
    return cluster.task(name, line=f"echo {name} > out", gate=gate)


def test_work_of_another_journal_is_nobody_elses(cluster: Cluster, run: Run, tmp_path: Path) -> None:
    """The same key, the same address, the same numbers of tasks, and another journal: what an executor has is not taken for it."""
    first = cluster.dispatcher("--lease", "60s")
    cluster.executor("N1", slots=2)
    gate = tmp_path / "gate"
    cluster.submit([gated(cluster, f"a{i}", gate) for i in range(4)])
    cluster.begun("a0", "a1")
    kill_now(first)
    aside = cluster.dir.with_name("aside")
    cluster.dir.rename(aside)
    cluster.dir.mkdir()
    shutil.copy(aside / "identity.json", cluster.dir)

    second = cluster.dispatcher("--lease", "60s")
    cluster.submit([gated(cluster, f"b{i}", gate) for i in range(4)])
    gate.touch()
    cluster.executor("N2")
    cluster.wait()
    cluster.expect(**{f"b{i}": f"b{i}\n".encode() for i in range(4)})
    assert cluster.find_node("N1") is None, "it has another dispatcher's work"
    kill_now(second)

    shutil.rmtree(cluster.dir)
    aside.rename(cluster.dir)
    cluster.dispatcher("--lease", "60s")
    cluster.wait()
    cluster.expect(**{f"a{i}": f"a{i}\n".encode() for i in range(4)})
    assert sorted(cluster.ran()) == sorted(f"{run}{i}" for run in "ab" for i in range(4)), "nothing ran twice"


def test_a_copied_directory_is_noticed_and_a_renamed_one_goes_on(
    cluster: Cluster, run: Run, tmp_path: Path
) -> None:
    dispatcher = cluster.dispatcher()
    gate = tmp_path / "gate"
    cluster.submit([gated(cluster, "a", gate)])
    copy = tmp_path / "copy"
    shutil.copytree(cluster.dir, copy)
    refused = run("dispatcher", "--dir", copy, status=3)
    assert f"is a copy of `{cluster.dir}`" in refused.stderr and "place.json" in refused.stderr
    assert not (copy / "join.json").exists() or cluster.find_status() is not None
    # The other one is gone for good.
    kill_now(dispatcher)
    shutil.rmtree(cluster.dir)
    (copy / "place.json").unlink()
    copy.rename(cluster.dir)
    cluster.dispatcher()
    gate.touch()
    cluster.executor("N1")
    cluster.wait()
    cluster.expect(a=b"a\n")


def test_a_journal_that_was_copied_alone_is_spoken_of(
    cluster: Cluster, run: Run, eyas: Eyas, tmp_path: Path
) -> None:
    """Nobody can tell it from a directory whose place was taken away on purpose."""
    dispatcher = cluster.dispatcher()
    cluster.submit([gated(cluster, "a", tmp_path / "gate")])
    assert "place.json" not in dispatcher.stderr
    kill_now(dispatcher)
    again = cluster.dispatcher()
    assert "place.json" not in again.stderr, "it is where it was"
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copytree(cluster.dir / "journal", copy / "journal")
    shutil.copy(cluster.dir / "identity.json", copy)
    other = eyas.start("dispatcher", "--dir", copy)
    wait_until((copy / "join.json").exists, "its join file", alive=other)
    assert f"`{copy}` has a journal and no `place.json`" in other.stderr
    assert "both would run the same tasks" in other.stderr


def test_when_a_run_began_and_ended_outlives_the_dispatcher(cluster: Cluster, tmp_path: Path) -> None:
    dispatcher = cluster.dispatcher()
    gate = tmp_path / "gate"
    cluster.submit([gated(cluster, "a", gate)])
    before = cluster.run_line()
    kill_now(dispatcher)
    dispatcher = cluster.dispatcher()
    assert cluster.run_line()["opened"] == before["opened"]
    assert cluster.run_line()["ended"] is None
    cluster.executor("N1")
    gate.touch()
    said = cluster.wait().stderr
    ended = cluster.run_line()
    assert ended["ended"] > ended["opened"] == before["opened"]
    kill_now(dispatcher)
    cluster.dispatcher()
    assert (cluster.run_line()["opened"], cluster.run_line()["ended"]) == (ended["opened"], ended["ended"])
    again = cluster.wait().stderr
    assert [line for line in again.splitlines() if " tasks in " in line] == [
        line for line in said.splitlines() if " tasks in " in line
    ]


def test_a_member_comes_back_while_the_first_one_is_away(start: Start, run: Run, tmp_path: Path) -> None:
    group = Group(start, run, tmp_path, 2)
    for dispatcher in group.dispatchers:
        dispatcher.kill()
    group.join(1).unlink()
    # As it was started the first time, though that join file is gone, and without it.
    group.dispatcher(2).kill()
    group.join(2).unlink(missing_ok=True)
    alone = ("--dir", group.dir(2), "--member", "2/2")
    again = start("dispatcher", *alone)
    wait_until(group.join(2).exists, "its join file", alive=again)
    group.dispatchers[0] = group.dispatcher(1)
    wait_until(lambda: not group.warnings(), "the dispatchers to know each other")
    group.executors(2)
    run("submit", written(tmp_path / "t.jsonl", [{"id": "t", "command": "true"}]), "--join", group.join(2))
    run("wait", "--join", group.join(1))


def test_a_join_file_that_others_may_read_is_refused(cluster: Cluster, run: Run, tmp_path: Path) -> None:
    cluster.dispatcher()
    open_to_all = tmp_path / "join.json"
    open_to_all.write_text(cluster.join.read_text())
    open_to_all.chmod(0o644)
    for args in (("status",), ("down",), ("executor", "--dir", tmp_path / "N")):
        refused = run(*args, "--join", open_to_all, status=3)
        assert "mode 0644" in refused.stderr and f"chmod 600 {open_to_all}" in refused.stderr
        assert "remove" not in refused.stderr, "the file is of use still"
    open_to_all.chmod(0o600)
    assert json.loads(run("status", "--json", "--join", open_to_all).stdout)["runs"] == []
