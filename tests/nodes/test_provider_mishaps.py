"""What starts and ends nodes is killed, hangs, or is refused: nothing is left behind, and what may be left is named."""

from __future__ import annotations

import os
import random
import re
import signal
import time
import uuid
from pathlib import Path

import pytest
from batch import LIST, START, STOP, Batch, Up, shared
from harness import Background, Eyas, wait_until
from weather import Cluster


@pytest.fixture
def cluster(eyas: Eyas, tmp_path: Path) -> Cluster:
    return Cluster(eyas, tmp_path / "cluster", tmp_path / "home")


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    return Batch(tmp_path / "batch")


def kill_parts(eyas: Eyas, *parts: str) -> None:
    """`kill -9` of these parts of every cluster."""
    for pid in running_parts(eyas, *parts):
        os.kill(pid, signal.SIGKILL)


def running_parts(eyas: Eyas, *parts: str) -> list[int]:
    named = [(pid, command.split()[1:2]) for pid, command in eyas.left_behind()]
    return [pid for pid, name in named if name and name[0] in parts]


def run_with(eyas: Eyas, batch: Batch, tasks: Path, *options: str, lease: str = "60s") -> Background:
    """`eyas run` in the background, with nodes of this batch system."""
    words = ["--listen", "127.0.0.1:0", "--lease", lease, "--slots", "1", *batch.options(), *options]
    return eyas.start("run", tasks, *words)


