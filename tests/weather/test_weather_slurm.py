"""Bad weather on a real Slurm, end to end: jobs, commands, the controller, the head and nodes fail, and no task is lost.

Nodes share one host here; `test_weather_slurm_hosts.py` has hosts of their own.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from clocks import Clock, build
from harness import ROOT, Background, Eyas, Finished, wait_until
from promises import Checker
from slurm import Slurm, slurm
from weather import Cluster, Disks, small_disks

# For tests that wait for its end. It is too short where nothing may run twice: a busy machine alone may be silent for so long.
LEASE_S = 3
OPTIONS = ["--provider", "slurm", "--walltime", "10m", "--slots", "1", "--lease", "60s"]
# The nodes share one host, so they reach its dispatcher on loopback.
OPTIONS += ["--listen", "127.0.0.1:0", "--list-every", "1s"]


def options(*given: str) -> list[str]:
    """`OPTIONS`, but those that are given."""
    pairs = zip(OPTIONS[::2], OPTIONS[1::2], strict=True)
    return [word for pair in pairs if pair[0] not in given for word in pair] + list(given)


# No more than two jobs of a user at once, in the words of Slurm's accounting, which needs a database that is not here.
LIMIT = """
function slurm_job_submit(job, part, uid)
    local n = 0
    for _, other in pairs(slurm.jobs) do
        -- Above a state's lowest byte are flags, such as that of a job whose node is being configured.
        if other.user_id == uid and other.job_state % 256 < 3 then n = n + 1 end
    end
    if n >= 2 then return slurm.ESLURM_ACCOUNTING_POLICY or 2050 end
    return slurm.SUCCESS
end

function slurm_job_modify(job, changes, part, uid)
    return slurm.SUCCESS
end
"""


@pytest.fixture(scope="module")
def batch() -> Iterator[Slurm]:
    with slurm() as made:
        yield made


@pytest.fixture
def cluster(batch: Slurm, eyas: Eyas, tmp_path: Path) -> Iterator[Cluster]:
    """Whatever happens, no job stays in the queue."""
    eyas.env |= batch.env
    yield Cluster(eyas, tmp_path / "cluster", tmp_path / "home")
    batch.clear()


class Running:
    """`eyas run` in the background, whose promises are checked at its end."""

    def __init__(self, cluster: Cluster, tasks: list[dict[str, Any]], *given: str, name: str = "run") -> None:
        self.cluster, self.eyas = cluster, cluster.eyas
        self.dir = cluster.folder / name
        self.tasks = cluster.list_of(tasks)
        self.words: list[str | Path] = ["run", self.tasks, *options(*given), "--dir", self.dir]
        self.checker = Checker(self.dir / "dispatcher")
        self.process: Background = self.eyas.start(*self.words)

    def finish(self, status: int = 0, timeout: float = 120.0) -> Finished:
        done = self.process.wait(timeout, status)
        assert not self.checker.faults()
        self.eyas.run("replay", "--dir", self.dir)
        return done

    def calls(self) -> dict[str, int]:
        """What the provider says that it asked of Slurm."""
        found: dict[str, int] = json.loads((self.dir / "dispatcher" / "calls.json").read_text())
        return found


def processes(eyas: Eyas, verb: str) -> list[int]:
    """Processes of this part of clusters: `executor`, `provider`, `dispatcher`."""
    found = list(eyas.left_behind())
    return [pid for pid, command in found if command.split()[1:2] == [verb]]


def begun(cluster: Cluster, n_programs: int) -> None:
    """Waits until so many programs have begun: which ones is a matter of placement."""
    wait_until(lambda: len(cluster.ran()) >= n_programs, f"{n_programs} programs to begin")


def kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_head(running: Background, eyas: Eyas) -> None:
    """`kill -9` of all that runs on the login node: the command, the dispatcher, the provider and its Python process."""
    helpers = [pid for pid, command in eyas.left_behind() if "eyas.provision" in command]
    head = [running.pid, *processes(eyas, "dispatcher"), *processes(eyas, "provider"), *helpers]
    # All at once: none of them may see another one's end and do something about it.
    for pid in head:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    kill(head)
    running.wait(status=None)


def logged(batch: Slurm, eyas: Eyas, folder: Path, before: dict[str, str] | None = None) -> Path:
    """Puts commands before Slurm's that note each call; `before` has lines for the shell that a command begins with. Gives the log."""
    folder.mkdir()
    log = folder / "calls"
    log.touch()
    for name in ("sbatch", "squeue", "scancel", "sacct", "sinfo", "scontrol"):
        real = f"/usr/bin/{name}"
        lines = ["#!/bin/sh", f'echo "{name} $(date +%s.%N)" >> {log}', (before or {}).get(name, "")]
        path = folder / name
        path.write_text("\n".join([*lines, f'exec {real} "$@"', ""]))
        path.chmod(0o755)
    eyas.env["PATH"] = f"{folder}:{eyas.env['PATH']}"
    return log


