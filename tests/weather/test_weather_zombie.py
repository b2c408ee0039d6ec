"""Executors that are stopped, given up, and go on; and what one leaves at home that is killed while it brings files there."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from harness import Background, Eyas, wait_until
from weather import Cluster, kill_now, programs_under

# Different bytes each time, so that a second landing shows.
RANDOM = "head -c 3000000 /dev/urandom > out"
# At this rate such a file is on its way home for seconds.
SLOW = ("--home-rate", "500kB")


@pytest.fixture
def cluster(eyas: Eyas, tmp_path: Path) -> Cluster:
    return Cluster(eyas, tmp_path / "cluster", tmp_path / "home")


def parts(cluster: Cluster) -> list[Path]:
    return sorted(cluster.home.rglob(".eyas-part-*"))


def stop(part: Background) -> None:
    part.signal(signal.SIGSTOP)


def go_on(cluster: Cluster, part: Background, name: str) -> None:
    """Lets a stopped executor go on, until it has joined again and has nothing left to do."""
    before = cluster.status()["executors"]
    part.signal(signal.SIGCONT)

    def is_idle() -> bool:
        line = cluster.find_node(name)
        if line is None or line["state"] != "connected" or line in before:
            return False
        status = line["status"]
        # Before its first word after the reconnect all numbers are 0.
        has_spoken = status["own_cpu_ns"] > 0
        return has_spoken and not status["running"] and status["n_waiting"] == 0

    wait_until(is_idle, f"{name} to join again and to have nothing left", alive=part)


def lost(cluster: Cluster, name: str) -> None:
    wait_until(lambda: cluster.state_of(name) in (None, "lost"), f"{name} to be given up")


def test_a_program_that_ends_on_an_executor_that_was_given_up(cluster: Cluster, tmp_path: Path) -> None:
    cluster.dispatcher()
    zombie = cluster.executor("N1")
    gate = tmp_path / "gate"
    cluster.submit([cluster.task("a", RANDOM, gate=gate)])
    cluster.begun("a")
    stop(zombie)
    cluster.executor("N2")
    lost(cluster, "N1")
    gate.touch()
    cluster.wait()
    landed = cluster.output("a")
    go_on(cluster, zombie, "N1")
    assert cluster.output("a") == landed
    assert parts(cluster) == []
    assert sorted(cluster.ran()) == ["a", "a"]


@pytest.mark.parametrize("replaces", [False, True])
def test_an_executor_that_was_stopped_while_an_output_went_home(cluster: Cluster, replaces: bool) -> None:
    cluster.dispatcher(*SLOW)
    zombie = cluster.executor("N1")
    if replaces:
        (cluster.home / "a.out").write_bytes(b"of an earlier run")
    cluster.submit([cluster.task("a", RANDOM)])
    wait_until(lambda: parts(cluster), "a file that is on its way home", alive=zombie)
    stop(zombie)
    cluster.executor("N2")
    lost(cluster, "N1")
    cluster.wait()
    landed = cluster.output("a")
    assert len(landed) == 3_000_000
    assert parts(cluster) == [], (
        "what the first attempt had at home goes before the second one's file appears"
    )
    go_on(cluster, zombie, "N1")
    assert cluster.output("a") == landed
    assert parts(cluster) == []


def test_a_cancelled_output_does_not_come_home_later(cluster: Cluster, tmp_path: Path) -> None:
    cluster.dispatcher(*SLOW)
    zombie = cluster.executor("N1")
    cluster.submit([cluster.task("a", RANDOM)])
    wait_until(lambda: parts(cluster), "a file that is on its way home", alive=zombie)
    stop(zombie)
    cluster.run("cancel", "a")
    lost(cluster, "N1")
    cluster.wait(status=1)
    go_on(cluster, zombie, "N1")
    assert list(cluster.home.iterdir()) == []


def test_a_stop_that_is_shorter_than_the_lease_costs_nothing(cluster: Cluster) -> None:
    cluster.dispatcher("--lease", "60s", *SLOW)
    part = cluster.executor("N1")
    cluster.submit([cluster.task("a", RANDOM)])
    wait_until(lambda: parts(cluster), "a file that is on its way home", alive=part)
    stop(part)
    wait_until(lambda: cluster.state_of("N1") != "connected", "the executor's silence to be noticed")
    part.signal(signal.SIGCONT)
    cluster.wait()
    assert cluster.ran() == ["a"]
    assert len(cluster.output("a")) == 3_000_000
    assert parts(cluster) == []


def test_the_dispatcher_is_restarted_while_an_executor_is_stopped(cluster: Cluster) -> None:
    """The new process knows nothing of the attempt, and numbers its own from the beginning."""
    dispatcher = cluster.dispatcher("--lease", "60s", *SLOW)
    zombie = cluster.executor("N1")
    cluster.submit([cluster.task("a", RANDOM)])
    wait_until(lambda: parts(cluster), "a file that is on its way home", alive=zombie)
    stop(zombie)
    kill_now(dispatcher)
    cluster.dispatcher("--lease", "60s", *SLOW)
    cluster.executor("N2")
    cluster.wait()
    landed = cluster.output("a")
    assert parts(cluster) == []
    go_on(cluster, zombie, "N1")
    assert cluster.output("a") == landed
    assert parts(cluster) == []


@pytest.mark.parametrize("who", ["itself", "another"])
def test_what_a_killed_executor_left_at_home_is_removed(cluster: Cluster, who: str) -> None:
    cluster.dispatcher(*SLOW)
    killed = cluster.executor("N1")
    stranger = cluster.home / f".eyas-part-{1:016x}-{1:016x}-{1:08x}-{1:016x}"
    stranger.write_bytes(b"of another cluster")
    cluster.submit([cluster.task("a", RANDOM)])
    wait_until(lambda: len(parts(cluster)) > 1, "a file that is on its way home", alive=killed)
    kill_now(killed)
    assert len(parts(cluster)) == 2
    cluster.executor("N1" if who == "itself" else "N2")
    cluster.wait()
    assert len(cluster.output("a")) == 3_000_000
    assert parts(cluster) == [stranger]


def test_what_was_left_of_a_cancelled_task_goes_with_the_next_start(cluster: Cluster) -> None:
    cluster.dispatcher(*SLOW)
    killed = cluster.executor("N1")
    cluster.submit([cluster.task("a", RANDOM)])
    wait_until(lambda: parts(cluster), "a file that is on its way home", alive=killed)
    kill_now(killed)
    cluster.run("cancel", "a")
    cluster.wait(status=1)
    cluster.executor("N1")
    wait_until(lambda: not parts(cluster), "what was left at home to go")
    assert list(cluster.home.iterdir()) == []


def killed_in_mid_landing(cluster: Cluster, name: str) -> Path:
    """The executor dies while a file of it is on its way home, and its directory with it. Gives what is left of that file."""
    part = cluster.executors[name]
    before = parts(cluster)
    wait_until(lambda: parts(cluster) != before, "a file that is on its way home", alive=part)
    kill_now(part)
    # Its slot processes end a moment later, and remove their sandboxes themselves.
    gone = cluster.node_dir(name).rename(cluster.folder / f"{name}-gone")
    shutil.rmtree(gone, ignore_errors=True)
    [left] = set(parts(cluster)) - set(before)
    return left


@pytest.mark.parametrize("helper", ["is there", "comes later"])
def test_what_a_lost_node_left_of_a_cancelled_task_goes(cluster: Cluster, helper: str) -> None:
    cluster.dispatcher(*SLOW)
    cluster.executor("N1")
    stranger = cluster.home / f".eyas-part-{1:016x}-{1:016x}-{1:08x}-{1:016x}"
    stranger.write_bytes(b"of another cluster")
    run = cluster.submit([cluster.task("a", RANDOM)])
    left = killed_in_mid_landing(cluster, "N1")
    cluster.run("cancel", "a")
    if helper == "comes later":
        cluster.wait(status=1)
        assert left.exists()
        cluster.executor("N2")
    else:
        other = cluster.executor("N2")
        # Another file is on its way home in the same directory meanwhile.
        cluster.submit([cluster.task("b", RANDOM)])
        wait_until(lambda: len(parts(cluster)) == 3, "a second file on its way home", alive=other)
        cluster.run("wait", "--run", str(run), status=1)
    wait_until(lambda: not left.exists(), "what was left at home to go")
    if helper == "is there":
        cluster.wait()
        assert len(cluster.output("b")) == 3_000_000
    assert parts(cluster) == [stranger]


@pytest.mark.parametrize("restarts", [False, True])
def test_what_a_lost_node_left_of_a_failed_task_goes(cluster: Cluster, restarts: bool) -> None:
    """The next attempt fails, and so brings nothing home that would take the place of it."""
    dispatcher = cluster.dispatcher(*SLOW)
    cluster.executor("N1")
    mark = cluster.folder / "mark"
    cluster.submit([cluster.task("a", f"test ! -e {mark} || exit 3; touch {mark}; {RANDOM}")])
    left = killed_in_mid_landing(cluster, "N1")
    if restarts:
        kill_now(dispatcher)
        cluster.dispatcher(*SLOW)
    cluster.executor("N2")
    cluster.wait(status=1)
    wait_until(lambda: not left.exists(), "what was left at home to go")
    assert list(cluster.home.iterdir()) == []


@pytest.mark.parametrize("how", ["run", "run --dir", "up"])
def test_a_local_cluster_that_ends_takes_along_what_its_nodes_left(
    eyas: Eyas, tmp_path: Path, how: str
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps({"id": "a", "command": RANDOM, "outputs": {"out": str(home / "a")}}) + "\n")
    shape = ["--nodes", "1", "--slots", "1", *SLOW]
    folder = tmp_path / "cluster"
    if how == "up":
        eyas.run("up", *shape, "--dir", folder)
        join = ("--join", folder / "dispatcher" / "join.json")
        eyas.run("submit", tasks, *join)
    else:
        given = ("--dir", folder) if how == "run --dir" else ()
        running = eyas.start("run", tasks, *shape, *given)
    wait_until(lambda: list(home.iterdir()), "a file that is on its way home")
    [node] = [pid for pid, command in eyas.left_behind() if " executor " in command]
    os.kill(node, signal.SIGKILL)
    if how == "up":
        eyas.run("down", *join)
    else:
        # Twice: it does not wait for the cancelled attempt.
        running.signal(signal.SIGINT)
        wait_until(
            lambda: "again" in running.stderr or not running.is_alive(), "the first signal to be heard"
        )
        if running.is_alive():
            running.signal(signal.SIGINT)
        running.wait(status=None)
    assert list(home.iterdir()) == []


def test_an_executor_told_to_stop_leaves_nothing_at_home(cluster: Cluster) -> None:
    cluster.dispatcher(*SLOW)
    stopped = cluster.executor("N1")
    cluster.submit([cluster.task("a", RANDOM)])
    wait_until(lambda: parts(cluster), "a file that is on its way home", alive=stopped)
    stopped.stop()
    assert parts(cluster) == []
    cluster.executor("N2")
    cluster.wait()


HUGE = "truncate -s 1T out"


def hashes(part: Background) -> bool:
    """Whether a thread of the executor reads the huge file."""
    for fd in Path(f"/proc/{part.pid}/fd").iterdir():
        try:
            if os.readlink(fd).endswith("/out"):
                return True
        except OSError:
            pass
    return False


@pytest.mark.parametrize("how", ["cancel", "SIGTERM"])
def test_hashing_ends_with_the_wish_for_it(cluster: Cluster, how: str) -> None:
    """A terabyte takes ten minutes and more, which is longer than the patience of this test."""
    cluster.dispatcher()
    part = cluster.executor("N1")
    cluster.submit([cluster.task("a", HUGE)])
    wait_until(lambda: hashes(part), "the executor to read the output", alive=part)
    if how == "SIGTERM":
        part.stop()
    else:
        cluster.run("cancel", "a")
        cluster.wait(status=1)
        assert not hashes(part)
    assert list(cluster.home.iterdir()) == []
    assert programs_under(cluster.folder) == []


def test_modes_come_home_as_the_program_set_them(cluster: Cluster) -> None:
    cluster.dispatcher()
    cluster.executor("N1")
    modes = {"secret": 0o600, "group": 0o640, "usual": 0o644, "tool": 0o755, "final": 0o444}
    tasks = [cluster.task(name, f"echo {name} > out; chmod {mode:o} out") for name, mode in modes.items()]
    cluster.submit(tasks)
    cluster.wait()
    for name, mode in modes.items():
        assert (cluster.home / f"{name}.out").stat().st_mode & 0o7777 == mode, name


def test_an_input_that_others_may_not_read_stays_so_on_the_node(cluster: Cluster) -> None:
    """Copies for one attempt, because the cache is too small for it; and what a program sees of it."""
    cluster.dispatcher()
    cluster.executor("N1", "--cache", "100kB")
    secret = cluster.file("secret", 1_000_000, 1)
    secret.chmod(0o600)
    look = "stat -L -c %a input input/0 . .. > out; find ../../private -type f -printf '%m\\n' >> out; stat -c %a ../../private >> out"
    cluster.submit([cluster.task("a", look, [secret])])
    cluster.wait()
    modes = cluster.output("a").decode().split()
    assert modes, "nothing was looked at"
    assert all(int(mode, 8) & 0o077 == 0 for mode in modes), modes
