"""Hosts of their own on this machine: network namespaces on one bridge, each with a name and an address."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness import need_program

# Not by `ip netns exec`, which would hide the control groups of this machine.
ENTER = """#!/bin/sh
exec nsenter --net=/run/netns/{space} unshare --uts --mount \\
    sh -c 'mount --bind {hosts} /etc/hosts; hostname {name}; exec "$@"' sh "$@"
"""


LONG_LINE = Path(__file__).parent / "long_line.py"


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

    def received_bytes(self) -> int:
        """What has come from other hosts so far, headers included."""
        command = ["ip", "-n", self.space, "-s", "-j", "link", "show", "dev", "eth0"]
        return int(json.loads(subprocess.check_output(command))[0]["stats64"]["rx"]["bytes"])


@dataclass
class Site:
    """Hosts near each other, with one slow link to all other sites."""

    name: str
    bridge: str
    hosts: list[Host]

    def set_link(self, state: str) -> None:
        """`down` cuts the site off from the others, while its hosts still reach each other; `up` brings it back."""
        subprocess.run(["ip", "-n", self.bridge, "link", "set", "out", state], check=True)

    def crossed_bytes(self) -> tuple[int, int]:
        """What has come into the site over its link so far, and what has left it, headers included."""
        command = ["ip", "-n", self.bridge, "-s", "-j", "link", "show", "dev", "out"]
        stats = json.loads(subprocess.check_output(command))[0]["stats64"]
        return int(stats["rx"]["bytes"]), int(stats["tx"]["bytes"])


class Spaces:
    """Makes network namespaces, and removes them."""

    def __init__(self, folder: Path, network: str, names: Sequence[str], is_debian: bool = False) -> None:
        need_program("ip", "iproute2")
        self.addresses = {name: f"{network}.{10 + i}" for i, name in enumerate(names)}
        self.folder = folder
        self.is_debian = is_debian
        self.made: list[str] = []
        self.lines: list[subprocess.Popen[bytes]] = []

    def known(self, name: str) -> Path:
        """The hosts file of a host."""
        own = {name: "127.0.1.1"} if self.is_debian else {}
        lines = [f"{address} {name}\n" for name, address in (self.addresses | own).items()]
        path = self.folder / f"hosts-of-{name}"
        path.write_text("127.0.0.1 localhost\n" + "".join(lines))
        return path

    def add(self, space: str) -> None:
        subprocess.run(["ip", "netns", "add", space], check=True)
        self.made.append(space)

    def add_bridge(self, space: str) -> None:
        """A namespace with a bridge in it, to which others are connected."""
        self.add(space)
        ip("-n", space, "link", "add", "br0", "type", "bridge")
        ip("-n", space, "link", "set", "br0", "up")

    def add_host(self, name: str, space: str, bridge: str) -> Host:
        end, address = f"ve{list(self.addresses).index(name)}", self.addresses[name]
        self.add(space)
        ip("-n", bridge, "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", space)
        ip("-n", bridge, "link", "set", end, "master", "br0", "up")
        ip("-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
        ip("-n", space, "link", "set", "eth0", "up")
        ip("-n", space, "link", "set", "lo", "up")
        enter = self.folder / f"on-{name}"
        enter.write_text(ENTER.format(space=space, hosts=self.known(name), name=name))
        enter.chmod(0o755)
        return Host(name, space, address, enter)

    def add_line(self, space: str, name: str, other_space: str, other_name: str, delay_ms: float) -> None:
        """A device in each of these namespaces; what one sends the other one has so much later."""
        words = [space, name, other_space, other_name, str(delay_ms)]
        line = subprocess.Popen([sys.executable, LONG_LINE, *words], stdout=subprocess.PIPE)
        self.lines.append(line)
        assert line.stdout is not None
        assert line.stdout.readline() == b"ready\n", f"no line from {space} to {other_space}"

    def limit_each(self, space: str, name: str, senders: Sequence[Sequence[str]], mbit: int) -> None:
        """Limits what the device sends of each of these groups of hosts to that rate."""
        at = ["-n", space]
        tc(*at, "qdisc", "add", "dev", name, "root", "handle", "1:", "htb")
        for number, group in enumerate(senders, 1):
            own = f"1:{number}"
            rate = ["htb", "rate", f"{mbit}mbit", "burst", "64kb", "quantum", "60000"]
            tc(*at, "class", "add", "dev", name, "parent", "1:", "classid", own, *rate)
            # As much as passes in 50 ms.
            tc(*at, "qdisc", "add", "dev", name, "parent", own, "bfifo", "limit", str(mbit * 6_250))
            for host in group:
                of_it = ["u32", "match", "ip", "src", f"{self.addresses[host]}/32", "flowid", own]
                tc(*at, "filter", "add", "dev", name, "parent", "1:", "protocol", "ip", "prio", "1", *of_it)

    def remove(self) -> None:
        for line in self.lines:
            line.kill()
            line.wait()
        for space in self.made:
            subprocess.run(["ip", "netns", "delete", space], check=False)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def tc(*words: str) -> None:
    subprocess.run(["tc", *words], check=True)


@contextmanager
def hosts(
    folder: Path, mark: str, network: str, names: Sequence[str], is_debian: bool = False
) -> Iterator[list[Host]]:
    """Hosts with these names, which are gone afterwards.

    folder : where their scripts go. mark : what the namespaces' names begin with, a few letters. network : the first three numbers
    of the addresses. is_debian : a host's own name leads to 127.0.1.1 there, as Debian installs it. The bridge is in a namespace of its own, so these addresses are on no other network of the machine.
    """
    spaces = Spaces(folder, network, names, is_debian)
    try:
        spaces.add_bridge(f"{mark}b")
        yield [spaces.add_host(name, f"{mark}n{i}", f"{mark}b") for i, name in enumerate(names)]
    finally:
        spaces.remove()


@contextmanager
def sites(
    folder: Path,
    mark: str,
    network: str,
    names: Mapping[str, Sequence[str]],
    mbit: int = 50,
    round_trip_ms: float = 0,
    is_each_pair: bool = False,
) -> Iterator[dict[str, Site]]:
    """Sites with these hosts, which are gone afterwards.

    names : for each site, its hosts. mbit : the rate of each site's link to the others in each direction, in Mbit/s.
    is_each_pair : each two sites have a link of that rate of their own, in place of one of each site to all others.
    round_trip_ms : how long a question from one site to another and its answer are under way. Inside a site nothing is limited. The
    other parameters are those of [`hosts`].
    """
    need_program("tc", "iproute2")
    spaces = Spaces(folder, network, [name for hosts in names.values() for name in hosts])
    try:
        core = f"{mark}b"
        spaces.add_bridge(core)
        made = {}
        for i, (site, members) in enumerate(names.items()):
            bridge = f"{mark}s{i}"
            spaces.add_bridge(bridge)
            if round_trip_ms:
                # A question and its answer pass the lines of both sites.
                spaces.add_line(bridge, "out", core, f"in{i}", round_trip_ms / 4)
            else:
                peer = ["peer", "name", f"in{i}", "netns", core]
                ip("-n", bridge, "link", "add", "out", "type", "veth", *peer)
            for space, end in [(bridge, "out"), (core, f"in{i}")]:
                ip("-n", space, "link", "set", end, "master", "br0", "up")
                if not is_each_pair:
                    limit = ["root", "tbf", "rate", f"{mbit}mbit", "burst", "64kb", "latency", "50ms"]
                    tc("-n", space, "qdisc", "add", "dev", end, *limit)
            if is_each_pair:
                others = [hosts for other, hosts in names.items() if other != site]
                spaces.limit_each(core, f"in{i}", others, mbit)
            there = [spaces.add_host(name, f"{mark}n{i}{k}", bridge) for k, name in enumerate(members)]
            made[site] = Site(site, bridge, there)
        yield made
    finally:
        spaces.remove()
