"""Fixtures of the end-to-end tests; what they give is described in harness.py."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import ROOT, Eyas, Run, Start

# What starts in the background of a script ignores ^C, and below nohup the end of its terminal. So would all programs that tests
# start, interrupt, and leave without a terminal.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def eyas_path() -> Path:
    """The program under test: EYAS_BIN, or what `make build` made."""
    path = Path(os.environ.get("EYAS_BIN") or ROOT / ".venv" / "bin" / "eyas").absolute()
    if not os.access(path, os.X_OK):
        pytest.fail(f"{path} is not a program; run `make build`, or set EYAS_BIN", pytrace=False)
    return path


@pytest.fixture
def eyas(eyas_path: Path, tmp_path: Path) -> Iterator[Eyas]:
    """The program in this test's own environment; afterwards everything that it started has to be gone."""
    made = Eyas(eyas_path, tmp_path / ".eyas-test", uuid.uuid4().hex)
    yield made
    made.end()


@pytest.fixture
def run(eyas: Eyas) -> Run:
    return eyas.run


@pytest.fixture
def lab(eyas: Eyas) -> Run:
    """`eyas-lab` in the foreground."""
    return eyas.lab


@pytest.fixture
def start(eyas: Eyas) -> Start:
    return eyas.start


@pytest.fixture
def data(run: Run, tmp_path: Path) -> Run:
    """`eyas data` with a catalog of its own and a site `here` in it, which is a folder."""

    def call(*args: str | Path, **options: Any) -> Any:
        return run("data", "--db", f"sqlite:{tmp_path}/catalog.db", *args, **options)

    call("init", "--dir", "here")
    return call


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A tree with files of all kinds."""
    source = tmp_path / "source"
    (source / "a b" / "deep").mkdir(parents=True)
    (source / "empty").touch()
    (source / "text").write_text("".join(f"{n}\n" for n in range(1000)))
    (source / "a b" / "größe %?").write_bytes(os.urandom(70_001))
    (source / "a b" / "deep" / "large").write_bytes(os.urandom(3_000_001))
    script = source / "script"
    script.write_text('#!/bin/sh\necho "$1" from a script\n')
    script.chmod(0o755)
    return source
