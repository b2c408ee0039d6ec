"""`eyas at-data` on a real Slurm whose nodes are hosts of their own, each with a store: programs go to where their data is."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Eyas, Finished, wait_until
from slurm import Slurm, slurm_of_hosts

SIZE = 200_000


class Lab:
    """A head with a catalog, and the nodes `c2`, `c3`, `c4`, each with a store of its name."""

    def __init__(self, batch: Slurm, eyas: Eyas, folder: Path) -> None:
        self.batch, self.eyas, self.folder = batch, eyas, folder
        self.stores = {}
        self.data("init", "--dir", "here")
        for name in ("c2", "c3", "c4"):
            # The program of `eyas` is a script that runs it on the head; a store runs on its node.
            host = batch.host_of(name)
            script = folder / f"store-on-{name}"
            binary = shlex.quote(os.environ["EYAS_ON_HOSTS"])
            script.write_text(f'#!/bin/sh\nexec {host.enter} {binary} "$@"\n')
            script.chmod(0o755)
            place = ("--dir", folder / name, "--name", name, "--listen", f"{host.address}:0")
            self.stores[name] = eyas.start("store", *place, program=script, cwd=folder)
            self.stores[name].wait_for_text("where the catalog is")
            self.data("site", "--join", folder / name / "join.json")

    def data(self, *words: str | Path) -> Finished:
        return self.eyas.run("data", *words, cwd=self.folder)

    def put(self, label: str, site: str) -> bytes:
        """A data set with one file, and its only copy at this site."""
        content = os.urandom(SIZE)
        (self.folder / label).write_bytes(content)
        self.data("put", label, "--label", label, "--site", site)
        return content

    def at_data(self, mode: str, *words: str, status: int = 0) -> Finished:
        command = ("at-data", "--mode", mode, "--explain", *words)
        return self.eyas.run(*command, cwd=self.folder, status=status)

    def left_over(self) -> list[str]:
        """Folders of jobs and of waiting commands."""
        tmp = Path(self.eyas.env["TMPDIR"])
        return [path.name for where in (self.folder, tmp) for path in where.glob("eyas-at-data-*")]


@pytest.fixture(scope="module")
def batch() -> Iterator[Slurm]:
    with slurm_of_hosts(cpus=1) as made:
        yield made


@pytest.fixture
def lab(batch: Slurm, eyas_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    program = tmp_path / "eyas"
    program.write_text(f'#!/bin/sh\nexec {batch.hosts[0].enter} {shlex.quote(str(eyas_path))} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("EYAS_ON_HOSTS", str(eyas_path))
    eyas = Eyas(program, tmp_path / ".eyas-test", uuid.uuid4().hex)
    eyas.env |= {**batch.env, "EYAS_DATA": f"sqlite:{tmp_path}/catalog.db"}
    try:
        yield Lab(batch, eyas, tmp_path)
        batch.clear()
    finally:
        eyas.end()


def input_line(done: Finished) -> tuple[str, str, str]:
    """Of `--explain`: the host of the job, and what came from it and over the network."""
    host = re.search(r"job \d+ ran on (\S+)", done.stderr)
    moved = re.search(r"as \S+: (.+) from this host, (.+) over the network", done.stderr)
    assert host and moved, done
    return host[1], moved[1], moved[2]


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
    assert not lab.left_over()


def test_late_goes_elsewhere_and_scheduled_names_the_nearest(lab: Lab) -> None:
    lab.put("f1", "here")
    words = ("--input", "in=/f1/f1", "--", "sh", "-c", "cmp in " + shlex.quote(str(lab.folder / "f1")))
    refused = lab.at_data("scheduled", *words, status=2)
    assert "no host of Slurm holds all inputs and takes jobs now; the nearest is c1" in refused.stderr
    lab.put("f2", "c3")
    # The only processor of c3 is taken, so the job starts on another host after a while and fetches its input from c3.
    lab.batch.ask("sbatch", "--nodelist=c3", "--output=/dev/null", "--wrap=sleep 60")
    wait_until(lambda: any("RUNNING" in line for line in lab.batch.queue()), "the other job to run")
    words = ("--input", "in=/f2/f2", "--", "cmp", "in", str(lab.folder / "f2"))
    host, near, far = input_line(lab.at_data("late", *words))
    assert host != "c3" and (near, far) == ("0 B", "195.3 KiB")
    assert not lab.left_over()


def test_nothing_is_left_of_jobs_that_fail(lab: Lab) -> None:
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
    wait_until(lambda: any("RUNNING" in line for line in lab.batch.queue()), "the job to run")
    wait_until(lambda: len(lab.left_over()) == 2, "the folders of the command and of its job")
    waiting.signal(signal.SIGINT)
    assert waiting.wait(status=130).stdout == ""
    wait_until(lambda: not lab.batch.queue(), "an empty queue")
    assert not lab.left_over()

    # So does whoever cancels the job.
    waiting = lab.eyas.start("at-data", "--mode", "late", *out, "--", "sh", "-c", "sleep 300", cwd=lab.folder)
    wait_until(lambda: len(lab.left_over()) == 2, "the folders of the command and of its job")
    lab.batch.ask("scancel", *[line.split()[0] for line in lab.batch.queue()])
    assert "no data set was made" in waiting.wait(status=1).stderr
    wait_until(lambda: not lab.left_over(), "all folders to be removed")
    assert lab.data("find", "-q").stdout == sets
    assert json.loads(lab.data("audit", "--json").stdout)


def test_figure_6(lab: Lab) -> None:
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
        lab.batch.ask("sbatch", "--nodelist=c3", "--output=/dev/null", "--wrap=sleep 4")
        wait_until(lambda: any("RUNNING" in line for line in lab.batch.queue()), "the other job to run")
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