def test_a_run_whose_provider_is_killed_starts_it_again_and_leaves_nothing(
    eyas: Eyas, batch: Batch, cluster: Cluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    tasks = cluster.list_of([cluster.task(f"t{i}", "echo x > out", gate=gate) for i in range(2)])
    running = run_with(eyas, batch, tasks, "--nodes", "0..2")
    cluster.begun("t0", "t1")
    kill_parts(eyas, "provider")
    running.wait_for_text("note: what starts and ends nodes was killed (signal: 9")
    gate.touch()
    done = running.wait()
    assert "2 done, 0 failed" in done.stderr, done
    assert sorted(cluster.ran()) == ["t0", "t1"], "nothing ran twice"
    assert (len(batch.blocks()), batch.running()) == (2, []), "they were taken over, and ended"
    assert not shared(eyas)


def test_a_provider_that_is_killed_again_and_again_ends_the_run_and_leaves_nothing(
    eyas: Eyas, batch: Batch, cluster: Cluster, tmp_path: Path
) -> None:
    tasks = cluster.list_of([cluster.task("t", "echo x > out", gate=tmp_path / "gate")])
    running = run_with(eyas, batch, tasks, "--nodes", "0..1")
    cluster.begun("t")
    starts: list[int] = []
    for _ in range(3):
        kill_parts(eyas, "provider")
        starts.append(len(starts) + 1)
        wait_until(lambda: running.stderr.count("is started again") == len(starts), "the next start")
        # The note comes before the process.
        wait_until(lambda: running_parts(eyas, "provider"), "the next provider")
    kill_parts(eyas, "provider")
    done = running.wait(status=3)
    said = "error: the provider ended: signal: 9 (SIGKILL)\nhint: the same command with --resume goes on\n"
    assert done.stderr.endswith(said), done
    assert not batch.running()
    assert not shared(eyas)


def test_nodes_of_this_machine_come_back_when_what_starts_them_was_killed(
    eyas: Eyas, cluster: Cluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    tasks = cluster.list_of([cluster.task("t", "echo x > out", gate=gate)])
    running = eyas.start("run", tasks, "--nodes", "0..1", "--slots", "1")
    cluster.begun("t")
    kill_parts(eyas, "provider")
    wait_until(lambda: len(cluster.ran()) >= 2, "the task to run on another node", alive=running)
    gate.touch()
    assert "1 done, 0 failed" in running.wait().stderr
    cluster.expect(t=b"x\n")


def test_a_provider_that_is_asked_to_end_is_said_to_have_been(
    eyas: Eyas, batch: Batch, cluster: Cluster, tmp_path: Path
) -> None:
    tasks = cluster.list_of([cluster.task("t", "echo x > out", gate=tmp_path / "gate")])
    running = run_with(eyas, batch, tasks, "--nodes", "0..1")
    cluster.begun("t")
    for pid, command in list(eyas.left_behind()):
        if command.split()[1:2] == ["provider"]:
            os.kill(pid, signal.SIGTERM)
    done = running.wait(status=3)
    said = (
        "error: the provider ended: somebody asked it to end\nhint: the same command with --resume goes on\n"
    )
    assert done.stderr.endswith(said), done
    assert not batch.running()


def test_a_run_whose_dispatcher_is_killed_says_how_to_go_on(
    eyas: Eyas, cluster: Cluster, tmp_path: Path
) -> None:
    tasks = cluster.list_of([cluster.task("t", "echo x > out", gate=tmp_path / "gate")])
    running = eyas.start("run", tasks)
    cluster.begun("t")
    kill_parts(eyas, "dispatcher")
    done = running.wait(status=3)
    said = "error: the dispatcher ended: signal: 9 (SIGKILL)\nhint: the same command with --resume goes on\n"
    assert done.stderr.endswith(said), done


def test_down_ends_the_blocks_of_a_provider_that_was_killed(batch: Batch, cluster: Cluster) -> None:
    up = Up(cluster, batch, "2..2")
    batch.wish("hold")
    up.start()
    wait_until(lambda: len(batch.blocks()) == 2, "two blocks in the queue")
    up.kill("provider")
    up.ask("down")
    assert sorted(batch.calls(STOP)) == [["stop", "b1"], ["stop", "b2"]]
    assert not shared(cluster.eyas)


def test_down_ends_the_blocks_of_a_head_that_was_killed(batch: Batch, cluster: Cluster) -> None:
    up = Up(cluster, batch, "0..1")
    up.start()
    up.ask("submit", cluster.list_of([cluster.task("t", "echo x > out")]))
    up.ask("wait")
    up.kill("provider", "dispatcher")
    assert up.ask("down") == "the cluster had been killed, and its nodes have ended\n"
    wait_until(lambda: not batch.running(), "the block to end")
    assert batch.calls(STOP) == [["stop", "b1"]]
    assert not shared(cluster.eyas)
    assert "no cluster is up" in cluster.eyas.run("down", status=3).stderr


def test_down_returns_when_the_last_block_was_stopped(batch: Batch, cluster: Cluster) -> None:
    up = Up(cluster, batch, "1..1")
    up.start()
    wait_until(lambda: len(up.names()) == 1, "the node")
    batch.wish("slow", "2.5")
    done = cluster.eyas.run("down", env=up.env)
    assert (done.stdout, batch.calls(STOP)) == ("the cluster has ended\n", [["stop", "b1"]])
    assert (batch.folder / "b1.stopped").exists(), "the command had ended"
    assert "ending the nodes, for at most 90 s" in done.stderr


def test_what_cannot_be_stopped_is_named(eyas: Eyas, batch: Batch, cluster: Cluster) -> None:
    up = Up(cluster, batch, "1..1", lease="10s")
    up.start()
    wait_until(lambda: len(up.names()) == 1, "the node")
    stuck = batch.wish("stuck", "no route to the controller")
    done = cluster.eyas.run("down", env=up.env, status=3)
    name = batch.blocks()["b1"]
    left = f"{name} (b1) could not be ended and is left: --stop ended with exit status 3: no route to the controller"
    assert f"error: the cluster has ended, and something of it may be left: {left}\n" in done.stderr, done
    wait_until(lambda: not batch.running(), "the node to end with its lease")
    # The same of a run.
    tasks = cluster.list_of([cluster.task("t", "echo x > out")])
    done = run_with(eyas, batch, tasks, "--nodes", "0..1", lease="10s").wait(status=None)
    assert re.search(
        r"warning: eyas-\w+-1 \(b2\) could not be ended and is left: --stop ended with", done.stderr
    )
    stuck.unlink()
    wait_until(lambda: not batch.running(), "the node to end with its lease")


@pytest.mark.parametrize(
    ("wish", "text", "sentence"),
    [
        ("refuse", "quota exceeded", "--start ended with exit status 3: quota exceeded"),
        (
            "babble",
            "Submitted batch job 7",
            "--start has to print one line, the block's id, and printed `Submitted batch job 7`",
        ),
    ],
)
def test_a_command_that_fails_after_it_once_worked_is_said_once_and_shown(
    eyas: Eyas, batch: Batch, cluster: Cluster, wish: str, text: str, sentence: str
) -> None:
    up = Up(cluster, batch, "0..1", "--idle-release", "200ms")
    up.start()
    up.ask("submit", cluster.list_of([cluster.task("a", "echo x > out")]))
    up.ask("wait")
    wait_until(lambda: not up.names(), "the node to go")
    refuse = batch.wish(wish, text)
    up.ask("submit", cluster.list_of([cluster.task("b", "echo x > out")]))
    waiting = eyas.start("wait", env=up.env)
    said = f"warning: nobody could submit a block: {sentence}\n"
    waiting.wait_for_text(said)
    n = len(batch.calls(START))
    wait_until(lambda: len(batch.calls(START)) > n, "another try")
    assert said in up.ask("status")
    assert up.status()["provisioner"]["troubles"] == [said.removeprefix("warning: ").strip()]
    refuse.unlink()
    done = waiting.wait()
    assert done.stderr.count("warning: ") == 1, done
    wait_until(lambda: not up.status()["provisioner"]["troubles"], "the trouble to be over")
    up.down()


@pytest.mark.parametrize("verb", [START, LIST, STOP])
def test_a_second_interrupt_leaves_although_a_command_hangs(
    eyas: Eyas, batch: Batch, cluster: Cluster, tmp_path: Path, verb: str
) -> None:
    tasks = cluster.list_of([cluster.task("t", "echo x > out", gate=tmp_path / "gate")])
    hang = batch.wish("hang", verb)
    running = run_with(eyas, batch, tasks, "--nodes", "0..1", lease="10s")
    if verb == STOP:
        cluster.begun("t")
    else:
        wait_until(lambda: batch.calls(verb), "the command", alive=running)
    running.signal(signal.SIGINT)
    running.wait_for_text("ending the tasks; ^C again to leave at once")
    if verb == STOP:
        wait_until(lambda: batch.calls(STOP), "the command", alive=running)
    running.signal(signal.SIGINT)
    done = running.wait(status=130)
    hang.unlink()
    if verb == STOP:
        assert re.search(
            r"^warning: eyas-\w+-1 \(b1\) could not be ended and is left: --stop did not end, and was killed",
            done.stderr,
            re.M,
        ), done
    elif verb == START:
        assert re.search(
            r"^warning: eyas-\w+-1 may have been requested all the same, and is left then: --start did not end",
            done.stderr,
            re.M,
        ), done
    wait_until(lambda: not list(eyas.left_behind()), "the end of all that it started")


def test_the_key_of_a_cluster_that_was_killed_goes_with_the_next_command_and_no_other(
    eyas: Eyas, batch: Batch, cluster: Cluster, tmp_path: Path
) -> None:
    up = Up(cluster, batch, "0..1")
    up.start()
    other = Up(cluster, Batch(tmp_path / "other"), "0..1")
    other.words[other.words.index(str(up.dir))] = str(tmp_path / "o")
    other.env = {"EYAS_JOIN": str(tmp_path / "o" / "dispatcher" / "join.json")}
    other.start()
    dead, live = up.status()["cluster"], other.status()["cluster"]
    folders = Path(eyas.env["XDG_STATE_HOME"]) / "eyas"
    assert sorted(path.name for path in folders.iterdir()) == sorted([dead, live])
    for pid, command in list(eyas.left_behind()):
        if str(up.dir) in command:
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: all(str(up.dir) not in command for _, command in eyas.left_behind()), "its end")
    done = eyas.run("run", cluster.list_of([cluster.task("t", "echo x > out")]))
    assert f"note: the key of cluster {dead}, which was killed, is removed\n" in done.stderr, done
    assert [path.name for path in folders.iterdir()] == [live]
    # A cluster on another machine, as far as anybody can see.
    owner = folders / live / "owner.json"
    kept = owner.read_text()
    owner.write_text(re.sub(r'"machine":"[^ ]*', '"machine":"elsewhere', kept))
    for pid, command in list(eyas.left_behind()):
        if str(tmp_path / "o") in command:
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not list(eyas.left_behind()), "its end")
    eyas.run("run", cluster.list_of([cluster.task("u", "echo x > out")]))
    assert [path.name for path in folders.iterdir()] == [live]
    # It is started again, and goes on with what is there.
    owner.write_text(kept)
    assert up.start().startswith("up, with 0..1 nodes by --provider command")
    assert [path.name for path in folders.iterdir()] == [dead]
    up.down()


