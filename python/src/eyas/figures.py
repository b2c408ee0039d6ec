"""Figures of `eyas-lab repro` and of live runs, in the look of the paper's.

`python -m eyas.figures DIR` draws the results of `eyas-lab repro`, `python -m eyas.figures --reports DIR NAME=report.json ...`
draws live runs from the JSON files of `eyas report`: each run's course (as figures 17 to 23), and all of them side by side (figures 24 to
28); the first run is what the others are compared with. `python -m eyas.figures --template DIR FILE` draws what `eyas-lab bench template`
wrote (`eyas.figures_pairs`).

In: `DIR/results.json` and `DIR/timings.json`, as `eyas-lab repro` writes them. Out: `DIR/figures/*.svg`, each a few tens of
kilobytes, the same bytes from the same results and the same matplotlib. A figure whose experiments were not run is left
out, and removed if an earlier one lies there.

Needs matplotlib, which is no dependency of eyas otherwise: `pip install matplotlib`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Draw = Callable[[Any, "Results"], None]

GBIT = 1e9 / 8
LOCAL, REMOTE, MISS = "#5aa469", "#f0c808", "#d1495b"
PAPER, EYAS = "#9aa5b1", "#1f6feb"

MI = ["mi-fa", "mi-gcc-1gb", "mi-gcc-1.5gb", "mi-gcc-2gb", "mi-gcc-4gb", "mi-mch", "mi-mcu"]
ALL_PAIRS = ["ap-500-1s", "ap-500-0.1s", "ap-1000-bgp", "ap-1000-sicortex"]
LOCALITIES = ["1", "1.38", "2", "3", "4", "5", "10", "20", "30"]
PROCESSORS = [2, 4, 8, 16, 32, 64, 128]
# Name, suffix of the experiment's name, marker.
STACKING = [
    ("Data diffusion (GZ)", "gz", "o"),
    ("Data diffusion (FIT)", "fit", "s"),
    ("GPFS (GZ)", "gz-gpfs", "^"),
    ("GPFS (FIT)", "fit-gpfs", "v"),
]


class Missing(Exception):
    """An experiment that a figure needs was not run."""


class Results:
    """What came out, by the experiment's name."""

    def __init__(self, folder: Path) -> None:
        read = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        self.experiments: dict[str, Json] = read["experiments"]
        self.about: dict[str, Json] = read["about"]
        timings = folder / "timings.json"
        text = timings.read_text(encoding="utf-8") if timings.exists() else "{}"
        clocked: Json = json.loads(text)
        self.scheduler: list[Json] = clocked.get("scheduler", [])
        self.index: Json | None = clocked.get("index")
        self.micro: list[Json] = read.get("micro", [])
        self.collectives: Json | None = read.get("collectives")

    def __getitem__(self, name: str) -> Json:
        if name not in self.experiments:
            raise Missing(name)
        return self.experiments[name]

    def series(self, name: str) -> tuple[list[float], Json]:
        series = self[name]["series"]
        if not series["demand"]:
            raise Missing(name)
        return [i * series["step_s"] for i in range(len(series["demand"]))], series

    def label(self, name: str) -> str:
        return str(self.about[name]["what"])

    def paper(self, name: str, metric: str) -> float | None:
        value = self.about.get(name, {}).get("paper", {}).get(metric)
        return None if value is None else float(value)


class Live(Results):
    """Live runs by name, from what `eyas report` wrote, in the form of simulated ones."""

    def __init__(self, reports: dict[str, Path]) -> None:
        read = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in reports.items()}
        self.experiments = {name: summary_of(report) for name, report in read.items()}
        self.about = {name: {"what": name} for name in read}
        self.scheduler, self.index, self.micro, self.collectives = [], None, [], None

    @property
    def names(self) -> list[str]:
        return list(self.experiments)


def summary_of(report: Json) -> Json:
    """A live report in the form of a simulated run's summary."""
    totals, series, requests = report["totals"], report["series"], report["requests"]

    def gbps(name: str) -> list[float]:
        return [value * GBIT for value in series[name]]

    def n(*names: str) -> int:
        return sum(int(requests[name]["n_requests"]) for name in names)

    intervals = [
        {"n_tasks": row["n_tasks"], "rate": row["tasks_per_s"], "slowdown": row["slowdown"]}
        for row in report["arrivals"]
    ]
    return {
        "makespan_s": totals["makespan_ns"] / 1e9,
        "response_mean_s": totals["response_mean_ns"] / 1e9,
        "cpu_hours": totals["cpu_hours_allocated"],
        "throughput_p99_bytes_per_s": totals["throughput_peak_gbps"] * GBIT,
        "n_local": n("local_hit", "in_place", "made"),
        "n_peer": n("remote_hit"),
        "n_home": n("joined", "miss", "direct"),
        "local_bytes": totals["cache_local_bytes"],
        "peer_bytes": totals["cache_remote_bytes"],
        "home_bytes": totals["home_in_bytes"],
        "intervals": intervals,
        "series": {
            "step_s": series["bin_ns"] / 1e9,
            "demand": gbps("demand_gbps"),
            "local": gbps("cache_local_gbps"),
            "peer": gbps("cache_remote_gbps"),
            "home": gbps("home_gbps"),
            "queue": series["n_queued"],
            "nodes": series["n_nodes"],
        },
    }


