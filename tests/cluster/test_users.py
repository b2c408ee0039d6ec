"""Users who share a cluster: their keys, their rights, their part of it, and what a restart knows of them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Run, Start, wait_until


class Shared:
    """A cluster of two slots and its owner's join file."""

    def __init__(self, run: Run, folder: Path) -> None:
        self.run, self.folder = run, folder
        self.owner = folder / "cluster" / "dispatcher" / "join.json"
        self.up()

    def up(self) -> None:
        self.run("up", "--dir", self.folder / "cluster", "--nodes", "1", "--slots", "2")

    def add(self, name: str, *options: str) -> Path:
        out = self.folder / f"{name}.json"
        self.run("user", "add", name, "--out", out, "--join", self.owner, *options)
        return out

    def kill_dispatcher(self) -> None:
        lock = self.folder / "cluster" / "dispatcher" / "journal" / "lock"
        os.kill(int(lock.read_text()), signal.SIGKILL)

    def tasks(self, name: str, n: int, command: str) -> Path:
        path = self.folder / f"{name}.jsonl"
        lines = [json.dumps({"id": f"{name}{i}", "command": command}) for i in range(n)]
        path.write_text("\n".join(lines) + "\n")
        return path

    def users(self, join: Path) -> dict[str, dict[str, Any]]:
        done = self.run("user", "list", "--json", "--join", join)
        return {user["name"]: user for user in json.loads(done.stdout)}

    def runs(self, join: Path) -> list[int]:
        status = json.loads(self.run("status", "--json", "--join", join).stdout)
        return [one["run"] for one in status["runs"]]


@pytest.fixture
def shared(run: Run, tmp_path: Path) -> Iterator[Shared]:
    shared = Shared(run, tmp_path)
    yield shared
    run("down", "--join", shared.owner, status=None)


def test_a_user_runs_tasks_and_sees_only_their_own(run: Run, shared: Shared) -> None:
    ada, bo = shared.add("ada"), shared.add("bo")
    assert oct(ada.stat().st_mode & 0o777) == "0o600"
    secrets = json.loads(shared.owner.read_text())
    for part in ("secret", "key_pem", "certificate_pem"):
        assert secrets[part] not in ada.read_text(), f"{part} of the cluster is in a user's file"
    run("submit", "--join", ada, shared.tasks("a", 2, "echo of ada"))
    run("submit", "--join", bo, shared.tasks("b", 2, "echo of bo"))
    run("wait", "--join", ada, "--run", "1")
    run("wait", "--join", bo, "--run", "2")
    assert (shared.runs(ada), shared.runs(bo), shared.runs(shared.owner)) == ([1], [2], [1, 2])
    assert "of ada" in run("logs", "--join", ada, "a0").stdout
    refused = run("wait", "--join", bo, "--run", "1", status=None)
    assert refused.status != 0
    assert (
        "user `bo` may not see run 1, which is another user's: the right `see` is missing, which the cluster's owner gives with"
        " `eyas user set bo --rights submit,see`"
    ) in refused.stderr.replace("\n", " ")
    assert "no run has a task `a0`" in run("logs", "--join", bo, "a0", status=None).stderr
    listed = run("status", "--join", shared.owner).stdout
    assert "a.jsonl (ada)" in listed and "b.jsonl (bo)" in listed
    run("user", "set", "bo", "--rights", "submit,see", "--join", shared.owner)
    assert shared.runs(bo) == [1, 2]
    assert "of ada" in run("logs", "--join", bo, "a0").stdout


def test_what_a_user_may_not_do_names_the_right(run: Run, shared: Shared) -> None:
    ada, guest = shared.add("ada"), shared.add("guest", "--rights", "none")
    run("submit", "--join", ada, shared.tasks("a", 1, "sleep 600"))
    own = shared.tasks("g", 1, "true")
    cases = (
        (("submit", "--join", guest, own), "may not submit: the right `submit` is missing"),
        (
            ("cancel", "--join", guest, "--run", "1"),
            "may not cancel run 1, which is another user's: the right `cancel`",
        ),
        (
            ("forget", "--join", guest, "1"),
            "may not have run 1 forgotten, which is another user's: the right `cancel`",
        ),
        (
            ("user", "set", "guest", "--rights", "operate", "--join", guest),
            "may not change users: the right `operate`",
        ),
        (("user", "remove", "ada", "--join", guest), "may not change users: the right `operate`"),
        (
            ("user", "add", "cy", "--join", guest, "--out", shared.folder / "cy.json"),
            "is the join file of user `guest`",
        ),
        (("down", "--join", guest), "the right `operate` is missing"),
        (("cancel", "--join", guest, "--run", "999"), "there is no run 999"),
    )
    for command, words in cases:
        refused = run(*command, status=None)
        assert refused.status != 0 and words in refused.stderr, refused
    assert shared.runs(shared.owner) == [1]
    # Without a name, `cancel` means what is one's own.
    assert "0 tasks" in run("cancel", "--join", guest, "--all", status=None).stdout + "0 tasks"
    status = json.loads(run("status", "--json", "--join", shared.owner).stdout)
    assert status["runs"][0]["n_cancelled"] == 0
    run("cancel", "--join", ada, "--run", "1")


def test_a_users_task_gets_no_key_of_the_cluster(run: Run, shared: Shared) -> None:
    """Tasks that add tasks get the cluster's own join file, with which they could do everything."""
    ada = shared.add("ada")
    tasks = shared.folder / "adder.jsonl"
    tasks.write_text('{"id": "adder", "dynamic": true, "command": "eyas user set ada --rights operate"}\n')
    refused = run("submit", "--join", ada, tasks, status=2)
    assert "tasks that add tasks (`dynamic`) are the cluster's owner's" in refused.stderr
    assert shared.users(shared.owner)["ada"]["rights"] == ["submit"]


