"""A plugin of pytest for Dask's own tests (scripts/suites.py): they run with the scheduler that `DASK_SCHEDULER` names."""

from __future__ import annotations

import os

import dask
import pytest


def pytest_configure(config: pytest.Config) -> None:
    if os.environ["DASK_SCHEDULER"] == "ours":
        import eyas.dask

        dask.config.set(scheduler=eyas.dask.get)
    else:
        dask.config.set(scheduler="threads")
