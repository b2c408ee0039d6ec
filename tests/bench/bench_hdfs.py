"""Move the work or the data, with a real HDFS: executors that are on the hosts of the data nodes, and executors that are not.

    python tests/bench/bench_hdfs.py [--files 40] [--megabytes 12] [--passes 4] [--dir DIR]

A name node and two data nodes run on this machine, each data node under an address of its own; each file is one block on one of
them. A map reads each file in several tasks, on two executors with cold caches. Once the executors say that they are on the data
nodes' hosts, and once that they are elsewhere. Counted are the bytes that would have crossed a network: what came from another
executor, and what came from a data node on another host. All that is read has to be what was written.
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
from typing import Any

sys.path.extend(str(Path(__file__).parents[1] / folder) for folder in ("lib", "weather"))

from hdfs import Hdfs, hdfs

HOSTS = ("127.0.0.2", "127.0.0.3")
EYAS = Path(sys.prefix) / "bin" / "eyas"


def entries(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def measure(
    folder: Path, store: Hdfs, names: list[str], passes: int, hosts: tuple[str, ...]
) -> dict[str, float]:
    """One cluster with an executor for each of `hosts`, and one run of the map."""
    folder.mkdir()
    lines = []
    for turn in range(passes):
        for name in names:
            task = {"id": f"{turn}-{name}", "command": "cat x > /dev/null", "inputs": {"x": store.url(name)}}
            lines.append(json.dumps(task) + "\n")
    (folder / "tasks.jsonl").write_text("".join(lines))
    state, join = folder / "D", folder / "D" / "join.json"
    parts = [subprocess.Popen([EYAS, "dispatcher", "--dir", state], stderr=subprocess.DEVNULL)]
    try:
        while not join.exists():
            time.sleep(0.05)
        for n, host in enumerate(hosts):
            given: list[str | Path] = [
                "--join",
                join,
                "--dir",
                folder / f"N{n}",
                "--name",
                host,
                "--host",
                host,
                "--slots",
                "1",
            ]
            parts.append(subprocess.Popen([EYAS, "executor", *given], stderr=subprocess.DEVNULL))
        while subprocess.run([EYAS, "status", "--join", join], capture_output=True, text=True).stdout.count(
            "connected"
        ) < len(hosts):
            time.sleep(0.1)
        begun = time.monotonic()
        subprocess.run(
            [EYAS, "submit", "--join", join, folder / "tasks.jsonl"], check=True, capture_output=True
        )
        subprocess.run([EYAS, "wait", "--join", join], check=True, capture_output=True)
        seconds = time.monotonic() - begun
    finally:
        for part in reversed(parts):
            part.terminate()
            part.wait()
    at = {store.url(name): {host for block in store.hosts(name) for host in block} for name in names}
    host_of: dict[int, str] = {}
    cost = {"read": 0.0, "home, same host": 0.0, "home, other host": 0.0, "peers": 0.0, "seconds": seconds}
    for entry in entries(state / "events.jsonl"):
        event = entry.get("in")
        if not isinstance(event, dict):
            continue
        if "executor_joined" in event:
            host_of[event["executor_joined"]["executor"]] = event["executor_joined"]["offer"]["name"]
        if "attempt_ended" in event:
            report = event["attempt_ended"]["report"]
            assert report["outcome"] == "done", report
            url = store.url(names[report["task"] % len(names)])
            for one in report["inputs"]:
                size, outcome = one["size_bytes"] / 1e6, one["outcome"]
                cost["read"] += size
                if isinstance(outcome, dict):
                    cost["peers"] += size
                elif outcome in ("miss", "direct"):
                    near = host_of[event["attempt_ended"]["executor"]] in at[url]
                    cost["home, same host" if near else "home, other host"] += size
    return cost


def main() -> int:
    parser = argparse.ArgumentParser(description="Move the work or the data, with a real HDFS.")
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--megabytes", type=int, default=12)
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--dir", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.dir) as made:
        folder = Path(made)
        with hdfs(folder, HOSTS) as store:
            names = [f"in/{n:03}" for n in range(args.files)]
            for name in names:
                store.put(name, os.urandom(args.megabytes * 1_000_000))
            away = measure(folder / "away", store, names, args.passes, ("elsewhere1", "elsewhere2"))
            near = measure(folder / "near", store, names, args.passes, HOSTS)
    print(
        f"{args.files} files of {args.megabytes} MB, each read by {args.passes} tasks; two executors of one slot"
    )
    print(f"{'':34}{'collocated':>12}{'elsewhere':>12}")
    for key in ("read", "home, same host", "home, other host", "peers", "seconds"):
        unit = "s" if key == "seconds" else "MB"
        print(f"{key:30}{unit:>4}{near[key]:>12.1f}{away[key]:>12.1f}")
    share = [100 * (cost["home, other host"] + cost["peers"]) / cost["read"] for cost in (near, away)]
    print(f"{'over the network, of all read':30}{'%':>4}{share[0]:>12.1f}{share[1]:>12.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
