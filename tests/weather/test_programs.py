"""Programs that misbehave: each ends alone, with its reason in a sentence, and leaves nothing behind.

Every case runs between tasks that are fine and have to stay so.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Eyas, Finished, Run, Start, wait_until
from lists import Json, failures, nothing_is_left, runs, write_list

SHARED = "what all read\n"


@pytest.fixture
def beside(run: Run, eyas: Eyas, tmp_path: Path) -> Callable[..., Finished]:
    """Runs tasks beside three good ones that read `shared.txt`; checks the good ones and what is left."""

    def go(*tasks: Json, status: int, options: tuple[str, ...] = ()) -> Finished:
        (tmp_path / "shared.txt").write_text(SHARED)
        (tmp_path / "crlf").write_bytes(b"#!/bin/sh\r\necho x\r\n")
        good: list[Json] = [
            {
                "id": f"ok-{i}",
                "command": "cat shared.txt > o",
                "inputs": ["shared.txt"],
                "outputs": {"o": f"ok-{i}"},
            }
            for i in range(3)
        ]
        listed = write_list(tmp_path / "tasks.jsonl", good[0], *tasks, *good[1:])
        done = run("run", listed, *options, status=status)
        assert [(tmp_path / f"ok-{i}").read_text() for i in range(3)] == [SHARED] * 3
        assert (tmp_path / "shared.txt").read_text() == SHARED
        # A killed process may take a moment to be gone, but eyas waits for its own.
        wait_until(lambda: not list(eyas.left_behind()), "the end of all processes")
        nothing_is_left(tmp_path)
        n_failed = len(failures(done))
        assert f"{len(tasks) + 3 - n_failed} done, {n_failed} failed, 0 cancelled" in done.stderr, done
        return done

    return go


PYTHON = "import os, signal, sys, time\n"


@pytest.mark.parametrize(
    ("task", "why"),
    [
        pytest.param(
            {"command": ["no-such-program", "x"]},
            "command not found: `no-such-program` (PATH=",
            id="no-such-command",
        ),
        pytest.param(
            {"command": ["./absent"]}, "command not found: there is no file `./absent`", id="no-such-path"
        ),
        pytest.param(
            {"command": ["./shared.txt"], "inputs": ["shared.txt"]},
            "command `./shared.txt` is neither a program for this machine nor a script that starts with `#!`",
            id="not-a-program",
        ),
        pytest.param(
            {"command": ["./crlf"], "inputs": {"crlf": "crlf"}},
            "command `./crlf` begins with a line that ends in a carriage return (\\r)",
            id="carriage-return",
        ),
        pytest.param(
            {"command": "echo one; echo 'cannot open star.cat' >&2; exit 7"},
            "the program ended with status 7; its last words: cannot open star.cat",
            id="fails",
        ),
        pytest.param({"command": "kill -9 $$"}, "the program was ended by signal 9 (SIGKILL)", id="killed"),
        pytest.param(
            {"command": "kill -SEGV $$"}, "the program was ended by signal 11 (SIGSEGV)", id="crashes"
        ),
        pytest.param(
            {"command": ["sleep", "1000"], "walltime": "200ms"},
            "the program ran longer than its walltime of 0.2 s and was ended",
            id="over-walltime",
        ),
        pytest.param(
            {
                "command": ["sh", "-c", "trap '' TERM INT HUP; while :; do sleep 1000; done"],
                "walltime": "200ms",
            },
            "the program ran longer than its walltime of 0.2 s and was ended",
            id="over-walltime-and-deaf",
        ),
        pytest.param(
            {
                "command": ["python3", "-c", PYTHON + "held = b'x' * (400 << 20); time.sleep(1000)"],
                "memory": "100MiB",
            },
            "of memory, more than its limit of 100.0 MiB, and was ended",
            id="over-memory",
        ),
        pytest.param(
            {"command": "true", "outputs": {"map.txt": "out.txt"}},
            "its declared output `map.txt` (for `{at}/out.txt`) is not there, and the command does not name it",
            id="output-missing-and-not-named",
        ),
        pytest.param(
            {"command": "test ! -e map.txt", "outputs": {"map.txt": "out.txt"}},
            "the program ended well, but its declared output `map.txt` (for `{at}/out.txt`) is not there",
            id="output-missing",
        ),
        pytest.param(
            {"command": "mkdir map.txt", "outputs": {"map.txt": "out.txt"}},
            "the program ended well, but its declared output `map.txt` (for `{at}/out.txt`) is a directory",
            id="output-is-a-directory",
        ),
        pytest.param(
            {"command": "mkfifo map.txt", "outputs": {"map.txt": "out.txt"}},
            "the program ended well, but its declared output `map.txt` (for `{at}/out.txt`) is a",
            id="output-is-a-pipe",
        ),
    ],
)
def test_a_program_that_goes_wrong_fails_alone(
    beside: Callable[..., Finished], tmp_path: Path, task: Json, why: str
) -> None:
    done = beside({"id": "bad", **task}, status=1)
    reasons = failures(done)
    assert list(reasons) == ["bad"], done
    assert why.replace("{at}", str(tmp_path)) in reasons["bad"], done
    assert not (tmp_path / "out.txt").exists()


def test_a_program_that_no_folder_has_is_looked_for_before_anything_starts(
    run: Run, eyas: Eyas, tmp_path: Path
) -> None:
    done = run("map", "--range", "0..1000", "--", "nosuch", "{index}", cwd=tmp_path, status=2)
    assert "command not found: `nosuch` is in no folder of PATH (" in done.stderr
    assert "so no task was started" in done.stderr and "install it" in done.stderr
    (tmp_path / "nosuch").write_text("#!/bin/sh\n")
    done = run("map", "--range", "0..3", "--", "nosuch", "{index}", cwd=tmp_path, status=2)
    assert "`--with nosuch`" in done.stderr and "`./nosuch`" in done.stderr
    listed = write_list(
        tmp_path / "tasks.jsonl", {"command": ["true"]}, {"command": ["nosuch"]}, {"command": ["nosuch", "1"]}
    )
    done = run("run", listed, cwd=tmp_path, status=1)
    assert "2 of 3 tasks will fail for such a reason" in done.stderr
    assert "1 done, 2 failed, 0 cancelled" in done.stderr
    # A task may have a PATH of its own.
    (tmp_path / "nosuch").chmod(0o755)
    own: Json = {"command": ["nosuch"], "env": {"PATH": str(tmp_path)}}
    run("run", write_list(tmp_path / "own.jsonl", own), cwd=tmp_path)


def test_pages_of_a_mapped_file_are_no_memory_of_the_task(
    beside: Callable[..., Finished], tmp_path: Path
) -> None:
    (tmp_path / "big").write_bytes(bytes(200 << 20))
    reads = "import mmap; f = open('big', 'rb'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)\n"
    reads += "print(sum(m[i] for i in range(0, len(m), 4096))); time.sleep(0.5)"
    task = {"command": ["python3", "-c", PYTHON + reads], "inputs": ["big"], "memory": "60MiB"}
    beside({"id": "maps", **task}, status=0)


def test_a_failure_is_repeated_as_often_as_asked(beside: Callable[..., Finished], tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    task = {
        "id": "third-time",
        "command": f"echo x >> '{tries}'; test $(wc -l < '{tries}') = 3",
        "retries": 2,
    }
    beside(task, status=0)
    assert tries.read_text() == "x\n" * 3
    tries.unlink()
    done = beside({**task, "retries": 1}, status=1)
    assert list(failures(done)) == ["third-time"]
    assert tries.read_text() == "x\n" * 2


def test_a_gigabyte_of_print_keeps_its_ends(
    beside: Callable[..., Finished], run: Run, tmp_path: Path
) -> None:
    task = {"id": "loud", "command": "echo first; head -c 1000000000 /dev/zero; echo; echo last"}
    beside(task, status=0)
    (only,) = runs(tmp_path)
    kept = sum(path.stat().st_size for path in only.rglob("*") if path.is_file())
    assert kept < 4 << 20, f"{kept} bytes kept of a task's output"
    cut = run("logs", "loud", status=4)
    assert cut.stdout.startswith("first\n") and cut.stdout.endswith("\nlast\n")
    assert "not kept; " in cut.stderr and len(cut.stdout) < 1 << 20


@pytest.mark.parametrize(
    "leaves",
    [
        pytest.param("sleep 1000 &", id="child"),
        pytest.param("(sleep 1000 & sleep 1001 &) &", id="grandchildren"),
        pytest.param("setsid sleep 1000 & setsid sh -c 'sleep 1001 & sleep 1002' &", id="sessions"),
        pytest.param(
            f"""python3 -c '{PYTHON}
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        os.chdir("/"); os.closerange(0, 256); os.environ.clear()
        time.sleep(1000)
    os._exit(0)'""",
            id="daemon",
        ),
    ],
)
def test_children_left_behind_are_ended(beside: Callable[..., Finished], tmp_path: Path, leaves: str) -> None:
    pids = tmp_path / "pids"
    command = f"{leaves}\nsleep 0.1; pgrep -f 'sleep[ (]100' > /dev/null; echo done > o"
    beside({"id": "parent", "command": command, "outputs": {"o": str(pids)}}, status=0)
    assert pids.read_text() == "done\n"


