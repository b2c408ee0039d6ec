#!/usr/bin/env python3
"""Run the evaluation of Raicu09, section 6, through eyas on this machine: table 3's localities in four configurations.

    evaluate.py EYAS [--dir evaluation] [--localities 1 30] [--configurations ours-gz shared-gz] [--scale 1000] [--json FILE]

Makes a survey in the paper's shape once (survey.py), asks it for its objects (query.sql, figure 42), and for each row of table 3
deals so many objects to so many images, at random. One task cuts one object out of one image (cutout.py, 101 x 101 pixels: of the
paper's 100 x 100 none would be the middle one). All data is at home at first; home gives --home-rate bytes a second to all nodes
together, standing in for a shared file system; each node runs one program at a time. The configurations:

    dd-gz       data diffusion, packed images: each node reads 2 MB once and unpacks them once; max-compute-util, as in the paper
    dd-fit      data diffusion, images of 6 MB; max-compute-util
    shared-gz   every task reads its packed image from home and unpacks it: first-available, no caches
    shared-fit  every task reads 6 MB from home
    ours-gz     dd-gz with eyas's own placement, affinity
    local-gz, local-fit    each program reads its image where it is, on the local disk: the ideal of figure 47, C + R_l of the model
    home-gz, home-fit      each program gets its image from a home without a limit: C + R_s of the model; --alone-objects each

A row of table 3 is divided by --scale, objects and files alike; a row that would have fewer than --least objects gets so many. What
is run: every locality in every configuration on the most --nodes, localities 1.38 and 30 on fewer nodes too (figures 44 and 45), the
steps of the program alone (figure 43), and --goal-objects objects of locality 30 with --goal-rate, the demo's, from cold caches.

Written: one JSON (--json, else DIR/evaluation.json) after each experiment. A second call with the same program and options goes on
where the first one ended; what was measured by another program or with other options is measured again. page.py makes a page of it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import platform
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
Json = dict[str, Any]
SIZE = 101
# Objects and files of each locality (table 3).
TABLE_3 = {
    "1": (111_700, 111_700),
    "1.38": (154_345, 111_699),
    "2": (97_999, 49_000),
    "3": (88_857, 29_620),
    "4": (76_575, 19_145),
    "5": (60_590, 12_120),
    "10": (46_480, 4_650),
    "20": (40_460, 2_025),
    "30": (23_695, 790),
}
PAPERS_POLICY, NO_CACHES, OURS = "max-compute-util", "first-available", "affinity"
# Placement, and what a task reads: the packed image, unpacked once by each node or by the program itself, or the plain one.
CONFIGURATIONS = {
    "dd-gz": (PAPERS_POLICY, "unpacked"),
    "dd-fit": (PAPERS_POLICY, "plain"),
    "shared-gz": (NO_CACHES, "packed"),
    "shared-fit": (NO_CACHES, "plain"),
    "ours-gz": (OURS, "unpacked"),
}
# What the model has to know before: programs alone, from the local disk and from a home without a limit, and with a node that unpacks.
ALONE = {
    "local-gz": (NO_CACHES, "packed"),
    "local-fit": (NO_CACHES, "plain"),
    "home-gz": (NO_CACHES, "packed"),
    "home-fit": (NO_CACHES, "plain"),
    "made-gz": (PAPERS_POLICY, "unpacked"),
}
GOAL = ("ours-gz", "shared-gz")
MEASURED = 3  # a larger number when more is measured of a run, so that all are run again
PROFILE_OBJECTS, PROFILE_ROUNDS = 40, 3


class EvaluationError(Exception):
    """The evaluation cannot go on; its text is one sentence for the user."""


@dataclass(frozen=True)
class Experiment:
    """One run through eyas, from cold caches."""

    configuration: str
    locality: str
    nodes: int
    n_objects: int
    n_files: int
    home_rate: str
    cache: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.configuration}-{self.locality}-{self.nodes}-{self.n_objects}-{self.home_rate or 'unlimited'}"


def row_of(locality: str, scale: float, least: int, most_in_file: int) -> tuple[int, int]:
    """Objects and files of a row of table 3 on this machine; no file has more than `most_in_file` objects."""
    objects, files = TABLE_3[locality]
    n_objects = max(math.ceil(objects / scale), least)
    return n_objects, max(round(n_objects * files / objects), math.ceil(n_objects / most_in_file))


def experiments_of(args: argparse.Namespace) -> list[Experiment]:
    """All that is run, what the page needs most first."""
    most = max(args.nodes)

    def one(configuration: str, locality: str, nodes: int, row: tuple[int, int], rate: str) -> Experiment:
        return Experiment(configuration, locality, nodes, *row, rate, args.cache, args.seed)

    found = []
    for nodes in sorted(args.nodes, reverse=True):
        for name in ALONE:
            # From home each image is read once, as when caches are cold.
            locality = "30" if name.startswith("local") else "1"
            row = row_of(locality, math.inf, args.alone_objects, args.objects)
            found.append(one(name, locality, nodes, row, ""))
    for locality in args.localities:
        row = row_of(locality, args.scale, args.least, args.objects)
        found += [one(name, locality, most, row, args.home_rate) for name in args.configurations]
    if args.goal_objects and "30" in args.localities:
        row = row_of("30", math.inf, args.goal_objects, args.objects)
        found += [one(name, "30", most, row, args.goal_rate) for name in GOAL if name in args.configurations]
    for nodes in sorted(args.nodes)[:-1]:
        for locality in (name for name in ("1.38", "30") if name in args.localities):
            row = row_of(locality, args.scale, args.least, args.objects)
            found += [one(name, locality, nodes, row, args.home_rate) for name in args.configurations]
    return list(dict.fromkeys(found))


def bytes_of(text: str) -> float:
    """The bytes of a size as eyas reads it, such as 40MB or 4GiB."""
    match = re.fullmatch(r"([\d.]+)\s*([KMGT]?)(i?)B?", text, re.IGNORECASE)
    if not match:
        raise EvaluationError(f"`{text}` is not a size, such as 40MB or 4GiB")
    power = " KMGT".index((match[2] or " ").upper())
    return float(match[1]) * float((1024 if match[3] else 1000) ** power)


def say(text: str) -> None:
    print(text, flush=True)


def output_of(command: list[str], what: str) -> str:
    """Standard output of a program that has to end well."""
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except OSError as error:
        raise EvaluationError(f"{command[0]} cannot be started: {error.strerror}") from None
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["it printed nothing"]
        raise EvaluationError(f"{what} ended with exit code {done.returncode}: {said[0]}")
    return done.stdout


# ------------------------------------------------------------------------------------------- workload


@dataclass(frozen=True)
class Survey:
    """Where the survey is, and which objects lie inside each of its images."""

    folder: Path
    truth: Json
    images: list[str]
    inside: list[list[str]]

    def path(self, image: int, reads: str) -> Path:
        return (
            self.folder / "exposures" / (self.images[image] + (".fits" if reads == "plain" else ".fits.gz"))
        )


def open_survey(folder: Path, n_files: int, args: argparse.Namespace) -> Survey:
    """The survey in `folder`, made where it is not there yet."""
    import survey as generator
    from cutout import fits_inside, radec2xy, read_targets

    options = generator.Options(
        seed=args.seed, files=n_files, objects=args.objects, width=args.width, height=args.height
    )
    is_made = generator.is_made(folder, options)
    start = time.monotonic()
    truth = generator.make(folder, options, min(os.cpu_count() or 1, 8))
    # What was made is not written to the disk while something is measured.
    os.sync()
    how = "is there already" if is_made else f"made in {time.monotonic() - start:.0f} s"
    say(
        f"survey: {n_files} images of {truth['fit_bytes']:,} bytes, {truth['gz_bytes']:,} packed, {how}; "
        f"the query of figure 42 gives {truth['n_rows_of_query']:,} rows, {truth['n_objects']:,} without duplicates"
    )
    targets = read_targets(str(folder / "targets.csv"))
    images, inside = [], []
    for image in generator.images_of(options):
        wcs = generator.wcs_of(image, options)
        found = []
        for name, (ra, dec) in targets.items():
            if abs(dec - wcs.crval2) < 1 and abs(ra - wcs.crval1) < 1:
                xy = radec2xy(wcs, ra, dec)
                if xy and fits_inside(*xy, options.width, options.height, SIZE):
                    found.append(name)
        images.append(image.stem(options.epochs))
        inside.append(found)
    return Survey(folder, truth, images, inside)


def deal(survey: Survey, experiment: Experiment) -> list[tuple[int, str]]:
    """(image, object) of each task: objects are dealt to the images as evenly as the counts allow, then shuffled."""
    dealt = []
    for place in range(experiment.n_objects):
        turn, image = divmod(place, experiment.n_files)
        if turn >= len(survey.inside[image]):
            raise EvaluationError(
                f"image {survey.images[image]} has {len(survey.inside[image])} objects, and locality "
                f"{experiment.locality} needs {turn + 1}; --objects puts more into each"
            )
        dealt.append((image, survey.inside[image][turn]))
    random.Random(experiment.seed).shuffle(dealt)
    return dealt


def write_tasks(path: Path, survey: Survey, experiment: Experiment, cuts: Path) -> None:
    """The task list. Programs find the image under the same name however it comes, so that all write the same bytes."""
    _, reads = (CONFIGURATIONS | ALONE)[experiment.configuration]
    with open(path, "w", encoding="utf-8") as file:
        for number, (image, name) in enumerate(deal(survey, experiment)):
            source = str(survey.path(image, reads))
            command = [sys.executable, "cutout.py", "--size", str(SIZE), "--objects", name]
            record = {
                "id": f"{survey.images[image]}-{name}",
                "command": [*command, "targets.csv", "image.fits", "cut.fits"],
                "inputs": {
                    # The image stands last: counts look at what stands behind the first two.
                    "cutout.py": str(HERE / "cutout.py"),
                    "targets.csv": str(survey.folder / "targets.csv"),
                    "image.fits": {"from": source, "unpack": "gzip"} if reads == "unpacked" else source,
                },
                "outputs": {"cut.fits": str(cuts / f"{number:05d}.fits")},
                "label": "stack",
            }
            file.write(json.dumps(record) + "\n")


# ------------------------------------------------------------------------------------------------ run


def counts_of(events: Path) -> Json:
    """Where the images of all tasks came from, and what the tasks made, from the event log.

    A task is a miss when its image, packed or plain, was read from home for it, `remote` when it was copied from another node, and
    local otherwise, also where another task of its node was fetching it already (as in docs/results/data-diffusion.md).
    Bytes: `home`, `peer` crossed links; `local` is what programs read of images on their node's disk. `start_s` is from the
    submission until the first task is given out: nodes are still joining. `making_s` is the median time from a packed image's arrival
    on a node until the plain one is there; None where no node unpacks.
    """
    small: dict[int, set[int]] = {}
    reports: dict[int, Json] = {}
    opened = given_out = None
    with open(events, encoding="utf-8") as file:
        for line in file:
            if opened is None and '"run_opened":' in line:
                opened = json.loads(line)["t"]
            elif '"assign":' in line:
                read = json.loads(line)
                given_out = given_out or read["t"]
                assigned = read["out"]["assign"]["assignment"]
                small[assigned["task"]] = {entry["object"] for entry in assigned["inputs"][:2]}
            elif '"attempt_ended":' in line:
                report = json.loads(line)["in"]["attempt_ended"]["report"]
                if report["outcome"] == "done":
                    reports[report["task"]] = report
    counts: Json = {
        "n_local": 0,
        "n_remote": 0,
        "n_home": 0,
        "local_bytes": 0,
        "peer_bytes": 0,
        "home_bytes": 0,
        "output_bytes": 0,
        "n_made": 0,
        "program_cpu_s": 0.0,
        "program_s": 0.0,
    }
    making_ns = []
    for task, report in reports.items():
        images = [entry for entry in report["inputs"] if entry["object"] not in small[task]]
        # `remote_hit` says from whom.
        for entry in images:
            entry["outcome"] = (
                next(iter(entry["outcome"])) if isinstance(entry["outcome"], dict) else entry["outcome"]
            )
        outcomes = {entry["outcome"] for entry in images}
        came = "home" if outcomes & {"miss", "direct"} else "remote" if "remote_hit" in outcomes else "local"
        counts[f"n_{came}"] += 1
        counts["n_made"] += "made" in outcomes
        if images[-1]["outcome"] == "made" and len(images) > 1:
            making_ns.append(images[-1]["wait_ns"] - images[-2]["wait_ns"])
        for entry in images:
            if entry["outcome"] in ("miss", "direct"):
                counts["home_bytes"] += entry["size_bytes"]
            elif entry["outcome"] == "remote_hit":
                counts["peer_bytes"] += entry["size_bytes"]
        # What stands last is what the program reads; past the caches it comes from home and no local disk is read.
        if images[-1]["outcome"] != "direct":
            counts["local_bytes"] += images[-1]["size_bytes"]
        counts["output_bytes"] += sum(made["size_bytes"] for made in report["outputs"])
        counts["program_cpu_s"] += report["cpu_ns"] / 1e9
        counts["program_s"] += (report["times"]["exited"] - report["times"]["started"]) / 1e9
    digests = [[task, [made["digest"] for made in reports[task]["outputs"]]] for task in sorted(reports)]
    if opened is None or given_out is None:
        raise EvaluationError(f"{events} has no submission, or no task was given out")
    start_s = round((given_out - opened) / 1e9, 6)
    counts["outputs_digest"] = hashlib.sha256(json.dumps(digests).encode()).hexdigest()[:16]
    return {key: round(value, 3) if isinstance(value, float) else value for key, value in counts.items()} | {
        # A submission of one request is given out within half a millisecond.
        "start_s": start_s,
        "making_s": round(statistics.median(making_ns) / 1e9, 6) if making_ns else None,
        "n_done": len(reports),
    }


def stacked(cuts: Path, survey: Survey) -> Json:
    """What the stack of all cutouts shows, and what it has to show by sqrt(N)."""
    from stack import expected_snr_one, point, read_cutouts

    read = read_cutouts(cuts)
    psf, n, weight = (
        float(survey.truth["psf_sigma_pixels"]),
        int(read.counts.sum()),
        float(read.weights.sum()),
    )
    seen = point((read.sums.sum(0) / weight)[None], n, psf)
    one = expected_snr_one(float(survey.truth["mean_peak"]), weight, n, psf)
    return {
        "n_cutouts": n,
        "snr": round(seen.snr, 2),
        "snr_error": round(seen.snr_error, 2),
        "snr_expected": round(one * math.sqrt(n), 2),
        "snr_one_expected": round(one, 3),
    }


def run(experiment: Experiment, survey: Survey, args: argparse.Namespace) -> Json:
    """One experiment; returns what was measured. Its folders are removed."""
    folder = args.dir / "run"
    cuts, tasks = folder / "cuts", folder / "tasks.jsonl"
    shutil.rmtree(folder, ignore_errors=True)
    cuts.mkdir(parents=True)
    write_tasks(tasks, survey, experiment, cuts)
    placement, _ = (CONFIGURATIONS | ALONE)[experiment.configuration]
    command = [str(args.eyas), "run", str(tasks), "--dir", str(folder / "cluster"), "--json"]
    command += ["--nodes", str(experiment.nodes), "--slots", "1", "--cache", experiment.cache]
    command += ["--placement", placement]
    if experiment.configuration.startswith("local"):
        command += ["--home-local", str(survey.folder / "exposures")]
    if experiment.home_rate:
        command += ["--home-rate", experiment.home_rate]
    load, began = os.getloadavg()[0], time.monotonic()
    ended = json.loads(output_of(command, f"the run {experiment.name}"))
    wall = time.monotonic() - began
    if ended["n_done"] != experiment.n_objects:
        raise EvaluationError(
            f"the run {experiment.name} did {ended['n_done']} of {experiment.n_objects} tasks"
        )
    report = folder / "report.html"
    output_of(
        [str(args.eyas), "report", "--dir", str(folder / "cluster"), "--out", str(report)], "eyas report"
    )
    totals = json.loads(report.with_suffix(".json").read_text(encoding="utf-8"))
    counts = counts_of(folder / "cluster" / "dispatcher" / "events.jsonl")
    if counts["n_done"] != experiment.n_objects:
        raise EvaluationError(f"the event log of the run {experiment.name} has {counts['n_done']} ends")
    seconds = totals["totals"]["makespan_ns"] / 1e9
    hit_ratio = 1 - counts["n_home"] / experiment.n_objects
    # Without caches there is no ideal to reach, and what lies on the own disk is there from the beginning.
    has_caches = CONFIGURATIONS.get(experiment.configuration, (NO_CACHES, ""))[0] != NO_CACHES
    ideal = 1 - experiment.n_files / experiment.n_objects
    measured: Json = {
        **asdict(experiment),
        "name": experiment.name,
        "makespan_s": round(seconds, 3),
        "wall_s": round(wall, 3),
        "ms_per_stack": round(1000 * seconds * experiment.nodes / experiment.n_objects, 2),
        "hit_ratio": round(hit_ratio, 5),
        "hit_ratio_ideal": round(ideal, 5),
        "of_ideal": round(hit_ratio / ideal, 5) if has_caches and ideal > 0 else None,
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "verdict": totals["verdict"]["sentences"],
        **counts,
    }
    if args.stack:
        measured["stack"] = stacked(cuts, survey)
    shutil.rmtree(folder, ignore_errors=True)
    return measured


def profile(survey: Survey, n_objects: int, n_rounds: int) -> Json:
    """Figure 43: milliseconds of each step of the program alone, from this machine's disk; means over objects in different files.

    Files are dropped from memory before, where the system can be asked to, so that the disk is read.
    """
    found: Json = {"n_objects": min(n_objects, len(survey.images)), "n_rounds": n_rounds}
    out, steps = survey.folder / "profile.fits", survey.folder / "profile.json"
    for name, reads in (("gz", "packed"), ("fit", "plain")):
        rounds: list[dict[str, float]] = []
        for turn in range(n_rounds):
            for image in range(found["n_objects"]):
                path = survey.path(image, reads)
                if hasattr(os, "posix_fadvise"):
                    with open(path, "rb") as file:
                        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                target = survey.inside[image][turn % len(survey.inside[image])]
                command = [sys.executable, str(HERE / "cutout.py"), "--size", str(SIZE), "--objects", target]
                command += ["--profile", str(steps), str(survey.folder / "targets.csv"), str(path), str(out)]
                start = time.perf_counter()
                output_of(command, "cutout.py")
                whole = 1000 * (time.perf_counter() - start)
                rounds.append({**json.loads(steps.read_text(encoding="utf-8")), "whole program": whole})
        names = list(dict.fromkeys(step for one in rounds for step in one))
        found[name] = {
            step: round(statistics.mean(one.get(step, 0.0) for one in rounds), 3) for step in names
        }
        found[f"{name}_deviation"] = {
            step: round(statistics.pstdev(one.get(step, 0.0) for one in rounds), 3) for step in names
        }
    for left in (out, steps):
        left.unlink(missing_ok=True)
    return found


# ------------------------------------------------------------------------------------------- the whole


def program_of(eyas: Path) -> Json:
    """Which program is measured: its version, its digest, and the commit of the tree that this file is of, where there is one."""
    version = output_of([str(eyas), "--version"], "eyas --version").strip()
    found = shutil.which(str(eyas)) or str(eyas)
    with open(found, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    asked = subprocess.run(
        ["git", "-C", str(HERE), "rev-parse", "--short=8", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    commit = asked.stdout.strip() if asked.returncode == 0 else None
    return {"version": version, "digest": digest, "commit": commit}


def machine() -> Json:
    """The machine, as pages of results name it."""
    processor = platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                processor = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": processor,
        "n_cores": os.cpu_count(),
        "memory_bytes": memory,
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def key_of(experiment: Experiment, program: Json, survey: Survey) -> str:
    """What a measurement depends on: another program, survey or task makes another key."""
    task = hashlib.sha256((HERE / "cutout.py").read_bytes()).hexdigest()
    parts = [MEASURED, asdict(experiment), program["digest"], survey.truth, task]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def write_json(path: Path, value: Json) -> None:
    """Never half a file: what an interrupted call leaves is what the next one goes on from."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def read_json(path: Path) -> Json:
    if not path.exists():
        return {}
    try:
        read: Json = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EvaluationError(
            f"{path} is no evaluation that can go on ({error}); remove it or name another with --json"
        ) from None
    return read if read.get("eyas_stacking") == 1 else {}


