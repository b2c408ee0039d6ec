"""Nodes of a real Ray by `--provider ray`: one actor for each node runs an executor there."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from batch import shared
from harness import PATIENCE_S, ROOT, Background, Eyas, run_guide, wait_until
from rays import Ray, need_root, none_left, ray
from weather import Cluster

# All nodes are on this machine, so they reach its dispatcher on loopback.
OPTIONS = ["--provider", "ray", "--listen", "127.0.0.1:0", "--list-every", "500ms"]
OPTIONS += ["--cache", "1MiB"]


@pytest.fixture(scope="module")
def cloud() -> Iterator[Ray]:
    """Two nodes of two processors."""
    with ray() as made:
        made.start_head("--num-cpus=2", "--num-gpus=0", "--include-dashboard=true")
        made.add("second", "--num-cpus=2", "--num-gpus=2")
        made.wait_for_jobs()
        yield made


@pytest.fixture
def cluster(cloud: Ray, eyas: Eyas, tmp_path: Path) -> Iterator[Cluster]:
    """Whatever happens, no actor stays."""
    eyas.env["RAY_ADDRESS"] = cloud.address
    yield Cluster(eyas, tmp_path / "cluster", tmp_path / "home")
    none_left(cloud)


def options(cluster: Cluster, *more: str) -> list[str]:
    # Long enough that a busy machine alone does not bring its end about.
    lease = [] if "--lease" in more else ["--lease", "15s"]
    return [*OPTIONS, *lease, "--node-dir", str(cluster.folder / "nodes"), *more]


def gated(cluster: Cluster, n: int, line: str = "echo x > out") -> tuple[Path, Path]:
    """A list of so many tasks, which wait for the file that is given first."""
    gate = cluster.folder / "gate"
    return gate, cluster.list_of([cluster.task(f"t{i}", line, gate=gate, retries=0) for i in range(n)])


def begin(cluster: Cluster, *more: str | Path) -> Background:
    return cluster.eyas.start("run", *options(cluster, *map(str, more)))


def finish(running: Background, gate: Path, n: int) -> None:
    gate.touch()
    done = running.wait()
    assert re.search(rf"{n} tasks? in .*: {n} done, 0 failed", done.stderr), done


def test_a_run_takes_both_nodes_reserves_them_and_gives_them_back(cloud: Ray, cluster: Cluster) -> None:
    gate, tasks = gated(cluster, 4, "echo $EYAS_TASK > out")
    running = begin(cluster, tasks, "--address", cloud.address, "--nodes", "0..2")
    cluster.begun("t0", "t1", "t2", "t3")
    assert cloud.nodes_used() == {"head", "second"}
    # Nobody else gets processors that programs of eyas use, nor gpus that they may use.
    assert cloud.ask("[ray.available_resources().get(name, 0) for name in ('CPU', 'GPU')]") == [0, 0]
    finish(running, gate, 4)
    cluster.expect(**{f"t{i}": f"t{i}\n".encode() for i in range(4)})
    none_left(cloud)
    assert cloud.ask("ray.util.list_named_actors(all_namespaces=True)") == []
    assert cloud.ask("[ray.available_resources()[name] for name in ('CPU', 'GPU')]") == [4, 2]
    assert not shared(cluster.eyas)


def test_the_guide_is_true(cloud: Ray, cluster: Cluster, tmp_path: Path) -> None:
    """Its commands are run one after the other, with Ray's own port of this cluster in them."""
    text = (ROOT / "docs" / "guides" / "ray.md").read_text(encoding="utf-8")
    assert "ray://localhost:10001" in text
    page = tmp_path / "ray.md"
    page.write_text(text.replace("ray://localhost:10001", f"ray://localhost:{cloud.client_port}"))
    # The profile wants it.
    cloud.add("large", "--num-cpus=4", '--resources={"big": 1}')
    try:
        dashboard = {"RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{cloud.dashboard_port}"}
        done = run_guide(page, "ray", cluster.eyas.path, {**cloud.env, **dashboard})
        assert done.returncode == 0, done.stdout + done.stderr
        none_left(cloud)
    finally:
        cloud.remove("large")


