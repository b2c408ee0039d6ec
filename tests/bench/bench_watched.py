"""What it costs to watch programs, beside the same tasks with their files declared.

    python tests/bench/bench_watched.py [--tasks 200] [--files 20] [--rounds 3] [--dir DIR] [--eyas PATH]

Each task is one `cat` of small files of a folder into one output. By turns the list runs watched, and declared as `--to-list` wrote it.
Each run has a cluster of its own with cold caches and one slot, and its time is the one that it says itself. The outputs have to be
equal, byte for byte.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path


def run(eyas: Path, folder: Path, *words: str) -> float:
    """Seconds from the first task's beginning to the last one's end."""
    env = {**os.environ, "EYAS_STATE": str(folder / "state")}
    command = [str(eyas), "run", *words, "--slots", "1", "--json"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    status = json.loads(done.stdout)
    return float(status["ended"] - status["opened"]) / 1e9


def digest(folder: Path, n_tasks: int) -> str:
    whole = hashlib.sha256()
    for task in range(n_tasks):
        made = folder / f"out-{task}"
        whole.update(made.read_bytes())
        made.unlink()
    return whole.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--files", type=int, default=20, help="that each task reads")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--eyas", type=Path, default=Path(os.environ.get("EYAS_BIN", "eyas")))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.dir) as made:
        folder = Path(made)
        (folder / "data").mkdir()
        lines = []
        for task in range(args.tasks):
            names = [f"data/{task}-{n}" for n in range(args.files)]
            for name in names:
                (folder / name).write_bytes(os.urandom(1000))
            command = f"cat {' '.join(names)} > out-{task}"
            lines.append(json.dumps({"id": str(task), "command": command, "watch": True}))
        (folder / "watched.jsonl").write_text("\n".join(lines) + "\n")
        run(args.eyas, folder, "watched.jsonl", "--to-list", "declared.jsonl")
        right = digest(folder, args.tasks)
        took: dict[str, list[float]] = {"watched": [], "declared": []}
        for _ in range(args.rounds):
            for way, times in took.items():
                times.append(run(args.eyas, folder, f"{way}.jsonl"))
                if digest(folder, args.tasks) != right:
                    sys.exit(f"the outputs of the {way} run are other ones")
        for way, times in took.items():
            all_times = ", ".join(f"{time:.2f}" for time in times)
            print(f"{way}: {statistics.median(times):.2f} s (each: {all_times})")
        extra = statistics.median(took["watched"]) - statistics.median(took["declared"])
        n_files = args.tasks * args.files
        print(
            f"more for each file: {extra / n_files * 1e6:.0f} µs, for each task: {extra / args.tasks * 1e3:.2f} ms"
        )


if __name__ == "__main__":
    main()
