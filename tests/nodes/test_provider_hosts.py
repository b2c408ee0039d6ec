"""Nodes on hosts that are known by name: over a real OpenSSH server, and within an allocation of a real Slurm."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import ROOT, Eyas, Run, lacking, need_path, need_program, run_guide, wait_until
from slurm import Slurm, slurm
from spaces import hosts
from weather import Cluster


@pytest.fixture
def cluster(eyas: Eyas, tmp_path: Path) -> Cluster:
    return Cluster(eyas, tmp_path / "cluster", tmp_path / "home")


class SshKeys:
    """Keys of servers and of a user."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        self.folder = folder
        for name in ("host_key", "user_key", "other_key"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(words, check=True, timeout=60)
        (folder / "authorized").write_text((folder / "user_key.pub").read_text())
        (folder / "authorized").chmod(0o600)

    def server(self, address: str, path: Path) -> str:
        """The configuration, in the file `path`, of a server that lets the user in."""
        return (
            f"ListenAddress {address}\nHostKey {self.folder}/host_key\nPidFile {path}.pid\n"
            f"AuthorizedKeysFile {self.folder}/authorized\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"
            # The shell of whoever runs the tests reads no files of theirs.
            f"SetEnv HOME={self.folder}\n"
        )


class Ssh(SshKeys):
    """An OpenSSH server of this test's own, on loopback."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.trust("host_key")
        config = folder / "sshd_config"
        config.write_text(self.server(f"127.0.0.1:{self.port}", config))

    def trust(self, key: str) -> None:
        """What the client takes for the server's key."""
        public = (self.folder / f"{key}.pub").read_text()
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {public}")

    def options(self, n_hosts: int) -> list[str]:
        hosts = self.folder / "hosts.txt"
        hosts.write_text("# one line, one node\n" + f"ssh://127.0.0.1:{self.port}\n" * n_hosts)
        ssh = f"ssh -F none -i {self.folder}/user_key -o UserKnownHostsFile={self.folder}/known_hosts"
        return [
            *("--provider", "ssh", "--hosts", str(hosts), "--ssh", f"{ssh} -o GlobalKnownHostsFile=none"),
            *("--listen", "127.0.0.1:0", "--slots", "1", "--node-dir", str(self.folder / "nodes")),
            *("--scratch-age", "0"),
        ]

    def executors(self) -> list[int]:
        """Executors of the folder of this server's nodes: they are no children of ours."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if words[1:2] == [b"executor"] and any(w.startswith(bytes(self.folder)) for w in words):
                    found.append(int(entry.name))
        return found


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[Ssh]:
    need_program("ssh-keygen", "openssh-client")
    sshd = need_path("/usr/sbin/sshd", "openssh-server")
    Path("/run/sshd").mkdir(exist_ok=True)
    made = Ssh(tmp_path / "ssh")
    words = [str(sshd), "-D", "-e", "-f", str(made.folder / "sshd_config")]
    # Its own environment, so that what it starts is not taken for a child of eyas.
    with open(made.folder / "log", "wb") as log:
        server = subprocess.Popen(words, stderr=log, cwd="/", env={"PATH": os.environ["PATH"]})

    def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", made.port)) == 0

    wait_until(answers, "sshd")
    yield made
    server.terminate()
    server.wait(20)


def test_a_run_on_hosts_takes_all_of_them_and_leaves_nothing(eyas: Eyas, ssh: Ssh, cluster: Cluster) -> None:
    line = 'echo "$EYAS_TASK $SITE" > out'
    tasks = cluster.list_of([cluster.task(f"t{i}", line) for i in range(8)])
    setup = ["--setup", "export SITE=here; cat", "--setup", "true"]
    done = eyas.run("run", tasks, *ssh.options(2), *setup)
    assert re.search(r"8 tasks in .*: 8 done, 0 failed", done.stderr), done
    cluster.expect(**{f"t{i}": f"t{i} here\n".encode() for i in range(8)})
    assert not ssh.executors()
    assert not list((ssh.folder / "nodes").iterdir()), "the nodes' folders are gone"
    # No word of a command line has the cluster's key, nor has a file of ours.
    assert not (Path(eyas.env["XDG_STATE_HOME"]) / "eyas").exists()


def test_nodes_of_hosts_come_and_go_and_none_outlives_the_head(
    eyas: Eyas, ssh: Ssh, cluster: Cluster
) -> None:
    folder = cluster.folder / "up"
    env = {"EYAS_JOIN": str(folder / "dispatcher" / "join.json")}
    options = ["--dir", str(folder), "--nodes", "1..2", "--idle-release", "300ms", "--lease", "3s"]
    up = eyas.run("up", *ssh.options(2), *options)
    assert up.stdout.startswith("up, with 1..2 nodes by --provider ssh; join file: "), up

    def names() -> list[str]:
        status: dict[str, Any] = json.loads(eyas.run("status", "--json", env=env).stdout)
        return sorted(e["name"] for e in status["executors"] if e["state"] == "connected")

    wait_until(lambda: names() == ["node1.127"], "the first node")
    tasks = [cluster.task(f"t{i}", "sleep 0.5; echo x > out") for i in range(4)]
    eyas.run("submit", cluster.list_of(tasks), env=env)
    wait_until(lambda: names() == ["node1.127", "node2.127"], "the second node")
    eyas.run("wait", env=env)
    wait_until(lambda: len(names()) == 1, "one node to go")
    for pid, command in list(eyas.left_behind()):
        if command.split()[1:2] in (["provider"], ["dispatcher"]):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not ssh.executors(), "the nodes to end with the head")


def test_a_host_key_that_is_refused_is_said_with_the_host(run: Run, ssh: Ssh, cluster: Cluster) -> None:
    tasks = cluster.list_of([cluster.task("t", "echo x > out")])
    options = ssh.options(1)
    ssh.trust("other_key")
    done = run("run", tasks, *options, status=3)
    host = f"ssh://127.0.0.1:{ssh.port}"
    said = f"no node can be started: node1 ended before it joined: {host}: Host key verification failed."
    assert said in done.stderr, done


def test_a_host_that_cannot_be_reached_is_said_while_others_work(
    eyas: Eyas, ssh: Ssh, cluster: Cluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    options = ssh.options(1)
    with open(ssh.folder / "hosts.txt", "a") as hosts:
        hosts.write("nobody.invalid\n")
    tasks = cluster.list_of([cluster.task(f"t{i}", "echo x > out", gate=gate) for i in range(2)])
    running = eyas.start("run", tasks, *options)
    running.wait_for_text("warning: node2 could not be started: nobody.invalid: ssh: ")
    gate.touch()
    assert "2 done, 0 failed" in running.wait().stderr


def test_three_bad_hosts_end_nothing_while_a_good_one_starts(
    eyas: Eyas, ssh: Ssh, cluster: Cluster, tmp_path: Path
) -> None:
    """They refuse before a good host can have joined."""
    gate = tmp_path / "gate"
    options = ssh.options(1)
    bad = ["nobody.invalid", "nowhere.invalid", "never.invalid"]
    with open(ssh.folder / "hosts.txt", "a") as hosts:
        hosts.writelines(f"{host}\n" for host in bad)
    tasks = cluster.list_of([cluster.task(f"t{i}", "echo x > out", gate=gate) for i in range(8)])
    running = eyas.start("run", tasks, *options)
    for number, host in enumerate(bad, start=2):
        running.wait_for_text(f"warning: node{number} could not be started: {host}: ssh: ")
    gate.touch()
    assert "8 done, 0 failed" in running.wait().stderr


def test_what_cannot_be_is_refused_in_one_sentence(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"command": ["true"]}\n')
    (tmp_path / "hosts").write_text("c01\nc02\n")
    (tmp_path / "empty").write_text("# nobody\n")
    for options, sentence in (
        (["ssh"], "error: --provider ssh needs --hosts FILE\nhint: write the hosts into a file"),
        (["ssh", "--hosts", "none"], "error: cannot read the list of hosts `none`: No such file"),
        (["ssh", "--hosts", "empty"], "error: `empty` names no host\n"),
        (
            ["ssh", "--hosts", "hosts", "--nodes", "3"],
            "error: --nodes allows 3 nodes, and there are only 2 hosts\n",
        ),
        (
            ["ssh", "--hosts", "hosts", "--start", "x"],
            "error: --start has nothing to say to --provider ssh\n",
        ),
        (
            ["allocation"],
            "error: this is no allocation of a batch system that eyas knows: none of SLURM_JOB_NODELIST, ",
        ),
    ):
        done = run("run", "t.jsonl", "--provider", *options, status=2)
        assert sentence in done.stderr, done


def test_what_the_guide_shows_is_what_is_printed(eyas_path: Path, tmp_path: Path) -> None:
    """With an OpenSSH server on each of the page's hosts. The user of this machine stands in place of the page's."""
    if os.geteuid() != 0:
        lacking("needs root, for hosts of its own")
    need_program("ssh-keygen", "openssh-client")
    sshd = need_path("/usr/sbin/sshd", "openssh-server")
    Path("/run/sshd").mkdir(exist_ok=True)
    text = (ROOT / "docs" / "guides" / "hosts.md").read_text(encoding="utf-8")
    page = tmp_path / "hosts.md"
    page.write_text(text.replace("me@c02.example.org", "root@c02.example.org"))
    ports = {"c01": 22, "c02.example.org": 22, "c03": 2222}
    assert set(ports) <= set(re.findall(r"c\d\d[a-z.]*", text))
    keys = SshKeys(tmp_path / "ssh")
    client = tmp_path / "ssh_config"
    client.write_text(
        f"IdentityFile {keys.folder}/user_key\nStrictHostKeyChecking yes\n"
        f"UserKnownHostsFile {keys.folder}/known_hosts\nGlobalKnownHostsFile none\n"
    )
    public = (keys.folder / "host_key.pub").read_text()
    (keys.folder / "known_hosts").write_text(
        "".join(f"{name if port == 22 else f'[{name}]:{port}'} {public}" for name, port in ports.items())
    )
    servers: list[subprocess.Popen[bytes]] = []
    with hosts(tmp_path, f"ss{os.getpid()}", "10.80.0", ["head", *ports]) as (head, *others):
        try:
            for host in others:
                config = tmp_path / f"sshd-{host.name}"
                config.write_text(keys.server(f"{host.address}:{ports[host.name]}", config))
                words = [str(host.enter), str(sshd), "-D", "-e", "-f", str(config)]
                servers.append(subprocess.Popen(words, cwd="/", env={"PATH": os.environ["PATH"]}))
            reach = " && ".join(f"ssh -p {port} {name} true" for name, port in ports.items())
            # The head's own settings of ssh: its other users keep theirs.
            enter = f'mount --bind {client} /etc/ssh/ssh_config && exec "$@"'
            before = [str(head.enter), "sh", "-c", enter, "sh"]
            wait_until(
                lambda: subprocess.run([*before, "sh", "-c", reach], check=False).returncode == 0, "sshd"
            )
            done = run_guide(page, "ssh", eyas_path, os.environ, before)
            assert done.returncode == 0, done.stdout + done.stderr
        finally:
            for server in servers:
                server.terminate()
                server.wait(20)


# ------------------------------------------------------------------------------------- within an allocation


@pytest.fixture(scope="module")
def batch() -> Iterator[Slurm]:
    with slurm() as made:
        yield made


def test_a_run_within_a_job_of_slurm_takes_the_nodes_of_the_job(
    batch: Slurm, eyas: Eyas, cluster: Cluster, tmp_path: Path
) -> None:
    tasks = cluster.list_of(
        [cluster.task(f"t{i}", "sleep 0.3; echo $SLURMD_NODENAME > out") for i in range(12)]
    )
    line = f"{eyas.path} run {tasks} --provider allocation --listen 127.0.0.1:0 --node-dir {tmp_path}/nodes --scratch-age 0"
    job, log = tmp_path / "job.sh", tmp_path / "job.log"
    job.write_text(f"#!/bin/sh\n{line}\necho status $?\n")
    exports = "".join(
        f",{name}={shlex.quote(value)}"
        for name, value in eyas.env.items()
        if name.startswith(("XDG", "EYAS", "HOME", "TMPDIR"))
    )
    words = [
        "sbatch",
        "--parsable",
        "--nodes=3",
        "--ntasks-per-node=1",
        "--cpus-per-task=2",
        f"--chdir={tmp_path}",
    ]
    batch.ask(*words, f"--output={log}", f"--export=ALL{exports}", str(job))

    def instead() -> str:
        return f"\n--- queue\n{batch.queue()}\n--- log\n{log.read_text() if log.exists() else None}"

    wait_until(lambda: log.exists() and "status " in log.read_text(), "the job's end", instead=instead)
    assert log.read_text().endswith("status 0\n"), log.read_text()
    assert "12 tasks in" in log.read_text() and ": 12 done, 0 failed" in log.read_text()
    nodes = [cluster.output(f"t{i}").decode().strip() for i in range(12)]
    assert len(set(nodes)) == 3 and set(nodes) <= {"n1", "n2", "n3", "n4"}, nodes
    wait_until(lambda: not batch.queue(), "an empty queue")
    assert not list((tmp_path / "nodes").iterdir()), "the nodes' folders are gone"