def evaluate(args: argparse.Namespace) -> None:
    args.dir.mkdir(parents=True, exist_ok=True)
    args.dir = args.dir.resolve()
    out = args.json or args.dir / "evaluation.json"
    program = program_of(args.eyas)
    listed = experiments_of(args)
    n_files = max(experiment.n_files for experiment in listed)
    needs = n_files * 8_400_000 * 2
    has = sum(
        path.lstat().st_size for path in args.dir.rglob("*") if path.is_file() and not path.is_symlink()
    )
    if has + shutil.disk_usage(args.dir).free < needs:
        raise EvaluationError(
            f"the evaluation takes up to {needs / 1e9:.1f} GB in {args.dir}, where less is free; --dir puts it elsewhere"
        )
    survey = open_survey(args.dir / "survey", n_files, args)
    before = read_json(out)
    kept = {measured["key"]: measured for measured in before.get("experiments", [])}
    result: Json = {
        "eyas_stacking": 1,
        "program": program,
        "machine": machine(),
        "survey": survey.truth,
        "options": {
            key: getattr(args, key)
            for key in ("scale", "least", "home_rate", "goal_rate", "goal_objects", "cache", "nodes", "seed")
        },
        "experiments": [kept[key] for one in listed if (key := key_of(one, program, survey)) in kept],
    }
    profiled = {"program": hashlib.sha256((HERE / "cutout.py").read_bytes()).hexdigest()[:16]} | {
        "survey": survey.truth["generator"],
        "asked": [args.profile_objects, args.profile_rounds],
    }
    if args.profile_objects:
        if before.get("profiled") == profiled:
            result["profile"] = before["profile"]
        else:
            say(f"the steps of the program alone (figure 43), {args.profile_objects} objects")
            result["profile"] = profile(survey, args.profile_objects, args.profile_rounds)
        result["profiled"] = profiled
    write_json(out, result)
    began = time.monotonic()
    for number, experiment in enumerate(listed, 1):
        key = key_of(experiment, program, survey)
        if key in kept:
            continue
        measured = run(experiment, survey, args) | {"key": key}
        result["experiments"].append(measured)
        write_json(out, result)
        say(
            f"{number:3}/{len(listed)} {experiment.configuration:10} locality {experiment.locality:>4}, "
            f"{experiment.n_objects} objects in {experiment.n_files} files on {experiment.nodes} nodes: "
            f"{measured['makespan_s']:.1f} s, hits {measured['hit_ratio']:.3f} (ideal {measured['hit_ratio_ideal']:.3f})"
        )
    check_outputs(result["experiments"])
    say(f"{len(listed)} experiments, {time.monotonic() - began:.0f} s; {out}")


