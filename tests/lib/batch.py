"""A batch system in small for tests of `--provider command`: three commands over a folder, real processes.

`start` runs a script in the background with output of its own, `list` prints a line for each block that was started, `stop` ends one. What
a test wants to go wrong is a file in the folder:

    hold     blocks stay queued: the script is started by the first listing that finds this file gone
    refuse   `start` fails with the text of this file
    deaf     `list` fails with the text of this file
    stuck    `stop` fails with the text of this file
    hide     `list` leaves out ids that stand in this file
    reason   `list` says the text of this file of blocks in the queue
    linger   `list` shows blocks that were stopped or have ended, as Slurm does while a job is completing
    babble   `start` prints the text of this file, and starts nothing
    hang     commands whose names stand in this file do not end
    slow     `stop` takes so many seconds
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness import Eyas
    from weather import Cluster

START, LIST, STOP = "start", "list", "stop"


class Batch:
    """The folder of such a system, as a test sees it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder

    def options(self, list_every: str = "500ms", walltime: str | None = None) -> list[str]:
        """Options of eyas that take nodes from here."""
        me = f"{sys.executable} {Path(__file__).resolve()} {self.folder}"
        start = f"{me} start {{name}} {{script}}"
        options = ["--list", f"{me} list", "--stop", f"{me} stop {{id}}", "--list-every", list_every]
        if walltime is not None:
            start += " {walltime}"
            options += ["--walltime", walltime]
        return ["--provider", "command", "--start", start, *options]

    def wish(self, name: str, text: str = "") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def calls(self, verb: str) -> list[list[str]]:
        """Arguments of each call of this command, after the time it came at."""
        path = self.folder / "calls.log"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.split("\t")[1:] for line in lines if line.split("\t")[1] == verb]

    def call_times(self, verb: str) -> list[float]:
        lines = (self.folder / "calls.log").read_text().splitlines()
        return [float(line.split("\t")[0]) for line in lines if line.split("\t")[1] == verb]

    def blocks(self) -> dict[str, str]:
        """All blocks that were ever started: id to name."""
        texts = [(path.stem, path.read_text().splitlines()) for path in sorted(self.folder.glob("*.block"))]
        # One that is being started has no name yet.
        return {id: lines[0] for id, lines in texts if lines}

    def running(self) -> list[str]:
        """Ids of blocks whose process group is there."""
        return [id for id in self.blocks() if is_running(self.folder, id)]

    def kill(self, id: str) -> None:
        """What a batch system does to a block whose time is over."""
        self.signal(id, signal.SIGKILL)

    def signal(self, id: str, which: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(pid_of(self.folder, id), which)


class Up:
    """The cluster of `eyas up` with nodes of this batch system."""

    def __init__(
        self,
        cluster: Cluster,
        batch: Batch,
        nodes: str,
        *options: str,
        list_every: str = "500ms",
        lease: str = "60s",
    ) -> None:
        self.eyas = cluster.eyas
        self.dir = cluster.folder / "up"
        self.env = {"EYAS_JOIN": str(self.dir / "dispatcher" / "join.json")}
        # On one machine nodes reach the dispatcher on loopback.
        self.words = [
            "up",
            "--nodes",
            nodes,
            "--dir",
            str(self.dir),
            "--listen",
            "127.0.0.1:0",
            "--lease",
            lease,
        ]
        self.words += ["--slots", "1", *batch.options(list_every), *options]

    def start(self) -> str:
        return self.eyas.run(*self.words).stdout

    def ask(self, *args: str | Path) -> str:
        return self.eyas.run(*args, env=self.env).stdout

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ask("status", "--json"))
        return found

    def names(self) -> list[str]:
        """Nodes that are connected."""
        return sorted(line["name"] for line in self.status()["executors"] if line["state"] == "connected")

    @property
    def log(self) -> Path:
        return self.dir / "dispatcher" / "provider.log"

    def kill(self, *parts: str) -> None:
        """`kill -9` of these parts of the head: `provider`, `dispatcher`."""
        for pid, command in list(self.eyas.left_behind()):
            if command.split()[1:2] and command.split()[1] in parts:
                os.kill(pid, signal.SIGKILL)

    def down(self) -> None:
        self.ask("down")
        from harness import wait_until

        wait_until(lambda: not list(self.eyas.left_behind()), "the end of all its processes")


