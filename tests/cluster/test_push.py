"""`eyas warm`: files of home are on the nodes before a task reads them."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from harness import Eyas, Run, wait_until
from weather import Cluster, kill_now


@pytest.fixture
def up(run: Run, tmp_path: Path) -> Iterator[Path]:
    """A cluster of three nodes, and a folder of five files."""
    data = tmp_path / "data"
    data.mkdir()
    for i in range(5):
        (data / f"f{i}").write_bytes(os.urandom(200_000))
    run("up", "--dir", "c", "--nodes", "3", "--slots", "1", "--cache", "10MB")
    yield data
    run("down")


def warm(run: Run, *words: str | Path, status: int = 0) -> dict[str, Any]:
    pushed: dict[str, Any] = json.loads(run("warm", *map(str, words), "--json", status=status).stdout)
    return pushed


def test_all_nodes_have_all_files_and_tasks_read_them_there(run: Run, up: Path, tmp_path: Path) -> None:
    pushed = warm(run, up)
    assert (pushed["n_files"], pushed["n_read"], pushed["n_nodes"]) == (5, 5, 3), pushed
    assert (pushed["n_wanted"], pushed["n_there"], pushed["there_bytes"]) == (15, 15, 3_000_000)
    tasks = [
        {"id": f"{i}-{k}", "command": ["cksum", "in"], "inputs": {"in": str(up / f"f{i}")}}
        for i in range(5)
        for k in range(6)
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    run("submit", "t.jsonl")
    end = json.loads(run("wait", "--json").stdout)["runs"][-1]
    assert (end["n_done"], end["home_bytes"], end["peer_bytes"]) == (30, 0, 0), "each task finds its input"
    # Its inputs, named by the list: all of them are there.
    again = warm(run, "--tasks", "t.jsonl")
    assert (again["n_files"], again["n_there"]) == (5, 15)
    shown = run("status").stdout
    assert "push: 5 of 5 files read, 15 of 15 copies on 3 nodes" in shown, shown


def test_explain_says_where_a_push_put_a_file(run: Run, up: Path, tmp_path: Path) -> None:
    warm(run, up)
    story = json.loads(run("explain", "data/f3", "--json", cwd=tmp_path).stdout)
    assert story["file"] == str(up / "f3") and story["runs"] == [1]
    assert sorted(story["there"]) == ["node1", "node2", "node3"]
    sentences = [step["sentence"] for step in story["steps"]]
    assert sentences[0] == "run 1 began to push it to node1, node2, node3"
    readers = [text.split()[0] for text in sentences if text.endswith("was to read it from home")]
    assert len(readers) == 1 and f"{readers[0]} had it" in sentences
    assert sum("was to get it from" in text for text in sentences) == 2
    text = run("explain", up / "f3").stdout
    assert text.endswith("It is on node1, node2, node3 now, as far as the log says.\n"), text
    # What no push wanted is no task either.
    assert "no run has a task" in run("explain", up / "f9", status=2).stderr


def test_chosen_nodes_a_pattern_and_words_that_are_wrong(run: Run, up: Path) -> None:
    names = [node["name"] for node in json.loads(run("status", "--json").stdout)["executors"]]
    pushed = warm(run, f"{up}/f[01]", up / "f2", "--nodes", ",".join(names[:2]))
    assert (pushed["n_files"], pushed["n_nodes"], pushed["n_there"]) == (3, 2, 6)
    refused = run("warm", str(up), "--nodes", "nobody", status=2).stderr
    assert "the cluster has no node `nobody`; it has `node1`" in refused
    assert "Traceback" not in refused and "panicked" not in refused
    absent = run("warm", str(up / "absent"), status=2).stderr
    assert "absent" in absent, absent
    # A home that cannot list is asked for the file, and its answer is what is said.
    away = run("warm", "http://127.0.0.1:1/f", status=None).stderr
    assert "http://127.0.0.1:1/f" in away and "does not support" not in away, away
    assert run("warm", status=2).stderr.startswith("error: ")


def test_the_query_of_a_url_is_not_written_down(run: Run, up: Path, tmp_path: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=up))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    place = f"http://127.0.0.1:{server.server_address[1]}/f0"
    try:
        assert warm(run, f"{place}?sig=5ec2e7")["n_there"] == 3
    finally:
        server.shutdown()
        server.server_close()
    assert json.loads(run("status", "--json").stdout)["runs"][0]["name"] == f"warm {place}?..."
    written = [path for path in (tmp_path / "c" / "dispatcher").rglob("*") if path.is_file()]
    assert "events.jsonl" in [path.name for path in written]
    # What processes need of it is kept encrypted.
    assert [path.name for path in written if b"5ec2e7" in path.read_bytes()] == []


def test_what_does_not_fit_is_named_and_counted_and_the_exit_says_so(run: Run, up: Path) -> None:
    (up / "large").write_bytes(os.urandom(11_000_000))
    pushed = warm(run, up, status=1)
    assert (pushed["n_there"], pushed["n_wanted"], pushed["n_unfit"]) == (15, 18, 3), pushed
    assert all(missing["file"].endswith("/large") for missing in pushed["missing"])
    done = run("warm", str(up / "large"), status=1)
    assert "missing: " in done.stderr and "large" in done.stderr and "no room" in done.stderr, done


def test_a_cache_that_is_in_use_is_named_as_the_reason(run: Run, up: Path, tmp_path: Path) -> None:
    """One node's cache is taken by the input of a task that runs: the file goes to the others, and why is said."""
    (up / "held").write_bytes(os.urandom(8_000_000))
    (up / "pushed").write_bytes(os.urandom(5_000_000))
    began, go_on = tmp_path / "began", tmp_path / "go-on"
    waits = f"touch {began}; while [ ! -e {go_on} ]; do sleep 0.05; done; cksum in"
    task = {"id": "holds", "command": waits, "inputs": {"in": str(up / "held")}}
    (tmp_path / "t.jsonl").write_text(json.dumps(task) + "\n")
    run("submit", "t.jsonl")
    wait_until(began.exists, "the task runs")
    pushed = warm(run, up / "pushed", status=1)
    go_on.touch()
    assert (pushed["n_there"], pushed["n_wanted"], pushed["n_unfit"]) == (2, 3, 1), pushed
    assert [missing["why"] for missing in pushed["missing"]] == [
        "its cache of 9.5 MiB had no room for it beside what may not leave the cache"
    ]
    run("wait")
    assert warm(run, up / "pushed")["n_there"] == 3, "there is room when the task has ended"