def test_the_key_of_a_run_that_was_killed_before_its_batch_system_answered_goes_too(
    eyas: Eyas, cluster: Cluster, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    # It has all modules, and does not answer when it is to ask for nodes; it ends when nobody is there to ask it.
    python.write_text("#!/bin/sh\ncase $1 in -c) ;; *) exec cat > /dev/null ;; esac\n")
    python.chmod(0o700)
    tasks = cluster.list_of([cluster.task("t", "echo x > out")])
    words = ["--provider", "slurm", "--python", str(python), "--listen", "127.0.0.1:0", "--nodes", "0..1"]
    running = eyas.start("run", tasks, *words)
    wait_until(lambda: any(path.name == "owner.json" for path in shared(eyas)), "the key", alive=running)
    # What is killed in this order starts nothing again.
    running.signal(signal.SIGKILL)
    kill_parts(eyas, "provider", "dispatcher")
    running.wait(status=None)
    wait_until(lambda: not list(eyas.left_behind()), "the end of all its parts")
    done = eyas.run("run", tasks)
    assert ", which was killed, is removed\n" in done.stderr, done
    assert not shared(eyas)


@pytest.mark.parametrize(
    "where", [[], ["--node-dir", "$TMPDIR/own", "--scratch-age", "0"]], ids=["temporary", "own"]
)
def test_the_folder_of_an_executor_that_is_killed_goes(
    eyas: Eyas, batch: Batch, cluster: Cluster, tmp_path: Path, where: list[str]
) -> None:
    gate = tmp_path / "gate"
    big = cluster.task(
        "t", "mkdir -p deep/er; echo y > deep/er/file; chmod 500 deep; echo x > out", gate=gate
    )
    running = run_with(eyas, batch, cluster.list_of([big]), "--nodes", "0..1", *where, lease="5s")
    cluster.begun("t")
    own = Path(eyas.env["TMPDIR"]) / ("own" if where else f"eyas-nodes-{os.getuid()}")
    (first,) = own.iterdir()
    kill_parts(eyas, "executor")
    wait_until(lambda: not first.exists(), "the folder to go", alive=running)
    wait_until(lambda: len(cluster.ran()) >= 2, "the task to run on another node", alive=running)
    gate.touch()
    running.wait()
    cluster.expect(t=b"x\n")
    wait_until(lambda: not list(eyas.left_behind()), "the end of all that it started")
    # A folder of the user's own stays, with nothing in it.
    assert own.exists() == bool(where)
    if where:
        assert not any(own.iterdir())


def test_a_killed_executor_that_never_had_its_folder_leaves_it_alone(eyas: Eyas, cluster: Cluster) -> None:
    cluster.dispatcher()
    cluster.executor("a")
    folder = cluster.node_dir("a")
    words = ["--join", str(cluster.join), "--dir", str(folder), "--name", "b", "--remove-dir"]
    eyas.run("executor", *words, status=3)
    wait_until(
        lambda: not any("__keeper" in command for _, command in eyas.left_behind()), "who would remove it"
    )
    assert (folder / "cache").is_dir()


# What a run that is over leaves in the folder for temporary files: its own record, for `eyas report` and `--resume`.
RECORD = re.compile(r"eyas-\d+(/(runs|clusters|workflows)(/.*)?)?")


def ended_at_a_random_moment(eyas_path: Path, folder: Path, how: int, seed: int) -> None:
    """A run whose head is sent this signal within its first 3 s: nothing may be left, once the lease is over.

    SIGKILL takes all of the head at once. Then the cluster's key stays, until this user's next run removes it.
    """
    rng = random.Random(f"{seed} {how}")
    eyas = Eyas(eyas_path, folder / ".eyas-test", uuid.uuid4().hex)
    try:
        batch, cluster = Batch(folder / "batch"), Cluster(eyas, folder / "cluster", folder / "home")
        lines = [f"sleep {rng.uniform(0, 1.5):.2f}; echo x > out" for _ in range(12)]
        tasks = cluster.list_of([cluster.task(f"t{i}", line) for i, line in enumerate(lines)])
        running = run_with(eyas, batch, tasks, "--nodes", "0..3", "--grace", "1s", lease="5s")
        at_s = rng.uniform(0, 3)
        time.sleep(at_s)
        what = f"seed {seed}: signal {how} at {at_s:.2f} s, with {len(batch.running())} blocks"
        print(what, flush=True)
        if how == signal.SIGKILL:
            kill_parts(eyas, "run", "dispatcher", "provider")
        else:
            running.signal(how)
        running.wait(status=None)
        wait_until(lambda: not list(eyas.left_behind()) and not batch.running(), f"{what}: the end of all")
        scratch = Path(eyas.env["TMPDIR"])
        left = [str(path.relative_to(scratch)) for path in scratch.rglob("*")]
        assert not [path for path in left if not RECORD.fullmatch(path)], what
        assert not list(Path(eyas.env["XDG_RUNTIME_DIR"]).iterdir()), what
        if how == signal.SIGKILL:
            eyas.run("run", cluster.list_of([cluster.task("next", "true > out")]), "--nodes", "1")
        assert not shared(eyas), what
    finally:
        eyas.end()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
def test_a_run_that_is_ended_at_a_random_moment_leaves_nothing(
    eyas_path: Path, tmp_path: Path, how: int
) -> None:
    ended_at_a_random_moment(eyas_path, tmp_path, how, int(os.environ.get("EYAS_FROM", "1")))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
def test_twenty_runs_that_are_ended_at_random_moments_leave_nothing(
    eyas_path: Path, tmp_path: Path, how: int
) -> None:
    seed = int(os.environ.get("EYAS_FROM", "1"))
    for n in range(seed + 1, seed + 21):
        folder = tmp_path / str(n)
        folder.mkdir()
        ended_at_a_random_moment(eyas_path, folder, how, n)
