"""Real file systems of several hosts for tests: GlusterFS and MooseFS, with their servers and mounts on hosts of their own.

The hosts are network namespaces ([`spaces`]). Each mount is in a mount namespace of its host's, at the same path on every host, so a
program sees it only if it runs by the host's script ([`Mounted.on`]).
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness import need_program, wait_until
from spaces import Host

# A glusterd takes its folders and its socket for those of the machine, so each host has its own in their places.
OWN_GLUSTER = """#!/bin/sh
mkdir -p /var/lib/glusterd /var/log/glusterfs {own}/lib {own}/log {own}/run/gluster {own}/brick
mount --bind {own}/lib /var/lib/glusterd && mount --bind {own}/log /var/log/glusterfs && mount --bind {own}/run /run || exit
exec "$@"
"""


@dataclass
class Mounted:
    """A file system that every host has mounted."""

    point: Path
    scripts: dict[str, Path]
    """By the name of a host: runs a command there, where it sees the mount."""
    host_of: Callable[[str], str]
    """The name of the host that has a file on its disk, by the name of the file; it shares no code with eyas."""

    def on(self, host: str, program: Path, folder: Path) -> Path:
        """The program as one that runs on this host."""
        script = folder / f"{program.name}-on-{host}"
        script.write_text(f'#!/bin/sh\nexec {self.scripts[host]} {program} "$@"\n')
        script.chmod(0o755)
        return script

    def write(self, host: str, name: str, data: bytes) -> None:
        command = [self.scripts[host], "sh", "-c", 'cat > "$1"', "sh", self.point / name]
        subprocess.run([str(word) for word in command], input=data, check=True, timeout=60)


class Servers:
    """Processes that stay in the foreground, and are ended in the opposite order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *command: str | Path) -> subprocess.Popen[bytes]:
        with open(self.folder / f"{name}.log", "wb") as log:
            words = [str(word) for word in command]
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/")
        self.processes.append(process)
        return process

    def mount(self, host: Host, point: Path, *command: str | Path) -> Path:
        """Starts a program that mounts a file system in a mount namespace of its own, and gives the script that runs others there."""
        process = self.start(f"mount-{host.name}", host.enter, *command)
        into = ["nsenter", f"--target={process.pid}", "--net", "--uts", "--mount"]

        def is_mounted() -> bool:
            assert process.poll() is None, (self.folder / f"mount-{host.name}.log").read_text()
            looked = subprocess.run(
                [*into, "mountpoint", "-q", str(point)], check=False, capture_output=True, timeout=60
            )
            # `nsenter` may come before the process has entered a mount namespace of its own.
            is_own = (Path("/proc") / str(process.pid) / "ns/mnt").readlink() != Path(
                "/proc/self/ns/mnt"
            ).readlink()
            return is_own and looked.returncode == 0

        wait_until(is_mounted, f"the mount on {host.name}")
        script = self.folder / f"in-mount-of-{host.name}"
        script.write_text(f'#!/bin/sh\nexec {" ".join(into)} -- "$@"\n')
        script.chmod(0o755)
        return script

    def end(self, *, at_once: bool = False) -> None:
        """at_once : without what they would still write to their disks."""
        for process in reversed(self.processes):
            if at_once:
                process.kill()
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)


