"""Many worlds of faults, more than `make test` has time for. EYAS_WORLDS worlds in all, from the seed EYAS_FROM."""

from __future__ import annotations

import os
import subprocess

import pytest
from harness import ROOT

N_WORLDS = int(os.environ.get("EYAS_WORLDS", "300000"))
FROM = int(os.environ.get("EYAS_FROM", "1000000"))


@pytest.mark.long
@pytest.mark.timeout(24 * 3600)
def test_many_worlds_keep_the_promises() -> None:
    """`make hunt`: every kind of world in turn. A line for each that breaks a promise says how to see it alone."""
    hunt = ["cargo", "run", "--locked", "--release", "--quiet", "-p", "eyas-testkit", "--example", "hunt"]
    subprocess.run([*hunt, "--", str(FROM), str(N_WORLDS)], cwd=ROOT, check=True)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_lives_of_a_catalog_lose_no_file() -> None:
    """500 catalogs whose sites fail (crates/kept/catalog/tests/lives.rs); a failure names its seed."""
    command = ["cargo", "test", "--locked", "--release", "--quiet", "-p", "eyas-catalog", "--test", "lives"]
    environment = os.environ | {"EYAS_LIVES": f"{FROM}..{FROM + 500}"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
