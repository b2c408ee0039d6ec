"""`eyas.dask`: Dask's own tests for schedulers, and its collections on a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import dask
import dask.array
import dask.bag
import eyas
import eyas.dask
import numpy as np
import pytest
from dask.delayed import delayed
from dask.utils_test import GetFunctionTestMixin
from eyas.futures import Executor
from harness import ROOT


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with Executor(max_workers=2) as executor:
        yield executor


class TestScheduler(GetFunctionTestMixin):
    """What Dask expects of every scheduler."""

    @pytest.fixture(autouse=True)
    def _on_the_cluster(self, executor: Executor) -> None:
        self.get = partial(eyas.dask.get, executor=executor)


def test_collections_are_computed_by_the_scheduler_and_by_the_executor(executor: Executor) -> None:
    scheduler = partial(eyas.dask.get, executor=executor)
    numbers = dask.bag.from_sequence(range(100), npartitions=5)  # type: ignore[no-untyped-call]
    bag = numbers.map(lambda x: x + 1)
    assert bag.sum().compute(scheduler=scheduler) == 5050
    assert bag.sum().compute(scheduler=executor) == 5050
    with pytest.raises(TypeError, match="get has no cluster: give executor"):
        bag.sum().compute(scheduler=partial(eyas.dask.get, cluster=None))
    with pytest.raises(TypeError, match=r"executor is 'c': give executor=eyas.futures.Executor"):
        bag.sum().compute(scheduler=partial(eyas.dask.get, executor="c"))  # type: ignore[arg-type]
    rows = dask.array.arange(10_000, chunks=2_500).reshape(100, 100)
    with dask.config.set(scheduler=scheduler):
        assert np.array_equal(
            (rows @ rows.T).compute(), np.arange(10_000).reshape(100, 100) @ rows.T.compute()
        )


def test_an_error_of_a_task_is_raised_here(executor: Executor) -> None:
    with pytest.raises(ZeroDivisionError):
        delayed(lambda x: 1 / x)(0).compute(scheduler=partial(eyas.dask.get, executor=executor))


def test_groups_are_shuffled_on_disk_where_all_tasks_have_one_folder(
    executor: Executor, tmp_path: Path
) -> None:
    numbers = dask.bag.from_sequence(range(20), npartitions=4)  # type: ignore[no-untyped-call]
    wanted = {n: [m for m in range(20) if m % 3 == n] for n in range(3)}

    def groups(executor: Executor, **how: str) -> dict[int, list[int]]:
        grouped = numbers.groupby(lambda n: n % 3, **how)
        found = grouped.compute(scheduler=partial(eyas.dask.get, executor=executor))
        return {key: sorted(values) for key, values in found}

    # In the folders of tasks no task found what another one had written, and there were no groups at all.
    assert groups(executor) == groups(executor, shuffle="tasks") == wanted
    with eyas.Cluster(nodes=1, slots=2, dir=str(tmp_path / "c")) as c:
        with Executor(2, cluster=c) as one:
            assert groups(one, shuffle="disk") == wanted
        # Its nodes might be anywhere.
        with eyas.connect(c.join) as other, Executor(2, cluster=other) as one:
            with pytest.raises(eyas.EyasError, match="a shuffle on disk"):
                groups(one, shuffle="disk")
            assert groups(one, shuffle="tasks") == wanted
            with dask.config.set(temporary_directory=str(tmp_path)):
                assert groups(one, shuffle="disk") == wanted


def test_the_folder_of_a_shuffle_goes_with_the_program(tmp_path: Path) -> None:
    program = (
        "import dask.bag, eyas.dask\n"
        "bag = dask.bag.from_sequence(range(9), npartitions=3).groupby(lambda n: n % 3)\n"
        "print(len(bag.compute(scheduler=eyas.dask.get)), len(list(eyas.dask._COMMON.iterdir())))\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path), "EYAS_STATE": str(tmp_path / "state")}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "3 1\n" and not list(tmp_path.glob("eyas-dask-*"))


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_dasks_own_tests_of_bags_and_arrays_pass_as_they_do_with_threads() -> None:
    command: list[str | Path] = [sys.executable, ROOT / "scripts" / "suites.py", "dask"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
