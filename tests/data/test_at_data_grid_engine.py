"""`eyas at-data` on a real Grid Engine whose hosts each have a store: programs go to where their data is."""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from at_data_lab import Lab, input_line, lab_of
from gridengine import N_SLOTS, GridEngine, grid_engine
from harness import wait_until


@pytest.fixture(scope="module")
def batch() -> Iterator[GridEngine]:
    with grid_engine() as made:
        yield made


@pytest.fixture
def lab(batch: GridEngine, eyas_path: Path, tmp_path: Path) -> Iterator[Lab]:
    with lab_of(batch, ("g2", "g3"), eyas_path, tmp_path) as made:
        yield made


def states(batch: GridEngine) -> list[str]:
    return [line.split()[2] for line in batch.queue()]


def test_a_job_goes_to_where_its_data_is(lab: Lab, batch: GridEngine) -> None:
    content = lab.put("f1", "g3")
    words = ("--input", "in=/f1/f1", "--output", "n=count", "--", "sh", "-c", "wc -c < in > n; hostname")
    for mode in ("scheduled", "late"):
        done = lab.at_data(mode, *words)
        assert input_line(done) == ("g3", "195.3 KiB", "0 B")
        host, label = done.stdout.split()
        assert host == "g3", "the program's output comes back, and the label is printed last"
        lab.data("get", f"{label}/count", lab.folder / mode)
        assert (lab.folder / mode).read_text() == f"{len(content)}\n"
    # The host is full: mode late goes elsewhere at once.
    for _ in range(N_SLOTS):
        batch.ask("qsub", "-b", "y", "-o", "/dev/null", "-j", "y", "-l", "hostname=g3", "/bin/sleep", "60")
    wait_until(lambda: states(batch) == ["r"] * N_SLOTS, "the other jobs to run")
    late = ("--input", "in=/f1/f1", "--", "cmp", "in", str(lab.folder / "f1"))
    host, near, far = input_line(lab.at_data("late", *late))
    assert host != "g3" and (near, far) == ("0 B", "195.3 KiB")
    assert not lab.left_over()


def test_scheduled_names_the_nearest_and_options_are_passed_on(lab: Lab) -> None:
    lab.put("f1", "here")
    compare = ("--input", "in=/f1/f1", "--", "cmp", "in", str(lab.folder / "f1"))
    refused = lab.at_data("scheduled", *compare, status=2)
    nearest = "no host of Grid Engine holds all inputs and takes jobs now; the nearest is g[1-9]"
    assert re.search(nearest, refused.stderr), refused
    unknown = lab.at_data("late", "--submit-option=-q nowhere", *compare, status=2)
    assert "unknown queue" in unknown.stderr and "nowhere" in unknown.stderr, unknown
    # Names that are settled by the user are not aimed at others, and lines `#$` of a script are read.
    assert input_line(lab.at_data("late", "--submit-option=-l hostname=g4", *compare))[0] == "g4"
    script = lab.folder / "job.sh"
    script.write_text(
        "#!/bin/sh\n#$ -l hostname=g1\n#EYAS --input in=/f1/f1 --output n=count\nwc -c < in > n\n"
    )
    assert input_line(lab.at_data("late", "--script", str(script)))[0] == "g1"


def test_nothing_is_left_of_jobs_that_fail(lab: Lab, batch: GridEngine) -> None:
    lab.put("f1", "g2")
    sets = lab.data("find", "-q").stdout
    out = ("--input", "in=/f1/f1", "--output", "a=a")
    failed = lab.at_data("late", *out, "--", "sh", "-c", "echo bad luck >&2; exit 3", status=1)
    assert "ended with exit status 3; no data set was made" in failed.stderr and "bad luck" in failed.stderr

    # Whether the command is interrupted or the job deleted, the job's host has nothing of it afterwards.
    for by_user in (True, False):
        started = lab.folder / f"started-{by_user}"
        program = f"touch {shlex.quote(str(started))}; sleep 300"
        waiting = lab.eyas.start("at-data", "--mode", "late", *out, "--", "sh", "-c", program, cwd=lab.folder)
        wait_until(started.exists, "the program to run")
        if by_user:
            waiting.signal(signal.SIGINT)
            assert waiting.wait(status=130).stdout == ""
        else:
            batch.ask("qdel", *[line.split()[0] for line in batch.queue()])
            assert "no data set was made" in waiting.wait(status=1).stderr
        wait_until(lambda: not lab.left_over(), "all folders to be removed")
        batch.empty()

    # Its host cannot start it: the reason is Grid Engine's, and the job does not stay in the queue.
    stuck = lab.at_data("late", "--submit-option=-o /nowhere/out", *out, "--", "true", status=1)
    assert "Eqw" in stuck.stderr and "/nowhere" in stuck.stderr, stuck
    batch.empty()
    assert lab.data("find", "-q").stdout == sets and not lab.left_over()
