#!/usr/bin/env python3
"""Run the stacking application through eyas three times and show what data diffusion changes.

    demo.py path/to/eyas [--dir demo]

1. make_sky.py makes the survey (skipped when it is there already, made with the same options)
2. plan.py writes the task list
3. eyas runs it without caches: `first-available`, every task reads its exposure from home
4. eyas runs it with data diffusion as the paper has it: caches on the nodes, `good-cache-compute`
5. eyas runs it with its own placement, `affinity`, which looks at the whole queue
6. all runs have to give the same bytes; stack.py puts the last one's cutouts together
7. eyas writes a report page for the paper's run and one for the last, each beside the first

Home storage is limited to --home-rate in all runs: that stands in for a shared file system that
other people use as well.
"""

from __future__ import annotations

import argparse
import filecmp
import hashlib
import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
OFF, PAPER, OURS = "caches-off", "paper", "affinity"
# Of the disk: an exposure, what a run writes for each byte of sky, and how often files are in the caches of a run.
EXPOSURE_BYTES, RUN_SHARE, COPIES = 1_000_000, 0.15, 1.3
PLACEMENT = {OFF: "first-available", PAPER: "good-cache-compute", OURS: "affinity"}


class DemoError(Exception):
    """The demo cannot go on; its text is one sentence for the user."""


def say(text: str) -> None:
    print(text, flush=True)


def call(command: list[str], what: str) -> float:
    """Run a program to its end with its output shown; returns the seconds that it took."""
    start = time.monotonic()
    output_of(command, what, shown=True)
    return time.monotonic() - start


def output_of(command: list[str], what: str, *, shown: bool = False) -> str:
    """Run a program to its end; returns what it printed, to both streams, unless that is shown at once."""
    sink = None if shown else subprocess.PIPE
    try:
        done = subprocess.run(command, check=False, stdout=sink, stderr=sink and subprocess.STDOUT, text=True)
    except OSError as error:
        raise DemoError(f"{command[0]} cannot be started: {error.strerror}") from None
    if done.returncode != 0:
        said = f"{done.stdout.rstrip()}\n" if done.stdout else ""
        raise DemoError(
            f"{said}{what} ended with exit code {done.returncode}\n  command: {shlex.join(command)}"
        )
    return done.stdout or ""


def disk_bytes(n_exposures: int, n_nodes: int, cache: str) -> int:
    """About what all of it takes on the disk: the sky, the cutouts of three runs, and the caches of two, which stay."""
    sky = n_exposures * EXPOSURE_BYTES
    match = re.fullmatch(r"([\d.]+)\s*([KMGT]?)(i?)B?", cache, re.IGNORECASE)
    # A cache that cannot be read as a size is eyas's to complain about.
    caches = (
        n_nodes * float(match[1]) * (1024 if match[3] else 1000) ** " KMGT".index(match[2].upper() or " ")
        if match
        else sky
    )
    return int(sky * (1 + len(PLACEMENT) * RUN_SHARE) + 2 * min(caches, COPIES * sky))


def check_disk(args: argparse.Namespace) -> None:
    """Say what the demo takes, and stop when there is no room for it."""
    needs = disk_bytes(args.exposures, args.nodes, args.cache)
    has = sum(path.lstat().st_size for path in args.dir.rglob("*") if path.is_file())
    free = shutil.disk_usage(args.dir).free
    say(
        f"Takes about {needs / 1e6:,.0f} MB of disk in {args.dir} ({free / 1e9:,.1f} GB are free) and a few minutes."
    )
    if has + free < needs:
        raise DemoError(f"there is too little room for the demo where {args.dir} is; --dir puts it elsewhere")


def script(name: str, *options: str) -> list[str]:
    return [sys.executable, str(HERE / name), *options]


