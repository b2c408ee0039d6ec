"""eyas-lab: worlds of faults, worlds of policies, and what it needs beside it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from harness import Eyas, Run


def test_worlds_of_faults_keep_the_promises(lab: Run) -> None:
    done = lab("chaos", "--seeds", "10", "--from", "40")
    first, *_ = done.stdout.splitlines()
    assert "seeds 40..50" in first
    assert "10 worlds: all promises kept" in done.stdout
    alone = lab("chaos", "--seeds", "1", "--from", "41").stdout.splitlines()
    assert alone[1].startswith("Options { seed: 41,")


def test_worlds_are_compared_side_by_side(lab: Run) -> None:
    """Several at once say the same as one after the other."""
    alone, together = (
        lab("worlds", "--seeds", "3", "--from", "1", "--jobs", jobs, timeout=600).stdout
        for jobs in ("1", "3")
    )
    assert together == alone
    assert len(alone.splitlines()) > 4


def test_no_world_at_all_is_refused(lab: Run) -> None:
    for verb in ("chaos", "worlds"):
        assert "at least 1" in lab(verb, "--seeds", "0", status=2).stderr


def test_a_cluster_needs_the_program_beside_it(eyas: Eyas, tmp_path: Path) -> None:
    alone = tmp_path / "bin" / "eyas-lab"
    alone.parent.mkdir()
    shutil.copy(eyas.path.with_name("eyas-lab"), alone)
    command = [str(alone), "bench", "dispatch", "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=eyas.env, timeout=60)
    assert done.returncode == 4, done
    assert "error: there is no `eyas` beside" in done.stderr
    assert "hint: `make build`" in done.stderr


def test_the_program_of_users_has_no_part_of_the_lab(run: Run) -> None:
    assert "unrecognized subcommand" in run("repro", status=2).stderr
    assert "unrecognized subcommand" in run("sim", "chaos", status=2).stderr
