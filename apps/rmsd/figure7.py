#!/usr/bin/env python3
"""Figure 7 of Wozniak06: how long a batch takes where data is staged, read over the network, or on the host that computes.

    figure7.py --out figure7.json [--eyas eyas] [--dir DIR] [--configurations cluster internet]
    figure7.py --draw figure7.json --svg figure7.svg    # several files: their configurations side by side

Each host is a network namespace of this machine with a link of its own (hosts.py), one store and one processor; each store holds one
trajectory. One more host, `central`, has a store with all of them. Links carry 1 Gbit/s in the cluster, as the paper's switch did. In
the internet configuration those of the hosts carry 1 MB/s in each direction, and that of `central` still 1 Gbit/s, as the paper's
central server was much faster than its clients. Each processor executes rmsd.py --executions times, one after another, for each model:

    staging      `eyas at-data` with the catalog whose only site is `central`: it copies the trajectory, then computes
    remote       `eyas access`: rmsd.py opens the trajectory of the next host below /eyas
    collocation  `eyas at-data` on the host that `eyas data where` names for the trajectory

All three make a data set of the results. In the end the results of equal trajectories are compared, byte by byte. This script is the
scheduler: it has a thread for each processor. It needs root, because it makes namespaces.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hosts import Host, HostError, bytes_sent, hosts, run, store

HERE = Path(__file__).resolve().parent
MODELS = ("staging", "remote", "collocation")
# What the paper's text says; it prints no heights of bars. 10 executions for each processor of 16, 32 and 64.
PAPER_EXECUTIONS = (160, 320, 640)
PAPER_MB = 350
PAPER_EXECUTIONS_EACH = 10
PAPER_SPEEDUP = 2.0
GIGABIT_BYTES_PER_S = 125_000_000
INTERNET_BYTES_PER_S = 1_000_000


@dataclass
class Lab:
    """Hosts with stores, and their two catalogs."""

    eyas: Path
    folder: Path
    head: Host
    central: Host
    members: list[Host]
    every: int
    tasks: list[dict[str, Any]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def env(self, catalog: str) -> dict[str, str]:
        """For the catalog `central`, or `spread`, whose sites are the stores of the members."""
        tmp = self.folder / "tmp"
        tmp.mkdir(exist_ok=True)
        return {
            **os.environ,
            "EYAS_DATA": f"sqlite:{self.folder / catalog}.db",
            "TMPDIR": str(tmp),
            # As many threads as the host has processors.
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }

    def data(self, host: Host, catalog: str, *words: str | Path) -> str:
        """What `eyas data` printed on a host."""
        command = host.command(self.eyas, "data", *words)
        done = subprocess.run(
            command, env=self.env(catalog), capture_output=True, text=True, check=False, cwd=self.folder
        )
        if done.returncode != 0:
            raise HostError(f"`eyas data {' '.join(map(str, words))}`: {done.stderr.strip()}")
        return done.stdout

    def execute(self, model: str, host: Host, number: int, label: str) -> float:
        """One execution of rmsd.py on a host with the trajectory of this number; seconds."""
        program: list[str | Path] = [sys.executable, HERE / "rmsd.py"]
        sampled = ["--every", str(self.every)]
        key = f"/adk-{number:03d}"
        site = "central" if model == "staging" else host.name
        words: list[str | Path]
        if model == "remote":
            files = [f"/eyas{key}/adk.psf", f"/eyas{key}/traj.dcd"]
            made = ["--site", site, "--label", label]
            words = ["access", *made, "--", *program, *files, "--out", "/eyas/new/rmsd.npz", *sampled]
        else:
            inputs = ["--input", f"adk.psf={key}/adk.psf", "--input", f"traj.dcd={key}/traj.dcd"]
            made = ["--output", "rmsd.npz=rmsd.npz", "--site", site, "--label", label]
            run_it = [*program, "adk.psf", "traj.dcd", "--out", "rmsd.npz", *sampled]
            words = ["at-data", *inputs, *made, "--", *run_it]
        catalog = "central" if model == "staging" else "spread"
        begun = time.monotonic()
        done = subprocess.run(
            host.command(self.eyas, *words),
            env=self.env(catalog),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise HostError(f"{model} on {host.name}, trajectory {number}: {done.stderr.strip()[-600:]}")
        return time.monotonic() - begun

    def host_of(self, number: int) -> int:
        """The member that `eyas data where` names for a trajectory."""
        said = self.data(self.head, "spread", "where", f"adk-{number:03d}")
        for i, member in enumerate(self.members):
            if member.name in said.replace(",", " ").split():
                return i
        raise HostError(f"`eyas data where` names no host for trajectory {number}: {said.strip()}")

    def batch(self, model: str, n_processors: int, n_each: int, mark: str) -> dict[str, Any]:
        """All executions of one bar of the figure."""
        where = {number: self.host_of(number) for number in range(len(self.members))}
        holder = {i: number for number, i in where.items()}
        shift = 1 if model == "remote" else 0
        sent = bytes_sent([*self.members, self.central])
        before = cpu_seconds()
        begun = time.monotonic()

        def processor(i: int) -> list[float]:
            number = holder[(i + shift) % len(self.members)]
            labels = [f"{mark}-{model}-{number:03d}-{n_processors}-{i}-{k}" for k in range(n_each)]
            return [self.execute(model, self.members[i], number, label) for label in labels]

        with ThreadPoolExecutor(n_processors) as pool:
            each = [seconds for one in pool.map(processor, range(n_processors)) for seconds in one]
        return {
            "model": model,
            "n_processors": n_processors,
            "n_executions": n_processors * n_each,
            "turnaround_s": round(time.monotonic() - begun, 2),
            "execution_mean_s": round(statistics.mean(each), 3),
            "execution_sd_s": round(statistics.pstdev(each), 3),
            "sent_over_links_bytes": bytes_sent([*self.members, self.central]) - sent,
            "cpu_busy_s": round(cpu_seconds() - before, 1),
        }

    def n_equal_results(self) -> int:
        """Number of results; those of one trajectory have to be equal, whatever the model was."""
        digests: dict[str, set[str]] = {}
        n = 0
        for catalog in ("central", "spread"):
            for label in self.data(
                self.head, catalog, "find", "files = 1", "-q", "--limit", "100000"
            ).split():
                target = self.folder / "compared"
                self.data(self.head, catalog, "get", f"{label}/rmsd.npz", target)
                digests.setdefault(label.split("-")[2], set()).add(target.read_bytes().hex())
                target.unlink()
                n += 1
        different = [number for number, found in digests.items() if len(found) > 1]
        if different:
            raise HostError(f"the results of trajectory {different[0]} are not equal in all models")
        return n


def cpu_seconds() -> float:
    """Seconds that the processors of this machine were busy since it started, with the work of others."""
    user, nice, system, _, _, irq, soft = map(
        int, Path("/proc/stat").read_text(encoding="ascii").split()[1:8]
    )
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def configuration(name: str, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Both catalogs with their trajectories, then all bars, each --rounds times."""
    megabytes = args.cluster_megabytes if name == "cluster" else args.internet_megabytes
    n_each = args.executions
    names = ["head", "central", *(f"h{i}" for i in range(max(args.processors)))]
    every = max(1, megabytes * 1_000_000 // 40_172 // 200)
    with ExitStack() as stack:
        head, central, *members = stack.enter_context(hosts(folder, names))
        lab = Lab(args.eyas, folder, head, central, members, every)
        lab.data(head, "central", "init", "--dir", folder / "unused-central")
        lab.data(head, "spread", "init", "--dir", folder / "unused-spread")
        for catalog, host in (("central", central), *(("spread", member) for member in members)):
            join = stack.enter_context(store(args.eyas, host, folder / "stores" / host.name))
            lab.data(head, catalog, "site", "--join", join)
        made = folder / "made"
        options = ["--megabytes", str(megabytes), "--trajectories", str(len(members))]
        run([sys.executable, HERE / "make_data.py", "--out", made, *options])
        for number, member in enumerate(members):
            what: list[str | Path] = [
                made / f"adk-{number:03d}",
                "--label",
                f"adk-{number:03d}",
                "--tag",
                "protein=adk",
            ]
            lab.data(head, "central", "put", *what, "--site", "central")
            lab.data(head, "spread", "put", *what, "--site", member.name)
        shutil.rmtree(made)
        central.limit(GIGABIT_BYTES_PER_S)
        for member in members:
            member.limit(GIGABIT_BYTES_PER_S if name == "cluster" else args.internet_rate)
        bars = []
        for n in range(args.rounds):
            for n_processors in args.processors:
                for model in args.models:
                    bar = {"round": n, **lab.batch(model, n_processors, n_each, f"{n}")}
                    bars.append(bar)
                    print(json.dumps({"configuration": name, **bar}), file=sys.stderr, flush=True)
        for member in members:
            member.limit(0)
        n_equal = lab.n_equal_results()
    return {
        "megabytes": megabytes,
        "executions_each": n_each,
        "link_bytes_per_s": GIGABIT_BYTES_PER_S if name == "cluster" else args.internet_rate,
        "central_link_bytes_per_s": GIGABIT_BYTES_PER_S,
        "results_equal": n_equal,
        "bars": bars,
    }


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    cpus = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    return {"cpu": cpus[0] if cpus else platform.machine(), "n_cpus": len(cpus), "kernel": platform.release()}


def medians(measured: dict[str, Any], name: str) -> dict[tuple[str, int], list[float]]:
    """Turnaround times of each bar of a configuration, of all rounds, in seconds."""
    found: dict[tuple[str, int], list[float]] = {}
    for bar in measured["configurations"][name]["bars"]:
        found.setdefault((bar["model"], bar["n_executions"]), []).append(bar["turnaround_s"])
    return found


def draw(measured: dict[str, Any], target: Path) -> None:
    import matplotlib

    matplotlib.use("svg" if target.suffix == ".svg" else "agg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "eyas"
    names = list(measured["configurations"])
    figure, axes = plt.subplots(1, len(names) + 1, figsize=(4.2 * (len(names) + 1), 4.2))
    colours = {"staging": "#b24a3b", "remote": "#d3a03c", "collocation": "#3b7a8c"}
    said = {"staging": "staging", "remote": "remote access", "collocation": "collocation"}
    for axis, name in zip(axes, names, strict=False):
        found = medians(measured, name)
        sizes = sorted({n for _, n in found})
        for k, model in enumerate(MODELS):
            times = [found[model, n] for n in sizes]
            middle = [statistics.median(t) for t in times]
            spread = [
                [m - min(t) for m, t in zip(middle, times, strict=True)],
                [max(t) - m for m, t in zip(middle, times, strict=True)],
            ]
            places = [i + (k - 1) * 0.27 for i in range(len(sizes))]
            axis.bar(places, middle, 0.25, yerr=spread, color=colours[model], label=said[model], capsize=2)
            tops = [max(t) for t in times]
            for place, value, top in zip(places, middle, tops, strict=True):
                axis.annotate(
                    f"{value:.0f}",
                    (place, top),
                    (0, 2),
                    textcoords="offset points",
                    ha="center",
                    fontsize=7,
                )
        part = measured["configurations"][name]
        axis.set_xticks(range(len(sizes)), [f"{n}\n({p})" for n, p in paper_of(sizes)])
        axis.set_title(f"{name}: {part['megabytes']} MB each,\n{rate_text(part['link_bytes_per_s'])} links")
        axis.set_xlabel("executions (those of the paper)")
        axis.set_ylabel("turnaround of the batch (s)")
        axis.set_ylim(bottom=0)
        axis.margins(y=0.12)
    axes[0].legend(fontsize=8)
    draw_ratios(axes[-1], measured, colours)
    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None} if target.suffix == ".svg" else None)


