"""Measurements on a real Slurm of this machine; a script and no test.

    .venv/bin/python tests/bench/bench_slurm.py start [--rounds N] [--eyas PATH]
    .venv/bin/python tests/bench/bench_slurm.py calls [--minutes M] [--blocks N] [--eyas PATH]

`start`: from the command `eyas run` to the start of its first task, by turns with a job of `sbatch` that does the same, on a Slurm that
has nothing else to do. What counts is the difference.

`calls`: how often Slurm is asked during a run of so many minutes on so many blocks, as eyas says it and as commands that stand before
Slurm's note it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.extend(str(Path(__file__).parents[1] / folder) for folder in ("lib", "weather"))

from harness import ROOT, Eyas, wait_until
from slurm import N_NODES, Slurm, slurm
from test_weather_slurm import logged, names_in

NOTE = "date +%s.%N > {at}.part; mv {at}.part {at}"


def machine() -> str:
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} processors, load {load:.1f}"


def noted(at: Path) -> float:
    wait_until(at.exists, str(at))
    return float(at.read_text())


def by_sbatch(batch: Slurm, folder: Path) -> float:
    """Seconds from the command to the start of its job."""
    at = folder / "at"
    begun = time.time()
    batch.ask("sbatch", "--output=/dev/null", f"--wrap={NOTE.format(at=at)}")
    found = noted(at) - begun
    batch.empty()
    return found


def by_eyas(batch: Slurm, eyas: Eyas, folder: Path) -> float:
    """Seconds from the command to the start of its task."""
    at = folder / "at"
    tasks = folder / "tasks.jsonl"
    tasks.write_text(json.dumps({"id": "t", "command": NOTE.format(at=at)}) + "\n")
    begun = time.time()
    words = ["--provider", "slurm", "--slots", "1", "--listen", "127.0.0.1:0", "--nodes", "0..1"]
    eyas.run("run", tasks, *words)
    found = noted(at) - begun
    batch.empty()
    return found


def start(args: argparse.Namespace, top: Path) -> None:
    with slurm() as batch:
        eyas = Eyas(args.eyas, top / "eyas", "bench")
        eyas.env |= batch.env
        rows = []
        for n in range(args.rounds):
            folders = [top / f"{n}{kind}" for kind in ("s", "e")]
            for folder in folders:
                folder.mkdir()
            rows.append((by_sbatch(batch, folders[0]), by_eyas(batch, eyas, folders[1])))
            print(f"round {n + 1}: sbatch {rows[-1][0]:.2f} s, eyas run {rows[-1][1]:.2f} s", flush=True)
        theirs, ours = (statistics.median(column) for column in zip(*rows, strict=True))
        over = statistics.median(b - a for a, b in rows)
        print(f"medians: sbatch {theirs:.2f} s, eyas run {ours:.2f} s, difference {over:.2f} s; {machine()}")


def calls(args: argparse.Namespace, top: Path) -> None:
    with slurm(cpus=-(-args.blocks // N_NODES)) as batch:
        eyas = Eyas(args.eyas, top / "eyas", "bench")
        eyas.env |= batch.env
        log = logged(batch, eyas, top / "bin")
        seconds = 15
        n_tasks = int(args.minutes * 60 / seconds * args.blocks)
        tasks = top / "tasks.jsonl"
        line = json.dumps({"command": f"sleep {seconds}", "label": "nap"}) + "\n"
        tasks.write_text(line * n_tasks)
        words = ["--provider", "slurm", "--slots", "1", "--listen", "127.0.0.1:0", "--walltime", "1h"]
        words += ["--nodes", f"0..{args.blocks}"]
        done = eyas.run("run", tasks, *words, timeout=args.minutes * 60 + 600)
        batch.empty()
        said = re.findall(r"^(?:\d+ tasks in|the batch system).*$", done.stderr, re.M)
        print("eyas says:", "; ".join(said))
        names = names_in(log)
        print(
            f"Slurm's commands were run {len(names)} times:",
            {name: names.count(name) for name in sorted(set(names))},
        )
        controller = (batch.folder / "log" / "slurmctld.log").read_text()
        n_jobs = len(re.findall(r"_slurm_rpc_submit_batch_job: JobId=\d+", controller))
        print(f"the controller's log has {n_jobs} jobs; {machine()}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Measurements on a real Slurm of this machine.")
    parser.add_argument("what", choices=["start", "calls"])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--blocks", type=int, default=20)
    parser.add_argument("--eyas", type=Path, default=ROOT / ".venv" / "bin" / "eyas")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="eyas-bench-slurm-") as top:
        {"start": start, "calls": calls}[args.what](args, Path(top))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
