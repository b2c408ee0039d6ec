"""`eyas.futures.Executor`, beside what CPython's own tests look at (scripts/suites.py)."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, as_completed
from pathlib import Path
from typing import Any

import eyas
import pytest
from eyas.futures import Executor
from harness import ROOT, Start

GIVEN = "nothing"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("EYAS_STATE", str(tmp_path / "state"))
    yield


def begin(value: str) -> None:
    # The module's name in a worker, which imports it.
    os.environ["GIVEN"] = value


def given(_: int) -> tuple[str, int]:
    return os.environ.get("GIVEN", ""), os.getpid()


def until_there(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.01)


def test_calls_are_mapped_and_workers_begin_once() -> None:
    with Executor(2, initializer=begin, initargs=("by the initializer",)) as executor:
        assert executor._max_workers == 2
        assert list(executor.map(pow, range(50), range(50), chunksize=7)) == [n**n for n in range(50)]
        found = {future.result(60) for future in as_completed([executor.submit(given, n) for n in range(20)])}
        assert {value for value, _ in found} == {"by the initializer"} and len(found) <= 2
        last = executor.submit(pow, 2, 5)
    assert last.result() == 32
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(pow, 2, 5)


def test_a_worker_that_dies_does_not_break_the_executor_and_an_initializer_that_raises_does() -> None:
    with eyas.Cluster(nodes=1, slots=2) as cluster:
        with Executor(2, cluster=cluster) as executor:
            with pytest.raises(eyas.WorkerLost):
                executor.submit(os._exit, 1).result(60)
            assert executor.submit(abs, -1).result(60) == 1
        with Executor(2, cluster=cluster, initializer=int, initargs=("x",)) as executor:
            with pytest.raises(BrokenExecutor):
                executor.submit(abs, -1).result(60)
            with pytest.raises(BrokenExecutor):
                executor.submit(abs, -1)
        # The cluster is not the executor's.
        assert cluster.submit(abs, -1).result(60) == 1


def test_wrong_numbers_are_refused() -> None:
    for number in (0, -1):
        with pytest.raises(ValueError, match="max_workers"):
            Executor(number)
    with pytest.raises(TypeError, match="callable"):
        Executor(1, initializer="x")  # type: ignore[arg-type]


SCRIPT = """
from eyas.futures import Executor
executor = Executor(2)
executor.submit(print, "printed in a worker")
"""


def test_the_interpreter_ends_when_the_last_call_has(start: Start) -> None:
    done = start("-c", SCRIPT, program=Path(sys.executable)).wait()
    assert (done.stdout, done.stderr) == ("printed in a worker\n", "")


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_cpythons_own_tests_pass_as_they_do_with_its_executors() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "suites.py", "futures"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_initializer_sets_names_of_the_program(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from functools import partial\n"
        "from eyas.futures import Executor\n"
        "MODEL = None\n"
        "def begin(x):\n    global MODEL\n    MODEL = x\n"
        "def get(n):\n    return MODEL, n\n"
        "if __name__ == '__main__':\n"
        "    with Executor(max_workers=1, initializer=begin, initargs=(7,)) as executor:\n"
        "        print(list(executor.map(get, range(2))), executor.submit(partial(get, 5)).result())\n"
        "        print(list(executor.map(get, range(2), chunksize=2)))\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout == "[(7, 0), (7, 1)] (7, 5)\n[(7, 0), (7, 1)]\n"


def test_a_given_cluster_runs_no_more_calls_at_once_than_the_executor_has_workers(tmp_path: Path) -> None:
    def busy(n: int) -> tuple[float, float]:
        began = time.time()
        time.sleep(0.1)
        return began, time.time()

    with eyas.Cluster(nodes=2, slots=2, dir=str(tmp_path / "c")) as c, Executor(1, cluster=c) as executor:
        times = sorted(executor.map(busy, range(4)))
    assert all(one[1] <= next_one[0] for one, next_one in itertools.pairwise(times))


def test_calls_that_wait_are_cancelled_and_an_interrupt_ends_what_runs(tmp_path: Path) -> None:
    with Executor(max_workers=1) as executor:
        waiting = [executor.submit(time.sleep, 0.2) for _ in range(6)]
        assert sum(future.cancel() for future in waiting) >= 4
    program = tmp_path / "program.py"
    program.write_text(
        "import time\nfrom eyas.futures import Executor\n"
        "with Executor(max_workers=2) as executor:\n"
        "    futures = [executor.submit(time.sleep, 1000) for _ in range(4)]\n"
        "    while not any(future.running() for future in futures): time.sleep(0.01)\n"
        "    print('runs', flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"runs\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) != 0


def test_short_calls_are_given_ahead_and_others_can_be_cancelled(tmp_path: Path) -> None:
    """With 12 calls at the cluster at most, 10,000 short ones took five times as long as with `Cluster.submit`."""
    gate = tmp_path / "gate"
    with Executor(2) as executor:
        assert list(executor.map(abs, range(-50, 0))) == list(range(50, 0, -1))
        for kind in executor._state.mean_s:
            executor._state.mean_s[kind] = 0.001
        held = [executor.submit(until_there, str(gate)) for _ in range(20)]
        cancelled = [one.cancel() for one in held]
        short = [executor.submit(abs, n) for n in range(500)]
        n_given = sum(one.running() for one in short)
        gate.touch()
        assert [one.result(60) for one in short] == list(range(500))
    assert cancelled == [False] * 3 + [True] * 17
    # With the three that were held, so many as two workers do in a tenth of a second.
    assert n_given == 197


def test_an_interrupt_ends_what_runs_on_a_given_cluster(tmp_path: Path) -> None:
    with eyas.Cluster(nodes=1, slots=1, dir=str(tmp_path / "c")) as c:
        with pytest.raises(KeyboardInterrupt), Executor(1, cluster=c) as executor:
            sleeps = executor.submit(time.sleep, 1000)
            raise KeyboardInterrupt
        assert sleeps.cancelled()
        # The only slot is free again.
        assert c.submit(abs, -1).result(60) == 1


FORK = """
import os, sys, time
from eyas.futures import Executor
with Executor(1) as executor:
    call = executor.submit(time.sleep, 2)
    while not call.running():
        time.sleep(0.01)
    pid = os.fork()
    if pid == 0:
        try:
            executor.submit(abs, -1)
        except RuntimeError as error:
            print(error, flush=True)
            # One child leaves the block, and the other one the program.
            if "leaves" in sys.argv:
                sys.exit(0)