def names_in(log: Path) -> list[str]:
    return [line.split()[0] for line in log.read_text().splitlines()]


def times_of(log: Path, name: str) -> list[float]:
    """When the calls of this command began."""
    lines = [line.split() for line in log.read_text().splitlines()]
    return [float(at) for called, at in lines if called == name]


def test_each_call_of_slurm_is_counted_and_said(batch: Slurm, cluster: Cluster, tmp_path: Path) -> None:
    log = logged(batch, cluster.eyas, tmp_path / "bin")
    tasks = [cluster.task(f"t{i}", "echo x > out") for i in range(6)]
    running = Running(cluster, tasks, "--nodes", "0..2")
    done = running.finish()
    batch.empty()
    names = names_in(log)
    said = re.search(r"^the batch system was asked (\d+) times: (.*)$", done.stderr, re.M)
    assert said and int(said[1]) == len(names), (done, names)
    calls = running.calls()
    assert [names.count(name) for name in ("sbatch", "squeue", "scancel")] == [
        calls[name] for name in ("n_submit", "n_list", "n_cancel")
    ]
    # What time the partition allows, once.
    assert names.count("sinfo") == 1
    assert calls["n_other"] == len(names) - sum(names.count(n) for n in ("sbatch", "squeue", "scancel"))


def test_a_job_that_stays_in_the_queue_is_shown_with_slurms_reason(batch: Slurm, cluster: Cluster) -> None:
    running = Running(
        cluster,
        [cluster.task("t", "echo x > out")],
        "--nodes",
        "0..1",
        "--options",
        'scheduler_options="#SBATCH --hold"',
    )
    wait_until(lambda: batch.queue(), "a job", alive=running.process)
    env = {"EYAS_JOIN": str(running.dir / "dispatcher" / "join.json")}

    def blocks() -> list[dict[str, Any]]:
        status = json.loads(cluster.eyas.run("status", "--json", env=env).stdout)
        found: list[dict[str, Any]] = status["provisioner"]["blocks"]
        return found

    why = "JobHeldUser: its user holds it"
    wait_until(lambda: [block["why"] for block in blocks()] == [why], "Slurm's reason")
    assert re.search(rf"queued +\d+ +{why}\n", cluster.eyas.run("status", env=env).stdout)
    text = cluster.eyas.run("explain", "--nodes", env=env).stdout
    assert re.search(rf"^eyas-\w+-1 \(\d+\) waits in the queue: {why}$", text, re.M), text
    running.process.wait_for_text(f"0 placed on 0 nodes, 1 node to come ({why})")
    running.process.signal(signal.SIGINT)
    done = running.process.wait(status=130)
    assert "warning" not in done.stderr, done
    batch.empty()


def test_a_job_that_no_partition_can_hold_says_so(batch: Slurm, cluster: Cluster) -> None:
    running = Running(
        cluster,
        [cluster.task("t", "echo x > out")],
        "--nodes",
        "0..1",
        "--options",
        'scheduler_options="#SBATCH --nodes=9"',
    )
    running.process.wait_for_text(
        "1 node to come (PartitionNodeLimit: it asks for more nodes than its partition has or allows)"
    )
    running.process.signal(signal.SIGINT)
    running.process.wait(status=130)
    batch.empty()


def test_three_jobs_that_slurm_keeps_back_are_cancelled_and_end_it(batch: Slurm, cluster: Cluster) -> None:
    tasks = cluster.list_of([cluster.task("t", "echo x > out")])
    words: list[str | Path] = ["run", tasks, *OPTIONS, "--nodes", "0..1", "--dir", cluster.folder / "run"]
    words += ["--options", 'scheduler_options="#SBATCH --begin=now+1hour"']
    running = cluster.eyas.start(*words)
    held: set[str] = set()
    while len(held) < 3:
        wait_until(lambda: {line.split()[0] for line in batch.queue()} - held, "another job", alive=running)
        # What an administrator does.
        for job in {line.split()[0] for line in batch.queue()} - held:
            batch.ask("scontrol", "hold", job)
            held.add(job)
    done = running.wait(status=3)
    said = r"no node can be started: eyas-\w+-3 ended before it joined: Slurm keeps it back: JobHeldAdmin"
    assert re.search(said, done.stderr), done
    calls = json.loads((cluster.folder / "run" / "dispatcher" / "calls.json").read_text())
    assert calls["n_submit"] == 3 and calls["n_cancel"] >= 2, calls
    batch.empty()


