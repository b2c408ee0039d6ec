"""Nodes that commands of the user start, list and stop."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from batch import LIST, START, STOP, Batch, Up, shared
from harness import Eyas, Run, wait_until
from weather import Cluster


@pytest.fixture
def cluster(eyas: Eyas, tmp_path: Path) -> Cluster:
    return Cluster(eyas, tmp_path / "cluster", tmp_path / "home")


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    return Batch(tmp_path / "batch")


def test_a_run_takes_its_nodes_from_commands_and_leaves_nothing(
    eyas: Eyas, batch: Batch, cluster: Cluster, tmp_path: Path
) -> None:
    tasks = cluster.list_of([cluster.task(f"t{i}", f"echo {i} > out") for i in range(8)])
    folder = tmp_path / "node disk"
    folder.mkdir()
    options = ["--listen", "127.0.0.1:0", "--nodes", "0..2", "--cache", "1GiB"]
    options += [
        "--node-dir",
        "$NODE_DISK",
        "--scratch-age",
        "0",
        "--setup",
        "export SITE=here",
        "--setup",
        "echo setting up",
    ]
    done = eyas.run("run", tasks, *batch.options(walltime="90min"), *options, env={"NODE_DISK": str(folder)})
    assert re.search(r"8 tasks in .*: 8 done, 0 failed", done.stderr), done
    cluster.expect(**{f"t{i}": f"{i}\n".encode() for i in range(8)})
    starts = batch.calls(START)
    assert 1 <= len(starts) <= 2, starts
    assert all(call[3] == "01:30:00" and re.fullmatch(r"eyas-[0-9a-f]+-[12]", call[1]) for call in starts)
    # One whose node has had nothing to do for a while has ended by itself.
    stopped = [call[1] for call in batch.calls(STOP)]
    assert len(set(stopped)) == len(stopped) <= len(starts), "each block was ended once at most"
    wait_until(lambda: not batch.running(), "the end of the blocks")
    assert not shared(eyas), "the key, the scripts and the logs are gone"
    assert not list(folder.iterdir()), "the nodes' folders are gone"


def test_a_task_gets_a_node_that_is_large_enough_where_none_that_is_there_is(
    batch: Batch, cluster: Cluster, tmp_path: Path
) -> None:
    """A node without a gpu has joined by hand; the provider brings nodes with one."""
    eyas, up = cluster.eyas, Up(cluster, batch, "0..3", "--gpus", "1")
    up.start()
    by_hand = ["--name", "by-hand", "--slots", "2", "--cache", "100MiB"]
    eyas.start("executor", *by_hand, "--dir", tmp_path / "by-hand", env=up.env)
    wait_until(lambda: up.names() == ["by-hand"], "the node that was started by hand")

    def tasks(*names: str, **needs: Any) -> Path:
        return cluster.list_of([cluster.task(name, f"echo {name} > out", **needs) for name in names])

    # It runs for longer than from one question of the provider to the next.
    small = cluster.list_of([cluster.task("small", "sleep 1; echo small > out")])
    assert "1 done" in eyas.run("run", small, env=up.env).stderr
    assert not batch.calls(START), "the node that is there is large enough\n" + up.ask("explain", "--nodes")
    # The nodes with a gpu take longer to come than a task may wait that no node can ever hold: 15 s.
    held = batch.wish("hold")
    waiting = eyas.start("run", tasks("a", "b", gpus=1), env=up.env)
    time.sleep(20)
    assert "one that may still come is" in up.ask("explain", "a")
    assert ", 1 beside them that was started by hand, provisioning" in up.ask("status")
    up.kill("provider")
    wait_until(
        lambda: "`eyas provider` has ended" in up.ask("explain", "a"), "a word on the provider that is gone"
    )
    held.unlink()
    up.start()
    assert "2 done, 0 failed" in waiting.wait(60).stderr
    # What neither the nodes that are there nor further ones have is refused when it is submitted.
    wait_until(lambda: not up.status()["provisioner"]["n_pending"], "no node on its way")
    refused = eyas.run("run", tasks("c", gpus=2), env=up.env, status=2)
    assert "task `c` fits no node: the task needs 2 gpus; the largest node, " in refused.stderr, (
        refused.stderr
    )
    up.down()


def test_submissions_and_listings_keep_their_pace(batch: Batch, cluster: Cluster, tmp_path: Path) -> None:
    up = Up(cluster, batch, "0..3", list_every="2s")
    assert up.start().startswith("up, with 0..3 nodes by --provider command; join file: ")
    gate = tmp_path / "gate"
    up.ask("submit", cluster.list_of([cluster.task(f"t{i}", "echo x > out", gate=gate) for i in range(6)]))
    wait_until(lambda: len(up.names()) == 3, "three nodes")
    times = batch.call_times(START)
    assert len(times) == 3 and times[2] - times[0] >= 1.5, times
    gate.touch()
    up.ask("wait")
    listings = batch.call_times(LIST)
    assert listings[-1] - listings[0] >= 2.0 * (len(listings) - 1) - 0.5, listings
    cluster.expect(**{f"t{i}": b"x\n" for i in range(6)})
    assert sorted(cluster.ran()) == sorted(f"t{i}" for i in range(6)), "each task ran once"
    up.down()
    assert not batch.running()


def test_idle_nodes_go_and_their_blocks_with_them(batch: Batch, cluster: Cluster) -> None:
    up = Up(cluster, batch, "0..1", "--idle-release", "300ms")
    up.start()
    for wave in range(2):
        up.ask("submit", cluster.list_of([cluster.task(f"w{wave}", "echo x > out")]))
        up.ask("wait")
        wait_until(lambda: not up.names() and not batch.running(), "the node and its block to go")
    assert list(batch.blocks().values()) == [f"eyas-{up.status()['cluster']}-{i}" for i in (1, 2)]
    assert not batch.calls(STOP), "they ended by themselves"
    up.down()


def test_a_block_that_is_killed_is_weather_and_is_replaced(
    batch: Batch, cluster: Cluster, tmp_path: Path
) -> None:
    up = Up(cluster, batch, "1..1", lease="5s")
    up.start()
    gate = tmp_path / "gate"
    up.ask("submit", cluster.list_of([cluster.task("t", "echo x > out", gate=gate)]))
    cluster.begun("t")
    batch.kill("b1")
    wait_until(lambda: len(cluster.ran()) >= 2, "the task to run again, on another node")
    gate.touch()
    up.ask("wait")
    cluster.expect(t=b"x\n")
    assert len(batch.blocks()) >= 2
    up.down()


def test_a_block_that_listings_lack_is_not_given_up_while_its_node_is_there(
    batch: Batch, cluster: Cluster, tmp_path: Path
) -> None:
    up = Up(cluster, batch, "1..1")
    up.start()
    wait_until(lambda: len(up.names()) == 1, "the node")
    batch.wish("hide", "b1")
    gate = tmp_path / "gate"
    up.ask("submit", cluster.list_of([cluster.task("t", "echo x > out", gate=gate)]))
    n = len(batch.calls(LIST))
    wait_until(lambda: len(batch.calls(LIST)) >= n + 4, "four listings without the block")
    gate.touch()
    up.ask("wait")
    assert (cluster.ran(), len(batch.blocks())) == (["t"], 1)
    up.down()
    assert not batch.running()


def test_three_blocks_that_die_at_once_end_it_with_their_own_words(
    run: Run, batch: Batch, cluster: Cluster
) -> None:
    tasks = cluster.list_of([cluster.task("t", "echo x > out")])
    setup = ["--setup", "echo loading; echo 'no module named gcc/99' >&2; exit 7"]
    done = run("run", tasks, *batch.options(), "--listen", "127.0.0.1:0", "--nodes", "0..1", *setup, status=3)
    said = r"error: the provider ended: no node can be started: eyas-\w+-3 ended before it joined: ended; "
    assert re.search(said + r"it said: no module named gcc/99 \(all of it: (.*)\)", done.stderr), done
    log = re.findall(r"all of it: (.*?)\)", done.stderr)[-1]
    assert Path(log).read_text() == "loading\nno module named gcc/99\n"
    assert len(batch.blocks()) == 3
    assert not batch.running()


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        ("refuse", "submit a block: --start ended with exit status 3: no such queue"),
        ("deaf", "list the blocks: --list ended with exit status 3: no such queue"),
    ],
)
def test_commands_that_never_work_end_it(
    run: Run, batch: Batch, cluster: Cluster, wish: str, sentence: str
) -> None:
    batch.wish(wish, "no such queue")
    tasks = cluster.list_of([cluster.task("t", "echo x > out")])
    done = run("run", tasks, *batch.options(), "--listen", "127.0.0.1:0", "--nodes", "0..1", status=3)
    # A busy machine has a line of progress between the two.
    said = "\nerror: the provider ended: no node can be started, as the warning above says\n"
    before, found, _ = done.stderr.partition(said)
    assert found and f"warning: nobody could {sentence}" in before.split("\n"), done
    assert done.stderr.count("no such queue") == 1, "the reason is said once"
    assert done.stderr.count("\nhint: `eyas provider check` with the same options tries one node; ") == 1, (
        done
    )
    assert len(batch.calls(START if wish == "refuse" else LIST)) >= 3
    assert not batch.blocks()
    # Where a listing has shown that nothing was requested, nothing may be left.
    assert wish == "deaf" or "may have been requested" not in done.stderr, done


def test_who_waits_hears_why_no_node_will_come(batch: Batch, cluster: Cluster) -> None:
    refuse = batch.wish("refuse", "no such queue")
    up = Up(cluster, batch, "0..1")
    up.start()
    up.ask("submit", cluster.list_of([cluster.task("t", "echo x > out")]))
    said = (
        "warning: no node comes or goes, as `eyas provider` has ended (no node can be started, as nobody could submit a block: "
        "--start ended with exit status 3: no such queue); the same `eyas up` starts it again\n"
    )
    waiting = cluster.eyas.start("wait", env=up.env)
    waiting.wait_for_text(said)
    assert said in up.ask("status")
    refuse.unlink()
    up.start()
    assert "1 done" in waiting.wait().stderr
    assert "warning: " not in up.ask("status")
    up.down()


def test_a_cluster_with_nodes_from_elsewhere_gets_none_of_this_machine(
    batch: Batch, cluster: Cluster
) -> None:
    up = Up(cluster, batch, "1..1")
    up.start()
    wait_until(lambda: len(up.names()) == 1, "the node")
    done = cluster.eyas.run("up", "--dir", str(up.dir), "--nodes", "2", status=3)
    assert "error: a cluster is up already" in done.stderr, done
    assert len(up.names()) == 1
    # Whoever starts and ends its nodes is killed; its words still say how they are ended.
    for pid, command in list(cluster.eyas.left_behind()):
        if command.split()[1:2] == ["provider"]:
            os.kill(pid, signal.SIGKILL)
    done = cluster.eyas.run("up", "--dir", str(up.dir), "--nodes", "2", status=3)
    assert "error: a cluster is up already" in done.stderr, done
    up.down()
    assert not batch.running()


def test_a_batch_system_that_is_away_for_a_while_is_waited_for(batch: Batch, cluster: Cluster) -> None:
    up = Up(cluster, batch, "0..1", "--idle-release", "200ms")
    up.start()
    up.ask("submit", cluster.list_of([cluster.task("a", "echo x > out")]))
    up.ask("wait")
    wait_until(lambda: not up.names(), "the node to go")
    refuse = batch.wish("refuse", "AssocMaxSubmitJobLimit")
    up.ask("submit", cluster.list_of([cluster.task("b", "echo x > out")]))
    wait_until(lambda: len(batch.calls(START)) >= 4, "three refusals")
    times = batch.call_times(START)[1:4]
    waits = [after - before for before, after in itertools.pairwise(times)]
    assert [wait >= wanted for wait, wanted in zip(waits, (1, 2), strict=True)] == [True, True], waits
    refuse.unlink()
    up.ask("wait")
    cluster.expect(a=b"x\n", b=b"x\n")
    assert (
        "could not submit a block: --start ended with exit status 3: AssocMaxSubmitJobLimit; trying again in 1 s"
        in up.log.read_text()
    )
    up.down()


def test_blocks_in_the_queue_that_nobody_needs_any_more_are_cancelled(batch: Batch, cluster: Cluster) -> None:
    up = Up(cluster, batch, "0..1", "--idle-release", "300ms")
    batch.wish("hold")
    up.start()
    up.ask("submit", cluster.list_of([cluster.task("t", "echo x > out")]))
    wait_until(lambda: len(batch.blocks()) == 1, "a block in the queue")
    wait_until(lambda: "0 of 0 to 1 nodes, 1 coming" in up.ask("status"), "the status to say so")
    name = re.escape(batch.blocks()["b1"])
    wait_until(
        lambda: re.search(rf"^block +state +id +why\n{name} +queued +b1\n", up.ask("status"), re.M),
        "its line",
    )
    assert "no executor has joined; 1 node is on its way." in up.ask("explain", "t")
    # What the batch system says of it, as Slurm gives a reason.
    batch.wish("reason", "Resources")
    wait_until(lambda: "; 1 node is on its way (Resources)." in up.ask("explain", "t"), "the reason")
    up.ask("cancel", "--all")
    wait_until(lambda: batch.calls(STOP) == [["stop", "b1"]], "the block to be cancelled")
    up.down()


def test_a_provider_that_was_killed_is_started_again_and_takes_its_blocks_over(
    batch: Batch, cluster: Cluster, tmp_path: Path
) -> None:
    up = Up(cluster, batch, "0..2")
    up.start()
    gate = tmp_path / "gate"
    up.ask("submit", cluster.list_of([cluster.task(f"t{i}", "echo x > out", gate=gate) for i in range(2)]))
    cluster.begun("t0", "t1")
    up.kill("provider")
    wait_until(lambda: up.status()["provisioner"] is None, "the provider's end")
    assert "what starts and ends nodes was started again" in up.start()
    names = sorted(batch.blocks().values())
    wait_until(
        lambda: up.log.read_text().count("is there from before, and is taken over") == 2,
        "both to be taken over",
    )
    assert up.names() == names
    gate.touch()
    up.ask("wait")
    assert sorted(cluster.ran()) == ["t0", "t1"], "nothing ran twice"
    assert len(batch.blocks()) == 2
    up.down()
    assert not batch.running()


@pytest.mark.parametrize("is_killed", [False, True], ids=["in order", "killed before"])
def test_blocks_that_were_ended_are_not_waited_for_while_they_are_still_listed(
    batch: Batch, cluster: Cluster, is_killed: bool
) -> None:
    """`eyas down`, then `eyas up` at once. A batch system lists a job for a while that was told to end."""
    up = Up(cluster, batch, "0..1")
    up.start()
    up.ask("submit", cluster.list_of([cluster.task("a", "echo x > out")]))
    up.ask("wait")
    linger = batch.wish("linger")
    if is_killed:
        up.kill("provider")
    up.down()
    up.start()
    began = time.monotonic()
    up.ask("submit", cluster.list_of([cluster.task("b", "echo y > out")]))
    up.ask("wait")
    assert time.monotonic() - began < 20, "a running block is given up after 120 s without a node"
    cluster.expect(b=b"y\n")
    first, second = batch.blocks().values()
    assert (first.rpartition("-")[2], second.rpartition("-")[2]) == ("1", "2"), "no name is used again"
    wait_until(lambda: re.search(rf"^{first} +ending +b1", up.ask("status"), re.M), "its line")
    assert "is there from before" not in up.log.read_text()
    linger.unlink()
    wait_until(lambda: first not in up.ask("status"), "its end")
    assert "could not be started" not in up.log.read_text()
    up.down()
    assert not batch.running()


def killed_at_work(cluster: Cluster, batch: Batch, gate: Path, *parts: str) -> Up:
    """A cluster whose one node runs a task, which the gate lets end, and of whose head these parts were then killed."""
    up = Up(cluster, batch, "0..1")
    up.start()
    up.ask("submit", cluster.list_of([cluster.task("t", "echo x > out", gate=gate)]))
    cluster.begun("t")
    up.kill(*parts)
    return up


def expect_same_work(up: Up, cluster: Cluster, batch: Batch, gate: Path) -> None:
    """The node comes back with its task, which ran once, and no other node was needed."""
    wait_until(lambda: len(up.names()) == 1, "the node to come back")
    gate.touch()
    up.ask("wait")
    cluster.expect(t=b"x\n")
    assert (cluster.ran(), len(batch.blocks()), batch.calls(STOP)) == (["t"], 1, []), (
        "it went on where it was"
    )


def test_a_head_that_is_killed_and_started_again_takes_its_blocks_over(
    batch: Batch, cluster: Cluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    up = killed_at_work(cluster, batch, gate, "provider", "dispatcher")
    assert up.start().startswith("up, with 0..1 nodes by --provider command")
    expect_same_work(up, cluster, batch, gate)
    up.down()
    assert not batch.running()


def test_a_dispatcher_that_is_killed_alone_is_started_again_beside_the_same_provider(
    batch: Batch, cluster: Cluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    up = killed_at_work(cluster, batch, gate, "dispatcher")
    up.start()
    wait_until(lambda: len(up.names()) == 1, "the node to come back")
    assert sum(command.split()[1:2] == ["provider"] for _, command in cluster.eyas.left_behind()) == 1
    expect_same_work(up, cluster, batch, gate)
    done = cluster.eyas.run(*up.words, status=3)
    assert "a cluster is up already" in done.stderr, done
    up.down()
    assert not batch.running()


def test_a_head_that_is_killed_leaves_no_node_behind(batch: Batch, cluster: Cluster, tmp_path: Path) -> None:
    up = Up(cluster, batch, "2..2", lease="3s")
    up.start()
    wait_until(lambda: len(up.names()) == 2, "two nodes")
    up.kill("provider", "dispatcher")
    wait_until(lambda: not batch.running(), "the nodes to end with their lease")
    # Nobody finds the work on the login node because the options were left out.
    for nodes in ("1", "0..1"):
        done = up.eyas.run("up", "--dir", str(up.dir), "--nodes", nodes, status=3)
        assert (
            "was killed; its nodes came from --provider command\nhint: `eyas up` with the options"
            in done.stderr
        )
    assert (
        "with the options that it had (--provider command and the others)"
        in up.eyas.run("wait", status=3).stderr
    )
    up.ask("down")
    up.eyas.run("up", "--dir", str(up.dir), "--nodes", "1")
    up.down()


def test_an_executor_that_is_refused_its_folder_leaves_it_alone(cluster: Cluster, batch: Batch) -> None:
    """`--remove-dir` removes what is the executor's own, and no folder that another one lives in."""
    cluster.dispatcher()
    cluster.executor("a", "--remove-dir")
    folder = cluster.node_dir("a")
    words = ["--join", str(cluster.join), "--dir", str(folder), "--name", "b", "--remove-dir"]
    done = cluster.eyas.run("executor", *words, status=3)
    assert "is used by another executor" in done.stderr, done
    assert (folder / "cache").is_dir()
    cluster.executors["a"].stop()
    assert not folder.exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["--provider", "command"],
            "error: --provider command needs --start\nhint: it takes the three commands --start, --list and --stop\n",
        ),
        (
            ["--provider", "command", "--start", "x {nam}", "--list", "l", "--stop", "s {id}"],
            "error: an unknown hole `{nam}` in --start\nhint: did you mean {name}?\n",
        ),
        (["--start", "x"], "error: --start has nothing to say to --provider local\n"),
        (["--provider", "slurmm"], "invalid value 'slurmm' for '--provider <KIND>'"),
        (
            ["--provider", "slurmm"],
            "there is no such provider; choose one of local, command, ssh, allocation",
        ),
        (
            ["--provider", "command", "--start", "x {script} {walltime}", "--list", "l", "--stop", "s {id}"],
            "error: --start has {walltime}, and nobody says how long a block may live\nhint: --walltime 1h does\n",
        ),
        (
            ["--provider", "command", "--start", "x {name}", "--list", "l", "--stop", "s {id}"],
            "error: --start has neither {script} nor {join}, so it starts no executor\n",
        ),
        (
            ["--provider", "command", "--start", "x {script}", "--list", "l", "--stop", "scancel -u me"],
            "error: --stop has neither {id} nor {name}, so it cannot end one node\n"
            "hint: {id} is what --start printed, and {name} the node's name\n",
        ),
        (["--cache", "0"], "invalid value '0' for '--cache <BYTES>': write at least 1 byte, such as 20GiB"),
        (
            ["--provider", "slurm", "--walltime", "0"],
            "invalid value '0' for '--walltime <TIME>': a job needs some time; write for example 1h",
        ),
        (["--advertise", ""], "write HOST:PORT, such as login1:7700"),
        (
            [
                "--provider",
                "command",
                "--start",
                "x",
                "--list",
                "l",
                "--stop",
                "s {id}",
                "--dispatchers",
                "2",
                "--nodes",
                "4",
            ],
            "error: --provider command works with one dispatcher so far\n",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    run: Run, tmp_path: Path, options: list[str], sentence: str
) -> None:
    (tmp_path / "t.jsonl").write_text('{"command": ["true"]}\n')
    for verb in (["up"], ["run", "t.jsonl"]):
        done = run(*verb, *options, status=2)
        assert sentence in done.stderr, done
        assert done.stdout == ""


def test_commands_come_from_a_profile_and_map_says_what_to_do(
    run: Run, batch: Batch, cluster: Cluster, tmp_path: Path
) -> None:
    words = [*batch.options(), "--listen", "127.0.0.1:0", "--nodes", "0..1", "--setup", "true"]
    pairs = zip(words[::2], words[1::2])
    text = "".join(f"{name.removeprefix('--')} = {json.dumps(value)}\n" for name, value in pairs)
    (tmp_path / "eyas.toml").write_text(f"[profile.mine]\n{text}")
    tasks = cluster.list_of([cluster.task("t", "echo x > out")])
    run("run", tasks, "--profile", "mine")
    cluster.expect(t=b"x\n")
    assert len(batch.blocks()) == 1
    done = run("map", "--profile", "mine", "--range", "0..2", "--", "true", status=2)
    assert (
        "error: `eyas map` takes nodes of this machine only, and profile `mine` has others\n" in done.stderr
    ), done
    assert "hint: write the tasks with --to-list FILE" in done.stderr
