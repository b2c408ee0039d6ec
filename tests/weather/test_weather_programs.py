"""What programs do to what they share with eyas: inputs that they write to, and processes that they leave behind."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from harness import Eyas, wait_until
from weather import Cluster, kill_now


@pytest.fixture
def cluster(eyas: Eyas, tmp_path: Path) -> Cluster:
    return Cluster(eyas, tmp_path / "cluster", tmp_path / "home")


IN = "input/0000"
# Each changes the input in its place, keeps its length, and sets its time back. Only the first would not do for root.
WRITERS = {
    "chmod": f"touch -r {IN} t; chmod u+w {IN}; printf DAMAGED | dd of={IN} conv=notrunc status=none; touch -r t {IN}",
    "append": f"touch -r {IN} t; chmod u+w {IN}; n=$(stat -Lc %s {IN}); echo more >> {IN}; truncate -s $n {IN}; "
    f"printf DAMAGED | dd of={IN} conv=notrunc status=none; touch -r t {IN}",
    "mapping": "python3 -c '"
    "import mmap, os\n"
    f'path = os.path.realpath("{IN}")\n'
    "at = os.stat(path)\n"
    "os.chmod(path, 0o644)\n"
    'file = open(path, "r+b")\n'
    "mapped = mmap.mmap(file.fileno(), 0)\n"
    "file.close()\n"
    'mapped[:7] = b"DAMAGED"\n'
    "mapped.close()\n"
    "os.chmod(path, at.st_mode & 0o777)\n"
    "os.utime(path, ns=(at.st_atime_ns, at.st_mtime_ns))\n"
    "'",
    "other name": f"touch -r {IN} t; ln {IN} x; chmod u+w x; printf DAMAGED | dd of=x conv=notrunc status=none; "
    f"touch -r t x; rm x",
}


@pytest.mark.parametrize("how", WRITERS)
def test_a_program_that_writes_to_its_input_and_sets_the_time_back(cluster: Cluster, how: str) -> None:
    """Tasks after it, and beside it on another node that fetches from this one, read what home has."""
    cluster.dispatcher()
    cluster.executor("N1")
    shared = cluster.file("shared", 100_000, 1)
    whole = shared.read_bytes()
    cluster.submit([cluster.task("first", inputs=[shared])])
    cluster.wait()
    cluster.submit([cluster.task("writer", f"{WRITERS[how]}; echo done > out", [shared])])
    cluster.wait()
    cluster.submit([cluster.task(f"reader{i}", inputs=[shared]) for i in range(3)])
    cluster.wait()
    cluster.executor("N2")
    cluster.submit([cluster.task(f"later{i}", "sleep 0.2; cat input/* > out", [shared]) for i in range(4)])
    cluster.wait()
    readers = ["first", *(f"reader{i}" for i in range(3)), *(f"later{i}" for i in range(4))]
    cluster.expect(**dict.fromkeys(readers, whole))
    assert shared.read_bytes() == whole


def test_a_program_that_opens_its_input_for_writing_and_only_reads(cluster: Cluster) -> None:
    """It costs a look at the bytes, and nothing else: the task runs once, the copy stays."""
    cluster.dispatcher()
    cluster.executor("N1")
    shared = cluster.file("shared", 100_000, 1)
    opens = f"cat < {IN} 1<> {IN} > out"
    cluster.submit([cluster.task("first", inputs=[shared])])
    cluster.wait()
    cluster.submit([cluster.task(f"t{i}", opens, [shared]) for i in range(3)])
    cluster.wait()
    cluster.expect(**{f"t{i}": shared.read_bytes() for i in range(3)})
    assert sorted(cluster.ran()) == ["first", "t0", "t1", "t2"]
    # An executor says what it counts once a second.
    wait_until(lambda: cluster.counter("N1", "home_read_bytes") > 0, "the counter")
    assert cluster.counter("N1", "home_read_bytes") == 100_000


def test_an_input_written_to_when_the_executor_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    """Nobody saw it; the next executor does not trust what was in use."""
    cluster.dispatcher()
    killed = cluster.executor("N1")
    shared = cluster.file("shared", 100_000, 1)
    gate = tmp_path / "written"
    line = f"{WRITERS['chmod']}; touch {gate}; sleep 1000"
    cluster.submit([cluster.task("first", inputs=[shared])])
    cluster.wait()
    cluster.submit([cluster.task("writer", f"[ -e {gate} ] || {{ {line}; }}; echo done > out", [shared])])
    wait_until(gate.exists, "the input to be written to", alive=killed)
    kill_now(killed)
    cluster.executor("N1")
    cluster.submit([cluster.task("reader", inputs=[shared])])
    cluster.wait()
    cluster.expect(reader=shared.read_bytes())


def is_alive(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    return False


def children(pid: int) -> list[int]:
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (thread / "children").read_text().split()]
    return found


# In its own session, forked twice, with nothing of its parent's environment.
ESCAPES = "(setsid env -i sh -c 'echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 1000' &); sleep 1000"


@pytest.mark.parametrize("which", ["slot", "executor"])
def test_what_a_program_left_behind_ends_with_a_killed_process_of_ours(
    cluster: Cluster, tmp_path: Path, which: str
) -> None:
    cluster.dispatcher()
    part = cluster.executor("N1")
    pid = tmp_path / "pid"
    # The second try has nothing to leave behind.
    line = f"[ -e {pid} ] || {{ {ESCAPES.format(pid=pid)}; }}; echo done > out"
    cluster.submit([cluster.task("a", line)])
    wait_until(pid.exists, "the escaped process", alive=part)
    escaped = int(pid.read_text())
    assert is_alive(escaped)
    if which == "slot":
        [slot] = children(part.pid)
        os.kill(slot, signal.SIGKILL)
    else:
        kill_now(part)
        cluster.executor("N1")
    wait_until(lambda: not is_alive(escaped), "the escaped process to be ended")
    cluster.wait()
    cluster.expect(a=b"done\n")
    boxes = cluster.node_dir("N1") / "sandbox"
    wait_until(lambda: len(list(boxes.iterdir())) <= 1, "the sandboxes of the killed process to go")


def test_outputs_of_a_killed_slot_still_come_home(cluster: Cluster) -> None:
    """They lie in its sandbox, as they do not fit into the cache."""
    cluster.dispatcher("--home-rate", "500kB")
    part = cluster.executor("N1", "--cache", "100kB")
    cluster.submit([cluster.task("a", "head -c 2000000 /dev/zero > out")])
    wait_until(lambda: list(cluster.home.glob(".eyas-part-*")), "a file on its way home", alive=part)
    [slot] = children(part.pid)
    os.kill(slot, signal.SIGKILL)
    cluster.wait()
    cluster.expect(a=bytes(2_000_000))
    assert cluster.ran() == ["a"]
    boxes = cluster.node_dir("N1") / "sandbox"
    wait_until(lambda: not list(boxes.glob(f"s{slot}-*")), "the sandbox of the killed process to go")


def test_an_executor_that_ends_says_so_when_its_programs_have_ended(cluster: Cluster, tmp_path: Path) -> None:
    """What they held, such as a licence, is given out again at once. Here the slot process does not end its program."""
    cluster.dispatcher("--cluster-resource", "licence=1")
    leaving = cluster.executor("N1")
    pid = tmp_path / "pid"
    again = f"kill -0 $(cat {pid}) 2> {os.devnull} && echo beside > out || echo after > out"
    line = f"if [ -e {pid} ]; then {again}; else echo $$ > {pid}; sleep 1000; fi"
    cluster.submit([cluster.task("a", line, resources={"licence": 1})])
    wait_until(pid.exists, "the program to run", alive=leaving)
    cluster.executor("N2")
    [slot] = children(leaving.pid)
    os.kill(slot, signal.SIGSTOP)
    leaving.signal(signal.SIGTERM)
    cluster.wait()
    cluster.expect(a=b"after\n")
