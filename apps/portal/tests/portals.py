"""Portals, surveys and pages for tests."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Page, expect

APP = Path(__file__).resolve().parent.parent
# How a browser shows pages on a phone, in the dark.
PHONE: dict[str, Any] = {"viewport": {"width": 360, "height": 640}, "color_scheme": "dark"}
# A busy machine takes its time.
expect.set_options(timeout=60_000)


@dataclass
class Server:
    """A portal that is up: its address, its folder, its survey, and what it printed."""

    url: str
    folder: Path
    survey: Path
    process: subprocess.Popen[bytes]

    @property
    def printed(self) -> str:
        return (self.folder / "printed").read_text(encoding="utf-8", errors="replace")

    @property
    def admin_password(self) -> str:
        return (self.folder / "admin-password").read_text(encoding="utf-8").strip()


@contextmanager
def started(folder: Path, survey: Path, *words: str) -> Iterator[Server]:
    """`serve.py` with these words; afterwards it has to end well by itself."""
    folder.mkdir(parents=True, exist_ok=True)
    command: list[Any] = [sys.executable, APP / "serve.py", "--dir", folder, "--survey", survey, *words]
    with open(folder / "printed", "wb") as printed:
        process = subprocess.Popen(command, stdout=printed, stderr=subprocess.STDOUT, start_new_session=True)
    server = Server("", folder, survey, process)
    try:
        deadline = time.monotonic() + 60
        while not (found := re.search(r"^The portal is at (\S+)$", server.printed, re.MULTILINE)):
            assert process.poll() is None, server.printed
            assert time.monotonic() < deadline, f"no address after 60 s: {server.printed}"
            time.sleep(0.05)
        server.url = found[1]
        yield server
    finally:
        process.terminate()
        try:
            status = process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
    assert status == 0, server.printed
    assert "Traceback" not in server.printed, server.printed


def make_survey_at(folder: Path) -> Path:
    """60 exposures of 512 x 512 pixels: six of each field and band."""
    import make_survey

    make_survey.make(folder, seed=5, n_exposures=6, n_targets=40, n_processes=2)
    return folder


def check_page(page: Page) -> None:
    """Rules for pages that all can use; and nothing is wider than the window."""
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"{page.url} is {wide} pixels too wide"


def go_by_keyboard(page: Page, role: Any, label: str) -> None:
    """With the tabulator alone, from where the keyboard is."""
    wanted = page.get_by_role(role, name=label, exact=True)
    for _ in range(40):
        page.keyboard.press("Tab")
        if wanted.evaluate("element => element === document.activeElement"):
            return
    pytest.fail(f"the tabulator does not reach {label}")
