"""Put the portal's programs on the import path, and make one small survey. A test that changes it puts back what was there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import need_program
from playwright.sync_api import Browser, sync_playwright

TESTS = Path(__file__).resolve().parent
for folder in (TESTS.parent.parent / "stacking", TESTS.parent, TESTS):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


@pytest.fixture(scope="session")
def survey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from portals import make_survey_at

    return make_survey_at(tmp_path_factory.mktemp("portal") / "survey")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = need_program("chromium")
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield made
        made.close()
