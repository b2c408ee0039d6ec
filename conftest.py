"""How tests are shared out over lanes that run side by side (docs/decisions/0096-tests-side-by-side.md)."""

from __future__ import annotations

import re
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parent
# What is made once for its whole file, as a batch system is; or a file that says why it has to be in one lane.
SHARED = re.compile(r'@pytest\.fixture\(scope="module"\)|^ONE_LANE = ', re.MULTILINE)


@cache
def shares_something(file: str) -> bool:
    path = ROOT / file
    return path.is_file() and SHARED.search(path.read_text(encoding="utf-8")) is not None


class Lanes(LoadScopeScheduling):  # type: ignore[misc]
    """Tests of a file that share something stay in one lane, in order; any other test goes to the lane that is free next.

    The names of groups that `pytest-xdist` 3.8 adds to those of tests get lost in pytest 9.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return file if shares_something(file) else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Lanes:
    return Lanes(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Notes in the report when the test began: scripts/test.py looks whether the machine stood still then."""
    item.user_properties.append(("began", time.time()))