def test_three_jobs_that_die_at_once_end_it_with_their_own_words(
    batch: Slurm, cluster: Cluster, tmp_path: Path
) -> None:
    log = logged(batch, cluster.eyas, tmp_path / "bin")
    tasks = cluster.list_of([cluster.task("t", "echo x > out")])
    words = [*OPTIONS, "--nodes", "0..1", "--setup", "echo 'no such module: blast' >&2; exit 1"]
    done = cluster.eyas.run("run", tasks, *words, status=3)
    said = r"eyas-\w+-3 ended before it joined: failed \(NonZeroExitCode\); it said: no such module: blast \(all of it: "
    assert re.search(said, done.stderr), done
    assert names_in(log).count("sbatch") == 3
    batch.empty()


def test_a_task_that_is_longer_than_the_job_is_named_and_the_others_are_done(
    batch: Slurm, cluster: Cluster, tmp_path: Path
) -> None:
    """A job of a minute; eyas counts less, so that its nodes end in seconds."""
    never = tmp_path / "never"
    tasks = [
        cluster.task("long", gate=never, retries=0),
        *(cluster.task(f"t{i}", "echo x > out") for i in range(4)),
    ]
    words = ["--walltime", "8s", "--nodes", "0..2"]
    done = Running(cluster, tasks, *words).finish(status=1)
    assert (
        "failed: task `long`: the task needs more than the walltime of 8 s: 2 nodes ended while it ran"
        in done.stderr
    )
    assert "4 done, 1 failed" in done.stderr, done
    batch.empty()


