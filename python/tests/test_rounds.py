"""The whole round of a block with PBS, Torque, LSF and HTCondor through Parsl: submit, list, run, cancel, list.

There is no server of these here. Commands of their names keep jobs in a folder, and print what the manuals of the real ones say that they
print: qsub(1), qselect(1), qstat(1) and qdel(1) of OpenPBS and Torque; bsub(1), bjobs(1) and bkill(1) of LSF; condor_submit(1), condor_q(1)
and condor_rm(1) of HTCondor.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from eyas.provision import Pool, Settings, listings

FAKE = r'''
import json, re, sys
from pathlib import Path

home, me, words = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]

def jobs():
    return {int(path.stem): json.loads(path.read_text()) for path in sorted(home.glob("*.job"))}

def keep(number, job):
    (home / f"{number}.job").write_text(json.dumps(job))

def new(path, name):
    number = 118900 + len(jobs())
    keep(number, {"name": name, "script": path, "state": "queued", "why": ""})
    return number

def found(ids):
    """Those of these ids that are there, and not: `5.head` or `118907.0` is the number before the dot."""
    there = {i: int(i.partition(".")[0]) for i in ids}
    return [(i, n) for i, n in there.items() if n in jobs()], [i for i, n in there.items() if n not in jobs()]

kind = (home / "kind").read_text()
if (home / "refuse").exists():
    print((home / "refuse").read_text(), file=sys.stderr)
    sys.exit(1)
if me == "qsub":
    path = words[-1]
    name = re.search(r"^#PBS -N (\S+)$", Path(path).read_text(), re.M)[1]
    print(f"{new(path, name)}.head")
elif me == "qselect":
    assert words[0] == "-u"
    for n, job in jobs().items():
        if job["state"] in ("queued", "running"):
            print(f"{n}.head")
elif me == "qstat":
    letters = {"queued": "Q", "running": "R"}
    ids = [word for word in words if word.endswith(".head")]
    rows = [(i, jobs()[n]) for i, n in found(ids)[0]]
    if "json" in words:
        about = {i: {"Job_Name": j["name"], "job_state": letters[j["state"]], "comment": j["why"]} for i, j in rows}
        print(json.dumps({"timestamp": 1, "pbs_version": "22.05.11", "Jobs": about}))
    else:
        assert "-x" in words
        line = "<Job><Job_Id>{}</Job_Id><Job_Name>{}</Job_Name><job_state>{}</job_state><comment>{}</comment></Job>"
        body = "".join(line.format(i, j["name"], letters[j["state"]], j["why"]) for i, j in rows)
        print(f"<Data>{body}</Data>")
elif me == "qdel":
    there, _ = found(words)
    over = [i for i, n in there if jobs()[n]["state"] == "over"]
    for i, n in there:
        keep(n, jobs()[n] | {"state": "over"})
    for i in over:
        text = f"qdel: Job has finished {i}" if kind == "pbspro" else f"qdel: Unknown Job Id Error {i}"
        print(text, file=sys.stderr)
    sys.exit(35 if over else 0)
elif me == "bsub":
    # The script comes as standard input, or is named.
    text = Path(words[-1]).read_text() if words else sys.stdin.read()
    name = re.search(r"^#BSUB -J (\S+)$", text, re.M)[1]
    number = new("", name)
    (home / f"{number}.script").write_text(text)
    keep(number, jobs()[number] | {"script": str(home / f"{number}.script")})
    print(f"Job <{number}> is submitted to default queue <normal>.")
elif me == "bjobs":
    words_of = {"queued": "PEND", "running": "RUN"}
    rows = [(n, j) for n, j in jobs().items() if j["state"] != "over"]
    if not rows:
        print("No unfinished job found", file=sys.stderr)
        sys.exit(255)
    for n, j in rows:
        print(f"{n}|{words_of[j['state']]}|{j['name']}")
elif me == "bkill":
    is_over = False
    for i, n in found(words)[0]:
        if jobs()[n]["state"] == "over":
            print(f"Job <{i}>: Job has already finished", file=sys.stderr)
            is_over = True
        else:
            print(f"Job <{i}> is being terminated")
            keep(n, jobs()[n] | {"state": "over"})
    sys.exit(255 if is_over else 0)
elif me == "condor_submit":
    text = Path(words[-1]).read_text()
    name = re.search(r"^arguments\s*= (\S+)$", text, re.M)[1]
    path = re.search(r"^transfer_input_files\s*= ([^,\n]+)", text, re.M)[1]
    print(f"Submitting job(s).\n1 job(s) submitted to cluster {new(path, name)}.")
elif me == "condor_q":
    numbers = {"queued": 1, "running": 2, "held": 5}
    for n, j in jobs().items():
        if j["state"] != "over":
            held = f"{j['code']} {j['why']}" if j["state"] == "held" else "undefined undefined"
            print(n, 0, numbers[j["state"]], j["name"], held)
elif me == "condor_rm":
    ids = [word for word in words if not word.startswith("-")]
    for i, n in found(ids)[0]:
        state = jobs()[n]["state"]
        if "-forcex" in words and state != "leaving":
            print(f"Couldn't find/remove all jobs in job {i}", file=sys.stderr)
            sys.exit(1)
        if state == "over":
            print(f"Couldn't find/remove all jobs in job {i}", file=sys.stderr)
            sys.exit(1)
        print(f"Job {i} marked for removal" if "-forcex" not in words else f"Job {i} removed locally (remote state unknown)")
        keep(n, jobs()[n] | {"state": "over" if "-forcex" in words else "leaving"})
else:
    sys.exit(f"{me}: not known here")
'''
COMMANDS = "qsub qselect qstat qdel bsub bjobs bkill condor_submit condor_q condor_rm".split()
KINDS = ["pbspro", "torque", "lsf", "htcondor"]


class Site:
    """A batch system of that kind, whose commands are on PATH."""

    def __init__(self, kind: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.kind, self.home = kind, folder / "site"
        bin = folder / "bin"
        bin.mkdir()
        self.home.mkdir()
        (self.home / "kind").write_text(kind)
        (folder / "fake.py").write_text(FAKE)
        for name in COMMANDS:
            line = f'exec {sys.executable} {folder}/fake.py {self.home} {name} "$@"\n'
            (bin / name).write_text(f"#!/bin/sh\n{line}")
            (bin / name).chmod(0o755)
        patch.setenv("PATH", f"{bin}:{os.environ['PATH']}")
        self.shared = folder / "shared"
        self.shared.mkdir()
        self.book = folder / "book.json"
        self.pool = self.open()

    def open(self) -> Pool:
        return Pool(Settings(kind=self.kind, walltime_s=3600), self.shared, self.book)

    def job(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.home / f"{number}.job").read_text())
        return found

    def change(self, number: int, **what: Any) -> None:
        (self.home / f"{number}.job").write_text(json.dumps(self.job(number) | what))

    def listed(self, pool: Pool | None = None) -> list[tuple[str, str, str]]:
        return [(b.id, b.name, b.state) for b in (pool or self.pool).blocks("eyas-c1-")]


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(request.param, tmp_path, monkeypatch)


def test_a_block_is_submitted_listed_run_and_cancelled(site: Site) -> None:
    assert site.listed() == []
    script = site.shared / "eyas-c1-1.sh"
    script.write_text(f"echo ran > {site.shared}/ran\n")
    job = site.pool.submit("eyas-c1-1", script, 1)
    assert site.listed() == [(job, "eyas-c1-1", "queued")]
    number = int(job.partition(".")[0])
    # What the batch system would run.
    subprocess.run(["bash", site.job(number)["script"]], cwd=site.shared, check=True, timeout=60)
    assert (site.shared / "ran").read_text() == "ran\n"
    site.change(number, state="running")
    assert site.listed() == [(job, "eyas-c1-1", "running")]
    # Another process goes on with what this one submitted.
    other = site.open()
    assert site.listed(other) == [(job, "eyas-c1-1", "running")]
    other.cancel([(job, "eyas-c1-1")])
    assert site.listed() == []
    # That a job is over already is no failure.
    site.pool.cancel([(job, "eyas-c1-1")])
    assert site.pool.taken_calls() > 0


def test_jobs_of_others_are_left_alone(site: Site) -> None:
    for name in ("eyas-c2-1", "eyas-c1-x", "eyas-c1-2"):
        site.pool.submit(name, site.shared / "x.sh", 1)
    assert [name for _, name, _ in site.listed()] == ["eyas-c1-2"]


def test_what_is_refused_is_said_in_the_batch_systems_words(site: Site) -> None:
    (site.home / "refuse").write_text("would exceed the limit of jobs of this user")
    with pytest.raises(listings.Failed, match="would exceed the limit of jobs of this user"):
        site.pool.submit("eyas-c1-1", site.shared / "x.sh", 1)
    with pytest.raises(listings.Failed, match="would exceed the limit of jobs of this user"):
        site.listed()


@pytest.mark.parametrize("kind", ["pbspro", "torque"])
def test_why_a_job_waits_is_in_the_listing(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(kind, tmp_path, monkeypatch)
    job = site.pool.submit("eyas-c1-1", site.shared / "x.sh", 1)
    site.change(int(job.partition(".")[0]), why="Not Running: Insufficient amount of resource: ncpus")
    (block,) = site.pool.blocks("eyas-c1-")
    assert (block.state, block.why) == ("queued", "Not Running: Insufficient amount of resource: ncpus")


@pytest.mark.parametrize(("code", "state"), [("1", "queued"), ("13", "stuck")])
def test_a_job_that_htcondor_holds_is_stuck_and_one_that_its_user_holds_is_not(
    code: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site("htcondor", tmp_path, monkeypatch)
    job = site.pool.submit("eyas-c1-1", site.shared / "x.sh", 1)
    site.change(int(job.partition(".")[0]), state="held", code=code, why="Transfer input files failure")
    (block,) = site.pool.blocks("eyas-c1-")
    assert (block.state, block.why) == (state, "HTCondor holds it: Transfer input files failure")