def sky_is_made(sky: Path, wanted: dict[str, object]) -> bool:
    try:
        made = json.loads((sky / "sky.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return all(made.get(key) == value for key, value in wanted.items())


def make_sky(sky: Path, args: argparse.Namespace) -> None:
    wanted = {
        "seed": args.seed,
        "n_exposures": args.exposures,
        "n_targets": args.targets,
        "generator": hashlib.sha256((HERE / "make_sky.py").read_bytes()).hexdigest()[:16],
    }
    if sky_is_made(sky, wanted):
        say(f"  {sky} is there already, made with the same options")
        return
    options = ["--seed", str(args.seed), "--exposures", str(args.exposures), "--targets", str(args.targets)]
    call(script("make_sky.py", "--out", str(sky), *options), "make_sky.py")


def run_tasks(name: str, args: argparse.Namespace, n_tasks: int) -> float:
    """One run through eyas from cold caches; returns its seconds."""
    folder: Path = args.dir
    command = [args.eyas, "run", str(folder / f"tasks-{name}.jsonl"), "--dir", str(folder / f"run-{name}")]
    command += ["--nodes", str(args.nodes), "--slots", "1", "--cache", args.cache]
    command += ["--placement", PLACEMENT[name], "--home-rate", args.home_rate]
    # eyas itself says how long it took.
    seconds = call(command, f"the run {name}")
    n_outputs = sum(1 for _ in (folder / f"cuts-{name}").glob("*.fits"))
    if n_outputs != n_tasks:
        raise DemoError(f"the run {name} wrote {n_outputs} of {n_tasks} outputs")
    return seconds


def differing_outputs(folder: Path, name: str) -> list[str]:
    """Names of the cutouts that are not the same, byte for byte, in the run `name` and without caches."""
    off = folder / f"cuts-{OFF}"
    names = sorted(path.name for path in off.iterdir())
    _, differing, missing = filecmp.cmpfiles(off, folder / f"cuts-{name}", names, shallow=False)
    return differing + missing


def demo(args: argparse.Namespace) -> None:
    folder: Path = args.dir
    sky, result = folder / "sky", folder / "result"
    reports = {OURS: folder / "report.html", PAPER: folder / "report-paper.html"}
    folder.mkdir(parents=True, exist_ok=True)
    check_disk(args)

    say(f"1/7 the sky: {args.exposures} exposures around M13 with {args.targets} faint sources")
    make_sky(sky, args)

    say("2/7 the task lists, one for each run: the same tasks, outputs in different folders")
    planned = set()
    for name in PLACEMENT:
        for old in (f"run-{name}", f"cuts-{name}"):
            shutil.rmtree(folder / old, ignore_errors=True)
        (folder / f"cuts-{name}").mkdir()
        tasks = folder / f"tasks-{name}.jsonl"
        options = ["--sky", str(sky), "--cuts", str(folder / f"cuts-{name}"), "--out", str(tasks)]
        planned.add(output_of(script("plan.py", *options, "--python", sys.executable), "plan.py").rstrip())
    # One line: the lists differ in nothing that it tells.
    say("\n".join(sorted(planned)))
    with open(folder / f"tasks-{OFF}.jsonl", encoding="utf-8") as file:
        n_tasks = sum(1 for _ in file)

    seconds = {}
    say(f"3/7 run without caches: every task reads from home, at {args.home_rate} a second for all")
    seconds[OFF] = run_tasks(OFF, args, n_tasks)
    say(f"4/7 run with a cache of {args.cache} on each of {args.nodes} nodes, placement as in the paper")
    seconds[PAPER] = run_tasks(PAPER, args, n_tasks)
    say("5/7 the same with eyas's own placement")
    seconds[OURS] = run_tasks(OURS, args, n_tasks)

    say("6/7 the stack")
    for name in (PAPER, OURS):
        if differing := differing_outputs(folder, name):
            raise DemoError(f"{len(differing)} outputs of the run {name} differ, the first is {differing[0]}")
    options = ["--cuts", str(folder / f"cuts-{OURS}"), "--sky", str(sky), "--out", str(result)]
    output_of(script("stack.py", *options), "stack.py")
    summary = json.loads((result / "summary.json").read_text(encoding="utf-8"))

    say("7/7 the reports")
    for name, report in reports.items():
        command = [args.eyas, "report", "--dir", str(folder / f"run-{name}"), "--out", str(report)]
        output_of([*command, "--compare", str(folder / f"run-{OFF}")], "eyas report")
    made = json.loads(reports[OURS].with_suffix(".json").read_text(encoding="utf-8"))
    verdict = made["verdict"]["sentences"]

    alone, together, law = (summary[key] for key in ("snr_one_expected", "snr", "snr_expected"))
    say("")
    say(
        f"Shown     {args.targets} sources, signal-to-noise {alone:.2f} in one image, "
        f"{together:.1f} in the stack of {summary['n_cutouts']:,} cutouts (sqrt(N) gives {law:.1f})"
    )
    say(
        f"Compared  {n_tasks:,} tasks, home at {args.home_rate}/s: {seconds[OFF]:.0f} s without caches, "
        f"{seconds[PAPER]:.0f} s with the paper's {PLACEMENT[PAPER]}, {seconds[OURS]:.0f} s with {PLACEMENT[OURS]}, "
        "the same bytes from all"
    )
    say(f"Verdict   on {PLACEMENT[OURS]}: {' '.join(verdict)}")
    say(
        f"Stack     {result / 'stack.png'}; as an image {result / 'stack.fits'}, numbers in {result / 'summary.json'}"
    )
    say(
        f"Picture   {reports[OURS]}: the run with {PLACEMENT[OURS]} beside the one without caches, to be opened in a "
        f"browser; {reports[PAPER]}: the same for the paper's {PLACEMENT[PAPER]}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the stacking application through eyas.")
    parser.add_argument("eyas", help="the eyas program")
    parser.add_argument(
        "--dir", type=Path, default=Path("demo"), help="folder for everything (default: demo)"
    )
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--cache", default="512MiB", help="cache of each node (default: 512MiB)")
    parser.add_argument("--home-rate", default="10MB", help="bytes a second from home (default: 10MB)")
    parser.add_argument("--exposures", type=int, default=240)
    parser.add_argument("--targets", type=int, default=180)
    parser.add_argument("--seed", type=int, default=13)
    args = parser.parse_args()
    absent = [name for name in ("numpy", "astropy", "PIL") if find_spec(name) is None]
    if absent:
        print(
            f"error: the demo needs numpy, astropy and pillow; missing: {', '.join(absent)}", file=sys.stderr
        )
        print("hint: pip install numpy astropy pillow", file=sys.stderr)
        return 2
    try:
        demo(args)
    except DemoError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
