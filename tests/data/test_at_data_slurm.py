"""`eyas at-data` on a real Slurm whose nodes are hosts of their own, each with a store: programs go to where their data is."""

from __future__ import annotations

import json
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from at_data_lab import Lab, input_line, lab_of
from harness import wait_until
from slurm import Slurm, slurm_of_hosts


@pytest.fixture(scope="module")
def batch() -> Iterator[Slurm]:
    with slurm_of_hosts(cpus=1) as made:
        yield made


@pytest.fixture
def lab(batch: Slurm, eyas_path: Path, tmp_path: Path) -> Iterator[Lab]:
    with lab_of(batch, ("c2", "c3", "c4"), eyas_path, tmp_path) as made:
        yield made


def test_a_job_goes_to_where_its_data_is(lab: Lab) -> None:
    content = lab.put("f1", "c3")
    words = ("--input", "in=/f1/f1", "--output", "n=count", "--", "sh", "-c", "wc -c < in > n; hostname")
    for mode in ("scheduled", "late"):
        done = lab.at_data(mode, *words)
        assert input_line(done) == ("c3", "195.3 KiB", "0 B")
        host, label = done.stdout.split()
        assert host == "c3", "the program's output comes back, and the label is printed last"
        lab.data("get", f"{label}/count", lab.folder / mode)
        assert (lab.folder / mode).read_text() == f"{len(content)}\n"
        # The output was put in place, and into no other site.
        assert lab.data("where", label).stdout == "count: c3\n"
    other = ("--input", "in=/f1/f1", "--output", "n=count", "--", "sh", "-c", "echo other > n; hostname")
    chosen = lab.at_data("late", "--site", "c2", *other)
    assert lab.data("where", chosen.stdout.split()[1]).stdout == "count: c2\n"
    assert not lab.left_over()


def test_late_goes_elsewhere_and_scheduled_names_the_nearest(lab: Lab, batch: Slurm) -> None:
    lab.put("f1", "here")
    words = ("--input", "in=/f1/f1", "--", "sh", "-c", "cmp in " + shlex.quote(str(lab.folder / "f1")))
    refused = lab.at_data("scheduled", *words, status=2)
    nearest = "no host of Slurm holds all inputs and takes jobs now; the nearest is c[1-4]"
    assert re.search(nearest, refused.stderr), refused
    lab.put("f2", "c3")
    # The only processor of c3 is taken, so the job starts on another host after a while and fetches its input from c3.
    batch.ask("sbatch", "--nodelist=c3", "--output=/dev/null", "--wrap=sleep 60")
    wait_until(lambda: any("RUNNING" in line for line in batch.queue()), "the other job to run")
    words = ("--input", "in=/f2/f2", "--", "cmp", "in", str(lab.folder / "f2"))
    host, near, far = input_line(lab.at_data("late", *words))
    assert host != "c3" and (near, far) == ("0 B", "195.3 KiB")
    assert not lab.left_over()


def test_nothing_is_left_of_jobs_that_fail(lab: Lab, batch: Slurm) -> None:
    lab.put("f1", "c2")
    sets = lab.data("find", "-q").stdout
    out = ("--input", "in=/f1/f1", "--output", "a=a", "--output", "b=b")
    failed = lab.at_data("late", *out, "--", "sh", "-c", "echo 1 > a; echo bad luck >&2; exit 3", status=1)
    assert "ended with exit status 3; no data set was made" in failed.stderr and "bad luck" in failed.stderr
    half = lab.at_data("late", *out, "--", "sh", "-c", "echo 1 > a", status=1)
    assert "no `b`" in half.stderr.replace('"', "`") or "no b" in half.stderr, half
    partition = lab.at_data("late", "--submit-option=--partition=nowhere", *out, "--", "true", status=2)
    assert "partition" in partition.stderr.lower(), partition

    # ^C cancels the job, which ends its program and removes what it has.
    waiting = lab.eyas.start("at-data", "--mode", "late", *out, "--", "sh", "-c", "sleep 300", cwd=lab.folder)
    wait_until(lambda: any("RUNNING" in line for line in batch.queue()), "the job to run")
    wait_until(lambda: len(lab.left_over()) == 2, "the folders of the command and of its job")
    waiting.signal(signal.SIGINT)
    assert waiting.wait(status=130).stdout == ""
    wait_until(lambda: not batch.queue(), "an empty queue")
    assert not lab.left_over()

    # So does whoever cancels the job.
    waiting = lab.eyas.start("at-data", "--mode", "late", *out, "--", "sh", "-c", "sleep 300", cwd=lab.folder)
    wait_until(lambda: len(lab.left_over()) == 2, "the folders of the command and of its job")
    batch.ask("scancel", *[line.split()[0] for line in batch.queue()])
    assert "no data set was made" in waiting.wait(status=1).stderr
    wait_until(lambda: not lab.left_over(), "all folders to be removed")
    assert lab.data("find", "-q").stdout == sets
    assert json.loads(lab.data("audit", "--json").stdout)


def test_figure_6(lab: Lab, batch: Slurm) -> None:
    """`Wozniak06`, figure 6: f1 is on c3, f2 on c3 and c4; the scheduler puts the job of f2 on c3 and the job of f1 on c4.

    Names that were resolved for good when the jobs were submitted cost two accesses over the network (SCRD), names that are
    resolved again on arrival cost one (MNR).
    """
    lab.put("f1", "c3")
    lab.put("f2", "c3")
    # The same bytes under another label are one object, which now has a copy at c4, too.
    lab.data("put", lab.folder / "f2", "--label", "twin", "--site", "c4")

    def over_the_network(mode: str) -> int:
        moved = []
        # While something runs on c3, the job of f2 is meant for c4.
        batch.ask("sbatch", "--nodelist=c3", "--output=/dev/null", "--wrap=sleep 4")
        wait_until(lambda: any("RUNNING" in line for line in batch.queue()), "the other job to run")
        for label, node in (("f2", "c3"), ("f1", "c4")):
            words = ("--input", f"in=/{label}/{label}", "--", "cmp", "in", str(lab.folder / label))
            done = lab.at_data(mode, f"--submit-option=--nodelist={node}", *words)
            host, near, far = input_line(done)
            assert host == node and "0 B" in (near, far), done
            moved.append(far != "0 B")
        return sum(moved)

    assert over_the_network("scheduled") == 2
    assert over_the_network("late") == 1


def test_a_batch_script_says_what_it_reads(lab: Lab) -> None:
    content = lab.put("f1", "c4")
    script = lab.folder / "job.sh"
    script.write_text(
        "#!/bin/sh\n#SBATCH --comment=mine\n#EYAS --input in=/f1/f1\n"
        "#EYAS --output 'n=count' --tag \"note=two words\"\nwc -c < in > n\n"
    )
    done = lab.at_data("scheduled", "--script", str(script))
    assert input_line(done)[0] == "c4"
    label = lab.eyas.run("match", "note=two words", cwd=lab.folder).stdout.strip()
    assert done.stdout.strip() == label
    lab.data("get", f"{label}/count", lab.folder / "count")
    assert (lab.folder / "count").read_text() == f"{len(content)}\n"

    script.write_text("#!/bin/sh\n\n#EYAS --inputs in=/f1/f1\n")
    assert "line 3 of" in lab.at_data("scheduled", "--script", str(script), status=2).stderr
    assert "add --mode late" in lab.at_data("local", "--script", str(script), status=2).stderr
    both = lab.at_data("late", "--script", str(script), "--", "true", status=2)
    assert "cannot be used with" in both.stderr
