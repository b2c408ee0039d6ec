#!/usr/bin/env python3
"""Figure 2 of Wozniak06: how fast a file arrives, by its size, and by how many clients read from one server at once.

    figure2.py --out figure2.json --svg figure2.svg [--eyas eyas] [--dir DIR]
    figure2.py --draw figure2.json --svg figure2.svg

Hosts are network namespaces of this machine with links of 1 Gbit/s (hosts.py), as the paper's switch had. One of them, `server`, has a
store and a Chirp server with the same files. Each way to a file is tried on the server's own host (local) and on another host (network):

    eyas to memory     `eyas access -- cat /eyas/KEY/file`, whose output is thrown away
    eyas to disk       `eyas data get KEY/file`
    chirp to memory    `chirp_get` to standard output, which nobody reads
    chirp to disk      `chirp_get` to a file
    folder to memory   the first one, where the site is a folder and not a store (local only)
    cat, cp            of a plain file (local only)

A time is that of the whole command, so small files show how long a command takes to start. The files were written just before, so the
system has them in memory. Without chirp_server and chirp_get (Debian's coop-computing-tools) the ways of Chirp are left out. It needs
root, because it makes namespaces.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figure7 import GIGABIT_BYTES_PER_S, machine
from hosts import Host, HostError, hosts, store

CHIRP_PORT = 9194
PIECE_BYTES = 4_000_000
# How often a way is tried, by the size up to which that holds; figures are medians.
TIMES = ((16, 7), (256, 3))
CHIRP_PATIENCE_S = 20.0

# Runs the commands that it reads, one a line, and says how many seconds each took. So a time has no start of a namespace in it.
AGENT = """
import json, subprocess, sys, time
for line in sys.stdin:
    command = json.loads(line)
    begun = time.monotonic()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    seconds = time.monotonic() - begun
    said = done.stderr.decode(errors="replace")[-400:] if done.returncode else ""
    print(json.dumps([seconds, done.returncode, said]), flush=True)
