"""`eyas.joblib`, beside what joblib's own tests look at (scripts/suites.py)."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import eyas
import eyas.joblib
import numpy as np
import pytest
from embedded import embedded
from harness import ROOT
from joblib import Parallel, delayed, effective_n_jobs, parallel_config


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[eyas.Cluster]:
    with embedded(tmp_path_factory, nodes=1, slots=2) as made:
        yield made


@pytest.fixture
def loop(cluster: eyas.Cluster) -> Iterator[Parallel]:
    with parallel_config(backend="eyas", cluster=cluster, n_jobs=-1):
        yield Parallel()


def test_a_loop_runs_in_the_slots_of_a_cluster(cluster: eyas.Cluster, loop: Parallel) -> None:
    assert loop(delayed(pow)(n, 2) for n in range(300)) == [n**2 for n in range(300)]
    pids = set(loop(delayed(os.getpid)() for _ in range(50)))
    assert len(pids) <= 2 and os.getpid() not in pids
    assert effective_n_jobs(-1) == 2 and effective_n_jobs(5) == 5
    assert list(Parallel(return_as="generator")(delayed(abs)(-n) for n in range(5))) == list(range(5))


def test_the_own_cluster_of_a_process_is_used_again() -> None:
    found = [Parallel(n_jobs=2, backend="eyas")(delayed(os.getppid)() for _ in range(8)) for _ in range(2)]
    # The workers of both loops are children of the same slots.
    assert set(found[0]) & set(found[1]) and os.getpid() not in found[0]


def fail_soon(n: int) -> None:
    if n == 0:
        raise ZeroDivisionError("nothing to share")
    time.sleep(1000)


def test_an_error_ends_the_calls_that_run(cluster: eyas.Cluster, loop: Parallel) -> None:
    with pytest.raises(ZeroDivisionError, match="nothing to share"):
        loop(delayed(fail_soon)(n) for n in (1, 0, 1, 1))
    # Slots that still slept would not come to this.
    assert loop(delayed(abs)(-n) for n in range(20)) == list(range(20))


def total(array: np.ndarray[Any, Any]) -> tuple[float, bool]:
    return float(array.sum()), array.flags.writeable


def test_a_large_array_is_mapped_by_the_workers(loop: Parallel) -> None:
    array = np.arange(100_000.0)
    assert loop(delayed(total)(array) for _ in range(4)) == [(array.sum(), False)] * 4


def variable(name: str) -> str | None:
    return os.environ.get(name)


def begin(value: str) -> None:
    os.environ["GIVEN"] = value


def test_workers_begin_with_limits_to_threads_and_an_initializer(
    cluster: eyas.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with parallel_config(backend="eyas", cluster=cluster, n_jobs=2, inner_max_num_threads=3):
        assert Parallel()(delayed(variable)("OMP_NUM_THREADS") for _ in range(4)) == ["3"] * 4
        loop = Parallel(initializer=begin, initargs=("by the initializer",))
        assert set(loop(delayed(variable)("GIVEN") for _ in range(8))) == {"by the initializer"}


def test_calls_of_the_own_cluster_share_what_a_manager_has() -> None:
    with multiprocessing.Manager() as manager:
        seen = manager.list()
        Parallel(n_jobs=2, backend="eyas")(delayed(seen.append)(n) for n in range(6))
        assert sorted(seen) == list(range(6))


def nested(n: int) -> list[int]:
    found: list[int] = Parallel(n_jobs=4, backend="eyas")(delayed(pow)(n, m) for m in range(3))
    return found


def test_a_loop_inside_a_call_is_run_by_the_call(loop: Parallel) -> None:
    assert loop(delayed(nested)(n) for n in range(3)) == [[1, n, n * n] for n in range(3)]


def test_what_is_wrong_is_said(cluster: eyas.Cluster) -> None:
    with pytest.raises(TypeError, match="cluster is 'x'"):
        Parallel(n_jobs=2, backend="eyas", cluster="x")([delayed(abs)(1)])
    with pytest.raises(TypeError, match="no option 'rubbish'"):
        Parallel(n_jobs=2, backend="eyas", rubbish=1)([delayed(abs)(1)])
    with pytest.raises(ValueError, match="n_jobs == 0"):
        Parallel(n_jobs=0, backend="eyas")([delayed(abs)(1)])


def test_a_missing_joblib_is_said_in_a_sentence() -> None:
    program = "import sys; sys.modules['joblib'] = None; import eyas.joblib"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (
        "ImportError: joblib is not installed, or is older than 1.5: pip install 'eyas[joblib]'"
        in done.stderr
    )


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_joblibs_own_tests_pass_as_they_do_with_loky(tmp_path: Path) -> None:
    command: list[str | Path] = [sys.executable, ROOT / "scripts" / "suites.py", "joblib"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
