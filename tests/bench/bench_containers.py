"""What a container costs a task: tasks in a container beside the same tasks without, and beside unpacking the image in each.

    python tests/bench/bench_containers.py [--files 20000] [--megabytes 500] [--tasks 1000] [--rounds 3] [--dir DIR]

A node of one slot makes the container of an image with so many files for a first task. Then, in each round, it runs the tasks
(`busybox true`, which is in the image and on the node) without a container and in it, by turns. The time of each is printed,
and what the executor measures of each task, from the start of bubblewrap until all has ended: the program does nothing, so
that is the time that the container takes. One task unpacks the image for itself.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path


def pack(path: Path, n_files: int, n_bytes: int) -> None:
    """A root file system with busybox, and files as an environment of Python has them."""
    with tarfile.open(path, "w") as archive:
        archive.add("/bin/busybox", "bin/busybox")
        for name in ("sh", "true", "tar"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
        for i in range(n_files):
            entry = tarfile.TarInfo(f"usr/lib/environment/{i // 100}/{i}.py")
            entry.size = n_bytes // n_files
            archive.addfile(entry, io.BytesIO(os.urandom(16) * (entry.size // 16 + 1)))


class Bench:
    def __init__(self, program: str, folder: Path) -> None:
        self.program, self.folder = program, folder
        self.n_lists = 0
        self.join = folder / "cluster" / "dispatcher" / "join.json"
        self.eyas("up", "--dir", str(folder / "cluster"), "--nodes", "1", "--slots", "1", "--cache", "8GiB")

    def eyas(self, *words: str) -> str:
        done = subprocess.run([self.program, *words], capture_output=True, text=True, cwd=self.folder)
        if done.returncode != 0:
            sys.exit(f"eyas {' '.join(words)} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def run(self, label: str, n_tasks: int, **task: object) -> float:
        """Seconds until all have ended."""
        self.n_lists += 1
        tasks = self.folder / f"{self.n_lists}.jsonl"
        line = {"label": label, **task}
        tasks.write_text("".join(json.dumps({"id": f"{label}{i}", **line}) + "\n" for i in range(n_tasks)))
        begun = time.monotonic()
        self.eyas("submit", "--join", str(self.join), tasks.name)
        self.eyas("wait", "--join", str(self.join))
        return time.monotonic() - begun

    def ran_s(self) -> list[float]:
        """For each attempt of the event log, from the start of what the executor started to its end."""
        found = []
        for log in sorted((self.folder / "cluster").rglob("events*.jsonl*")):
            for line in log.read_text(errors="replace").splitlines():
                if '"attempt_ended"' in line:
                    times = json.loads(line)["in"]["attempt_ended"]["report"]["times"]
                    found.append((times["exited"] - times["started"]) / 1e9)
        return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", help="a folder for all of it [default: one for temporary files]")
    args = parser.parse_args()
    program = os.environ.get("EYAS_BIN", "eyas")
    with tempfile.TemporaryDirectory(dir=args.dir) as folder:
        bench = Bench(program, Path(folder))
        try:
            measure(bench, args)
        finally:
            bench.eyas("down", "--join", str(bench.join))


def measure(bench: Bench, args: argparse.Namespace) -> None:
    image = bench.folder / "image.tar"
    pack(image, args.files, args.megabytes * 1_000_000)
    contained = {"command": ["/bin/busybox", "true"], "container": str(image)}
    first = bench.run("first", 1, **contained)
    print(f"the first task in the container, with its making: {first:.2f} s")
    unpack = "mkdir d && tar -xf image.tar -C d && chmod -R u+w d"
    alone = bench.run("alone", 1, command=unpack, inputs=[str(image)])
    print(f"a task that unpacks the image for itself: {alone:.2f} s")
    ratios, starts = [], []
    for _ in range(args.rounds):
        plain = bench.run("plain", args.tasks, command=["/bin/busybox", "true"])
        n_before = len(bench.ran_s())
        inside = bench.run("inside", args.tasks, **contained)
        ran = sorted(bench.ran_s()[n_before:])
        starts += ran
        ratios.append(inside / plain)
        print(
            f"{args.tasks} tasks: {plain:.2f} s without a container, {inside:.2f} s in one, ratio {ratios[-1]:.2f}; "
            f"from start to end in the container: median {1000 * ran[len(ran) // 2]:.2f} ms, "
            f"99 % within {1000 * ran[len(ran) * 99 // 100]:.2f} ms"
        )
    starts.sort()
    print(
        f"median of the ratios {statistics.median(ratios):.2f}; median of all tasks {1000 * starts[len(starts) // 2]:.2f} ms; "
        f"load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