def test_a_file_that_changed_at_home_is_pushed_anew(run: Run, up: Path) -> None:
    warm(run, up / "f0")
    (up / "f0").write_bytes(b"new bytes" * 1000)
    assert warm(run, up / "f0")["there_bytes"] == 3 * 9000


def test_a_push_goes_on_when_the_dispatcher_was_killed(eyas: Eyas, tmp_path: Path) -> None:
    """Its journal says what is wanted. A push that has ended does not begin again."""
    cluster = Cluster(eyas, tmp_path / "cluster", tmp_path / "home")
    files = tmp_path / "files"
    files.mkdir()
    for i in range(20):
        (files / f"f{i}").write_bytes(os.urandom(50_000))
    dispatcher = cluster.dispatcher()
    join = ("--join", cluster.dir / "join.json")
    pushing = eyas.start("warm", files, "--json", *join)
    wait_until(lambda: (cluster.find_status() or {}).get("runs"), "its run", alive=pushing)
    kill_now(dispatcher)
    dispatcher = cluster.dispatcher()
    cluster.executor("N1")
    pushed = json.loads(pushing.wait().stdout)
    assert (pushed["n_there"], pushed["n_wanted"], pushed["n_nodes"]) == (20, 20, 1), pushed
    ended = cluster.run_line()["ended"]
    assert ended is not None
    kill_now(dispatcher)
    cluster.dispatcher()
    after = cluster.run_line()
    assert (after["ended"], after["push"]) == (ended, None), "how it ended is not known any more"