if pid:
    print(os.waitpid(pid, 0)[1], call.result())
"""


@pytest.mark.parametrize("how", ["leaves", "goes on"])
def test_a_fork_does_not_wait_for_calls_of_the_process_that_it_is_of(how: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FORK, how], capture_output=True, text=True, timeout=60, check=True
    )
    words, last = ran.stdout.splitlines()
    assert "connect again" in words and last == "0 None" and ran.stderr == ""


def test_a_program_that_has_no_output_gets_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with Executor(1) as executor:
        assert executor.submit(print, "to nobody").result(60) is None


def test_a_callback_that_shuts_the_executor_down_does_not_hold_up_the_results(tmp_path: Path) -> None:
    def wait_for(path: Path) -> None:
        while not path.exists():
            time.sleep(0.01)

    executor = Executor(max_workers=2)
    first, second = executor.submit(wait_for, tmp_path / "a"), executor.submit(wait_for, tmp_path / "b")
    down = threading.Event()

    def shut(_: Any) -> None:
        executor.shutdown()
        down.set()

    first.add_done_callback(shut)
    (tmp_path / "a").touch()
    assert down.wait(60)
    (tmp_path / "b").touch()
    assert second.result(60) is None
    executor.shutdown()


INTERRUPTED = """
import gc, os, sys, threading
import eyas
from eyas.futures import Executor


class Interrupt:
    "Raises KeyboardInterrupt where the nth function is entered or left, which is where Python hears of ^C."

    def __init__(self, n):
        self.n, self.is_done = n, False

    def __call__(self, frame, event, arg):
        if not self.is_done and event in ("call", "return"):
            self.n -= 1
            if self.n == 0:
                self.is_done = True
                raise KeyboardInterrupt
        return self


def submit_interrupted(executor, n):
    interrupt = Interrupt(n)
    sys.settrace(interrupt)
    try:
        executor.submit(abs, -2)
    except KeyboardInterrupt:
        pass
    else:
        assert not interrupt.is_done, f"^C was lost at {n}"
    finally:
        sys.settrace(None)
    return interrupt.is_done


def ends(executor):
    over = threading.Event()
    threading.Thread(target=lambda: (executor.shutdown(), over.set()), daemon=True).start()
    return over.wait(30)


# Python itself drops what is raised while it collects garbage.
gc.disable()
try:
    c, n = eyas.Cluster(nodes=1, slots=2), 1
    while submit_interrupted(c, n):
        assert c.submit(abs, -3).result(30) == 3, n
        n += 1
    n_of_cluster, n, is_done = n, 1, True
    while is_done:
        executor = Executor(cluster=c, max_workers=2)
        earlier = executor.submit(abs, -1)
        is_done = submit_interrupted(executor, n)
        assert (earlier.result(30), executor.submit(abs, -3).result(30)) == (1, 3), n
        assert ends(executor), n
        n += 1
    c.close()
    print(n_of_cluster, n, flush=True)
except BaseException as error:
    print(repr(error), file=sys.stderr, flush=True)
    os._exit(1)
os._exit(0)
"""


def test_calls_go_on_wherever_an_interrupt_comes_while_one_is_submitted() -> None:
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert all(int(n) > 50 for n in done.stdout.split())
