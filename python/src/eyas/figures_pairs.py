"""Figures 3 to 7 of `Miceli10` from what `eyas-lab bench template --json FILE` writes.

`python -m eyas.figures --template DIR FILE` draws them into DIR as `miceli-fig-3.svg` and so on. A figure whose experiments were not run is
left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from eyas.figures import Draw, Json, Missing, Results, doublings

COUNTS = [1, 2, 3, 4, 8]
# Machines and degree of replication of all experiments with a distributed file system.
STORED = [("C1", 1), ("C2", 1), ("C3", 1), ("C4", 1), ("C4", 2), ("C5", 1), ("C5", 2), ("C5", 3)]
Curve = dict[str, Any]


class Template(Results):
    """The experiments of one file, each found by its tuple."""

    def __init__(self, file: Path) -> None:
        self.experiments, self.about = {}, {}
        self.scheduler, self.index, self.micro, self.collectives = [], None, [], None
        details = json.loads(file.read_text(encoding="utf-8"))["table"]["details"]
        self.runs: list[Json] = details["runs"]

    def times(self, curve: Curve) -> dict[int, Json]:
        """By the number of workers: the times of the run whose t_c is the median."""
        return {run["tuple"]["workers"]: run["times"] for run in self._of(curve)}

    def spread(self, curve: Curve) -> dict[int, tuple[float, float, float]]:
        """By the number of workers, in seconds: the median, the least and the most of t_c."""
        return {
            run["tuple"]["workers"]: (run["times"]["t_c"], run["all_t_c"][0], run["all_t_c"][-1])
            for run in self._of(curve)
        }

    def _of(self, curve: Curve) -> list[Json]:
        return [run for run in self.runs if all(run["tuple"][key] == value for key, value in curve.items())]


def curve(
    access: str,
    machines: str,
    replicas: int = 1,
    chunk: int = 287,
    assignments: int = 8,
    compares: bool = False,
) -> Curve:
    return {
        "access": access,
        "machines": machines,
        "replicas": replicas,
        "chunk": f"{chunk} MB",
        "assignments": assignments,
        "compares": compares,
    }


def lines(axes: Any, results: Template, curves: Sequence[tuple[str, Curve]], title: str) -> None:
    """t_c by the number of workers, a line for each curve, with the least and the most of all rounds."""
    n_drawn = 0
    for i, (label, of) in enumerate(curves):
        found = sorted(results.spread(of).items())
        if not found:
            continue
        n_drawn += 1
        middle = [t for _, (t, _, _) in found]
        around = [[t - least for _, (t, least, _) in found], [most - t for _, (t, _, most) in found]]
        workers = [n for n, _ in found]
        axes.errorbar(
            workers, middle, yerr=around, marker="o", ms=3, lw=1.2, capsize=2, color=f"C{i}", label=label
        )
    if not n_drawn:
        raise Missing(title)
    axes.set_ylim(0, None)
    finish(axes, title, "t_c (s)")


def finish(axes: Any, title: str, ylabel: str) -> None:
    doublings(axes, [1, 2, 4, 8])
    axes.minorticks_off()
    axes.set_title(title, fontsize=9)
    axes.set(xlabel="workers N_w", ylabel=ylabel)
    # Room for the legend above all lines.
    least, most = axes.get_ylim()
    axes.set_ylim(least, most + 0.3 * (most - least))
    axes.legend(fontsize=6, ncols=2, loc="upper center")


def named(machines: str, replicas: int) -> str:
    return f"{machines}, r = {replicas}"


def two(left: Callable[[Any, Template], None], right: Callable[[Any, Template], None]) -> Draw:
    def draw(figure: Any, results: Results) -> None:
        assert isinstance(results, Template)
        a, b = figure.subplots(1, 2)
        left(a, results)
        right(b, results)

    return draw


def local(axes: Any, results: Template) -> None:
    curves = [
        ("287 MB, N_c = 8", curve("local", "C1")),
        ("144 MB, N_c = 16", curve("local", "C1", chunk=144, assignments=16)),
        ("144 MB, N_c = 8", curve("local", "C1", chunk=144)),
    ]
    lines(axes, results, curves, "(a) C1, local")


def gridftp(axes: Any, results: Template) -> None:
    curves = [
        (f"{machines}, GridFTP", curve("gridftp", machines)) for machines in ("C1", "C2", "C3", "C4", "C5")
    ]
    curves += [(f"{machines}, placed by data", curve("placed", machines)) for machines in ("C4", "C5")]
    lines(axes, results, curves, "(b) 287 MB, GridFTP")


def stored(title: str, keep: Callable[[str], bool]) -> Callable[[Any, Template], None]:
    def draw(axes: Any, results: Template) -> None:
        curves = [(named(m, r), curve("hdfs", m, r)) for m, r in STORED if keep(m)]
        lines(axes, results, curves, title)

    return draw


def differences(
    value: Callable[[Template, str, int], dict[int, float]], title: str, ylabel: str
) -> Callable[[Any, Template], None]:
    """A line for each configuration of a distributed file system."""

    def draw(axes: Any, results: Template) -> None:
        all_of = {(m, r): sorted(value(results, m, r).items()) for m, r in STORED}
        if not any(all_of.values()):
            raise Missing(title)
        for i, ((machines, replicas), points) in enumerate(all_of.items()):
            if points:
                axes.plot(
                    [n for n, _ in points],
                    [t for _, t in points],
                    marker="o",
                    ms=3,
                    lw=1.2,
                    color=f"C{i}",
                    label=named(machines, replicas),
                )
        axes.axhline(0, color="black", lw=0.8)
        finish(axes, title, ylabel)

    return draw


def both(results: Template, one: Curve, other: Curve) -> dict[int, tuple[float, float]]:
    """t_c of two curves, for the numbers of workers that both have."""
    a, b = results.times(one), results.times(other)
    return {n: (a[n]["t_c"], b[n]["t_c"]) for n in COUNTS if n in a and n in b}


def compared_less_null(results: Template, machines: str, replicas: int) -> dict[int, float]:
    null = curve("hdfs", machines, replicas, chunk=144)
    pairs = both(results, {**null, "compares": True}, null)
    return {n: compared - only_read for n, (compared, only_read) in pairs.items()}


def whole_less_half(results: Template, machines: str, replicas: int) -> dict[int, float]:
    pairs = both(results, curve("hdfs", machines, replicas), curve("hdfs", machines, replicas, chunk=144))
    return {n: (whole - half) * n for n, (whole, half) in pairs.items()}


def overhead(results: Template, machines: str, replicas: int) -> dict[int, float]:
    pairs = both(results, curve("hdfs", machines, replicas), curve("hdfs", machines, replicas, chunk=144))
    return {n: 2 * half - whole for n, (whole, half) in pairs.items()}


def parts(axes: Any, results: Template) -> None:
    """Where the time goes with two workers and the comparison."""
    kinds = [
        ("setup", "#9aa5b1", "t_setup"),
        ("transfer", "#d1495b", "t_x"),
        ("I/O", "#f0c808", "t_io"),
        ("compute", "#5aa469", "t_compute"),
        ("rest", "#dddddd", "t_rest"),
    ]
    found = [
        (named(m, r), results.times(curve("hdfs", m, r, chunk=144, compares=True)).get(2)) for m, r in STORED
    ]
    rows = [(name, times) for name, times in found if times]
    if not rows:
        raise Missing("parts")
    bottom = [0.0] * len(rows)
    for label, color, key in kinds:
        values = [times[key] for _, times in rows]
        axes.bar(range(len(rows)), values, bottom=bottom, color=color, label=label, width=0.7)
        bottom = [b + v for b, v in zip(bottom, values)]
    axes.set_xticks(range(len(rows)), [name for name, _ in rows], rotation=40, ha="right", fontsize=7)
    axes.set_title("the same, two workers, compared", fontsize=9)
    axes.set_ylabel("time (s)")
    axes.legend(fontsize=6)


def lowest(axes: Any, results: Template) -> None:
    n_drawn = 0
    for i, (label, access) in enumerate([("placed by data", "placed"), ("HDFS, direct", "hdfs")]):
        points = []
        for n, machines in enumerate(("C1", "C4", "C5"), start=1):
            found = results.times(curve(access, machines)).values()
            if found:
                points.append((n, min(times["t_c"] for times in found)))
        if points:
            n_drawn += 1
            axes.plot([n for n, _ in points], [t for _, t in points], marker="o", color=f"C{i}", label=label)
    if not n_drawn:
        raise Missing("lowest")
    axes.set_xticks([1, 2, 3])
    axes.set(xlabel="machines N_r", ylabel="least t_c (s)", ylim=(0, None))
    axes.set_title("(a) least times", fontsize=9)
    axes.legend(fontsize=7)


def three_machines(axes: Any, results: Template) -> None:
    curves = [
        ("placed by data", curve("placed", "C5")),
        ("HDFS, direct", curve("hdfs", "C5")),
        ("HDFS, placed and cached", curve("hdfs-placed", "C5")),
    ]
    lines(axes, results, curves, "(b) three machines")


def template_figures() -> dict[str, Draw]:
    """All of them, by the name of their file."""
    one_and_two = stored("(a) one and two machines, HDFS", lambda machines: machines != "C5")
    three = stored("(b) three machines, HDFS", lambda machines: machines == "C5")
    null = differences(compared_less_null, "144 MB, HDFS: compared less only read", "\u0394t_c (s)")
    return {
        "miceli-fig-3": two(local, gridftp),
        "miceli-fig-4": two(one_and_two, three),
        "miceli-fig-5": two(null, parts),
        "miceli-fig-6": two(
            differences(
                whole_less_half, "(a) (t_c(287 MB) \u2212 t_c(144 MB)) \u00d7 N_w", "\u0394t_c \u00d7 N_w (s)"
            ),
            differences(overhead, "(b) 2 \u00d7 t_c(144 MB) \u2212 t_c(287 MB)", "t_OH (s)"),
        ),
        "miceli-fig-7": two(lowest, three_machines),
    }