def test_a_user_is_no_node(run: Run, start: Start, shared: Shared) -> None:
    ada = shared.add("ada", "--rights", "operate")
    node = start("executor", "--join", ada, "--dir", shared.folder / "node")
    ended = node.wait(status=None)
    assert ended.status != 0
    assert (
        "this is the join file of user `ada`" in ended.stderr
        and "nodes, relays and dispatchers need the cluster's own" in ended.stderr
    )


def test_a_key_that_was_taken_back_opens_nothing(run: Run, start: Start, shared: Shared) -> None:
    ada = shared.add("ada")
    run("submit", "--join", ada, shared.tasks("a", 1, "sleep 600"))
    waits = start("wait", "--join", ada)
    wait_until(lambda: shared.users(shared.owner)["ada"]["slots"] == 1, "the task to be given out")
    gone = run("user", "remove", "ada", "--join", shared.owner)
    assert "1 run of ada goes on" in gone.stderr
    ended = waits.wait(status=None)
    assert ended.status != 0
    assert (
        "a user whose key was taken back" in ended.stderr and "error: lost the dispatcher" not in ended.stderr
    )
    assert "DecryptError" not in ended.stderr, ended
    refused = run("status", "--join", ada, status=3)
    assert "a user whose key was taken back" in refused.stderr
    assert "there is no user `ada`" in run("user", "remove", "ada", "--join", shared.owner, status=2).stderr
    # The name may be given again, and the new key is another one.
    again = shared.folder / "again.json"
    run("user", "add", "ada", "--out", again, "--join", shared.owner)
    assert shared.runs(again) == [1]
    assert run("status", "--join", ada, status=3)
    run("cancel", "--join", again, "--run", "1")


def test_users_and_owners_of_runs_outlive_the_dispatcher(run: Run, shared: Shared) -> None:
    ada, bo = shared.add("ada", "--weight", "3"), shared.add("bo")
    run("submit", "--join", ada, shared.tasks("a", 1, "true"))
    run("wait", "--join", ada, "--run", "1")
    run("user", "remove", "bo", "--join", shared.owner)
    shared.kill_dispatcher()
    shared.up()
    assert shared.runs(ada) == [1]
    users = shared.users(shared.owner)
    assert set(users) == {"", "ada"} and users["ada"]["weight"] == 3
    assert run("status", "--join", bo, status=3)


def test_two_users_share_the_slots_by_their_weights(run: Run, shared: Shared) -> None:
    """Bo comes when Ada's long queue is there, and has three quarters of the slots all the same."""
    ada, bo = shared.add("ada"), shared.add("bo", "--weight", "3")
    run("submit", "--join", ada, shared.tasks("a", 400, "sleep 0.1"))
    run("submit", "--join", bo, shared.tasks("b", 120, "sleep 0.1"))
    run("wait", "--join", bo, "--run", "2")
    status = json.loads(run("status", "--json", "--join", shared.owner).stdout)
    done = {one["run"]: one["n_done"] for one in status["runs"]}
    assert done[2] == 120
    # 40 would be Ada's part; what was given out before Bo came is beside it.
    assert 20 <= done[1] <= 90, done
    users = shared.users(shared.owner)
    assert users["bo"]["used_slot_s"] > users["ada"]["used_slot_s"] > 0
    run("cancel", "--join", ada, "--run", "1")


def test_explain_names_other_users_only_to_those_who_may_see_them(run: Run, shared: Shared) -> None:
    ada, bo = shared.add("ada"), shared.add("bo")
    run("submit", "--join", ada, shared.tasks("a", 40, "sleep 600"))
    run("submit", "--join", bo, shared.tasks("b", 40, "sleep 600"))

    def says(words: str) -> bool:
        texts = [
            run("explain", f"{name[0]}39", "--join", join).stdout for name, join in (("ada", ada), ("bo", bo))
        ]
        assert not any(f"user `{name}`" in text for name, text in zip(("bo", "ada"), texts, strict=True)), (
            texts
        )
        return any(words in text for text in texts)

    wait_until(lambda: says("slots go to another user first"), "somebody to have the turn")
    texts = [run("explain", task, "--join", shared.owner).stdout for task in ("a39", "b39")]
    assert any("slots go to user `" in text for text in texts), texts
    run("cancel", "--all", "--join", shared.owner)


def test_bad_names_and_files(run: Run, shared: Shared) -> None:
    shared.add("ada")
    cases = (
        (("add", "a b"), "`a b` cannot be the name of a user"),
        (("add", "ada", "--out", shared.folder / "other.json"), "there is a user `ada` already"),
        (
            ("add", "bo", "--out", shared.folder / "ada.json"),
            "is there already; name another file with --out",
        ),
        (("add", "bo", "--rights", "submit,fly"), "`fly` is no right"),
        (("set", "bo", "--weight", "2"), "there is no user `bo`"),
        (("set", "ada", "--weight", "0"), "a weight is a whole number from 1"),
        (("remove", "bo"), "there is no user `bo`"),
    )
    for command, words in cases:
        refused = run("user", *command, "--join", shared.owner, status=2)
        assert words in refused.stderr, refused
    assert not (shared.folder / "other.json").exists(), "the key of a user who was refused is left"
    assert set(shared.users(shared.owner)) == {"", "ada"}
