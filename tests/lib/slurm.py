"""A real Slurm of this machine for tests: one controller and four nodes.

[`slurm`] has nodes that share the host, on loopback. [`slurm_of_hosts`] has each node, and the controller, in a network namespace of
its own, with its own address and host name; there eyas runs on the head as [`Slurm.on_head`] says.

    .venv/bin/python tests/lib/slurm.py [--hosts]     # keeps one up until ^C, and prints what a shell needs to use it
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from daemons import Daemons
from harness import lacking, need_program, wait_until
from spaces import Host, hosts

N_NODES = 4
# Where a Debian package puts them, which is not on everybody's PATH.
SBIN = "/usr/sbin"

CONFIG = """
ClusterName=test
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={socket}
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool/%n
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd-%n.pid
SlurmctldLogFile={dir}/log/slurmctld.log
SlurmdLogFile={dir}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=3
SlurmdParameters=config_overrides
{nodes} CPUs={cpus} Boards=1 SocketsPerBoard=1 CoresPerSocket={cpus} ThreadsPerCore=1 RealMemory=4000 State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
{more}
"""
SHARED_HOST = """SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
NodeName=n[1-{n}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}]"""
OWN_HOSTS = """SlurmctldHost=head({head})
NodeName=c[1-{n}]"""


class Slurm(Daemons):
    """What a test asks of it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, folder / "log")
        self.env = {"SLURM_CONF": str(folder / "slurm.conf")}
        # Where nodes have hosts of their own: the head, then the nodes.
        self.hosts: list[Host] = []

    def on_head(self, *words: str) -> list[str]:
        """The command line that runs these words where users do: on the head, which is this host unless there are others."""
        return [str(self.hosts[0].enter), *words] if self.hosts else list(words)

    def ask(self, *words: str) -> str:
        """Runs a command of Slurm, which has to succeed, and gives what it prints."""
        done = subprocess.run(
            self.on_head(*words),
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
        return done.stdout

    def queue(self) -> list[str]:
        """Lines of the queue: id, name, state."""
        return self.ask("squeue", "--noheader", "--format=%i %j %T").splitlines()

    def empty(self, timeout: float = 60.0) -> None:
        """Waits until no job is in the queue. Slurm takes a moment to complete a job that was cancelled."""
        wait_until(lambda: not self.queue(), "an empty queue", timeout)

    def clear(self) -> None:
        """Whatever a test did, no job stays and all nodes are of use again."""
        if jobs := [line.split()[0] for line in self.queue()]:
            self.ask("scancel", "--quiet", *jobs)
        self.empty()

    def host_of(self, node: str) -> Host:
        return next(host for host in self.hosts if host.name == node)

    def node_state(self, node: str) -> str:
        return self.ask("sinfo", "--noheader", f"--nodes={node}", "--format=%T").strip()

    # ---------------------------------------------------------------- daemons

    def start_controller(self) -> None:
        self.launch("slurmctld", self.on_head("slurmctld", "-D", "-f", self.env["SLURM_CONF"]))

    def stop_controller(self) -> None:
        """Jobs that run go on. In order, as one that is killed forgets, and later ends, jobs that it took in a moment ago."""
        self.stop("slurmctld")

    def start_node(self, number: int) -> None:
        words = ["slurmd", "-D", "-f", self.env["SLURM_CONF"]]
        if self.hosts:
            self.launch(f"slurmd{number}", [str(self.hosts[number].enter), *words])
        else:
            self.launch(f"slurmd{number}", [*words, "-N", f"n{number}"])

    def wait_for_nodes(self, n_nodes: int = N_NODES) -> None:
        def n_idle() -> int:
            with suppress(AssertionError):
                # A node stands there once for each partition.
                lines = set(self.ask("sinfo", "--noheader", "--Node", "--format=%N %t").splitlines())
                return sum(line.split()[1] == "idle" for line in lines)
            return 0

        try:
            wait_until(lambda: n_idle() == n_nodes, "all nodes to be idle")
        except pytest.fail.Exception:
            logs = "\n".join(path.read_text()[-2_000:] for path in (self.folder / "log").iterdir())
            pytest.fail(f"Slurm does not come up\n{logs}")


def _free_ports(n: int) -> int:
    """The first of so many ports in a row that nobody has."""
    for first in range(17_000 + os.getpid() % 1_000 * 8, 30_000, n):
        try:
            for port in range(first, first + n):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise AssertionError("no free ports")


def _folder() -> Path:
    """A folder for a Slurm, once all that it needs is there."""
    if os.geteuid() != 0:
        lacking("needs root, for a Slurm of its own")
    if SBIN not in os.environ["PATH"].split(":"):
        os.environ["PATH"] += f":{SBIN}"
    for program, package in (
        ("slurmctld", None),
        ("slurmd", None),
        ("sbatch", "slurm-client"),
        ("munged", "munge"),
    ):
        need_program(program, package)
    folder = Path(tempfile.mkdtemp(prefix="eyas-slurm-"))
    # The daemons run as several users.
    folder.chmod(0o755)
    for name in ("state", "spool", "log", "munge"):
        (folder / name).mkdir()
    shutil.chown(folder / "munge", "munge", "munge")
    return folder


def _bring_up(made: Slurm, nodes: str, more: str, cpus: int) -> None:
    folder = made.folder
    munge_socket = folder / "munge" / "socket"
    text = CONFIG.format(dir=folder, socket=munge_socket, nodes=nodes, more=more, cpus=cpus)
    (folder / "slurm.conf").write_text(text)
    munge = ("munged", "--foreground", f"--socket={munge_socket}", f"--pid-file={folder}/munge/pid")
    files = (f"--log-file={folder}/munge/log", f"--seed-file={folder}/munge/seed")
    made.launch("munged", ["setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", *munge, *files])
    wait_until(munge_socket.exists, "munged")
    made.start_controller()
    for i in range(N_NODES):
        made.start_node(i + 1)
    made.wait_for_nodes()


@contextmanager
def slurm(more: str = "", cpus: int = 4, files: Mapping[str, str] | None = None) -> Iterator[Slurm]:
    """A Slurm of its own, whose daemons are gone afterwards.

    more : further lines of its configuration.
    cpus : how many processors each node claims to have.
    files : further files beside the configuration, by name.
    """
    folder = _folder()
    for name, text in (files or {}).items():
        (folder / name).write_text(text)
    made = Slurm(folder)
    host = socket.gethostname().partition(".")[0]
    first = _free_ports(N_NODES + 1)
    nodes = SHARED_HOST.format(host=host, port=first, n=N_NODES, first=first + 1, last=first + N_NODES)
    try:
        _bring_up(made, nodes, more, cpus)
        yield made
    finally:
        made.stop_all()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def slurm_of_hosts(more: str = "", cpus: int = 4) -> Iterator[Slurm]:
    """The same, with each node on a host of its own."""
    folder = _folder()
    made = Slurm(folder)
    names = ["head", *(f"c{i + 1}" for i in range(N_NODES))]
    try:
        with hosts(folder, f"sl{os.getpid()}", "10.78.0", names) as made.hosts:
            try:
                _bring_up(made, OWN_HOSTS.format(head=made.hosts[0].address, n=N_NODES), more, cpus)
                yield made
            finally:
                made.stop_all()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    with (slurm_of_hosts if "--hosts" in sys.argv[1:] else slurm)() as made:
        for name, value in made.env.items():
            print(f"export {name}={shlex.quote(value)}")
        if made.hosts:
            print(f"# {made.hosts[0].enter} COMMAND ... runs a command on the head")
        sys.stdout.flush()
        with suppress(KeyboardInterrupt):
            time.sleep(1e9)
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    sys.exit(main())
