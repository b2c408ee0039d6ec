"""A real Grid Engine of this machine for tests: the master, and four execution hosts, each in a network namespace of its own.

eyas runs on the head, `g0`, which may submit; jobs run on `g1` to `g4`, two slots each. Grid Engine has a folder of its own in place of
the one under /var/lib, so nothing has to be set up on the machine but the packages.

    .venv/bin/python tests/lib/gridengine.py     # keeps one up until ^C, and prints what a shell needs to use it
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from xml.etree import ElementTree

import pytest
from daemons import Daemons
from harness import lacking, need_program, wait_until
from spaces import Host, hosts

N_NODES = 4
N_SLOTS = 2
DEBIAN = Path("/var/lib/gridengine")
USER = "sgeadmin"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

BOOTSTRAP = """admin_user              {user}
default_domain          none
ignore_fqdn             false
spooling_method         berkeleydb
spooling_lib            libspoolb
spooling_params         {dir}/spool/db
binary_path             /usr/sbin
qmaster_spool_dir       {dir}/spool/qmaster
security_mode           none
listener_threads        2
worker_threads          2
scheduler_threads       1
"""
# Jobs of the test are root's, and the daemons look often.
CONFIGURATION = {
    "execd_spool_dir": "{dir}/spool/execd",
    "mailer": "/bin/true",
    "min_uid": "0",
    "min_gid": "0",
    "load_report_time": "00:00:02",
    "max_unheard": "00:00:20",
    "gid_range": "{gids}",
    # A job whose host has gone is not left in the queue for ever.
    "qmaster_params": "ENABLE_FORCED_QDEL=1",
}
SCHEDULER = {"schedule_interval": "0:0:1", "flush_submit_sec": "1", "flush_finish_sec": "1"}
# Slots of one host, one slot on each host, and wherever there is room.
ENVIRONMENTS = {"smp": "$pe_slots", "spread": "1", "pair": "2", "mpi": "2", "fill": "$fill_up"}


class GridEngine(Daemons):
    """What a test asks of it."""

    def __init__(self, folder: Path, all_hosts: Sequence[Host]) -> None:
        super().__init__(folder, folder)
        self.root = folder / "root"
        self.hosts = all_hosts
        self.env = {
            "SGE_ROOT": str(self.root),
            "SGE_CELL": "default",
            "SGE_QMASTER_PORT": "6444",
            "SGE_EXECD_PORT": "6445",
        }

    def on_head(self, *words: str) -> list[str]:
        """The command line that runs these words where users do."""
        return [str(self.hosts[0].enter), *words]

    def host_of(self, node: str) -> Host:
        return next(host for host in self.hosts if host.name == node)

    def try_to(self, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a command of Grid Engine on the head."""
        return subprocess.run(
            self.on_head(*words),
            env={**os.environ, **self.env},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def ask(self, *words: str) -> str:
        """The same for one that has to succeed; gives what it prints."""
        done = self.try_to(*words)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def queue(self) -> list[str]:
        """Lines of the queue: id, name, state."""
        rows = ElementTree.fromstring(self.ask("qstat", "-u", "*", "-xml")).iter("job_list")
        return [
            f"{row.findtext('JB_job_number')} {row.findtext('JB_name')} {row.findtext('state')}"
            for row in rows
        ]

    def empty(self, timeout: float = 60.0) -> None:
        """Waits until no job is in the queue. Grid Engine takes seconds to report the end of a job."""
        wait_until(lambda: not self.queue(), "an empty queue", timeout)

    def clear(self) -> None:
        """Whatever a test did, no job stays and all queues are of use again."""
        self.try_to("qmod", "-cq", "all.q")
        self.try_to("qmod", "-e", "all.q")
        if jobs := [line.split()[0] for line in self.queue()]:
            self.try_to("qdel", *jobs)
        try:
            self.empty(20)
        except pytest.fail.Exception:
            self.try_to("qdel", "-f", *[line.split()[0] for line in self.queue()])
            self.empty()

    def change(self, option: str, thing: Sequence[str], values: dict[str, str]) -> None:
        """Changes attributes of a configuration: `qconf -sOPTION` shows it, `qconf -MOPTION` takes it from a file."""
        lines = dict(
            line.split(None, 1)
            for line in self.ask("qconf", f"-s{option}", *thing).replace("\\\n", "").splitlines()
            if len(line.split(None, 1)) == 2 and not line.startswith("#")
        )
        path = self.folder / (thing[0] if thing else option)
        path.write_text("".join(f"{name} {value}\n" for name, value in {**lines, **values}.items()))
        self.ask("qconf", f"-M{option}", str(path))

    def add(self, option: str, values: dict[str, str]) -> None:
        """Adds an object: `qconf -AOPTION` takes it from a file."""
        path = self.folder / f"new-{option}"
        path.write_text("".join(f"{name} {value}\n" for name, value in values.items()))
        self.ask("qconf", f"-A{option}", str(path))

    # ---------------------------------------------------------------- daemons

    def start(self, name: str, host: Host, *words: str) -> None:
        # Jobs inherit the environment of the daemon. SGE_ND: it stays in the foreground.
        self.launch(name, [str(host.enter), *words], {"PATH": PATH, **self.env, "SGE_ND": "1"})

    def start_master(self) -> None:
        self.start("qmaster", self.hosts[0], "/usr/sbin/sge_qmaster")

    def stop_master(self) -> None:
        """The master crashes; jobs that run go on."""
        self.stop("qmaster", signal.SIGKILL)

    def answers(self) -> bool:
        return self.try_to("qconf", "-sh").returncode == 0

    def wait_for_nodes(self) -> None:
        def n_up() -> int:
            """Hosts whose queue has neither an alarm nor an unknown state."""
            rows = ElementTree.fromstring(self.try_to("qstat", "-f", "-xml").stdout or "<none/>")
            return sum(
                not queue.findtext("state") and queue.findtext("arch") != "NA"
                for queue in rows.iter("Queue-List")
            )

        try:
            wait_until(lambda: n_up() == N_NODES, "all execution hosts")
        except pytest.fail.Exception:
            paths = [*self.folder.glob("*.out"), *self.folder.glob("spool/**/messages")]
            logs = "\n".join(f"{path}:\n{path.read_text()[-2_000:]}" for path in paths)
            pytest.fail(f"Grid Engine does not come up\n{self.try_to('qstat', '-f').stdout}\n{logs}")

    def stop_all(self) -> None:
        super().stop_all()
        # What looks after a running job outlives the daemon that started it.
        ours = f"SGE_ROOT={self.root}".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with suppress(OSError):
                    if ours in (entry / "environ").read_bytes().split(b"\0"):
                        os.kill(int(entry.name), signal.SIGKILL)


def _bring_up(made: GridEngine) -> None:
    folder, root = made.folder, made.root
    common = root / "default" / "common"
    common.mkdir(parents=True)
    for name in ("bin", "lib", "util", "utilbin"):
        (root / name).symlink_to(DEBIAN / name)
    for name in ("qmaster/job_scripts", "db", "execd"):
        (folder / "spool" / name).mkdir(parents=True)
    (common / "bootstrap").write_text(BOOTSTRAP.format(user=USER, dir=folder))
    (common / "act_qmaster").write_text(f"{made.hosts[0].name}\n")
    # Group ids that mark the processes of jobs; another Grid Engine of this machine has others.
    gids = f"{20_000 + os.getpid() % 1_000 * 40}-{20_039 + os.getpid() % 1_000 * 40}"
    text = Path("/usr/share/gridengine/default-configuration").read_text()
    lines = dict(line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#"))
    lines |= {name: value.format(dir=folder, gids=gids) for name, value in CONFIGURATION.items()}
    (folder / "configuration").write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
    env = {**os.environ, **made.env}
    for words in (
        ["spoolinit", "berkeleydb", "libspoolb", str(folder / "spool" / "db"), "init"],
        ["spooldefaults", "configuration", str(folder / "configuration")],
        ["spooldefaults", "complexes", "/usr/share/gridengine/util/resources/centry"],
        ["spooldefaults", "usersets", "/usr/share/gridengine/util/resources/usersets"],
        ["spooldefaults", "managers", "root", USER],
    ):
        program = Path("/usr/lib/gridengine") / words[0]
        subprocess.run([program, *words[1:]], check=True, env=env, capture_output=True, timeout=60)
    subprocess.run(["chown", "-R", f"{USER}:{USER}", str(folder / "spool"), str(root)], check=True)
    made.start_master()
    wait_until(made.answers, "sge_qmaster")
    names = [host.name for host in made.hosts]
    made.ask("qconf", "-ah", ",".join(names))
    made.ask("qconf", "-as", ",".join(names))
    nothing = ("complex_values", "user_lists", "xuser_lists", "projects", "xprojects", "usage_scaling")
    for name in names[1:]:
        attributes = {"hostname": name, "load_scaling": "NONE"} | dict.fromkeys(nothing, "NONE")
        made.add("e", attributes | {"report_variables": "NONE"})
    made.add("hgrp", {"group_name": "@allhosts", "hostlist": " ".join(names[1:])})
    for name, rule in ENVIRONMENTS.items():
        made.add(
            "p",
            {
                "pe_name": name,
                "slots": "999",
                "user_lists": "NONE",
                "xuser_lists": "NONE",
                "start_proc_args": "NONE",
                "stop_proc_args": "NONE",
                "allocation_rule": rule,
                "control_slaves": "TRUE",
                "job_is_first_task": "FALSE",
                "urgency_slots": "min",
                "accounting_summary": "FALSE",
                "qsort_args": "NONE",
            },
        )
    made.change("sconf", [], SCHEDULER)
    changes = {
        "qname": "all.q",
        "hostlist": "@allhosts",
        "slots": str(N_SLOTS),
        "shell_start_mode": "posix_compliant",
        # Other tests load the machine.
        "load_thresholds": "NONE",
        "pe_list": " ".join(ENVIRONMENTS),
        "tmpdir": str(folder / "scratch"),
        "notify": "00:00:05",
    }
    (folder / "scratch").mkdir(mode=0o777)
    lines = dict(
        line.split(None, 1) for line in made.ask("qconf", "-sq").replace("\\\n", "").splitlines() if line
    )
    made.add("q", {**lines, **changes})
    for host in made.hosts[1:]:
        made.start(host.name, host, "/usr/sbin/sge_execd")
    made.wait_for_nodes()


@contextmanager
def grid_engine() -> Iterator[GridEngine]:
    """A Grid Engine of its own, whose daemons are gone afterwards."""
    if os.geteuid() != 0:
        lacking("needs root, for a Grid Engine of its own")
    for program, package in (
        ("sge_qmaster", "gridengine-master"),
        ("sge_execd", "gridengine-exec"),
        ("qsub", "gridengine-client"),
    ):
        if not (Path("/usr/sbin") / program).exists():
            need_program(program, package)
    folder = Path(tempfile.mkdtemp(prefix="eyas-ge-"))
    # The daemons run as several users.
    folder.chmod(0o755)
    names = [f"g{i}" for i in range(N_NODES + 1)]
    try:
        with hosts(folder, f"ge{os.getpid()}", "10.79.0", names) as all_hosts:
            made = GridEngine(folder, all_hosts)
            try:
                _bring_up(made)
                yield made
            finally:
                made.stop_all()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    with grid_engine() as made:
        for name, value in made.env.items():
            print(f"export {name}={shlex.quote(value)}")
        print(f"# {made.hosts[0].enter} COMMAND ... runs a command on the head")
        sys.stdout.flush()
        with suppress(KeyboardInterrupt):
            time.sleep(1e9)
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    sys.exit(main())
