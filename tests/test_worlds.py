"""Many worlds of faults, more than `make test` has time for. EYAS_WORLDS worlds of each kind, from the seed EYAS_FROM."""

from __future__ import annotations

import os
import subprocess

import pytest
from harness import ROOT, Run

N_WORLDS = int(os.environ.get("EYAS_WORLDS", "10000"))
FROM = int(os.environ.get("EYAS_FROM", "1000000"))
# Seeds of one process; what a failure says names its own seed.
CHUNK = 500
ADDED = (
    "uneven",
    "stops",
    "clocks",
    "small",
    "scratch",
    "uneven,stops,clocks",
    "uneven,stops,clocks,small",
    "uneven,stops,clocks,scratch",
)
KINDS = [
    (),
    ("--calm",),
    ("--workflows",),
    ("--workflows", "--calm"),
    *[("--with", kind) for kind in ADDED],
    *[("--workflows", "--with", kind) for kind in ADDED],
    ("--groups",),
    ("--groups", "--calm"),
    ("--groups", "--with", "uneven"),
    ("--groups", "--calm", "--with", "uneven"),
]


@pytest.mark.long
@pytest.mark.timeout(8 * 3600)
@pytest.mark.parametrize("kind", KINDS, ids=" ".join)
def test_many_worlds_keep_the_promises(lab: Run, kind: tuple[str, ...]) -> None:
    for first in range(FROM, FROM + N_WORLDS, CHUNK):
        n = min(CHUNK, FROM + N_WORLDS - first)
        done = lab("chaos", *kind, "--seeds", str(n), "--from", str(first), timeout=7200)
        assert f"{n} worlds: all promises kept" in done.stdout


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_lives_of_a_catalog_lose_no_file() -> None:
    """500 catalogs whose sites fail (crates/catalog/tests/lives.rs); a failure names its seed."""
    command = ["cargo", "test", "--locked", "--release", "--quiet", "-p", "eyas-catalog", "--test", "lives"]
    environment = os.environ | {"EYAS_LIVES": f"{FROM}..{FROM + 500}"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
