"""Put the portal's programs on the import path, and make one small survey. A test that changes it puts back what was there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
for folder in (TESTS.parent.parent / "stacking", TESTS.parent, TESTS):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


@pytest.fixture(scope="session")
def survey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from portals import make_survey_at

    return make_survey_at(tmp_path_factory.mktemp("portal") / "survey")
