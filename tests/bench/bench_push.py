"""An active push to nodes with slow links, beside the time that its bytes need through one link.

    python tests/bench/bench_push.py [--nodes 8] [--megabytes 256] [--files 16] [--mbit 100] [--home folder|http] [--rounds 3]
                               [--dir DIR] [--eyas PATH]

Nodes are network namespaces on this machine, each with a link of `--mbit` in each direction, and one more host has the dispatcher. Home
is a folder that all hosts see, as a mounted disk that is no bottleneck; or a web server on the dispatcher's host, whose link is
limited like the others. Each round starts a cluster with cold caches, and times `eyas warm` by its own report. All copies have to be
there. It needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.extend(str(Path(__file__).parents[1] / folder) for folder in ("lib", "weather"))

from spaces import Host, hosts

PORT = 8000


def limit(host: Host, bridge: str, end: str, mbit: int) -> None:
    """Limits what the host sends, and what it receives."""
    words = ["root", "tbf", "rate", f"{mbit}mbit", "burst", "64kb", "latency", "50ms"]
    for space, device in [(host.space, "eth0"), (bridge, end)]:
        subprocess.run(["tc", "-n", space, "qdisc", "add", "dev", device, *words], check=True)


def wait_for(path: Path, text: str, parts: dict[Path, subprocess.Popen[bytes]], n: int = 1) -> None:
    """Waits until the file has the text `n` times. Ends where a part has ended, whose log is `parts`' key."""
    while not path.is_file() or path.read_text(errors="replace").count(text) < n:
        for log, part in parts.items():
            if part.poll() is not None:
                sys.exit(
                    f"{log.stem} has ended: {log.read_text(errors='replace').strip() or 'it said nothing'}"
                )
        time.sleep(0.05)


def measure(folder: Path, at: list[Host], eyas: Path, places: list[str]) -> tuple[float, int]:
    """Seconds of one push with cold caches, and the bytes that all nodes received."""
    folder.mkdir()
    head, *nodes = at
    state, join = folder / "dispatcher", folder / "dispatcher" / "join.json"
    env = {**os.environ, "EYAS_STATE": str(folder / "state")}
    parts: dict[Path, subprocess.Popen[bytes]] = {}
    with ExitStack() as stack:

        def start(host: Host, name: str, *words: str | Path) -> None:
            path = folder / f"{name}.log"
            with path.open("wb") as log:
                part = subprocess.Popen([host.enter, eyas, *words], stdout=log, stderr=log, env=env)
            parts[path] = part
            stack.callback(part.wait, 30)
            stack.callback(part.terminate)

        start(head, "dispatcher", "dispatcher", "--dir", state, "--listen", f"{head.address}:0")
        wait_for(join, "{", parts)
        for host in nodes:
            own: list[str | Path] = ["--dir", folder / host.name, "--name", host.name, "--slots", "1"]
            data: list[str | Path] = ["--data-listen", f"{host.address}:0", "--data-plane", "signed"]
            start(host, host.name, "executor", "--join", join, *own, *data)
        wait_for(state / "events.jsonl", '"executor_joined"', parts, len(nodes))
        before = sum(host.received_bytes() for host in nodes)
        command = [str(head.enter), str(eyas), "warm", *places, "--join", str(join), "--json"]
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
        push = json.loads(done.stdout)
        received = sum(host.received_bytes() for host in nodes) - before
    if push["n_there"] != push["n_wanted"]:
        sys.exit(f"not everything was pushed: {push}")
    return (push["ended"] - push["began"]) / 1e9, received


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--megabytes", type=int, default=256, help="of all files together")
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--mbit", type=int, default=100)
    parser.add_argument("--home", choices=["folder", "http"], default="folder")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--eyas", type=Path, default=Path(os.environ.get("EYAS_BIN", "eyas")))
    args = parser.parse_args()
    names = ["head", *(f"n{i}" for i in range(args.nodes))]
    with tempfile.TemporaryDirectory(dir=args.dir) as made, ExitStack() as stack:
        folder, mark = Path(made), f"bp{os.getpid() % 10_000}"
        files = folder / "files"
        files.mkdir()
        size = args.megabytes * 1_000_000 // args.files
        for i in range(args.files):
            (files / f"f{i:03}").write_bytes(os.urandom(size))
        at = stack.enter_context(hosts(folder, mark, "10.96.7", names))
        for i, host in enumerate(at):
            limit(host, f"{mark}b", f"ve{i}", args.mbit)
        places = [str(files)]
        if args.home == "http":
            served = [str(at[0].enter), sys.executable, "-m", "http.server", str(PORT), "-d", str(files)]
            server = subprocess.Popen(served, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(server.wait, 30)
            stack.callback(server.terminate)
            time.sleep(1)
            places = [f"http://{at[0].address}:{PORT}/f{i:03}" for i in range(args.files)]
        least_s = size * args.files * 8 / (args.mbit * 1e6)
        found = []
        for n in range(args.rounds):
            took_s, received = measure(folder / f"round{n}", at, args.eyas, places)
            found.append(took_s)
            ratio = took_s / least_s
            print(
                f"round {n}: {took_s:.2f} s, {ratio:.2f} of size / link, nodes received {received / 1e6:,.0f} MB"
            )
        median_s = statistics.median(found)
        print(
            f"{args.megabytes} MB in {args.files} files to {args.nodes} nodes at {args.mbit} Mbit/s, home {args.home}: "
            f"{median_s:.2f} s, size / link {least_s:.2f} s, ratio {median_s / least_s:.2f}"
        )


if __name__ == "__main__":
    main()