def shares(summary: Json) -> tuple[float, float, float]:
    """Inputs by where they were found, in [0, 1]: local, remote, miss."""
    n = max(1, summary["n_local"] + summary["n_peer"] + summary["n_home"])
    return summary["n_local"] / n, summary["n_peer"] / n, summary["n_home"] / n


# ---------------------------------------------------------------- over time


def demand(name: str, read_bytes: float) -> Draw:
    """Arrival rate and tasks so far (figures 16 and 29)."""

    def draw(figure: Any, results: Results) -> None:
        time_s, series = results.series(name)
        n_points = 1 + max(i for i, d in enumerate(series["demand"]) if d > 0)
        time_s = time_s[:n_points]
        rate = [d / read_bytes for d in series["demand"][:n_points]]
        total, so_far = 0.0, []
        for r in rate:
            total += r * series["step_s"]
            so_far.append(total / 1000)
        left = figure.subplots()
        left.plot(time_s, rate, color=MISS, label="arrival rate")
        left.set(xlabel="time (s)", ylabel="tasks per second")
        right = left.twinx()
        right.plot(time_s, so_far, color="black", label="tasks submitted")
        right.set_ylabel("tasks submitted (thousands)")
        lines = left.get_lines() + right.get_lines()
        left.legend(lines, [line.get_label() for line in lines], loc="upper left", fontsize=8)

    return draw