def paper_of(sizes: list[int]) -> list[tuple[int, int | str]]:
    """The numbers of executions of the paper beside ours."""
    return list(zip(sizes, PAPER_EXECUTIONS if len(sizes) == 3 else ["-"] * len(sizes), strict=True))


def draw_ratios(axis: Any, measured: dict[str, Any], colours: dict[str, str]) -> None:
    """Turnaround by that of collocation in the internet configuration: what the paper says of its bars, beside ours."""
    axis.set_title("internet, by collocation:\nthe paper's text and ours")
    axis.axhline(1, color=colours["collocation"])
    if "internet" not in measured["configurations"]:
        return
    found = medians(measured, "internet")
    sizes = sorted({n for _, n in found})
    for k, model in enumerate(("staging", "remote")):
        ratios = [
            statistics.median(found[model, n]) / statistics.median(found["collocation", n]) for n in sizes
        ]
        for i, ratio in enumerate(ratios):
            place = i + (k - 0.5) * 0.44
            paper = axis.bar(
                place - 0.1, PAPER_SPEEDUP, 0.19, color="white", edgecolor=colours[model], hatch="///"
            )
            axis.annotate(
                "> 2",
                (place - 0.1, PAPER_SPEEDUP),
                (0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=7,
            )
            ours = axis.bar(place + 0.1, ratio, 0.19, color=colours[model])
            axis.annotate(
                f"{ratio:.1f}",
                (place + 0.1, ratio),
                (0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=7,
            )
            if i == 0 and k == 0:
                axis.legend([paper, ours], ['the paper: "greater than 2"', "ours"], fontsize=8)
    axis.set_xticks(range(len(sizes)), [f"{n}\n({p})" for n, p in paper_of(sizes)])
    axis.set_xlabel("executions (those of the paper)")
    axis.set_ylabel("times as long as collocation")
    # Room for the legend above the bars.
    axis.margins(y=0.4)


def rate_text(bytes_per_s: int) -> str:
    return "1 Gbit/s" if bytes_per_s == GIGABIT_BYTES_PER_S else f"{bytes_per_s / 1e6:g} MB/s"


def measure(args: argparse.Namespace) -> dict[str, Any]:
    load = os.getloadavg()[0]
    found = {}
    for name in args.configurations:
        with tempfile.TemporaryDirectory(prefix="eyas-rmsd-", dir=args.dir) as folder:
            found[name] = configuration(name, args, Path(folder))
    loads = [round(load, 1), round(os.getloadavg()[0], 1)]
    return {"machine": machine(), "load": loads, "rounds": args.rounds, "configurations": found}


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Staging, remote access and collocation: figure 7 of Wozniak06."
    )
    parser.add_argument("--out", type=Path, help="measure, and write the numbers here")
    parser.add_argument(
        "--draw", type=Path, nargs="+", help="draw what earlier runs wrote, one figure of all"
    )
    parser.add_argument("--svg", type=Path, help="the figure, an SVG or PNG file")
    parser.add_argument(
        "--eyas", type=Path, default=shutil.which("eyas"), help="the program eyas [on the PATH]"
    )
    parser.add_argument(
        "--dir", type=Path, help="folder for stores and copies, several GB [the temporary one]"
    )
    parser.add_argument(
        "--configurations", nargs="+", choices=("cluster", "internet"), default=["cluster", "internet"]
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--processors", nargs="+", type=int, default=[2, 4, 8], help="[2 4 8]")
    parser.add_argument("--executions", type=int, default=4, help="of each processor; 10 in the paper [4]")
    parser.add_argument("--cluster-megabytes", type=int, default=350, help="of a trajectory [350]")
    parser.add_argument(
        "--internet-megabytes", type=int, default=24, help="of a trajectory; 350 in the paper [24]"
    )
    parser.add_argument(
        "--internet-rate", type=int, default=INTERNET_BYTES_PER_S, help="bytes/s of a link [1000000]"
    )
    parser.add_argument("--rounds", type=int, default=1, help="how often each bar is measured [1]")
    args = parser.parse_args()
    if (args.out is None) == (args.draw is None):
        parser.error("say --out FILE to measure, or --draw FILE ...")
    if args.out and args.eyas is None:
        parser.error("there is no program eyas on the PATH: say --eyas")
    try:
        if args.out:
            measured = measure(args)
            args.out.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
        else:
            measured = {"configurations": {}}
            for path in args.draw:
                measured["configurations"] |= json.loads(path.read_text(encoding="utf-8"))["configurations"]
        if args.svg:
            draw(measured, args.svg)
    except (OSError, HostError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
