"""Random kills while workflows run: a few rounds here, hundreds of kills with `make test-long`. See kills.py."""

from __future__ import annotations

import os
from pathlib import Path

import kills
import pytest

# Of the first round.
SEED = int(os.environ.get("EYAS_FROM", "1"))


@pytest.mark.parametrize("n_dispatchers", [1, 2])
def test_a_round_of_kills(eyas_path: Path, tmp_path: Path, n_dispatchers: int) -> None:
    assert not kills.campaign(eyas_path, tmp_path, n_dispatchers, 1, SEED)


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("n_dispatchers", [1, 2])
def test_two_hundred_kills(eyas_path: Path, tmp_path: Path, n_dispatchers: int) -> None:
    assert not kills.campaign(eyas_path, tmp_path, n_dispatchers, 200, SEED + 1000)


def test_the_plan_of_a_round_follows_from_its_seed() -> None:
    for n in (1, 2, 4):
        assert kills.plan_of(7, n) == kills.plan_of(7, n) != kills.plan_of(8, n)
        assert all(kill.which < n for kill in kills.plan_of(7, n).kills if kill.kind == "dispatcher")
        assert kills.expected(kills.plan_of(7, n))
