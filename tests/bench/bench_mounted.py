"""Move the work or the data, with a real MooseFS and a real GlusterFS: executors that are asked where files lie, or are not.

    python tests/bench/bench_mounted.py [--files 40] [--megabytes 12] [--passes 4] [--dir DIR] [--system moosefs]

Three hosts are network namespaces: one has the dispatcher (and the master of MooseFS), and each of the others has a server of the file
system and an executor of one slot. Each file lies on one of the two. A map reads each file in several tasks. Once the executors say
that they are on the servers' hosts, and once that they are elsewhere. Counted is what the two hosts receive from others, headers and
heartbeats included. Needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.extend(str(Path(__file__).parents[1] / folder) for folder in ("lib", "weather"))

from mounted import Mounted, gluster, moose
from spaces import Host, hosts

EYAS = Path(os.environ.get("EYAS_BIN") or Path(sys.prefix) / "bin" / "eyas")
SYSTEMS = {"moosefs": moose, "gluster": gluster}


def measure(
    folder: Path, mounted: Mounted, all_hosts: list[Host], names: list[str], passes: int, is_near: bool
) -> tuple[float, float]:
    """Bytes that came over the network in one run of the map, in MB, and its seconds."""
    folder.mkdir()
    head, *members = all_hosts
    lines = []
    for turn in range(passes):
        for name in names:
            path = str(mounted.point / name)
            task = {"id": f"{turn}-{name}", "command": "cat x > /dev/null", "inputs": {"x": path}}
            lines.append(json.dumps(task) + "\n")
    (folder / "tasks.jsonl").write_text("".join(lines))
    at_head = mounted.on(head.name, EYAS, folder)
    join = folder / "D" / "join.json"

    def ask(verb: str, *words: str | Path) -> str:
        command = [str(at_head), verb, "--join", str(join), *(str(word) for word in words)]
        done = subprocess.run(command, check=verb != "status", capture_output=True, text=True)
        return done.stdout

    command: list[str | Path] = [
        at_head,
        "dispatcher",
        "--dir",
        folder / "D",
        "--listen",
        f"{head.address}:0",
    ]
    parts = [subprocess.Popen(command, stderr=subprocess.DEVNULL)]
    try:
        while not join.exists():
            time.sleep(0.05)
        for host in members:
            program = mounted.on(host.name, EYAS, folder)
            words: list[str | Path] = [
                "--join",
                join,
                "--dir",
                folder / host.name,
                "--name",
                f"executor-{host.name}",
            ]
            words += ["--slots", "1", "--data-listen", f"{host.address}:0"]
            if not is_near:
                words += ["--host", f"elsewhere-{host.name}"]
            parts.append(subprocess.Popen([program, "executor", *words], stderr=subprocess.DEVNULL))
        while ask("status").count("connected") < len(members):
            time.sleep(0.1)
        before = sum(host.received_bytes() for host in members)
        begun = time.monotonic()
        ask("submit", folder / "tasks.jsonl")
        ask("wait")
        seconds = time.monotonic() - begun
        received = sum(host.received_bytes() for host in members) - before
    finally:
        for part in reversed(parts):
            part.terminate()
            part.wait()
    return received / 1e6, seconds


def main() -> int:
    parser = argparse.ArgumentParser(description="Move the work or the data, with MooseFS and GlusterFS.")
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--megabytes", type=int, default=12)
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--system", choices=list(SYSTEMS), action="append")
    args = parser.parse_args()
    read = args.files * args.megabytes * args.passes
    print(
        f"{args.files} files of {args.megabytes} MB, each read by {args.passes} tasks: {read} MB; two executors of one slot"
    )
    print(f"{'':10}{'':>14}{'asked':>12}{'elsewhere':>12}")
    for system in args.system or SYSTEMS:
        with tempfile.TemporaryDirectory(dir=args.dir) as made:
            folder = Path(made)
            servers = folder / "servers"
            servers.mkdir()
            with (
                hosts(folder, f"bm{os.getpid() % 10_000}", "10.94.10", ["g0", "g1", "g2"]) as three,
                SYSTEMS[system](servers, three[0], three[1:]) as mounted,
            ):
                # Each run has files of its own: what a mount has read before, the kernel may still have.
                found = {}
                for is_near in (False, True):
                    names = [f"{is_near}-{n:03}" for n in range(args.files)]
                    for name in names:
                        mounted.write(three[0].name, name, os.urandom(args.megabytes * 1_000_000))
                    at = folder / f"near-{is_near}"
                    found[is_near] = measure(at, mounted, three, names, args.passes, is_near)
                on_first = sum(mounted.host_of(name) == three[1].name for name in names)
        near, away = found[True], found[False]
        print(f"{system:10}{'received, MB':>14}{near[0]:>12.1f}{away[0]:>12.1f}")
        print(f"{'':10}{'of all read, %':>14}{100 * near[0] / read:>12.1f}{100 * away[0] / read:>12.1f}")
        print(f"{'':10}{'seconds':>14}{near[1]:>12.1f}{away[1]:>12.1f}")
        print(f"{'':10}{on_first} of the asked run's files lie on g1, {args.files - on_first} on g2")
    return 0


if __name__ == "__main__":
    sys.exit(main())
