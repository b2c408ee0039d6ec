"""`eyas.futures.Executor`, beside what CPython's own tests look at (scripts/futures.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, as_completed
from pathlib import Path

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
        [sys.executable, ROOT / "scripts" / "futures.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
