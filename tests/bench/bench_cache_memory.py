"""How long programs read a file of their node's cache, with and without `--cache-memory`, where memory is scarce.

    python tests/bench/bench_cache_memory.py [--hot 150] [--cold 200] [--tasks 10] [--limit 448] [--memory 192] [--disk-rate 100]
                                             [--eviction lru] [--rounds 3] [--dir DIR] [--eyas PATH]

Each task reads one file that all tasks read (`--hot`, MB) and then one of its own (`--cold`, MB), one task after the other. The cluster
and its programs run in a control group that may have `--limit` MiB of memory (0: no limit) and reads `--disk-rate` MB/s from the disk
(0: no limit), so that the files of the tasks' own push the common one out of the kernel's memory. A round has both kinds by turns, each
with a cold cache. What is printed is the time in which a task has read the common file, without the first task, which fetches it. It
needs root and control groups of version 1 or 2 that may be made.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


@contextmanager
def bounded(mark: str, limit_mib: int, disk_mb: int, folder: Path) -> Iterator[list[Path]]:
    """The files that a process writes its number to, to be bounded."""
    device = os.stat(folder).st_dev
    disk = f"{os.major(device)}:{os.minor(device)}"
    if (ROOT / "memory").is_dir():
        groups = [ROOT / "memory" / mark, ROOT / "blkio" / mark]
        limits = [
            (groups[0] / "memory.limit_in_bytes", str(limit_mib << 20), limit_mib),
            (groups[1] / "blkio.throttle.read_bps_device", f"{disk} {disk_mb * 1_000_000}", disk_mb),
        ]
    else:
        (ROOT / "cgroup.subtree_control").write_text("+memory +io")
        groups = [ROOT / mark]
        limits = [
            (groups[0] / "memory.max", str(limit_mib << 20), limit_mib),
            (groups[0] / "io.max", f"{disk} rbps={disk_mb * 1_000_000}", disk_mb),
        ]
    made = []
    try:
        for group in groups:
            group.mkdir()
            made.append(group)
        for path, text, wanted in limits:
            if wanted:
                path.write_text(text)
        yield [group / "cgroup.procs" for group in groups]
    finally:
        for group in made:
            group.rmdir()


def measure(
    folder: Path, tasks: Path, words: list[str], groups: list[Path], eyas: Path
) -> tuple[list[float], float]:
    """Seconds in which each task but the first has read the common file, and the share of these that had it in memory."""
    folder.mkdir()
    enter = " && ".join(f"echo $$ > {path}" for path in groups)
    command = ["sh", "-c", f'{enter} && exec "$@"', "sh", str(eyas), "run", str(tasks)]
    command += ["--nodes", "1", "--slots", "1", "--dir", str(folder / "run"), *words]
    env = {**os.environ, "EYAS_STATE": str(folder / "state")}
    subprocess.run(
        command, check=True, env=env, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    n_tasks = len(tasks.read_text().splitlines())
    took = [int((folder.parent / f"took-{n}").read_text()) / 1e9 for n in range(1, n_tasks)]
    held = []
    for log in sorted((folder / "run").rglob("events.jsonl")):
        for line in log.read_text().splitlines():
            if '"attempt_ended"' in line:
                report = json.loads(line)["in"]["attempt_ended"]["report"]
                if report["task"] > 0:
                    held.append(0 in report.get("in_memory", []))
    return took, sum(held) / max(1, len(held))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hot", type=int, default=150, help="MB")
    parser.add_argument("--cold", type=int, default=200, help="MB")
    parser.add_argument("--tasks", type=int, default=10)
    parser.add_argument("--limit", type=int, default=448, help="MiB, 0: none")
    parser.add_argument("--memory", type=int, default=192, help="MiB of --cache-memory")
    parser.add_argument("--disk-rate", type=int, default=100, help="MB/s, 0: no limit")
    parser.add_argument("--eviction", default="lru")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--eyas", type=Path, default=Path(os.environ.get("EYAS_BIN", "eyas")))
    args = parser.parse_args()
    eyas = Path(shutil.which(args.eyas) or sys.exit(f"there is no {args.eyas}")).absolute()
    with tempfile.TemporaryDirectory(dir=args.dir) as made:
        folder = Path(made)

        def file(name: str, megabytes: int) -> str:
            path = folder / name
            with path.open("wb") as out:
                for _ in range(megabytes):
                    out.write(os.urandom(1_000_000))
            return str(path)

        hot = file("hot", args.hot)
        lines = []
        for n in range(args.tasks):
            read = "begin=$(date +%s%N); cat a > /dev/null; end=$(date +%s%N); cat b > /dev/null; echo $((end - begin)) > took"
            inputs = {"a": hot, "b": file(f"cold-{n}", args.cold)}
            outputs = {"took": str(folder / f"took-{n}")}
            lines.append(json.dumps({"id": f"t{n}", "command": read, "inputs": inputs, "outputs": outputs}))
        tasks = folder / "tasks.jsonl"
        tasks.write_text("\n".join(lines) + "\n")
        common = ["--cache", f"{args.hot + 3 * args.cold}MB", "--eviction", args.eviction]
        kinds = {"disk": [], "memory": ["--cache-memory", f"{args.memory}MiB"]}
        found: dict[str, list[float]] = {name: [] for name in kinds}
        with bounded(f"eyas-bench-{os.getpid()}", args.limit, args.disk_rate, folder) as groups:
            for n in range(args.rounds):
                for name, words in kinds.items():
                    took, share = measure(folder / f"{name}-{n}", tasks, [*common, *words], groups, eyas)
                    subprocess.run(["rm", "-rf", str(folder / f"{name}-{n}")], check=True)
                    found[name] += took
                    print(
                        f"round {n}, {name}: {statistics.median(took):.3f} s, in memory for {share:.0%} of tasks",
                        flush=True,
                    )
        disk, memory = (statistics.median(found[name]) for name in kinds)
        print(
            f"{args.hot} MB read by {args.tasks} tasks, {args.cold} MB of each task's own, limit {args.limit} MiB, disk {args.disk_rate} "
            f"MB/s: {disk:.3f} s from the disk, {memory:.3f} s with --cache-memory {args.memory}MiB, {disk / memory:.2f} times as fast"
        )


if __name__ == "__main__":
    main()