def check_outputs(experiments: list[Json]) -> None:
    """All configurations of a workload have to make the same bytes."""
    made: dict[tuple[str, int, int], Json] = {}
    for one in experiments:
        workload = (one["locality"], one["n_objects"], one["n_files"])
        other = made.setdefault(workload, one)
        if other["outputs_digest"] != one["outputs_digest"]:
            raise EvaluationError(f"the outputs of {one['name']} are not those of {other['name']}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Run the evaluation of the stacking application through eyas."
    )
    parser.add_argument("eyas", type=Path, help="the eyas program")
    parser.add_argument("--dir", type=Path, default=Path("evaluation"), help="folder for everything")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="what is written (default: DIR/evaluation.json)"
    )
    parser.add_argument("--localities", nargs="+", choices=TABLE_3, default=list(TABLE_3), metavar="LOCALITY")
    parser.add_argument(
        "--configurations", nargs="+", choices=CONFIGURATIONS, default=list(CONFIGURATIONS), metavar="NAME"
    )
    parser.add_argument("--scale", type=float, default=1000, help="divides table 3 (default: 1000)")
    parser.add_argument("--least", type=int, default=120, help="objects of a row at least (default: 120)")
    parser.add_argument(
        "--nodes", nargs="+", type=int, default=[1, 2], help="numbers of nodes (default: 1 2)"
    )
    parser.add_argument("--cache", default="4GiB", help="cache of each node (default: 4GiB)")
    parser.add_argument("--home-rate", default="40MB", help="bytes a second from home (default: 40MB)")
    parser.add_argument(
        "--goal-objects", type=int, default=1000, help="objects of the run at --goal-rate; 0: none"
    )
    parser.add_argument("--goal-rate", default="10MB", help="the demo's rate (default: 10MB)")
    parser.add_argument(
        "--alone-objects", type=int, default=100, help="objects of the runs without a limit (default: 100)"
    )
    parser.add_argument(
        "--profile-objects", type=int, default=PROFILE_OBJECTS, help="objects of figure 43; 0: none"
    )
    parser.add_argument("--profile-rounds", type=int, default=PROFILE_ROUNDS)
    parser.add_argument("--objects", type=int, default=31, help="objects in each image (default: 31)")
    parser.add_argument("--width", type=int, default=2048, help="pixels of an image (default: 2048)")
    parser.add_argument("--height", type=int, default=1489, help="(default: 1489)")
    parser.add_argument("--seed", type=int, default=6)
    parser.add_argument("--no-stack", dest="stack", action="store_false", help="do not measure the stacks")
    args = parser.parse_args()
    if (
        min(args.least, args.alone_objects, *args.nodes, args.objects, args.profile_rounds) < 1
        or args.scale <= 0
    ):
        parser.error(
            "--least, --nodes, --objects, --alone-objects and --profile-rounds start at 1, --scale above 0"
        )
    if min(args.goal_objects, args.profile_objects, args.seed) < 0:
        parser.error("--goal-objects, --profile-objects and --seed start at 0")
    if min(args.width, args.height) < 200:
        parser.error("--width and --height start at 200 pixels")
    try:
        for size in (args.home_rate, args.goal_rate, args.cache):
            bytes_of(size)
    except EvaluationError as error:
        parser.error(str(error))
    args.nodes = sorted(set(args.nodes))
    absent = [name for name in ("numpy", "astropy") if find_spec(name) is None]
    if absent:
        print(f"error: the evaluation needs {' and '.join(absent)}", file=sys.stderr)
        print("hint: pip install numpy astropy", file=sys.stderr)
        return 2
    from cutout import StackingError

    try:
        evaluate(args)
    except (EvaluationError, StackingError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: the same command goes on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