def test_a_program_may_delete_its_input_for_itself(beside: Callable[..., Finished], tmp_path: Path) -> None:
    task = {
        "id": "deletes",
        "command": "rm -f shared.txt; ls > o",
        "inputs": ["shared.txt"],
        "outputs": {"o": "left"},
    }
    beside(task, status=0)
    assert (tmp_path / "left").read_text() == "o\n"


WRITES = {
    "appends": "echo more >> shared.txt",
    "truncates": "echo gone > shared.txt",
    "in-place": "printf X | dd of=shared.txt conv=notrunc status=none",
    "makes-writable-first": "chmod 644 shared.txt; echo more >> shared.txt",
}


@pytest.mark.parametrize("how", WRITES)
def test_a_program_that_writes_to_its_input_gets_a_copy_of_its_own(
    beside: Callable[..., Finished], run: Run, tmp_path: Path, how: str
) -> None:
    tries = tmp_path / "tries"
    writer = {
        "id": "writes",
        "command": f"echo x >> '{tries}'; {WRITES[how]}; sleep 0.1; cat shared.txt > o",
        "inputs": ["shared.txt"],
        "outputs": {"o": "written"},
    }
    readers = [
        {
            "id": f"reads-{i}",
            "command": "cat shared.txt > o; sleep 0.02; cat shared.txt >> o",
            "inputs": ["shared.txt"],
            "outputs": {"o": f"read-{i}"},
        }
        for i in range(20)
    ]
    beside(*readers[:2], writer, *readers[2:], status=0, options=("--slots", "4"))
    expected = {
        "appends": SHARED + "more\n",
        "truncates": "gone\n",
        "in-place": "X" + SHARED[1:],
        "makes-writable-first": SHARED + "more\n",
    }
    assert (tmp_path / "written").read_text() == expected[how]
    # Once with the shared copy and once with its own; a busy node may take it back and start it again.
    assert len(tries.read_text()) >= 2 * len("x\n")
    # No reader has seen what the writer wrote.
    assert {(tmp_path / f"read-{i}").read_text() for i in range(20)} == {SHARED * 2}
    assert "changed" not in (tmp_path / "shared.txt").read_text()