def test_a_node_tells_programs_its_gpus_and_slots_may_be_fewer(cloud: Ray, cluster: Cluster) -> None:
    tasks = cluster.list_of(
        [cluster.task(f"t{i}", "echo $CUDA_VISIBLE_DEVICES > out", gpus=1) for i in range(2)]
    )
    done = cluster.eyas.run("run", tasks, *options(cluster, "--gpus", "2", "--slots", "1", "--nodes", "0..2"))
    assert "2 done, 0 failed" in done.stderr, done
    assert {cluster.output(f"t{i}") for i in range(2)} <= {b"0\n", b"1\n"}


def test_an_actor_that_is_killed_is_started_again_by_ray(cloud: Ray, cluster: Cluster) -> None:
    gate, tasks = gated(cluster, 1)
    running = begin(cluster, tasks, "--nodes", "0..1")
    cluster.begun("t0")
    ((executor,), (actor,)) = cloud.executors(), cloud.actors()
    assert executor.parent == actor.pid
    os.kill(actor.pid, signal.SIGKILL)
    wait_until(lambda: len(cluster.ran()) >= 2, "the task to run again")
    finish(running, gate, 1)
    assert "could not be started" not in running.stderr, "the new actor is the same block"


def test_a_block_waits_again_whose_node_ray_does_not_know(cloud: Ray, tmp_path: Path) -> None:
    """What places an actor may know less of the nodes than what lists them: after a node has joined, or on a busy machine."""
    (tmp_path / "share").mkdir()
    program = f"""
        import ray, time
        from dataclasses import replace
        from pathlib import Path
        from eyas.provision import kinds, ray_pool

        class Behind(ray_pool.RayPool):
            starts = []

            def _start(self, name, share):
                self.starts.append(share.node)
                super()._start(name, replace(share, node="0" * 56) if len(self.starts) < 3 else share)

        folder = Path({str(tmp_path / "share")!r})
        (folder / "c-1.sh").write_text("exec sleep 600")
        (folder / "join.json").write_text("{{}}")
        settings = kinds.Settings(kind="ray", slots=1, program="/bin/true")
        pool = Behind(settings, folder, folder / "book", {cloud.address!r})
        pool.submit("c-1", folder / "c-1.sh", 1)
        seen = []
        while "running" not in seen:
            seen += [block.state for block in pool.blocks("c-")]
            time.sleep(0.1)
        pool.cancel([("c-1", "c-1")])
        print(sorted(set(seen)), len(pool.starts))
    """
    words = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(
        words, env=cloud.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.stdout.endswith("['queued', 'running'] 3\n"), done.stdout + done.stderr


def test_a_node_that_ray_loses_is_weather(cloud: Ray, cluster: Cluster) -> None:
    cloud.add("third", "--num-cpus=4")
    try:
        gate, tasks = gated(cluster, 1)
        # Only the third node has so many.
        running = begin(cluster, tasks, "--nodes", "0..1", "--slots", "3")
        cluster.begun("t0")
        assert cloud.nodes_used() == {"third"}
        cloud.kill_raylet("third")
        wait_until(lambda: not cloud.executors(), "the end of the executor that lost its raylet")
        # A node that comes in the middle of the run is taken.
        cloud.add("fourth", "--num-cpus=4")
        wait_until(lambda: len(cluster.ran()) >= 2, "the task to run again", timeout=2 * PATIENCE_S)
        assert cloud.nodes_used() == {"fourth"}
        finish(running, gate, 1)
        none_left(cloud)
    finally:
        cloud.remove("third")
        cloud.remove("fourth")


def test_a_head_that_is_killed_leaves_nothing_after_its_lease(cloud: Ray, cluster: Cluster) -> None:
    _, tasks = gated(cluster, 3)
    running = begin(cluster, tasks, "--nodes", "0..3", "--lease", "3s")
    cluster.begun("t0", "t1", "t2")
    for pid, _ in list(cluster.eyas.left_behind()):
        if pid not in [process.pid for process in cloud.processes()]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    running.wait(status=None)
    none_left(cloud)
    # What waited for a node is not wanted any more either.
    table = "[g['state'] for g in ray.util.placement_group_table().values()]"
    wait_until(lambda: set(cloud.ask(table)) <= {"REMOVED"}, "the end of all groups")


def test_a_head_that_is_started_again_takes_its_nodes_over(cloud: Ray, cluster: Cluster) -> None:
    folder = cluster.folder / "up"
    env = {"EYAS_JOIN": str(folder / "dispatcher" / "join.json")}
    words = ["up", *options(cluster, "--lease", "60s", "--nodes", "0..1", "--dir", str(folder))]
    cluster.eyas.run(*words)
    gate, tasks = gated(cluster, 1)
    cluster.eyas.run("submit", tasks, env=env)
    cluster.begun("t0")
    (actor,) = cloud.actors()
    for pid, command in list(cluster.eyas.left_behind()):
        if command.split()[1:2] in (["provider"], ["dispatcher"]) or "eyas.provision" in command:
            os.kill(pid, signal.SIGKILL)
    cluster.eyas.run(*words)
    gate.touch()
    cluster.eyas.run("wait", env=env)
    assert cluster.ran() == ["t0"], "it went on where it was"
    assert [process.pid for process in cloud.actors()] == [actor.pid]
    cluster.eyas.run("down", env=env)


def test_the_program_is_sent_to_a_node_that_lacks_it(cloud: Ray, cluster: Cluster, tmp_path: Path) -> None:
    need_root()
    programs = tmp_path / "programs"
    programs.mkdir()
    program = programs / "eyas"
    shutil.copy(cluster.eyas.path, program)
    cloud.add("far", "--num-cpus=4", hidden=programs)
    try:
        gate, tasks = gated(cluster, 1)
        words = ["--nodes", "0..1", "--slots", "3", "--program", str(program)]
        running = begin(cluster, tasks, *words)
        cluster.begun("t0")
        assert cloud.nodes_used() == {"far"}
        (executor,) = cloud.executors()
        sent = Path(executor.words[0])
        assert sent != program and sent.read_bytes() == program.read_bytes()
        finish(running, gate, 1)
        none_left(cloud)
        wait_until(lambda: not sent.exists(), "the removal of the program that was sent")
    finally:
        cloud.remove("far")


def test_eyas_runs_inside_a_ray_job(cloud: Ray, cluster: Cluster) -> None:
    tasks = cluster.list_of([cluster.task(f"t{i}", f"echo {i} > out") for i in range(4)])
    words = ["run", str(tasks), *options(cluster, "--nodes", "0..2")]
    env = {name: cluster.eyas.env[name] for name in ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")}
    job: list[str | Path] = [Path(sys.executable).with_name("ray"), "job", "submit", "--address"]
    job += [f"http://127.0.0.1:{cloud.dashboard_port}", f"--runtime-env-json={json.dumps({'env_vars': env})}"]
    done = subprocess.run(
        [*job, "--", str(cluster.eyas.path), *words],
        env={name: value for name, value in cloud.env.items() if name != "RAY_ADDRESS"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 tasks in" in done.stdout and "4 done, 0 failed" in done.stdout, done.stdout
    cluster.expect(**{f"t{i}": f"{i}\n".encode() for i in range(4)})


def test_a_machine_that_is_no_node_is_a_client_of_ray(cloud: Ray, cluster: Cluster) -> None:
    gate, tasks = gated(cluster, 4)
    address = f"ray://127.0.0.1:{cloud.client_port}"
    running = begin(cluster, tasks, "--address", address, "--nodes", "0..3")
    # Ray starts a process of its own for each client, which took a minute beside compilers.
    names = {"t0", "t1", "t2", "t3"}
    wait_until(lambda: names <= set(cluster.ran()), "the start of all tasks", timeout=180, alive=running)
    assert cloud.nodes_used() == {"head", "second"}
    finish(running, gate, 4)


def test_what_is_wrong_is_said_in_one_sentence(cloud: Ray, cluster: Cluster, tmp_path: Path) -> None:
    tasks = cluster.list_of([cluster.task("t", "echo x > out")])

    def said(*more: str, status: int = 3) -> str:
        done = cluster.eyas.run("run", tasks, *options(cluster, "--nodes", "0..1", *more), status=status)
        assert "Traceback" not in done.stderr, done
        return done.stderr

    assert "no Ray answers at 127.0.0.1:9: Connection refused; " in said("--address", "127.0.0.1:9")
    assert "--address nonsense is no address of Ray; write auto, HOST:PORT" in said("--address", "nonsense")
    assert "--provider ray has no option `num_cpu`" in said("--options", "num_cpu=2", status=2)
    assert "--queue has nothing to say to --provider ray" in said("--queue", "x", status=2)
    bare = tmp_path / "python3"
    bare.write_text('#!/bin/sh\nexec python3 -S "$@"\n')
    bare.chmod(0o755)
    text = said("--python", str(bare), status=2)
    assert "nodes of a Ray cluster need Ray, which the Python" in text, text
    assert f"hint: {bare} -m pip install 'WHEEL[ray]', where WHEEL is the wheel file of eyas" in text, text
    # A Ray of another version than the cluster's.
    (tmp_path / "sitecustomize.py").write_text("import ray\nray.__version__ = '1.0.0'\n")
    old = tmp_path / "old"
    old.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    old.chmod(0o755)
    text = said("--address", cloud.address, "--python", str(old))
    assert "the Ray cluster has Ray 2." in text and "and this Python has Ray 1.0.0" in text, text


def test_a_machine_without_ray_is_said(cloud: Ray, cluster: Cluster, tmp_path: Path) -> None:
    need_root()
    # Ray looks among the processes of its machine for a cluster. This Python sees none but its own.
    alone = tmp_path / "alone"
    alone.write_text(
        f'#!/bin/sh\nexec unshare --pid --fork --kill-child --mount-proc {sys.executable} "$@"\n'
    )
    alone.chmod(0o755)
    del cluster.eyas.env["RAY_ADDRESS"]
    cluster.eyas.env["RAY_TMPDIR"] = str(tmp_path)
    tasks = cluster.list_of([cluster.task("t", "echo x > out")])
    words = options(cluster, "--nodes", "0..1", "--python", str(alone))
    done = cluster.eyas.run("run", tasks, *words, status=3)
    sentence = "this machine is no node of a running Ray cluster, and RAY_ADDRESS is not set"
    assert sentence in done.stderr and "Traceback" not in done.stderr, done


def test_a_check_shows_what_would_be_taken_and_tries_it(cloud: Ray, cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "eyas.toml").write_text(
        f'[profile.ray]\nprovider = "ray"\naddress = "{cloud.address}"\nslots = 2\nlisten = "127.0.0.1:0"\n'
        f'cache = "1MiB"\nnode-dir = "{cluster.folder}/nodes"\nsetup = ["echo loaded"]\n'
    )
    assert "1 profile: ray" in cluster.eyas.run("config", "check").stdout
    done = cluster.eyas.run("provider", "check", "--profile", "ray", "--wait", "60s")
    assert "2 processors, 0 gpus" in done.stdout and "echo loaded" in done.stdout, done
    assert re.search(r"node +\S+: 2 processors", done.stdout), done
    assert done.stdout.endswith("good: nodes can be taken like this\n"), done
    toml = tmp_path / "eyas.toml"
    toml.write_text(toml.read_text() + "\n[profile.ray.options]\nresource = { big = 1 }\n")
    done = cluster.eyas.run("config", "check", status=2)
    assert "--provider ray has no option `resource`; did you mean `resources`?" in done.stderr, done


def test_set_up_that_fails_is_said_with_its_own_words(cloud: Ray, cluster: Cluster) -> None:
    tasks = cluster.list_of([cluster.task("t", "echo x > out")])
    words = ["--nodes", "0..1", "--setup", "echo 'module: no such module: blast' >&2; exit 1"]
    done = cluster.eyas.run("run", tasks, *options(cluster, *words), status=3)
    assert (
        "ended before it joined: its executor ended with exit status 1; it said: module: no such"
        in done.stderr
    )
