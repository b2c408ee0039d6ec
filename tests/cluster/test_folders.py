"""What lies where: nothing is left of what was mistyped, and a folder in memory is said to be there."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Eyas, Run, lacking, wait_until

MISTYPED = [
    ("--placement", "nearest"),
    ("--eviction", "lrru"),
    ("--nodes", "1..2", "--provisioning", "expo"),
    ("--idle-release", "5s"),
    ("--home-local", "no/such/folder"),
    ("--dispatchers", "3"),
]


def below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if "clusters" not in path.parts)


@pytest.mark.parametrize("options", MISTYPED, ids=lambda options: options[-2])
def test_mistyped_options_leave_no_folder(run: Run, tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "l.jsonl").write_text('{"command": "true"}\n')
    state = tmp_path / "state"
    env = {"EYAS_STATE": str(state)}
    for command in (["run", "l.jsonl"], ["map", "--range", "0..2", "--", "true"], ["up"]):
        verb = command[0]
        at = command.index("--") if "--" in command else len(command)
        for where in ([], ["--dir", str(tmp_path / "own")]):
            words = [*command[:at], *options, *where, *command[at:]]
            refused = run(*words, env=env, status=2)
            assert refused.stderr.startswith("error: "), verb
            assert [name for name in below(state) if not name.startswith("workflows")] == []
            assert not (tmp_path / "own").exists()


def test_parts_with_mistyped_options_leave_no_folder(run: Run, tmp_path: Path) -> None:
    own = tmp_path / "own"
    assert "nearest" in run("dispatcher", "--dir", own, "--placement", "nearest", status=2).stderr
    assert "lrru" in run("executor", "--join", "x.json", "--dir", own, "--eviction", "lrru", status=2).stderr
    assert not own.exists()


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory, if this machine has such."""
    root = Path("/dev/shm")
    mounts = Path("/proc/mounts").read_text() if Path("/proc/mounts").exists() else ""
    if f"{root} tmpfs" not in mounts or not os.access(root, os.W_OK):
        lacking("needs /dev/shm, as a tmpfs that one may write to")
    folder = root / f"eyas-test-{os.getpid()}"
    folder.mkdir(mode=0o700)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_a_run_in_memory_says_so_once(run: Run, tmp_path: Path, memory: Path) -> None:
    (tmp_path / "l.jsonl").write_text('{"command": "true"}\n')
    for options in (["--dir", str(memory / "run")], []):
        done = run("run", "l.jsonl", "--nodes", "2", *options, env={"EYAS_STATE": str(memory / "state")})
        (said,) = [line for line in done.stderr.splitlines() if "(tmpfs)" in line]
        assert said.startswith("note: ") and "up to 8.0 GiB" in said


@pytest.mark.parametrize("how", ["removed", "moved"])
def test_a_cluster_ends_with_its_folder(eyas: Eyas, tmp_path: Path, how: str) -> None:
    """Whoever removes the folder of a cluster that is up ends it, with what its tasks have started, and finds nothing of it again."""
    folder, began = tmp_path / "c", tmp_path / "began"
    eyas.run("up", "--dir", folder, "--nodes", "2", "--slots", "1")
    join = folder / "dispatcher" / "join.json"
    command = f"sleep 1000 & echo > {began}.$EYAS_TASK; sleep 1000"
    (tmp_path / "l.jsonl").write_text(f"{json.dumps({'command': command})}\n" * 3)
    eyas.run("submit", tmp_path / "l.jsonl", "--join", join)
    wait_until(lambda: len(list(tmp_path.glob("began.*"))) == 2, "two tasks")
    waiting = eyas.start("wait", "--join", join)
    waiting.wait_for_text("0/3 tasks")
    match how:
        case "removed":
            shutil.rmtree(folder)
        case _:
            folder.rename(tmp_path / "elsewhere")
    done = waiting.wait(60, status=3)
    assert f"the folder `{folder}/dispatcher` was removed or moved while the cluster was up" in done.stderr, (
        done
    )
    wait_until(lambda: not list(eyas.left_behind()), "the end of all processes", timeout=20)
    assert not folder.exists()
    if how == "moved":
        log = (tmp_path / "elsewhere" / "dispatcher" / "dispatcher.log").read_text()
        assert "was removed or moved" in log
    assert "cannot read the join file" in eyas.run("status", "--join", join, status=3).stderr
    eyas.run("up", "--dir", folder, "--nodes", "1")
    eyas.run("down", "--join", join)