def smooth(values: list[float], by: int) -> list[float]:
    """Means over so many neighbours."""
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    ends = [(max(0, i - by // 2), min(len(values), i + by // 2 + 1)) for i in range(len(values))]
    return [(sums[b] - sums[a]) / (b - a) for a, b in ends]


def course(name: str, by_demand: bool = True, live: bool = False) -> Draw:
    """Throughput, queue and nodes as lines, hits and misses as areas (figures 17 to 23, 30 to 32, 36 to 39).

    Live runs are small: MB/s and tasks in place of Gb/s and thousands, and rates as means over a thirtieth of the time.
    """
    rate, rate_name = (1e6, "MB/s") if live else (GBIT, "Gb/s")
    tasks, queue_name = (1, "queue (tasks)") if live else (1000, "queue (thousands)")

    def draw(figure: Any, results: Results) -> None:
        time_s, series = results.series(name)
        if live:
            by = max(1, len(time_s) // 30)
            series = {
                k: smooth(v, by) if k in ("demand", "local", "peer", "home") else v for k, v in series.items()
            }
        total = [a + b + c for a, b, c in zip(series["local"], series["peer"], series["home"])]
        part = [
            [100 * v / t if t else 0.0 for v, t in zip(series[kind], total)]
            for kind in ("home", "peer", "local")
        ]
        left = figure.subplots()
        right = left.twinx()
        right.stackplot(
            time_s,
            part,
            colors=[MISS, REMOTE, LOCAL],
            labels=["miss %", "remote hit %", "local hit %"],
            alpha=0.45,
        )
        right.set(ylim=(0, 100), ylabel="cache hits and misses (%)")
        # Lines lie above areas.
        left.set_zorder(right.get_zorder() + 1)
        left.patch.set_visible(False)
        if by_demand:
            left.plot(
                time_s,
                [v / rate for v in series["demand"]],
                color="#555555",
                lw=1,
                ls="--",
                label=f"demand ({rate_name})",
            )
        left.plot(time_s, [v / rate for v in total], color=EYAS, lw=1.4, label=f"throughput ({rate_name})")
        if by_demand:
            queue = [v / tasks for v in series["queue"]]
            left.plot(time_s, queue, color="black", lw=1.2, label=queue_name)
            left.plot(time_s, series["nodes"], color="#8250df", lw=1.2, label="nodes")
        of_tasks = "tasks" if live else "thousands"
        ylabel = f"nodes, {rate_name}, {of_tasks}" if by_demand else rate_name
        left.set(xlabel="time (s)", ylabel=ylabel, ylim=(0, None))
        handles = [h for axes in (left, right) for h in axes.get_legend_handles_labels()[0]]
        labels = [t for axes in (left, right) for t in axes.get_legend_handles_labels()[1]]
        figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=7)
        figure.suptitle(results.label(name), fontsize=10)

    return draw


# ---------------------------------------------------------------- MI


def bars(axes: Any, labels: list[str]) -> range:
    axes.set_xticks(range(len(labels)), labels, rotation=20, ha="right", fontsize=8)
    return range(len(labels))


def stacked(axes: Any, at: Iterable[float], parts: list[tuple[str, str, list[float]]]) -> None:
    at = list(at)
    bottom = [0.0] * len(at)
    for label, color, values in parts:
        axes.bar(at, values, bottom=bottom, color=color, label=label, width=0.6)
        bottom = [b + v for b, v in zip(bottom, values)]


def hits(names: Sequence[str]) -> Draw:
    """Where inputs were found (figure 24)."""

    def draw(figure: Any, results: Results) -> None:
        axes = figure.subplots()
        found = [shares(results[name]) for name in names]
        at = bars(axes, [results.label(name) for name in names])
        kinds = [("local hit", LOCAL), ("remote hit", REMOTE), ("miss", MISS)]
        stacked(axes, at, [(k, c, [100 * f[i] for f in found]) for i, (k, c) in enumerate(kinds)])
        axes.set(ylabel="inputs (%)", ylim=(0, 100))
        axes.legend(loc="lower right", fontsize=8)

    return draw


def throughput(names: Sequence[str], live: bool = False) -> Draw:
    """Mean and 99th percentile (figure 25)."""
    unit, unit_name, home = (1e6, "MB/s", "home") if live else (GBIT, "Gb/s", "GPFS")

    def draw(figure: Any, results: Results) -> None:
        axes = figure.subplots()
        at = bars(axes, [results.label(name) for name in names])
        kinds = [
            ("local", LOCAL, "local_bytes"),
            ("remote", REMOTE, "peer_bytes"),
            (home, MISS, "home_bytes"),
        ]
        parts = [
            (k, c, [results[n][key] / results[n]["makespan_s"] / unit for n in names]) for k, c, key in kinds
        ]
        stacked(axes, at, parts)
        peak = [results[name]["throughput_p99_bytes_per_s"] / unit for name in names]
        axes.plot(at, peak, "_", color="black", ms=18, mew=2, label="99th percentile")
        axes.set(ylabel=f"throughput ({unit_name})")
        axes.legend(loc="upper left", fontsize=8)

    return draw


def performance_index(names: Sequence[str]) -> Draw:
    """Speed-up against the first, and speed-up by CPU hour (figure 26)."""

    def draw(figure: Any, results: Results) -> None:
        axes = figure.subplots()
        base = results[names[0]]["makespan_s"]
        speedup = [base / results[name]["makespan_s"] for name in names]
        index = [s / results[name]["cpu_hours"] for s, name in zip(speedup, names)]
        at = bars(axes, [results.label(name) for name in names])
        axes.bar(
            [i - 0.2 for i in at],
            [i / max(index) for i in index],
            width=0.4,
            color=EYAS,
            label="performance index",
        )
        axes.set(ylabel="performance index", ylim=(0, 1.1))
        right = axes.twinx()
        against = f"speed-up against {results.label(names[0])}"
        right.bar([i + 0.2 for i in at], speedup, width=0.4, color=LOCAL, label=against)
        right.set_ylabel("speed-up")
        figure.legend(loc="upper left", bbox_to_anchor=(0.1, 0.95), fontsize=8)

    return draw


def rates_and_slowdowns(summary: Json) -> tuple[list[float], list[float]]:
    """Arrival rates, and the slowdown of the tasks that arrived at that rate."""
    rates, slowdowns = [], []
    for k, interval in enumerate(i for i in summary["intervals"] if i["n_tasks"]):
        if "rate" in interval:
            rates.append(interval["rate"])
            slowdowns.append(interval["slowdown"])
            continue
        # The last interval is cut short.
        length_s = min(60.0, summary["ideal_s"] - 60 * k)
        rates.append(interval["n_tasks"] / length_s)
        slowdowns.append(max(1.0, interval["slowdown"] * 60 / length_s))
    return rates, slowdowns


def slowdown(names: Sequence[str]) -> Draw:
    """By arrival rate (figure 27)."""

    def draw(figure: Any, results: Results) -> None:
        axes = figure.subplots()
        for name in names:
            rates, slowdowns = rates_and_slowdowns(results[name])
            axes.plot(rates, slowdowns, marker=".", label=results.label(name))
        axes.set(xscale="log", yscale="log", xlabel="arrival rate (tasks/s)", ylabel="slowdown")
        axes.legend(fontsize=8)

    return draw


def response(names: Sequence[str]) -> Draw:
    """Mean response times (figure 28)."""

    def draw(figure: Any, results: Results) -> None:
        axes = figure.subplots()
        at = bars(axes, [results.label(name) for name in names])
        axes.bar(at, [results[n]["response_mean_s"] for n in names], color=EYAS, width=0.6, label="eyas")
        said = [(i, results.paper(name, "response_s")) for i, name in zip(at, names)]
        known = [(i, value) for i, value in said if value is not None]
        if known:
            axes.plot(
                [i for i, _ in known], [v for _, v in known], "_", color="black", ms=22, mew=2, label="paper"
            )
        axes.set(yscale="log", ylabel="average response time (s)")
        axes.legend(fontsize=8)

    return draw


# ---------------------------------------------------------------- All-Pairs


def all_pairs(figure: Any, results: Results) -> None:
    axes = figure.subplots()
    ours = [results.about[n]["all_local_s"] / results[n]["makespan_s"] for n in ALL_PAIRS if results[n]]
    paper = [results.paper(name, "efficiency") or 0.0 for name in ALL_PAIRS]
    at = bars(axes, [results.label(name).removeprefix("GCC, ") for name in ALL_PAIRS])
    axes.bar([i - 0.2 for i in at], [100 * v for v in paper], width=0.4, color=PAPER, label="paper")
    axes.bar([i + 0.2 for i in at], [100 * v for v in ours], width=0.4, color=EYAS, label="eyas, GCC")
    best = [f"ours-{name}" for name in ALL_PAIRS]
    if all(name in results.experiments for name in best):
        values = [100 * results.about[n]["all_local_s"] / results[n]["makespan_s"] for n in best]
        axes.plot([i + 0.2 for i in at], values, "_", color="black", ms=20, mew=2, label="eyas, our default")
    axes.set(ylabel="efficiency (%)", ylim=(0, 105))
    axes.legend(fontsize=8)


# ---------------------------------------------------------------- stacking


def stack_ms(results: Results, locality: str, suffix: str, processors: int) -> float:
    summary = results[f"stacking-{locality}-{suffix}-{processors}"]
    return 1e3 * float(summary["makespan_s"]) * processors / float(summary["n_tasks"])


def stacking_by_processors(locality: str) -> Draw:
    def draw(figure: Any, results: Results) -> None:
        axes = figure.subplots()
        for what, suffix, marker in STACKING:
            values = [stack_ms(results, locality, suffix, n) for n in PROCESSORS]
            axes.plot(PROCESSORS, values, marker=marker, label=what)
        doublings(axes, PROCESSORS)
        axes.set(xlabel="processors", ylabel="time per stack and processor (ms)", ylim=(0, None))
        axes.legend(fontsize=8)

    return draw


def by_locality(axes: Any) -> range:
    axes.set_xticks(range(len(LOCALITIES)), LOCALITIES)
    axes.set_xlabel("locality")
    return range(len(LOCALITIES))


def stacking_hits(figure: Any, results: Results) -> None:
    axes = figure.subplots()
    at = by_locality(axes)
    names = [f"stacking-{locality}-gz-128" for locality in LOCALITIES]
    found = [shares(results[name]) for name in names]
    kinds = [("local hit", LOCAL), ("remote hit", REMOTE), ("miss", MISS)]
    stacked(axes, at, [(k, c, [100 * f[i] for f in found]) for i, (k, c) in enumerate(kinds)])
    ideal = [100 * (1 - 1 / float(locality)) for locality in LOCALITIES]
    axes.plot(at, ideal, "_", color="black", ms=20, mew=2, label="ideal")
    axes.set(ylabel="inputs (%)", ylim=(0, 100))
    axes.legend(fontsize=8, loc="lower right")


def stacking_by_locality(figure: Any, results: Results) -> None:
    axes = figure.subplots()
    at = by_locality(axes)
    for what, suffix, marker in STACKING:
        axes.plot(at, [stack_ms(results, loc, suffix, 128) for loc in LOCALITIES], marker=marker, label=what)
    axes.set(ylabel="time per stack and processor (ms)", ylim=(0, None))
    axes.legend(fontsize=8)


def stacking_bytes(per_stack: bool) -> Draw:
    """Throughput (figure 48), or bytes per stack (figure 49), of GZ."""

    def draw(figure: Any, results: Results) -> None:
        axes = figure.subplots()
        at = by_locality(axes)

        def value(summary: Json, n_bytes: float) -> float:
            if per_stack:
                return n_bytes / float(summary["n_tasks"]) / 1e6
            return n_bytes / float(summary["makespan_s"]) / GBIT

        cached = [results[f"stacking-{locality}-gz-128"] for locality in LOCALITIES]
        # Uncompressed, each stack reads 6 MB of its node's disk.
        local = [value(s, 6e6 * s["n_tasks"]) for s in cached]
        parts = [
            ("GPFS", MISS, [value(s, s["moved_home_bytes"]) for s in cached]),
            ("cache to cache", REMOTE, [value(s, s["moved_peer_bytes"]) for s in cached]),
            ("local", LOCAL, local),
        ]
        stacked(axes, at, parts)
        for what, suffix, marker in STACKING[2:]:
            home = [results[f"stacking-{locality}-{suffix}-128"] for locality in LOCALITIES]
            values = [value(s, s["moved_home_bytes"]) for s in home]
            axes.plot(at, values, marker=marker, ls=":", color="black", label=what)
        axes.set(ylabel="MB per stack" if per_stack else "throughput (Gb/s)")
        axes.legend(fontsize=8)

    return draw


def model_error(results: Results, name: str) -> float:
    simulated = float(results[name]["makespan_s"])
    return 100 * abs(float(results.about[name]["modelled_s"]) - simulated) / simulated


def model_by_processors(figure: Any, results: Results) -> None:
    axes = figure.subplots()
    for locality, style in (("1", ":"), ("1.38", "--"), ("30", "-")):
        for i, (what, suffix, marker) in enumerate(STACKING):
            values = [model_error(results, f"stacking-{locality}-{suffix}-{n}") for n in PROCESSORS]
            axes.plot(
                PROCESSORS, values, ls=style, marker=marker, ms=4, color=f"C{i}", label=f"{what}, {locality}"
            )
    doublings(axes, PROCESSORS)
    axes.set(xlabel="processors", ylabel="model error (%)", ylim=(0, None))
    figure.legend(loc="outside lower center", fontsize=6, ncols=3)


def model_by_locality(figure: Any, results: Results) -> None:
    axes = figure.subplots()
    at = by_locality(axes)
    for what, suffix, marker in STACKING:
        values = [model_error(results, f"stacking-{locality}-{suffix}-128") for locality in LOCALITIES]
        axes.plot(at, values, marker=marker, label=what)
    axes.set(ylabel="model error (%)", ylim=(0, None))
    axes.legend(fontsize=8)


# ---------------------------------------------------------------- the rest


def beyond(figure: Any, results: Results) -> None:
    rows = [name.removesuffix("-faults") for name in sorted(results.experiments) if name.endswith("-faults")]
    of = {"ours-sw": "sw-gcc-dynamic"}
    pairs = []
    for name in rows:
        plain = name.removeprefix("ours-")
        baseline = of.get(name, plain.replace("mi-", "mi-gcc-"))
        if name in results.experiments and baseline in results.experiments:
            pairs.append((results.label(name), name, baseline))
    if not pairs:
        raise Missing("ours")
    axes = figure.subplots()
    at = range(len(pairs))
    ours = [100 * results[n]["makespan_s"] / results[b]["makespan_s"] for _, n, b in pairs]
    faulty = [100 * results[f"{n}-faults"]["makespan_s"] / results[b]["makespan_s"] for _, n, b in pairs]
    axes.barh([i - 0.2 for i in at], ours, height=0.4, color=EYAS, label="our default")
    axes.barh([i + 0.2 for i in at], faulty, height=0.4, color=PAPER, label="with faults")
    axes.axvline(100, color="black", lw=1)
    axes.set_yticks(at, [label for label, _, _ in pairs], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("makespan, % of the paper's policy without faults")
    axes.legend(fontsize=8)


def scheduler(figure: Any, results: Results) -> None:
    if not results.scheduler:
        raise Missing("scheduler")
    axes = figure.subplots()
    at = bars(axes, [pace["policy"] for pace in results.scheduler])
    policy = [pace["policy_us"] or 0.0 for pace in results.scheduler]
    rest = [max(0.0, pace["whole_us"] - p) if p else 0.0 for pace, p in zip(results.scheduler, policy)]
    whole = [0.0 if p else pace["whole_us"] for pace, p in zip(results.scheduler, policy)]
    parts = [
        ("policy and window", MISS, policy),
        ("the rest of the dispatcher", PAPER, rest),
        ("all", EYAS, whole),
    ]
    stacked(axes, at, parts)
    axes.set_ylabel("time per decision (µs)")
    right = axes.twinx()
    right.plot(
        at, [pace["decisions_per_s"] for pace in results.scheduler], "o", color="black", label="decisions/s"
    )
    right.set(ylabel="decisions per second", ylim=(0, None))
    figure.legend(loc="outside lower center", ncols=4, fontsize=8)


# ---------------------------------------------------------------- micro-benchmarks


SIZES = [10**k for k in (0, 3, 4, 5, 6, 7, 8, 9)]
SIZE_NAMES = ["1B", "1KB", "10KB", "100KB", "1MB", "10MB", "100MB", "1GB"]
NODES = [1, 2, 4, 8, 16, 32, 64]
LARGE = 100_000_000
# Configuration, name in the legend, what the text gives for 64 nodes: reading, reading and writing.
CONFIGS = [
    ("local-disk", "model (local disk)", None, None),
    ("persistent", "model (persistent storage)", None, None),
    ("fa", "FA", 3100, 1000),
    ("fca0", "first-cache-available, 0 %", None, None),
    ("fca100", "first-cache-available, 100 %", 5700, 6300),
    ("mcu0", "MCU, 0 %", None, None),
    ("mcu100", "MCU, 100 %", 61700, 22700),
]


def mbit(results: Results, config: str, writes: bool, file_bytes: int, nodes: int) -> float:
    for m in results.micro:
        if (m["config"], m["writes"], m["file_bytes"], m["nodes"]) == (config, writes, file_bytes, nodes):
            return float(m["mbit_per_s"])
    raise Missing(config)


def by_size(axes: Any) -> range:
    axes.set_xticks(range(len(SIZES)), SIZE_NAMES, fontsize=8)
    axes.set(xlabel="size of a file", ylabel="throughput (Mb/s)")
    return range(len(SIZES))


def micro_one_node(figure: Any, results: Results) -> None:
    axes = figure.subplots()
    at = by_size(axes)
    for config, what in (("local-disk", "local disk"), ("persistent", "GPFS")):
        for writes, kind in ((False, "read"), (True, "read and write")):
            values = [mbit(results, config, writes, size, 1) for size in SIZES]
            style = "-" if config == "local-disk" else "--"
            axes.plot(at, values, ls=style, marker="s" if writes else "o", label=f"{what}, {kind}")
    axes.set_yscale("log")
    axes.legend(fontsize=8)


def doublings(axes: Any, values: Sequence[int]) -> None:
    """An axis on which each of the values stands, and a doubling is a step."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(values, [str(n) for n in values])


def micro_by_size(config: str, writes: bool) -> Draw:
    """Throughput by the size of a file, a line for each number of nodes (figures 8 to 11)."""

    def draw(figure: Any, results: Results) -> None:
        axes = figure.subplots()
        at = by_size(axes)
        for nodes in NODES:
            values = [mbit(results, config, writes, size, nodes) for size in SIZES]
            axes.plot(at, values, marker=".", label=f"{nodes} node{'s' if nodes > 1 else ''}")
        axes.legend(fontsize=8)

    return draw


def micro_by_nodes(writes: bool) -> Draw:
    """Throughput of seven configurations by the number of nodes (figures 12 and 13)."""

    def draw(figure: Any, results: Results) -> None:
        axes = figure.subplots()
        for i, (config, what, *paper) in enumerate(CONFIGS):
            values = [mbit(results, config, writes, LARGE, nodes) for nodes in NODES]
            axes.plot(NODES, values, marker=".", color=f"C{i}", label=what)
            if paper[writes] is not None:
                axes.plot([64], [paper[writes]], "*", color=f"C{i}", ms=11, mec="black")
        axes.plot([], [], "*", color="white", ms=11, mec="black", label="paper, 64 nodes")
        doublings(axes, NODES)
        axes.set(yscale="log", xlabel="nodes", ylabel="throughput (Mb/s)")
        axes.legend(fontsize=7)

    return draw


def micro_wrapper(figure: Any, results: Results) -> None:
    axes = figure.subplots()
    at = by_size(axes)
    lines = (("persistent", "model (persistent storage)"), ("fa", "FA"), ("fa-wrapper", "FA + wrapper"))
    for i, (config, what) in enumerate(lines):
        for writes, kind in ((False, "read"), (True, "read and write")):
            values = [mbit(results, config, writes, size, 64) for size in SIZES]
            axes.plot(
                at, values, color=f"C{i}", ls="--" if writes else "-", marker=".", label=f"{what}, {kind}"
            )
    axes.set_yscale("log")
    axes.legend(fontsize=7)


def index(figure: Any, results: Results) -> None:
    if results.index is None:
        raise Missing("index")
    axes = figure.subplots()
    nodes = [10 ** (k / 4) for k in range(25)]
    # 0.5 ms with one node, 15 ms with a million.
    latency_s = [0.5e-3 + 14.5e-3 * (k / 4) / 6 for k in range(25)]
    axes.plot(nodes, [n / s for n, s in zip(nodes, latency_s)], color=PAPER, label="P-RLS (paper)")
    axes.axhline(4.18e6, color="black", ls="--", label="hash table (paper)")
    axes.axhline(results.index["lookups_by_name_per_s"], color=EYAS, label="eyas, by name")
    axes.axhline(results.index["lookups_per_s"], color=EYAS, ls=":", label="eyas, by number")
    axes.set(xscale="log", yscale="log", xlabel="nodes of the index", ylabel="lookups per second")
    axes.legend(fontsize=8)


# ---------------------------------------------------------------- parallel scripting


def scripting(results: Results, key: str) -> list[Json]:
    if not results.collectives or not results.collectives[key]:
        raise Missing("collectives")
    rows: list[Json] = results.collectives[key]
    return rows


def montage_time(figure: Any, results: Results) -> None:
    rows = scripting(results, "montage")
    axes = figure.subplots()
    at = bars(axes, ["paper, files on GPFS", *(f"eyas, {row['what']}" for row in rows)])
    parts = [("computing", LOCAL, 13.4), ("moving files", MISS, 73.6), ("idle", PAPER, 13.0)]
    keys = ("computing", "moving", "idle")
    stacked(
        axes,
        at,
        [
            (what, color, [said, *(100 * row[key] for row in rows)])
            for (what, color, said), key in zip(parts, keys)
        ],
    )
    axes.set(ylabel="time of 512 cores (%)", ylim=(0, 100))
    axes.legend(fontsize=8)


def pattern_curve(pattern: str) -> Draw:
    """Time by nodes, a colour for each size; the paper's model dashed (figure 9)."""

    def draw(figure: Any, results: Results) -> None:
        rows = [row for row in scripting(results, "curves") if row["pattern"] == pattern]
        if not rows:
            raise Missing(pattern)
        axes = figure.subplots()
        nodes: list[Any] = []
        for i, size in enumerate(sorted({row["bytes"] for row in rows})):
            of = [row for row in rows if row["bytes"] == size]
            nodes = [row["nodes"] for row in of]
            what = f"{size // 10**6} MB" if size >= 10**6 else f"{size // 1000} KB"
            axes.plot(nodes, [row["seconds"] for row in of], marker="o", color=f"C{i}", label=f"eyas, {what}")
            model = [row["papers_model_s"] for row in of]
            axes.plot(nodes, model, ls="--", color=f"C{i}", label=f"the paper's model, {what}")
        doublings(axes, nodes)
        axes.set(yscale="log", xlabel="nodes", ylabel="time (s)")
        axes.legend(fontsize=7)

    return draw


def blast_scaled(figure: Any, results: Results) -> None:
    rows = scripting(results, "blast")
    axes = figure.subplots()
    cores = [row["cores"] for row in rows]
    axes.plot(cores, [row["makespan_s"] for row in rows], marker="o", color=EYAS, label="eyas")
    doublings(axes, cores)
    axes.set(xlabel="cores (and sequences)", ylabel="time (s)", ylim=(0, None))
    axes.legend(fontsize=8)


def figures() -> dict[str, Draw]:
    """All of them, by the name of their file."""
    all_of: dict[str, Draw] = {
        "fig-03-index": index,
        "fig-07-micro-one-node": micro_one_node,
        "fig-08-micro-home-read": micro_by_size("persistent", writes=False),
        "fig-09-micro-home-read-write": micro_by_size("persistent", writes=True),
        "fig-10-micro-local-read": micro_by_size("local-disk", writes=False),
        "fig-11-micro-local-read-write": micro_by_size("local-disk", writes=True),
        "fig-12-micro-read": micro_by_nodes(writes=False),
        "fig-13-micro-read-write": micro_by_nodes(writes=True),
        "fig-14-micro-wrapper": micro_wrapper,
        "zhang-fig-01-montage": montage_time,
        "zhang-fig-12-blast": blast_scaled,
        "fig-15-scheduler": scheduler,
        "fig-16-mi": demand("mi-fa", 10e6),
        "fig-24-mi-hits": hits(MI),
        "fig-25-mi-throughput": throughput(MI),
        "fig-26-mi-index": performance_index(MI),
        "fig-27-mi-slowdown": slowdown(MI),
        "fig-28-mi-response": response(MI),
        "fig-29-sw": demand("sw-fa", 10e6),
        "fig-40-allpairs": all_pairs,
        "fig-44-stacking": stacking_by_processors("1.38"),
        "fig-45-stacking": stacking_by_processors("30"),
        "fig-46-stacking-hits": stacking_hits,
        "fig-47-stacking": stacking_by_locality,
        "fig-48-stacking-throughput": stacking_bytes(per_stack=False),
        "fig-49-stacking-bytes": stacking_bytes(per_stack=True),
        "fig-50-model": model_by_processors,
        "fig-51-model": model_by_locality,
        "beyond": beyond,
    }
    for pattern in ("multicast", "scatter", "gather", "reduce"):
        all_of[f"zhang-fig-09-{pattern}"] = pattern_curve(pattern)
    for number, name in enumerate(MI, start=17):
        all_of[f"fig-{number}-{name}"] = course(name)
    for number, name in enumerate(["sw-fa", "sw-gcc", "sw-gcc-dynamic"], start=30):
        all_of[f"fig-{number}-{name}"] = course(name)
    for number, name in enumerate(ALL_PAIRS, start=36):
        all_of[f"fig-{number}-{name}"] = course(name, by_demand=False)
    return all_of


def live_figures(names: Sequence[str]) -> dict[str, Draw]:
    """Of live runs, by the name of their file: the run's number is its place among `names`."""
    all_of = {f"live-course-{at}": course(name, live=True) for at, name in enumerate(names, start=1)}
    all_of["live-hits"] = hits(names)
    all_of["live-throughput"] = throughput(names, live=True)
    all_of["live-index"] = performance_index(names)
    all_of["live-slowdown"] = slowdown(names)
    all_of["live-response"] = response(names)
    return all_of


def draw_all(folder: Path) -> int:
    """Draws what can be drawn into `folder/figures`; gives how many that were."""
    target = folder / "figures"
    target.mkdir(exist_ok=True)
    return draw_into(target, Results(folder), figures())


def draw_into(target: Path, results: Results, all_of: dict[str, Draw]) -> int:
    """Draws these figures into the folder `target`; gives how many could be drawn."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib.figure import Figure

    # Text stays text, ids do not depend on chance: small files, the same each time.
    style: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "eyas",
        "font.size": 9,
        "axes.grid": True,
        "grid.alpha": 0.3,
        "path.simplify_threshold": 0.5,
    }
    n_drawn = 0
    with matplotlib.rc_context(style):
        for name, draw in sorted(all_of.items()):
            path = target / f"{name}.svg"
            figure = Figure(figsize=(7, 3.6), layout="constrained")
            try:
                draw(figure, results)
            except Missing:
                path.unlink(missing_ok=True)
                continue
            figure.savefig(path, metadata={"Date": None, "Creator": None})
            n_drawn += 1
    return n_drawn


def main() -> int:
    words = sys.argv[1:]
    is_live = words[:1] == ["--reports"]
    is_template = words[:1] == ["--template"] and len(words) == 3
    if not words or (len(words) > 1 and not (is_live and len(words) > 2) and not is_template):
        usage = "DIR | --reports DIR NAME=report.json ... | --template DIR template.json"
        print(f"usage: python -m eyas.figures {usage}", file=sys.stderr)
        return 2
    what = words[1] if is_live else words[-1]
    try:
        if is_live:
            pairs = (word.partition("=") for word in words[2:])
            live = Live({name: Path(path) for name, _, path in pairs})
            n_drawn = draw_into(Path(what), live, live_figures(live.names))
        elif is_template:
            # That module knows this one by its name, under which this is another copy when it is run as a program.
            from eyas import figures as named
            from eyas.figures_pairs import Template, template_figures

            n_drawn = named.draw_into(Path(words[1]), Template(Path(what)), template_figures())
        else:
            n_drawn = draw_all(Path(what))
    except ModuleNotFoundError as error:
        print(f"error: {error.name} is not installed (pip install {error.name})", file=sys.stderr)
        return 1
    except (OSError, KeyError, ValueError, ZeroDivisionError) as error:
        wrote = "eyas report writes of a run with tasks" if is_live else "eyas-lab repro writes"
        wrote = "eyas-lab bench template writes" if is_template else wrote
        print(f"error: {what} does not hold what {wrote}: {error!r}", file=sys.stderr)
        return 1
    print(f"{n_drawn} figures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