@contextmanager
def gluster(folder: Path, head: Host, members: Sequence[Host]) -> Iterator[Mounted]:
    """A volume with a brick on each member, without copies; mounted on all hosts."""
    need_program("glusterd", "glusterfs-server")
    servers, point = Servers(folder), folder / "volume"
    point.mkdir()
    bricks = {host.name: folder / host.name / "brick" for host in members}
    first, *others = members
    try:
        daemons = []
        for host in members:
            own = folder / f"glusterd-on-{host.name}"
            own.write_text(OWN_GLUSTER.format(own=folder / host.name))
            own.chmod(0o755)
            command: list[str | Path] = [
                own,
                "glusterd",
                "-N",
                "-p",
                folder / f"{host.name}.pid",
                "-l",
                folder / f"{host.name}.log",
            ]
            daemons.append(servers.start(f"glusterd-{host.name}", host.enter, *command))

        def ask(*words: str | Path) -> bool:
            assert all(daemon.poll() is None for daemon in daemons), "a glusterd has ended"
            into = ["nsenter", f"--target={daemons[0].pid}", "--net", "--uts", "--mount"]
            command = [*into, "gluster", "--mode=script", *(str(word) for word in words)]
            return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0

        for host in others:
            wait_until(lambda host=host: ask("peer", "probe", host.address), f"{host.name} as a peer")  # type: ignore[misc]
        words = [f"{host.address}:{bricks[host.name]}" for host in members]
        wait_until(lambda: ask("volume", "create", "gv", *words, "force"), "the volume")
        wait_until(lambda: ask("volume", "start", "gv"), "the start of the volume")
        client = ["glusterfs", "-N", f"--volfile-server={first.address}", "--volfile-id=gv"]
        scripts = {
            host.name: servers.mount(host, point, *client, "-l", folder / f"client-{host.name}.log", point)
            for host in (head, *members)
        }

        def host_of(name: str) -> str:
            return next(host for host, brick in bricks.items() if (brick / name).exists())

        yield Mounted(point, scripts, host_of)
    finally:
        # The servers of bricks are not children of this process.
        for note in folder.glob("*/run/gluster/vols/gv/*.pid"):
            subprocess.run(["kill", note.read_text().strip()], check=False)
        servers.end()


@contextmanager
def moose(folder: Path, head: Host, members: Sequence[Host]) -> Iterator[Mounted]:
    """A MooseFS with its master on `head` and a chunk server on each member, with one copy of each file; mounted on all hosts."""
    for program, package in (("mfsmaster", "moosefs-master"), ("mfschunkserver", "moosefs-chunkserver")):
        need_program(program, package)
    need_program("mfsmount", "moosefs-client")
    servers, point = Servers(folder), folder / "volume"
    as_root = "WORKING_USER = root\nWORKING_GROUP = root\n"
    for path in (point, folder / "master"):
        path.mkdir()
    (folder / "exports.cfg").write_text("* / rw,alldirs,maproot=0\n")
    (folder / "master" / "metadata.mfs").write_bytes(b"MFSM NEW")
    listen = "".join(f"{who}_LISTEN_HOST = {head.address}\n" for who in ("MATOML", "MATOCS", "MATOCL"))
    (folder / "master.cfg").write_text(
        f"{as_root}DATA_PATH = {folder}/master\nEXPORTS_FILENAME = {folder}/exports.cfg\n{listen}"
    )
    try:
        servers.start("master", head.enter, "mfsmaster", "-f", "-c", folder / "master.cfg", "start")
        for host in members:
            own = folder / host.name
            for path in (own, own / "disk", own / "data"):
                path.mkdir()
            (own / "disks.cfg").write_text(f"{own}/disk\n")
            (own / "chunks.cfg").write_text(
                f"{as_root}DATA_PATH = {own}/data\nHDD_CONF_FILENAME = {own}/disks.cfg\nHDD_LEAVE_SPACE_DEFAULT = 1MiB\n"
                f"MASTER_HOST = {head.address}\nMASTER_RECONNECTION_DELAY = 1\nCSSERV_LISTEN_HOST = {host.address}\n"
            )
            servers.start(
                f"chunks-{host.name}", host.enter, "mfschunkserver", "-f", "-c", own / "chunks.cfg", "start"
            )
        wait_until(
            lambda: (
                (folder / "master.log").read_text(errors="replace").count("chunkserver register end")
                == len(members)
            ),
            "the chunk servers",
        )
        client: list[str | Path] = ["mfsmount", "-f", point, "-H", head.address]
        scripts = {host.name: servers.mount(host, point, *client) for host in (head, *members)}
        subprocess.run([scripts[head.name], "mfssetgoal", "-r", "1", point], check=True, capture_output=True)
        free = [str(scripts[head.name]), "stat", "-f", "-c", "%a", str(point)]
        # The servers say how much room they have a moment after they have come. A file that is written before waits for long.
        wait_until(lambda: int(subprocess.check_output(free, timeout=60)) > 0, "room on the chunk servers")
        by_address = {host.address: host.name for host in members}

        def host_of(name: str) -> str:
            command = [scripts[head.name], "mfsfileinfo", point / name]
            said = subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True)
            return by_address[said.stdout.split("copy 1: ")[1].split(":")[0]]

        yield Mounted(point, scripts, host_of)
    finally:
        # Each would take seconds.
        servers.end(at_once=True)