def test_all_at_once(beside: Callable[..., Finished]) -> None:
    """Each failure is printed once, whatever their order, and the exit status tells that there were some."""
    bad = [
        {"id": f"{kind}-{i}", "command": command, "walltime": "1s"}
        for i in range(3)
        for kind, command in [("status", "exit 1"), ("signal", "kill -KILL $$"), ("command", "nonesuch")]
    ]
    done = beside(*bad, {"id": "slow", "command": ["sleep", "100"], "walltime": "300ms"}, status=1)
    assert sorted(failures(done)) == sorted([*(str(task["id"]) for task in bad), "slow"])


def test_many_failures_are_counted_not_listed(run: Run, tmp_path: Path) -> None:
    done = run("map", "--range", "0..100", "--", "false", status=1)
    assert len(failures(done)) == 3
    assert "\nfailed: 97 more, as far as was seen for the same reason\n" in done.stderr
    other = run("map", "--range", "0..100", "--shell", "--", "exit $((1 + {index}))", status=1)
    assert len(failures(other)) == 20 and "\nfailed: 80 more\n" in other.stderr
    assert "100 failed" in done.stderr
    nothing_is_left(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_its_programs(
    start: Start, eyas: Eyas, tmp_path: Path, number: signal.Signals
) -> None:
    began = tmp_path / "began"
    write_list(
        tmp_path / "tasks.jsonl",
        *[{"command": f"touch '{began}'; sleep 1000", "retries": 3} for _ in range(50)],
    )
    running = start("run", "tasks.jsonl")
    wait_until(began.exists, "the first task", alive=running)
    running.signal(number)
    done = running.wait(status=130)
    assert "ending the tasks" in done.stderr and "50 cancelled" in done.stderr, done
    wait_until(lambda: not list(eyas.left_behind()), "the end of all processes")
    nothing_is_left(tmp_path)


def test_programs_start_with_clean_signals_and_streams(run: Run, tmp_path: Path) -> None:
    """`yes | head` ends quietly only when SIGPIPE is as a login shell leaves it; standard input is empty."""
    write_list(
        tmp_path / "tasks.jsonl",
        {"command": "yes | head -n 1 > o; cat >> o; grep SigIgn /proc/self/status >> o", "outputs": ["o"]},
        {"command": "ls /proc/self/fd | tr '\\n' ' ' > o", "outputs": {"o": "fds"}},
    )
    run("run", "tasks.jsonl")
    word, ignored = (tmp_path / "o").read_text().split("\nSigIgn:\t")
    assert word == "y"
    # The C library keeps the first real-time signals (32, 33) to itself.
    assert int(ignored, 16) & 0x7FFF_FFFF == 0
    # ls itself opens one more to read the folder.
    assert (tmp_path / "fds").read_text() == "0 1 2 3 "