"""


@dataclass(frozen=True)
class Way:
    """How a client gets at a file: a command with {size} and {target}, where it is there, and its look in the figure."""

    name: str
    to_disk: bool
    local_only: bool
    words: tuple[str, ...]
    colour: str


def ways(eyas: Path, folder: Path, address: str, with_chirp: bool) -> list[Way]:
    get = ("env", f"EYAS_DATA=sqlite:{folder}/served.db", str(eyas))
    own = ("env", f"EYAS_DATA=sqlite:{folder}/own.db", str(eyas))
    key = "files/{size}"
    listed = [
        Way("eyas", False, False, (*get, "access", "--", "cat", f"/eyas/{key}"), "#3b7a8c"),
        Way("eyas", True, False, (*get, "data", "get", key, "{target}"), "#3b7a8c"),
        Way("folder", False, True, (*own, "access", "--", "cat", f"/eyas/{key}"), "#5a9e6f"),
        Way("plain", False, True, ("cat", f"{folder}/files/{{size}}"), "#888888"),
        Way("plain", True, True, ("cp", f"{folder}/files/{{size}}", "{target}"), "#888888"),
    ]
    if with_chirp:
        chirp = ("chirp_get", "-a", "address", f"{address}:{CHIRP_PORT}", "/{size}")
        listed += [
            Way("chirp", False, False, (*chirp, "-"), "#b24a3b"),
            Way("chirp", True, False, (*chirp, "{target}"), "#b24a3b"),
        ]
    return listed


class Client:
    """A process on a host that runs commands there."""

    def __init__(self, host: Host, folder: Path) -> None:
        self.name = host.name
        self.target = folder / f"copy-{host.name}"
        self.agent = subprocess.Popen(
            host.command(sys.executable, "-c", AGENT),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self, way: Way, megabytes: int) -> None:
        assert self.agent.stdin
        names = {"size": f"{megabytes}MB", "target": str(self.target)}
        self.agent.stdin.write(json.dumps([word.format(**names) for word in way.words]) + "\n")
        self.agent.stdin.flush()

    def seconds(self) -> float:
        """How long the command took that was begun."""
        assert self.agent.stdout
        seconds, status, said = json.loads(self.agent.stdout.readline())
        with suppress(FileNotFoundError):
            self.target.unlink()
        if status != 0:
            raise HostError(f"a command on {self.name} ended with {status}: {said.strip()}")
        return float(seconds)

    def end(self) -> None:
        assert self.agent.stdin
        self.agent.stdin.close()
        self.agent.wait()


@contextmanager
def chirp_server(host: Host, root: Path, network: str) -> Iterator[None]:
    """A Chirp server on a host that serves a folder to all addresses of the network."""
    (root / ".__acl").write_text(f"address:{network}.* rl\n", encoding="ascii")
    # The folder above is a temporary one, into which only its owner may go.
    root.parent.chmod(0o711)
    for path in (root, *root.iterdir()):
        shutil.chown(path, "nobody")
    log = root.parent / "chirp.log"
    # In the foreground, as the same user for all, and known to no catalog but one that is not there.
    place = ["-r", str(root), "-I", host.address, "-p", str(CHIRP_PORT), "-u", f"{host.address}:9"]
    running = subprocess.Popen(
        host.command("chirp_server", "-i", "nobody", *place, "-o", str(log)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + CHIRP_PATIENCE_S
        look = host.command("chirp", "-t", "2", "-a", "address", f"{host.address}:{CHIRP_PORT}", "ls")
        while subprocess.run(look, capture_output=True, check=False).returncode != 0:
            if running.poll() is not None or time.monotonic() > until:
                raise HostError(f"chirp_server did not start; {log} has what it said")
            time.sleep(0.1)
        yield
    finally:
        running.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            running.wait(5)
        if running.poll() is None:
            running.kill()
            running.wait()


def write_file(path: Path, megabytes: int) -> None:
    with path.open("wb") as out:
        left = megabytes * 1_000_000
        while left:
            left -= out.write(os.urandom(min(PIECE_BYTES, left)))


def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    network = "10.91.8"
    n_clients = max(args.clients)
    with_chirp = all(shutil.which(name) for name in ("chirp_server", "chirp_get", "chirp"))
    load = os.getloadavg()[0]
    sizes: list[dict[str, Any]] = []
    crowds: list[dict[str, Any]] = []
    with ExitStack() as stack:
        names = ["server", *(f"c{i}" for i in range(n_clients))]
        server, *others = stack.enter_context(hosts(folder, names, network))
        join = stack.enter_context(store(args.eyas, server, folder / "stores" / "server"))
        files = folder / "files"
        files.mkdir()
        for megabytes in sorted({*args.megabytes, args.crowd_megabytes}):
            write_file(files / f"{megabytes}MB", megabytes)
        for catalog, site in (("served", "server"), ("own", "here")):
            env = {**os.environ, "EYAS_DATA": f"sqlite:{folder}/{catalog}.db"}
            steps: list[list[str | Path]] = [["init", "--dir", folder / f"site-{catalog}"]]
            steps += [["site", "--join", join]] if site == "server" else []
            steps += [["put", files, "--label", "files", "--site", site]]
            for step in steps:
                done = subprocess.run(
                    server.command(args.eyas, "data", *step),
                    env=env,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                if done.returncode != 0:
                    raise HostError(f"`eyas data {step[0]}`: {done.stderr.strip()}")
        if with_chirp:
            stack.enter_context(chirp_server(server, files, network))
        for host in (server, *others):
            host.limit(GIGABIT_BYTES_PER_S)
        listed = ways(args.eyas, folder, server.address, with_chirp)
        near, *far = [Client(host, folder) for host in (server, *others)]
        for client in (near, *far):
            stack.callback(client.end)
        for megabytes in args.megabytes:
            n_times = next((n for most, n in TIMES if megabytes <= most), args.large_times)
            for way in listed:
                for place, client in (("local", near), *([] if way.local_only else [("network", far[0])])):
                    times = []
                    for _ in range(n_times):
                        client.begin(way, megabytes)
                        times.append(client.seconds())
                    row = {"way": way.name, "to": "disk" if way.to_disk else "memory", "place": place}
                    sizes.append({**row, "megabytes": megabytes, "seconds": [round(t, 4) for t in times]})
                    print(json.dumps(sizes[-1]), file=sys.stderr, flush=True)
        for n in args.clients:
            for way in listed:
                if way.local_only:
                    continue
                for client in far[:n]:
                    client.begin(way, args.crowd_megabytes)
                times = [client.seconds() for client in far[:n]]
                row = {"way": way.name, "to": "disk" if way.to_disk else "memory", "n_clients": n}
                crowds.append({**row, "seconds": [round(t, 3) for t in times]})
                print(json.dumps(crowds[-1]), file=sys.stderr, flush=True)
    return {
        "machine": machine(),
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "link_bytes_per_s": GIGABIT_BYTES_PER_S,
        "chirp": with_chirp,
        "sizes": sizes,
        "crowd_megabytes": args.crowd_megabytes,
        "crowds": crowds,
    }


def megabytes_per_s(megabytes: int, seconds: list[float]) -> float:
    return megabytes / statistics.median(seconds)


def draw(measured: dict[str, Any], target: Path) -> None:
    import matplotlib

    matplotlib.use("svg" if target.suffix == ".svg" else "agg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "eyas"
    colours = {way.name: way.colour for way in ways(Path(), Path(), "", True)}
    said = {"eyas": "eyas, a store", "folder": "eyas, a folder", "plain": "plain cat, cp", "chirp": "Chirp"}
    figure, axes = plt.subplots(1, 3, figsize=(14.5, 5.2))
    axes[1].sharey(axes[0])
    link = measured["link_bytes_per_s"] / 1e6
    for axis, place in zip(axes, ("local", "network")):
        for name, colour in colours.items():
            for to, line in (("memory", "-"), ("disk", "--")):
                rows = [
                    row
                    for row in measured["sizes"]
                    if (row["way"], row["to"], row["place"]) == (name, to, place)
                ]
                if rows:
                    xs = [row["megabytes"] for row in rows]
                    ys = [megabytes_per_s(row["megabytes"], row["seconds"]) for row in rows]
                    axis.plot(xs, ys, line, marker=".", color=colour, label=f"{said[name]}, to {to}")
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("size of the file (MB)")
        axis.set_ylabel("observed bandwidth (MB/s)")
        axis.set_title("on the server's own host" if place == "local" else "over the network, 1 Gbit/s")
        axis.axhline(link, color="black", lw=0.8, ls=":")
        axis.text(1, link * 1.04, "1 Gbit/s, also the paper's switch", fontsize=7)
    # What the text of the paper says of its left frame.
    for axis in axes[:2]:
        axis.axvspan(2, 100, color="#dddddd", alpha=0.5, lw=0)
        axis.axvspan(500, 2000, color="#f3d9c9", alpha=0.6, lw=0)
        high = axis.get_xaxis_transform()
        axis.text(
            14, 0.98, "paper: local is\nclearly better", ha="center", va="top", fontsize=7, transform=high
        )
        axis.text(1000, 0.98, "paper:\nslower", ha="center", va="top", fontsize=7, transform=high)
    axis = axes[2]
    for name, colour in colours.items():
        for to, line in (("memory", "-"), ("disk", "--")):
            rows = [row for row in measured["crowds"] if (row["way"], row["to"]) == (name, to)]
            if rows:
                ys = [measured["crowd_megabytes"] / statistics.mean(row["seconds"]) for row in rows]
                axis.plot([row["n_clients"] for row in rows], ys, line, marker=".", color=colour)
    counts = sorted({row["n_clients"] for row in measured["crowds"]})
    axis.plot(counts, [link / n for n in counts], ":", color="black", lw=0.8)
    axis.text(counts[-1], link / counts[-1] * 0.8, "1 Gbit/s by the clients", ha="right", fontsize=7)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(counts, [str(n) for n in counts])
    axis.set_yticks([5, 10, 20, 50, 100], ["5", "10", "20", "50", "100"])
    axis.minorticks_off()
    axis.set_xlabel("clients at once")
    axis.set_ylabel("observed bandwidth of a client (MB/s)")
    axis.set_title(f"many clients, one server, {measured['crowd_megabytes']} MB")
    lines, names = axes[0].get_legend_handles_labels()
    figure.legend(lines, names, fontsize=8, loc="lower center", ncols=len(names))
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(target, metadata={"Date": None} if target.suffix == ".svg" else None)


def main() -> int:
    parser = argparse.ArgumentParser(description="Bandwidth of ways to a file: figure 2 of Wozniak06.")
    parser.add_argument("--out", type=Path, help="measure, and write the numbers here")
    parser.add_argument("--draw", type=Path, help="draw these numbers, which an earlier run wrote")
    parser.add_argument("--svg", type=Path, help="the figure, an SVG or PNG file")
    parser.add_argument(
        "--eyas", type=Path, default=shutil.which("eyas"), help="the program eyas [on the PATH]"
    )
    parser.add_argument("--dir", type=Path, help="folder for the files, 20 GB [the temporary one]")
    parser.add_argument("--megabytes", nargs="+", type=int, default=[1, 4, 16, 64, 256, 1024, 2048])
    parser.add_argument("--large-times", type=int, default=1, help="how often more than 256 MB are read [1]")
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 2, 4, 8, 16])
    parser.add_argument(
        "--crowd-megabytes",
        type=int,
        default=128,
        help="of the file for many clients; 500 in the paper [128]",
    )
    args = parser.parse_args()
    if (args.out is None) == (args.draw is None):
        parser.error("say --out FILE to measure, or --draw FILE")
    if args.out and args.eyas is None:
        parser.error("there is no program eyas on the PATH: say --eyas")
    try:
        if args.out:
            with tempfile.TemporaryDirectory(prefix="eyas-rmsd-", dir=args.dir) as folder:
                measured = measure(args, Path(folder))
            args.out.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
        else:
            measured = json.loads(args.draw.read_text(encoding="utf-8"))
        if args.svg:
            draw(measured, args.svg)
    except (OSError, HostError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
