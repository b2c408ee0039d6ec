"""Hosts of their own on this machine: network namespaces on one bridge, each with a name and an address."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness import need_program

# Not by `ip netns exec`, which would hide the control groups of this machine.
ENTER = """#!/bin/sh
exec nsenter --net=/run/netns/{space} unshare --uts --mount \\
    sh -c 'mount --bind {hosts} /etc/hosts; hostname {name}; exec "$@"' sh "$@"
"""


@dataclass
class Host:
    """A host of its own: a name, an address, and a script that runs a command on it."""

    name: str
    space: str
    address: str
    enter: Path

    def set_link(self, state: str) -> None:
        """`down` cuts its network off, as a pulled cable does; `up` brings it back."""
        subprocess.run(["ip", "-n", self.space, "link", "set", "eth0", state], check=True)


@contextmanager
def hosts(folder: Path, mark: str, network: str, names: Sequence[str]) -> Iterator[list[Host]]:
    """Hosts with these names, which are gone afterwards.

    folder : where their scripts go. mark : what the namespaces' names begin with, a few letters. network : the first three numbers
    of the addresses. The bridge is in a namespace of its own, so these addresses are on no other network of the machine.
    """
    need_program("ip", "iproute2")
    bridge = f"{mark}b"
    spaces: list[str] = []

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    addresses = [f"{network}.{10 + i}" for i in range(len(names))]
    known = folder / "hosts"
    known.write_text(
        "127.0.0.1 localhost\n"
        + "".join(f"{address} {name}\n" for address, name in zip(addresses, names, strict=True))
    )
    made = []
    try:
        ip("netns", "add", bridge)
        spaces.append(bridge)
        ip("-n", bridge, "link", "add", "br0", "type", "bridge")
        ip("-n", bridge, "link", "set", "br0", "up")
        for i, (address, name) in enumerate(zip(addresses, names, strict=True)):
            space = f"{mark}n{i}"
            ip("netns", "add", space)
            spaces.append(space)
            ip("-n", bridge, "link", "add", f"ve{i}", "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("-n", bridge, "link", "set", f"ve{i}", "master", "br0", "up")
            ip("-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")
            enter = folder / f"on-{name}"
            enter.write_text(ENTER.format(space=space, hosts=known, name=name))
            enter.chmod(0o755)
            made.append(Host(name, space, address, enter))
        yield made
    finally:
        for space in spaces:
            subprocess.run(["ip", "netns", "delete", space], check=False)
