"""Put the application's programs on the import path, and make one small survey for all tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

APP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(APP))


@pytest.fixture(scope="session")
def survey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """32 exposures of 512 x 512 pixels with 120 targets."""
    import make_sky

    out = tmp_path_factory.mktemp("survey") / "sky"
    make_sky.make(out, seed=5, n_exposures=32, n_targets=120, size=512, n_processes=1)
    return out