def shared(eyas: Eyas) -> list[Path]:
    """What lies in the folder that blocks read."""
    folder = Path(eyas.env["XDG_STATE_HOME"]) / "eyas"
    return sorted(folder.rglob("*")) if folder.exists() else []


def pid_of(folder: Path, id: str) -> int:
    return int((folder / f"{id}.pid").read_text())


def is_running(folder: Path, id: str) -> bool:
    if not (folder / f"{id}.pid").exists():
        return False
    try:
        stat = Path(f"/proc/{pid_of(folder, id)}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def spawn(folder: Path, id: str, script: str) -> None:
    """Start the block's script as a daemon: its parent is nobody that the test knows."""
    if os.fork() == 0:
        os.setsid()
        out = os.open(folder / f"{id}.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for stream in (1, 2):
            os.dup2(out, stream)
        part = folder / f".{id}.pid"
        part.write_text(str(os.getpid()))
        part.rename(folder / f"{id}.pid")
        os.execv("/bin/sh", ["/bin/sh", script])


def given_at() -> float:
    """When this command was given: when the shell that it is a line of was made. A busy machine lets a Python begin much later."""

    def made(pid: int) -> tuple[str, float]:
        head, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        fields = rest.split()
        return head.partition("(")[2], int(fields[19]) / os.sysconf("SC_CLK_TCK")

    _, at = made(os.getpid())
    name, parents = made(os.getppid())
    since_boot = parents if name == "sh" else at
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot


def main() -> int:
    folder, verb, *args = Path(sys.argv[1]), *sys.argv[2:]
    with open(folder / "calls.log", "a") as log:
        log.write("\t".join([f"{given_at():.3f}", verb, *args]) + "\n")
    is_held = (folder / "hold").exists()
    wish = folder / {START: "refuse", LIST: "deaf", STOP: "stuck"}[verb]
    if wish.exists():
        print(wish.read_text() or verb, file=sys.stderr)
        return 3
    if verb in ((folder / "hang").read_text().split() if (folder / "hang").exists() else []):
        time.sleep(600)
    if verb == STOP and (folder / "slow").exists():
        time.sleep(float((folder / "slow").read_text()))
    if verb == START and (folder / "babble").exists():
        print((folder / "babble").read_text())
    elif verb == START:
        name, script, *_ = args
        id = f"b{len(list(folder.glob('*.block'))) + 1}"
        (folder / f"{id}.block").write_text(f"{name}\n{script}\n")
        if not is_held:
            spawn(folder, id, script)
            while not (folder / f"{id}.pid").exists():
                time.sleep(0.005)
        print(id)
    elif verb == LIST:
        hidden = (folder / "hide").read_text().split() if (folder / "hide").exists() else []
        for path in sorted(folder.glob("*.block")):
            name, script = path.read_text().splitlines()
            has_begun = (folder / f"{path.stem}.pid").exists()
            was_stopped, lingers = (folder / f"{path.stem}.stopped").exists(), (folder / "linger").exists()
            if path.stem in hidden or (was_stopped and not lingers):
                continue
            if not has_begun and not is_held and not was_stopped:
                spawn(folder, path.stem, script)
            if was_stopped or (has_begun and lingers and not is_running(folder, path.stem)):
                print(path.stem, name, "COMPLETING")
                continue
            state = "RUNNING" if is_running(folder, path.stem) else "ENDED" if has_begun else "PENDING"
            is_told = state == "PENDING" and (folder / "reason").exists()
            print(path.stem, name, state, (folder / "reason").read_text() if is_told else "")
    elif verb == STOP:
        (folder / f"{args[0]}.stopped").touch()
        if (folder / f"{args[0]}.pid").exists():
            with suppress(ProcessLookupError):
                os.killpg(pid_of(folder, args[0]), signal.SIGTERM)
    return 0


if __name__ == "__main__":
    sys.exit(main())
