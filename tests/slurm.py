"""A real Slurm of this machine for tests: one controller and four nodes that share the host, on loopback."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from harness import lacking, need_program, wait_until

N_NODES = 4
# Where a Debian package puts them, which is not on everybody's PATH.
SBIN = "/usr/sbin"

CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
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
NodeName=n[1-{n}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=4 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=4000 State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    """What a test asks of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {"SLURM_CONF": str(folder / "slurm.conf")}

    def ask(self, *words: str) -> str:
        done = subprocess.run(
            words, env={**os.environ, **self.env}, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
        return done.stdout

    def queue(self) -> list[str]:
        """Lines of the queue: id, name, state."""
        return self.ask("squeue", "--noheader", "--format=%i %j %T").splitlines()


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


@contextmanager
def slurm() -> Iterator[Slurm]:
    """A Slurm of its own, whose daemons are gone afterwards."""
    if os.geteuid() != 0:
        lacking("needs root, for a Slurm of its own")
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
    host = socket.gethostname().partition(".")[0]
    first = _free_ports(N_NODES + 1)
    munge_socket = folder / "munge" / "socket"
    text = CONFIG.format(
        host=host,
        dir=folder,
        socket=munge_socket,
        n=N_NODES,
        port=first,
        first=first + 1,
        last=first + N_NODES,
    )
    (folder / "slurm.conf").write_text(text)
    processes: list[subprocess.Popen[bytes]] = []

    def daemon(*words: str) -> None:
        log = open(folder / "log" / f"{len(processes)}.out", "wb")
        processes.append(
            subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        )

    made = Slurm(folder)
    conf = made.env["SLURM_CONF"]
    try:
        munge = ("munged", "--foreground", f"--socket={munge_socket}", f"--pid-file={folder}/munge/pid")
        files = (f"--log-file={folder}/munge/log", f"--seed-file={folder}/munge/seed")
        daemon("setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", *munge, *files)
        wait_until(munge_socket.exists, "munged")
        daemon("slurmctld", "-D", "-f", conf)
        for i in range(N_NODES):
            daemon("slurmd", "-D", "-f", conf, "-N", f"n{i + 1}")

        def n_idle() -> int:
            with suppress(AssertionError):
                return made.ask("sinfo", "--noheader", "--Node", "--format=%N %t").split().count("idle")
            return 0

        try:
            wait_until(lambda: n_idle() == N_NODES, "all nodes to be idle")
        except pytest.fail.Exception:
            logs = "\n".join(path.read_text()[-2_000:] for path in (folder / "log").iterdir())
            pytest.fail(f"Slurm does not come up\n{logs}")
        yield made
    finally:
        for process in reversed(processes):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(folder, ignore_errors=True)
