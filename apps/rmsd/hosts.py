"""Hosts of their own on this machine: network namespaces on one bridge, whose links have a limited rate.

Each host has a name, an address and a link to the bridge, like a machine at a switch. What a host sends to its own address does not
pass its link. All hosts share the processors, the memory and the disks of this machine. This needs Linux, root, and the programs ip,
tc (Debian's iproute2), nsenter and unshare (util-linux).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# Not by `ip netns exec`, which would hide the control groups of this machine.
INSIDE = 'mount --bind "$1" /etc/hosts; hostname "$2"; shift 2; exec "$@"'
# How much passes a link at once, at least a packet of the kernel's largest size.
BURST_BYTES = 65_536
STORE_PATIENCE_S = 30.0


class HostError(Exception):
    """What is run on hosts did not work; its text is one sentence for the user."""


@dataclass(frozen=True)
class Host:
    """A host with a link of its own."""

    name: str
    address: str
    space: str
    bridge: str
    port: str
    known: Path

    def command(self, *words: str | Path) -> list[str]:
        """The command line that runs these words on the host."""
        enter = ["nsenter", f"--net=/run/netns/{self.space}", "unshare", "--uts", "--mount"]
        return [*enter, "sh", "-c", INSIDE, "sh", str(self.known), self.name, *map(str, words)]

    def limit(self, bytes_per_s: int) -> None:
        """From now on the link carries this much in each direction; 0: as much as it can."""
        for space, device in ((self.space, "eth0"), (self.bridge, self.port)):
            link = ["-n", space, "qdisc"]
            if bytes_per_s == 0:
                subprocess.run(["tc", *link, "del", "dev", device, "root"], check=False, capture_output=True)
                continue
            burst = str(max(BURST_BYTES, bytes_per_s // 250))
            rule = ["tbf", "rate", f"{bytes_per_s * 8}bit", "burst", burst, "latency", "200ms"]
            run(["tc", *link, "replace", "dev", device, "root", *rule])


def run(command: Sequence[str | Path]) -> str:
    """What a command printed; it has to end well."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip())[-400:]
        raise HostError(f"`{' '.join(map(str, command[-4:]))}` ended with {done.returncode}: {said}")
    return done.stdout


@contextmanager
def hosts(folder: Path, names: Sequence[str], network: str = "10.91.7") -> Iterator[list[Host]]:
    """Hosts with these names on one bridge; they are gone afterwards, and what runs on them is not.

    folder : for the file with their names. network : the first three numbers of the addresses. The bridge is in a namespace of its own,
    so the addresses are on no other network of the machine.
    """
    for program, package in (("ip", "iproute2"), ("tc", "iproute2"), ("nsenter", "util-linux")):
        if shutil.which(program) is None:
            raise HostError(f"there is no program {program}\nhint: apt-get install {package}")
    if os.geteuid() != 0:
        raise HostError("only root makes network namespaces")
    mark = f"ey{os.getpid()}"
    bridge = f"{mark}b"
    addresses = [f"{network}.{10 + i}" for i in range(len(names))]
    known = folder / "hosts"
    lines = [f"{address} {name}\n" for address, name in zip(addresses, names, strict=True)]
    known.write_text("127.0.0.1 localhost\n" + "".join(lines), encoding="ascii")
    spaces: list[str] = []
    made = []
    try:
        run(["ip", "netns", "add", bridge])
        spaces.append(bridge)
        run(["ip", "-n", bridge, "link", "add", "br0", "type", "bridge"])
        run(["ip", "-n", bridge, "link", "set", "br0", "up"])
        for i, (address, name) in enumerate(zip(addresses, names, strict=True)):
            space, port = f"{mark}n{i}", f"ve{i}"
            run(["ip", "netns", "add", space])
            spaces.append(space)
            pair = ["type", "veth", "peer", "name", "eth0", "netns", space]
            run(["ip", "-n", bridge, "link", "add", port, *pair])
            run(["ip", "-n", bridge, "link", "set", port, "master", "br0", "up"])
            run(["ip", "-n", space, "addr", "add", f"{address}/24", "dev", "eth0"])
            run(["ip", "-n", space, "link", "set", "eth0", "up"])
            run(["ip", "-n", space, "link", "set", "lo", "up"])
            made.append(Host(name, address, space, bridge, port, known))
        yield made
    finally:
        for space in spaces:
            subprocess.run(["ip", "netns", "delete", space], check=False, capture_output=True)


def bytes_sent(all_hosts: Sequence[Host]) -> int:
    """What all hosts together have sent over their links since they were made, with headers."""
    bridge = all_hosts[0].bridge
    links = json.loads(run(["ip", "-n", bridge, "-s", "-j", "link"]))
    ports = {host.port for host in all_hosts}
    return sum(link["stats64"]["rx"]["bytes"] for link in links if link["ifname"] in ports)


@contextmanager
def store(eyas: Path, host: Host, folder: Path, *options: str) -> Iterator[Path]:
    """`eyas store` on a host, which keeps its objects in a folder; gives its join file."""
    folder.mkdir(parents=True, exist_ok=True)
    words: list[str | Path] = [
        "store",
        "--dir",
        folder,
        "--name",
        host.name,
        "--listen",
        f"{host.address}:0",
        *options,
    ]
    join = folder / "join.json"
    with (folder.parent / f"{host.name}.log").open("w") as log:
        running = subprocess.Popen(host.command(eyas, *words), stdout=log, stderr=log)
        try:
            until = time.monotonic() + STORE_PATIENCE_S
            while not join.exists():
                if running.poll() is not None or time.monotonic() > until:
                    raise HostError(f"the store on {host.name} did not start; {log.name} has what it said")
                time.sleep(0.02)
            yield join
        finally:
            running.send_signal(signal.SIGTERM)
            running.wait()