def test_scancel_of_every_job_again_and_again_loses_nothing(
    batch: Slurm, cluster: Cluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    names = [f"t{i}" for i in range(8)]
    tasks = [cluster.task(name, f"echo {name} > out", gate=gate, retries=0) for name in names]
    running = Running(cluster, tasks, "--nodes", "0..3", "--provisioning", "all-at-once")
    for n in (3, 6):
        begun(cluster, n)
        running.checker.look()
        batch.ask("scancel", *(line.split()[0] for line in batch.queue()))
    gate.touch()
    done = running.finish()
    assert "8 done, 0 failed" in done.stderr, done
    cluster.expect(**{name: f"{name}\n".encode() for name in names})
    batch.empty()


@pytest.mark.parametrize("down_s", [6, pytest.param(60, marks=pytest.mark.long)])
def test_the_controller_is_down_for_a_time(
    batch: Slurm, cluster: Cluster, tmp_path: Path, down_s: int
) -> None:
    log = logged(batch, cluster.eyas, tmp_path / "bin")
    gate = tmp_path / "gate"
    tasks = [cluster.task(f"t{i}", "echo x > out", gate=gate) for i in range(8)]
    running = Running(cluster, tasks, "--nodes", "0..2", "--provisioning", "all-at-once")
    begun(cluster, 2)
    jobs = batch.queue()
    running.checker.look()
    before = len(names_in(log))
    batch.stop_controller()
    try:
        running.process.wait_for_text(
            "warning: nobody could list the blocks: squeue ended with exit status 1: "
        )
        time.sleep(down_s)
        n_asked = len(names_in(log)) - before
        assert len(cluster.ran()) == 2, "the nodes work on"
    finally:
        batch.start_controller()
    wait_until(
        lambda: {line.split()[0] for line in batch.queue()} == {line.split()[0] for line in jobs}, "the jobs"
    )
    gate.touch()
    done = running.finish()
    assert "8 done, 0 failed" in done.stderr, done
    assert len(cluster.ran()) == 8, "nothing ran twice"
    assert n_asked <= 8, f"it was asked {n_asked} times while it was down"
    batch.empty()


def test_a_limit_of_two_jobs_is_learnt(eyas: Eyas, tmp_path: Path) -> None:
    with slurm("JobSubmitPlugins=lua", files={"job_submit.lua": LIMIT}) as limited:
        eyas.env |= limited.env
        log = logged(limited, eyas, tmp_path / "bin")
        cluster = Cluster(eyas, tmp_path / "cluster", tmp_path / "home")
        gate = tmp_path / "gate"
        tasks = [cluster.task(f"t{i}", f"echo {i} > out", gate=gate) for i in range(12)]
        running = Running(cluster, tasks, "--nodes", "0..4", "--provisioning", "all-at-once")
        begun(cluster, 2)
        said = "warning: nobody could submit a block beside the 2 there are: sbatch ended with exit status 1: sbatch: error: "
        running.process.wait_for_text(said)
        wait_until(
            lambda: names_in(log).count("sbatch") >= 6, "four refused submissions", alive=running.process
        )
        # Each wait counts from the end of a call, which is later than the time noted here.
        times = times_of(log, "sbatch")[2:6]
        waits = [after - before for before, after in itertools.pairwise(times)]
        assert [wait >= wanted for wait, wanted in zip(waits, (1, 2, 4), strict=True)] == [True] * 3, waits
        # A job that ends makes room, and its place is taken long before the wait is over.
        jobs = limited.queue()
        limited.ask("scancel", jobs[0].split()[0])
        wait_until(
            lambda: (
                len({line.split()[0] for line in limited.queue()} - {line.split()[0] for line in jobs}) == 1
            ),
            "another job in its place",
            alive=running.process,
        )
        gate.touch()
        done = running.finish()
        assert "12 done, 0 failed" in done.stderr, done
        assert done.stderr.count("warning: ") == 1, done
        limited.empty()


def test_a_python_process_that_is_killed_while_it_submits_makes_no_second_job(
    batch: Slurm, cluster: Cluster, tmp_path: Path
) -> None:
    begun, go = tmp_path / "begun", tmp_path / "go"
    slow = f"touch {begun}; (while [ ! -e {go} ]; do sleep 0.02; done)"
    log = logged(batch, cluster.eyas, tmp_path / "bin", {"sbatch": slow})
    running = Running(cluster, [cluster.task("t", "echo x > out")], "--nodes", "0..1")
    wait_until(begun.exists, "sbatch to begin", alive=running.process)
    kill([pid for pid, command in cluster.eyas.left_behind() if "eyas.provision" in command])
    # The command itself lives on, and hands its job in.
    go.touch()
    done = running.finish()
    assert "1 done, 0 failed" in done.stderr, done
    # Its job was found by its name, or it came too late for that listing; then there are two, and both go.
    assert names_in(log).count("sbatch") <= 2
    assert cluster.ran() == ["t"]
    batch.empty()


def test_a_head_that_is_killed_and_not_started_again_leaves_no_job(
    batch: Slurm, cluster: Cluster, tmp_path: Path
) -> None:
    tasks = [cluster.task(f"t{i}", "echo x > out", gate=tmp_path / "never") for i in range(3)]
    words = ["--nodes", "0..3", "--provisioning", "all-at-once", "--lease", f"{LEASE_S}s"]
    running = Running(cluster, tasks, *words)
    begun(cluster, 3)
    assert processes(cluster.eyas, "executor")
    kill_head(running.process, cluster.eyas)
    wait_until(
        lambda: not processes(cluster.eyas, "executor"),
        "the executors to end with their lease",
    )
    batch.empty()
    assert "promise 4: run 1 has no end" in running.checker.faults(), "the checkers see what is missing"


@pytest.mark.parametrize("how", ["when the nodes are back", "before they are"])
def test_a_head_that_is_killed_twice_and_started_again_goes_on_with_its_jobs(
    batch: Slurm, cluster: Cluster, tmp_path: Path, how: str
) -> None:
    gate = tmp_path / "gate"
    # A dispatcher waits for its nodes the longer the longer the lease is.
    lease = ["--lease", "60s" if how == "when the nodes are back" else "10m"]
    folder = cluster.folder / "up"
    words = ["up", *options(*lease), "--nodes", "0..2", "--provisioning", "all-at-once", "--dir", str(folder)]
    env = {"EYAS_JOIN": str(folder / "dispatcher" / "join.json")}
    cluster.eyas.run(*words)
    tasks = [cluster.task("first", "echo x > out")]
    tasks += [cluster.task(f"t{i}", "echo x > out", gate=gate) for i in range(5)]
    checker = Checker(folder / "dispatcher")
    cluster.eyas.run("submit", cluster.list_of(tasks), env=env)
    begun(cluster, 3)
    jobs = batch.queue()

    def n_connected() -> int:
        status = json.loads(cluster.eyas.run("status", "--json", env=env).stdout)
        return [line["state"] for line in status["executors"]].count("connected")

    for _ in range(2):
        checker.look()
        kill([*processes(cluster.eyas, "dispatcher"), *processes(cluster.eyas, "provider")])
        cluster.eyas.run(*words)
        if how == "when the nodes are back":
            wait_until(lambda: n_connected() == 2, "both nodes to come back")
    gate.touch()
    cluster.eyas.run("wait", env=env)
    assert len(cluster.ran()) == 6, "nothing ran twice"
    assert {line.split()[0] for line in batch.queue()} <= {line.split()[0] for line in jobs}
    cluster.eyas.run("down", env=env)
    assert not checker.faults()
    cluster.eyas.run("replay", "--dir", folder)
    batch.empty()


def test_a_node_whose_disk_is_full_leaves_the_work_to_others(
    batch: Slurm, cluster: Cluster, tmp_path: Path, disks: Disks
) -> None:
    disk = disks(tmp_path / "small", 4 << 20)
    disk.fill()
    files = [cluster.file(f"f{i}", 200_000, i) for i in range(6)]
    tasks = [cluster.task(f"t{i}", inputs=[file]) for i, file in enumerate(files)]
    # The first job's disk is full, the others' are not.
    line = f"case $SLURM_JOB_NAME in *-1.*) TMPDIR={disk.at};; esac"
    words = ["--nodes", "0..2", "--provisioning", "all-at-once", "--node-dir", "$TMPDIR", "--setup", line]
    done = Running(cluster, tasks, *words).finish()
    assert "6 done, 0 failed" in done.stderr, done
    cluster.expect(**{f"t{i}": file.read_bytes() for i, file in enumerate(files)})
    disk.free()
    batch.empty()


@pytest.fixture
def disks() -> Iterator[Disks]:
    yield from small_disks()


def user_of(eyas: Eyas, name: str, folder: Path) -> Eyas:
    """The program as another user of this machine has it: a copy of its own, and folders that are the user's."""
    folder.mkdir()
    program = folder / "eyas"
    shutil.copy(eyas.path, folder / "program")
    program.write_text(
        f'#!/bin/sh\nexec setpriv --reuid={name} --regid={name} --clear-groups -- {folder}/program "$@"\n'
    )
    program.chmod(0o755)
    made = Eyas(program, folder / ".eyas-test", uuid.uuid4().hex)
    made.env |= {name: value for name, value in eyas.env.items() if name in ("SLURM_CONF", "PATH")}
    return made


def test_two_users_on_one_host_and_one_slurm_do_not_meet(batch: Slurm, eyas: Eyas) -> None:
    """Each user has two clusters. They share hosts, the folder for temporary files, and the queue."""
    page = (ROOT / "docs" / "guides" / "slurm.md").read_text()
    found = re.search(r"<!-- file eyas.toml -->\s*```toml\n(\[profile.slurm\].*?)```", page, re.DOTALL)
    assert found, "the guide shows the profile `slurm`"
    eyas.env |= batch.env
    users = ["games", "backup"]
    with tempfile.TemporaryDirectory(prefix="eyas-users-") as top:
        Path(top).chmod(0o755)
        shared = Path(top) / "tmp"
        shared.mkdir()
        shared.chmod(0o1777)
        running: list[tuple[str, Path, Background, Eyas]] = []
        for name in users:
            made = user_of(eyas, name, Path(top) / name)
            made.env["TMPDIR"] = str(shared)
            home = Path(top) / name
            (home / "eyas.toml").write_text(found[1])
            for which in (1, 2):
                (home / f"out{which}").mkdir()
                task = {
                    "id": "t",
                    "command": f"id -un > who; pwd > where; while [ ! -e {top}/gate ]; do sleep 0.02; done",
                    "outputs": {part: f"{home}/out{which}/{part}" for part in ("who", "where")},
                }
                (home / f"tasks{which}.jsonl").write_text(json.dumps(task) + "\n")
            subprocess.run(["chown", "-R", f"{name}:{name}", str(home)], check=True)
            words = ["--profile", "slurm", "--nodes", "0..1", "--slots", "1", "--listen", "127.0.0.1:0"]
            words += ["--list-every", "1s", "--lease", "60s", "--cache", "64MiB"]
            for which in (1, 2):
                begun_one = made.start(
                    "run", home / f"tasks{which}.jsonl", *words, "--dir", home / f"run{which}", cwd=home
                )
                running.append((name, home / f"out{which}", begun_one, made))
        try:
            ids = batch.ask  # a listing shows all users
            wait_until(
                lambda: (
                    sorted(ids("squeue", "--noheader", "--states=running", "--format=%u").split())
                    == sorted(users * 2)
                ),
                "a job for each cluster",
            )
            (Path(top) / "gate").touch()
            folders = set()
            for name, out, process, _ in running:
                done = process.wait(120)
                assert "1 done, 0 failed" in done.stderr, done
                assert (out / "who").read_text() == f"{name}\n"
                folders.add((out / "where").read_text())
            assert len(folders) == 4, "each executor had a folder of its own"
        finally:
            for *_, made in running:
                made.end()
    batch.clear()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_twenty_kills_of_the_head_leave_nothing_one_lease_later(
    batch: Slurm, eyas: Eyas, tmp_path: Path
) -> None:
    """At random moments: before the first job, while jobs come, work and go. The default lease counts, as a job that starts after the
    head's death knows no other."""
    eyas.env |= batch.env
    seed = int(os.environ.get("EYAS_FROM", "1"))
    for n in range(seed, seed + 20):
        rng = random.Random(n)
        folder = tmp_path / str(n)
        folder.mkdir()
        cluster = Cluster(eyas, folder / "cluster", folder / "home")
        tasks = [cluster.task(f"t{i}", f"sleep {rng.uniform(0, 2):.2f}; echo x > out") for i in range(30)]
        words = ["--nodes", f"0..{rng.randint(1, 4)}", "--lease", "15s", "--idle-release", "1s"]
        running = Running(cluster, tasks, *words)
        at_s = rng.uniform(0.1, 10)
        time.sleep(at_s)
        running.checker.look() if (running.dir / "dispatcher" / "events.jsonl").exists() else None
        n_jobs = len(batch.queue())
        n_done = len(list(cluster.home.glob("*.out")))
        kill_head(running.process, eyas)
        killed = time.monotonic()

        def is_gone() -> bool:
            return not processes(eyas, "executor") and not batch.queue()

        wait_until(is_gone, f"seed {n}: the end of all executors and jobs")
        gone_s = time.monotonic() - killed
        print(
            f"seed {n}: killed at {at_s:.1f} s, {n_jobs} jobs, {n_done} tasks done; all gone after {gone_s:.1f} s",
            flush=True,
        )
        assert not list(eyas.left_behind())
        # The same command goes on, and nothing that was done is lost.
        done = eyas.run(*running.words, "--resume", timeout=240)
        assert "0 failed" in done.stderr, done
        assert len(list(cluster.home.glob("*.out"))) == 30
        batch.empty()


@pytest.mark.parametrize("ahead_s", [600, -600])
def test_nodes_whose_clock_is_ten_minutes_off_work_as_others_do(
    batch: Slurm, cluster: Cluster, tmp_path: Path, ahead_s: int
) -> None:
    clock = Clock(build(tmp_path), tmp_path / "clock")
    clock.set(ahead_s)
    exports = ",".join(["ALL", *(f"{name}={value}" for name, value in clock.env.items())])
    files = [cluster.file(f"f{i}", 1_000, i) for i in range(4)]
    tasks = [cluster.task(f"t{i}", "date +%s; cat input/* > out", inputs=[files[i]]) for i in range(4)]
    words = ["--nodes", "0..2", "--options", f'scheduler_options="#SBATCH --export={exports}"']
    running = Running(cluster, tasks, *words, "--walltime", "5m")
    done = running.finish()
    assert "4 done, 0 failed" in done.stderr, done
    assert len(cluster.ran()) == 4
    cluster.expect(**{f"t{i}": files[i].read_bytes() for i in range(4)})
    # The programs saw that clock, and the times in the log are the dispatcher's all the same.
    printed = cluster.eyas.run("logs", "t0", "--dir", running.dir).stdout
    assert abs(int(re.findall(r"\d{10,}", printed)[0]) - time.time() - ahead_s) < 120, printed
    reports = [
        entry["in"]["attempt_ended"]["report"]["times"]
        for entry in running.checker._entries()
        if isinstance(entry.get("in"), dict) and "attempt_ended" in entry["in"]
    ]
    assert len(reports) == 4
    assert all(abs(times["exited"] / 1e9 - time.time()) < 120 for times in reports), reports
    batch.empty()
