"""What tasks print: while they run, grouped, in order, cut where it is said, and whole in a file that the task names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from harness import Background, Eyas, Run, Start, wait_until


def write(path: Path, *tasks: Mapping[str, object]) -> Path:
    path.write_text("".join(f"{json.dumps(task)}\n" for task in tasks), encoding="utf-8")
    return path


@pytest.fixture
def up(eyas: Eyas, run: Run) -> Iterator[None]:
    """A cluster of one node with two slots."""
    run("up", "--nodes", "1", "--slots", "2")
    yield
    run("down", status=None)


def held(gate: Path) -> str:
    return f"while [ ! -e {gate} ]; do sleep 0.02; done"


def test_a_running_program_is_heard(up: None, run: Run, start: Start, tmp_path: Path) -> None:
    """What it has printed is shown while it runs, `-f` shows the rest as it comes, and a queued one is said to be queued."""
    gate = tmp_path / "gate"
    talker = f"echo hello; echo trouble >&2; {held(gate)}; echo bye"
    tasks: list[dict[str, object]] = [
        {"id": "talker", "command": talker},
        {"id": "mute", "command": held(gate)},
        {"id": "behind", "command": "echo late", "cpus": 2},
        {"id": "reader", "command": "cat x", "inputs": {"x": "run:made"}},
        {"id": "maker", "command": "echo > x", "outputs": {"x": "run:made"}, "cpus": 2},
    ]
    run("submit", write(tmp_path / "l.jsonl", *tasks))

    def has_begun() -> bool:
        said = run("logs", "talker")
        return (said.stdout, said.stderr) == ("hello\n", "trouble\n")

    wait_until(has_begun, "what the running task has printed")
    wait_until(lambda: "task `mute` runs" in run("logs", "mute").stderr, "a task that runs and is silent")
    assert "has printed nothing so far" in run("logs", "mute").stderr
    behind = run("logs", "behind").stderr
    assert (
        "task `behind` is queued" in behind or "task `behind` is at an executor and has not begun" in behind
    )
    assert (
        "task `reader` is queued and has not begun: `run:made`, which task `maker` makes"
        in run("logs", "reader").stderr
    )
    followers = [start("logs", "-f", name) for name in ["talker", "behind"]]
    wait_until(lambda: followers[0].stdout == "hello\n", "the follower's first words", alive=followers[0])
    gate.touch()
    assert [follower.wait().stdout for follower in followers] == ["hello\nbye\n", "late\n"]
    assert followers[0].stderr == "trouble\n"
    assert run("logs", "talker").stdout == "hello\nbye\n"
    run("wait")
    assert "task `mute` printed nothing" in run("logs", "mute").stderr


def test_a_stream_is_followed_while_it_grows(up: None, run: Run, start: Start, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    steps = f"for i in 1 2 3; do echo step $i; while [ ! -e {gate}$i ]; do sleep 0.02; done; done"
    run("submit", write(tmp_path / "l.jsonl", {"id": "steps", "command": steps}))
    follower: Background = start("logs", "--follow", "steps")

    def shows(wanted: str) -> bool:
        return follower.stdout == wanted

    for i in (1, 2, 3):
        wanted = "".join(f"step {k}\n" for k in range(1, i + 1))
        wait_until(partial(shows, wanted), f"step {i}", alive=follower)
        Path(f"{gate}{i}").touch()
    assert follower.wait().stdout == "step 1\nstep 2\nstep 3\n"


def test_a_node_that_does_not_answer_is_named(eyas: Eyas, run: Run, start: Start, tmp_path: Path) -> None:
    start("dispatcher", "--dir", tmp_path / "d", "--lease", "600s")
    join = tmp_path / "d" / "join.json"
    wait_until(join.exists, "the join file")
    executor = start("executor", "--join", join, "--dir", tmp_path / "n", "--slots", "1")
    gate = tmp_path / "gate"
    run(
        "submit", "--join", join, write(tmp_path / "l.jsonl", {"id": "a", "command": f"echo a; {held(gate)}"})
    )
    wait_until(lambda: run("logs", "--join", join, "a").stdout == "a\n", "the first words")
    executor.kill()
    wait_until(
        lambda: "does not answer now" in run("logs", "--join", join, "a").stderr, "the node to be missed"
    )


def test_what_failed_tasks_printed_comes_under_headings(run: Run, tmp_path: Path) -> None:
    tasks: list[dict[str, object]] = [
        {"id": "good", "command": "echo fine"},
        {"id": "bad1", "command": "echo out1; echo err1 >&2; exit 3"},
        {"id": "bad2", "command": "printf 'no end'; exit 4"},
        {"id": "mute", "command": "exit 5"},
        {"id": "twice", "command": "echo try $EYAS_ATTEMPT; exit 6", "retries": 1},
    ]
    listed = write(tmp_path / "l.jsonl", *tasks)
    run("up", "--nodes", "1", "--slots", "2")
    run("submit", listed)
    run("wait", status=1)
    live = run("logs", "--failed").stdout
    run("down")
    run("run", listed, status=1)
    for said in (live, run("logs", "--failed").stdout):
        assert "fine" not in said
        parts = dict(part.split(" of run 1 ", 1) for part in said.split("=== task ")[1:])
        assert set(parts) == {"`bad1`", "`bad2`", "`mute`", "`twice`"}
        assert parts["`bad1`"].splitlines()[0].startswith("failed: the program ended with status 3")
        assert parts["`bad1`"].splitlines()[1:] == ["out1", "err1"]
        assert parts["`bad2`"].splitlines()[1:] == ["no end"]
        assert parts["`mute`"].splitlines()[1:] == ["(it printed nothing)"]
        assert parts["`twice`"].splitlines()[1:] == ["--- attempt 1", "try 1", "--- attempt 2", "try 2"]
    run("map", "--range", "0..2", "--", "true")
    assert "no task of run 1 has failed" in run("logs", "--failed").stderr


def test_a_map_without_outputs_shows_what_its_tasks_print_in_order(run: Run, tmp_path: Path) -> None:
    """Grouped and in order, whoever ends first; the first task here ends last."""
    line = "i={index}; echo begin $i; [ $i -gt 0 ] || sleep 0.5; echo end $i; echo err $i >&2"
    done = run("map", "--range", "0..150", "--slots", "4", "--shell", "--", line)
    assert done.stdout == "".join(f"begin {i}\nend {i}\n" for i in range(150))
    errors = [said for said in done.stderr.splitlines() if said.startswith("err ")]
    assert errors == [f"err {i}" for i in range(150)]
    assert run("map", "--range", "0..3", "--no-print", "--", "echo", "x").stdout == ""
    unkept = run("map", "--range", "0..3", "--no-event-log", "--", "echo", "x")
    assert (
        unkept.stdout == ""
        and "note: what the tasks print is neither kept nor shown (--no-event-log)" in unkept.stderr
    )
    out: list[str | Path] = ["--out", tmp_path / "{index}", "--shell", "--", "echo {index} | tee {out}"]
    assert run("map", "--range", "0..3", *out).stdout == ""
    assert run("map", "--range", "0..3", "--print", *out).stdout == "0\n1\n2\n"
    # Of a task that was repeated, the last attempt is the one that counts.
    again = "[ $EYAS_ATTEMPT = 2 ] && exit; echo wrong; exit 1"
    assert run("map", "--range", "0..2", "--retries", "1", "--shell", "--", again).stdout == ""


def test_a_map_on_several_dispatchers_shows_all(run: Run) -> None:
    done = run("map", "--range", "0..60", "--nodes", "2", "--dispatchers", "2", "--", "echo", "{index}")
    assert sorted(done.stdout.split(), key=int) == [str(i) for i in range(60)]


def test_a_file_takes_all_that_a_task_prints(run: Run, tmp_path: Path) -> None:
    """`stdout` and `stderr` name files at home, whole however long; what `logs` shows is cut, and says how to keep all."""
    tasks: list[dict[str, object]] = [
        {"id": "loud", "command": "seq 100000; echo done >&2", "stdout": "out/loud.txt", "stderr": "run:err"},
        {"id": "reads", "command": ["cat", "e"], "inputs": {"e": "run:err"}, "stdout": "out/e.txt"},
        {"id": "fails", "command": "echo lost; exit 1", "stdout": "out/fails.txt"},
    ]
    run("run", write(tmp_path / "l.jsonl", *tasks), status=1)
    whole = "".join(f"{i}\n" for i in range(1, 100_001))
    assert (tmp_path / "out" / "loud.txt").read_text() == whole
    assert (tmp_path / "out" / "e.txt").read_text() == "done\n"
    assert not (tmp_path / "out" / "fails.txt").exists()
    assert run("logs", "fails").stdout == "lost\n"
    cut = run("logs", "loud", status=4)
    assert whole.startswith(cut.stdout[: 16 << 10]) and whole.endswith(cut.stdout[16 << 10 :])
    assert "standard output is not whole" in cut.stderr and '"stdout": "FILE"' in cut.stderr


@pytest.mark.parametrize(
    ("task", "why"),
    [
        ({"outputs": {".eyas-stdout": "x"}}, "the name `.eyas-stdout` is for what the program prints"),
        ({"stdout": "x", "stderr": "x"}, "writes"),
        ({"stdout": "d/"}, "names a directory"),
    ],
)
def test_bad_places_for_what_is_printed(run: Run, tmp_path: Path, task: dict[str, object], why: str) -> None:
    listed = write(tmp_path / "l.jsonl", {"command": ["true"], **task})
    assert why in run("run", listed, status=2).stderr


def test_a_pipe_gets_the_bytes_that_were_printed_or_the_status_says_so(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(bytes(range(256)) * 40)
    run("map", "bytes", "--", "cat", "{in}")
    got = (tmp_path / ".eyas-test" / "eyas-1.stdout").read_bytes()
    assert got == (tmp_path / "bytes").read_bytes()
    whole = "".join(f"{i}\n" for i in range(1, 20_001))
    assert run("map", "--range", "0..2", "--", "seq", "20000").stdout == 2 * whole
    assert (
        run("map", "--range", "0..2", "--nodes", "2", "--dispatchers", "2", "--", "seq", "20000").stdout
        == 2 * whole
    )
    # What was shown needs no place any more.
    cut = run("logs", "1", status=4)
    assert "error: standard output is not whole: " in cut.stderr and "{out}" in cut.stderr
    assert "not kept" not in cut.stdout and whole.startswith(cut.stdout[:100])


def test_text_that_is_kept_whole_keeps_its_characters(run: Run, tmp_path: Path) -> None:
    """A character that lies across the place where the first and the last part of a stream meet."""
    task = {"id": "text", "command": ["printf", "x" * (16 * 1024 - 1) + "ü" * 100]}
    run("run", write(tmp_path / "l.jsonl", task))
    assert run("logs", "text").stdout == "x" * (16 * 1024 - 1) + "ü" * 100
