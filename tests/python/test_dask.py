"""`eyas.dask`: Dask's own tests for schedulers, and its collections on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import dask
import dask.array
import dask.bag
import eyas.dask
import numpy as np
import pytest
from dask.delayed import delayed
from dask.utils_test import GetFunctionTestMixin
from eyas.futures import Executor


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
    rows = dask.array.arange(10_000, chunks=2_500).reshape(100, 100)
    with dask.config.set(scheduler=scheduler):
        assert np.array_equal(
            (rows @ rows.T).compute(), np.arange(10_000).reshape(100, 100) @ rows.T.compute()
        )


def test_an_error_of_a_task_is_raised_here(executor: Executor) -> None:
    with pytest.raises(ZeroDivisionError):
        delayed(lambda x: 1 / x)(0).compute(scheduler=partial(eyas.dask.get, executor=executor))
