"""All pairs, or shared files, at three sites with slow links between them, by turns with and without knowledge of the network.

    python tests/bench/bench_sites.py [--items 24] [--readers 0] [--megabytes 5] [--seconds 0.5] [--mbit 50] [--round-trip-ms 10] [--shared] [--rounds 1] [--ways off,measured]
                                [--dir DIR] [--eyas PATH]

Sites are network namespaces on this machine: two nodes with two slots at each, and one more host at the first site for the dispatcher
and a web server, which is home. The link between two sites is limited; inside a site nothing is. A task sleeps, so processors
are hardly used. With `--round-trip-ms 0` links have no length: a round trip says nothing until a link is full. It needs root.
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

from spaces import Host, Site, sites

HOSTS = {"near": ["head", "n0", "n1"], "mid": ["m0", "m1"], "far": ["f0", "f1"]}
PORT = 8000


def wait_for(path: Path, text: str, n: int = 1) -> None:
    while not path.is_file() or path.read_text(errors="replace").count(text) < n:
        time.sleep(0.05)


def write_inputs(folder: Path, home: str, args: argparse.Namespace) -> Path:
    """Two sets of items, and a task for each pair of them; or one set, of which so many tasks read each one. The task list."""
    files = folder / "files"
    files.mkdir()
    numbers = range(args.items)
    first = [f"a{i}" for i in numbers]
    second = [] if args.readers else [f"b{i}" for i in numbers]
    for name in first + second:
        (files / name).write_bytes(os.urandom(args.megabytes * 1_000_000))
    # As a list comes that somebody wrote, file by file.
    pairs = [[a, b] for a in first for b in second]
    wanted = pairs or [[a] for a in first for _ in range(args.readers)]
    tasks = [
        {
            "id": f"{at}",
            "command": f"sleep {args.seconds}; cat {' '.join(names)} > /dev/null",
            "inputs": {name: f"{home}/{name}" for name in names},
        }
        for at, names in enumerate(wanted)
    ]
    listed = folder / "tasks.jsonl"
    listed.write_text("".join(json.dumps(task) + "\n" for task in tasks))
    return listed


def measure(folder: Path, at: dict[str, Site], eyas: Path, way: str, listed: Path) -> tuple[float, float]:
    """Seconds of one run with cold caches, and megabytes that came into all sites over their links."""
    folder.mkdir()
    head, *nodes = [host for site in at.values() for host in site.hosts]
    state, join = folder / "dispatcher", folder / "dispatcher" / "join.json"
    env = {**os.environ, "EYAS_STATE": str(folder / "state")}

    def start(host: Host, name: str, *words: str | Path) -> subprocess.Popen[bytes]:
        with (folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen([host.enter, eyas, *words], stdout=log, stderr=log, env=env)

    with ExitStack() as stack:

        def keep(part: subprocess.Popen[bytes]) -> None:
            stack.callback(part.wait, 30)
            stack.callback(part.terminate)

        listen = f"{head.address}:0"
        keep(start(head, "dispatcher", "dispatcher", "--dir", state, "--listen", listen, "--network", way))
        wait_for(join, "{")
        for host in nodes:
            words: list[str | Path] = [
                "executor",
                "--join",
                join,
                "--dir",
                folder / host.name,
                "--name",
                host.name,
                "--slots",
                "2",
            ]
            keep(
                start(host, host.name, *words, "--data-listen", f"{host.address}:0", "--data-plane", "signed")
            )
        wait_for(state / "events.jsonl", '"executor_joined"', len(nodes))
        before, begun = sum(site.crossed_bytes()[0] for site in at.values()), time.monotonic()
        run = start(head, "run", "run", listed, "--join", join)
        if run.wait() != 0:
            sys.exit(f"the run with --network {way} failed:\n{(folder / 'run.log').read_text()}")
        took_s = time.monotonic() - begun
        crossed = sum(site.crossed_bytes()[0] for site in at.values()) - before
    return took_s, crossed / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=24)
    parser.add_argument(
        "--readers", type=int, default=0, help="in place of pairs, so many tasks read each of the items"
    )
    parser.add_argument("--megabytes", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--mbit", type=int, default=50)
    parser.add_argument("--round-trip-ms", type=float, default=10, help="between two sites")
    parser.add_argument(
        "--shared",
        action="store_true",
        help="one link of each site to all others, in place of one for each two",
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--ways", default="off,measured", help="of off, ping, passive, measured")
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--eyas", type=Path, default=Path(os.environ.get("EYAS_BIN", "eyas")))
    args = parser.parse_args()
    ways = args.ways.split(",")
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory(dir=args.dir) as made:
        folder = Path(made)
        with sites(
            folder,
            f"bs{os.getpid() % 10_000}",
            "10.95.7",
            HOSTS,
            args.mbit,
            args.round_trip_ms,
            not args.shared,
        ) as at:
            head = at["near"].hosts[0]
            home = f"http://{head.address}:{PORT}"
            listed = write_inputs(folder, home, args)
            serve = [sys.executable, "-m", "http.server", str(PORT), "--bind", head.address]
            with (folder / "web.log").open("wb") as log:
                web = subprocess.Popen([head.enter, *serve], cwd=folder / "files", stdout=log, stderr=log)
            try:
                for turn in range(args.rounds):
                    for way in ways if turn % 2 == 0 else reversed(ways):
                        took_s, megabytes = measure(folder / f"{way}-{turn}", at, args.eyas, way, listed)
                        found[way].append((took_s, megabytes))
                        print(f"{way:>9} {took_s:7.1f} s {megabytes:8.0f} MB between sites", flush=True)
            finally:
                web.terminate()
                web.wait(20)
    first = statistics.median(took_s for took_s, _ in found[ways[0]])
    for way in ways[1:]:
        took_s = statistics.median(took_s for took_s, _ in found[way])
        print(f"{way}: {took_s / first:.2f} of the time of {ways[0]}")


if __name__ == "__main__":
    main()
