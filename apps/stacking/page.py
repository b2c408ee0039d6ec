#!/usr/bin/env python3
"""Write the page of results of evaluate.py: the paper's numbers beside those of this machine and of the simulator.

    page.py evaluation.json [--out docs/results] [--simulated docs/results/results.json]

In: what evaluate.py wrote; what `eyas-lab repro` wrote of the same workloads on up to 128 simulated processors. Out:
OUT/stacking.md, OUT/stacking.json (the first file, from which the page's numbers are), OUT/figures/live-stacking-*.svg (with
matplotlib; without it the figures that lie there stay). The same files give the same page.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from evaluate import ALONE, CONFIGURATIONS, NO_CACHES, PAPERS_POLICY, SIZE, TABLE_3, bytes_of

Json = dict[str, Any]
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
NAMES = {
    "dd-gz": "data diffusion (GZ)",
    "dd-fit": "data diffusion (FIT)",
    "shared-gz": "shared (GZ)",
    "shared-fit": "shared (FIT)",
    "ours-gz": "`affinity` (GZ)",
}
SIMULATED = {"dd-gz": "gz", "dd-fit": "fit", "shared-gz": "gz-gpfs", "shared-fit": "fit-gpfs"}
PROCESSORS = (2, 4, 8, 16, 32, 64, 128)
STEPS = (
    "open",
    "radec2xy",
    "readHDU",
    "getTile",
    "calibration",
    "interpolation",
    "doStacking",
    "writeStacking",
    "whole program",
)
NONE = "\u2013"


class PageError(Exception):
    """The page cannot be written; its text is one sentence for the user."""


def read(path: Path, mark: str) -> Json:
    """A file of JSON that has `mark`."""
    try:
        held: Json = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PageError(f"{path} cannot be read: {error}") from None
    if mark not in held:
        raise PageError(f"{path} is not what was expected: it has no `{mark}`")
    return held


# ---------------------------------------------------------------------------------------------- model


@dataclass(frozen=True)
class Costs:
    """What the model knows of a machine before a run. Seconds are of one stack, on as many nodes as the run has.

    `local_s` is C + R_l, its image on the local disk; `home_s` is C + R_s, its image from a home without a limit. `making_s` is the
    time in which a processor that does nothing else makes the plain file of a packed one. `start_s` is once, until the first task is
    given out. Bytes are of a file at home, and of what a stack writes. All nodes share `n_processors`.
    """

    start_s: float
    local_s: float
    home_s: float
    making_s: float
    file_bytes: float
    output_bytes: float
    n_processors: int


def model_s(experiment: Json, costs: Costs) -> float:
    """T_N(D), the time that a workload takes, in seconds: Raicu09 section 3.1, asked before the run.

    The hit ratio is the ideal one, 1 - 1/locality, or 0 without caches. Equations 4 and 5 have C + R_l for a hit and C + R_s for
    another stack, on N processors. The paper leaves open what R_s is where several read, and what happens at the same time. Here:

    - Home divides its rate evenly among the nodes that read. A node keeps its part between two reads.
    - Programs, unpacking and copying share the processors, of which there may be fewer than nodes.
    - A node is given one stack beside the one that it computes. By the paper's policy that is one whose file is there, as long as
      there is one. So of several stacks of a file the last one is computed while the next file comes and is unpacked. Where each
      stack has its own file, two are on their way (`two_on_their_way_s`).
    - `affinity` fetches while programs compute, and while the node unpacks. So the workload takes as long as the slowest of home,
      slots and processors, with the first file in front of it or the last one behind it.

    Not in it: copies between nodes, and that one node may have more to do than another.
    """
    n_tasks, n_nodes = int(experiment["n_objects"]), int(experiment["nodes"])
    rate = bytes_of(experiment["home_rate"])
    placement, reads = CONFIGURATIONS[experiment["configuration"]]
    n_fetched = n_tasks if placement == NO_CACHES else int(experiment["n_files"])
    making_s = costs.making_s if reads == "unpacked" else 0.0
    copying_s = max(0.0, costs.home_s - costs.local_s)
    # Of one node: its part of home for a file and for what a stack writes; its part of the processors for a program and a file.
    link_s, output_s = (n_nodes * size / rate for size in (costs.file_bytes, costs.output_bytes))
    share = n_nodes / costs.n_processors
    program_work_s, file_work_s = min(share, 1.0) * costs.local_s, share * (copying_s + making_s)
    bring_s = link_s + copying_s + making_s
    stacks, files = n_tasks / n_nodes, n_fetched / n_nodes
    if placement not in (NO_CACHES, PAPERS_POLICY):
        last = n_tasks / n_fetched  # so many stacks are of the last file
        home_s = files * link_s + (stacks - last) * output_s + copying_s + making_s + last * costs.local_s
        slots_s = bring_s + stacks * costs.local_s
        processors_s = link_s + stacks * program_work_s + files * file_work_s
        return costs.start_s + max(home_s, slots_s, processors_s)
    # Objects are dealt evenly, so files of one stack are there only where there are less than two for each file.
    own = max(0, 2 * n_fetched - n_tasks) / n_nodes
    own_s = two_on_their_way_s(
        link_s + output_s,
        max(costs.local_s, program_work_s + file_work_s),
        bring_s + output_s + costs.local_s,
    )
    shared_s = max(costs.local_s, bring_s)
    slowest_s = own_s if own == files else shared_s
    ends_s = bring_s + costs.local_s - slowest_s
    return costs.start_s + ends_s + own * own_s + (files - own) * shared_s + (stacks - files) * costs.local_s


def two_on_their_way_s(link_s: float, computing_s: float, alone_s: float) -> float:
    """Seconds from one stack to the next on a node that has two on their way, each through the link and then the processor.

    `alone_s` is the time of a stack that waits for nothing. There are two ends, as in `eyas model`: the stacks keep in step and wait
    for nothing that is not full, or they meet by chance (mean value analysis). Stacks are alike, so one that meets the other finds
    half of its time over. The expectation is the middle.
    """
    in_step_s = max(link_s, computing_s, alone_s / 2)
    waits_s = (link_s**2 + computing_s**2) / (2 * max(alone_s, link_s + computing_s))
    by_chance_s = (max(alone_s, link_s + computing_s) + waits_s) / 2
    return (in_step_s + max(in_step_s, by_chance_s)) / 2


class Results:
    """What was measured here and simulated, by configuration, locality and processors."""

    def __init__(self, measured: Json, simulated: Json) -> None:
        self.measured, self.simulated = measured, simulated
        options = measured["options"]
        self.most = max(options["nodes"])
        self.live: dict[tuple[str, str, int], Json] = {}
        self.goal: dict[str, Json] = {}
        self.alone: dict[tuple[str, int], Json] = {}
        for one in measured["experiments"]:
            if one["configuration"] not in CONFIGURATIONS:
                self.alone[one["configuration"], one["nodes"]] = one
            elif one["n_objects"] == options["goal_objects"] and one["home_rate"] == options["goal_rate"]:
                self.goal[one["configuration"]] = one
            else:
                self.live[one["configuration"], one["locality"], one["nodes"]] = one
        self.configurations = [name for name in CONFIGURATIONS if any(key[0] == name for key in self.live)]
        self.localities = [name for name in TABLE_3 if any(key[1] == name for key in self.live)]

    def of(self, configuration: str, locality: str, nodes: int | None = None) -> Json | None:
        return self.live.get((configuration, locality, self.most if nodes is None else nodes))

    def sim(self, configuration: str, locality: str, processors: int) -> Json | None:
        suffix = SIMULATED.get(configuration)
        found: Json | None = self.simulated["experiments"].get(f"stacking-{locality}-{suffix}-{processors}")
        return found

    def model_error(self, one: Json) -> float | None:
        """|model - measured| / measured of a live experiment; None without what the model has to know."""
        nodes = one["nodes"]
        alone = {name: self.alone.get((name, nodes)) for name in ALONE}
        if any(found is None for found in alone.values()):
            return None
        seconds = {
            name: (found["makespan_s"] - found["start_s"]) * nodes / found["n_objects"]
            for name, found in alone.items()
            if found
        }
        at_home = "gz" if one["configuration"].endswith("gz") else "fit"
        works_on = "gz" if one["configuration"] == "shared-gz" else "fit"
        local_s = seconds[f"local-{works_on}"]
        outputs = next(found for found in alone.values() if found)
        # What comes from home may be packed, and what the program works on not.
        home_s = local_s + seconds[f"home-{at_home}"] - seconds[f"local-{at_home}"]
        # Where few nodes run, a processor is left that unpacks beside the program.
        fewest = min(n for name, n in self.alone if name == "made-gz")
        making_s = self.alone["made-gz", fewest].get("making_s")
        if making_s is None:
            return None
        costs = Costs(
            start_s=statistics.median(found["start_s"] for found in alone.values() if found),
            local_s=local_s,
            home_s=home_s,
            making_s=making_s,
            file_bytes=self.measured["survey"][f"{at_home}_bytes"],
            output_bytes=outputs["output_bytes"] / outputs["n_objects"],
            n_processors=self.measured["machine"]["n_cores"],
        )
        return abs(model_s(one, costs) / float(one["makespan_s"]) - 1)

    def sim_error(self, configuration: str, locality: str, processors: int) -> float | None:
        one = self.sim(configuration, locality, processors)
        about = self.simulated["about"].get(
            f"stacking-{locality}-{SIMULATED.get(configuration)}-{processors}", {}
        )
        if one is None or about.get("modelled_s") is None:
            return None
        return float(abs(about["modelled_s"] / one["makespan_s"] - 1))


# --------------------------------------------------------------------------------------------- tables


def percent(value: float | None) -> str:
    if value is None:
        return NONE
    share = 100 * value
    return f"{share:.1f} %" if abs(share) < 10 and round(share, 1) != round(share) else f"{share:.0f} %"


def exact_percent(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:.1f} %"


def ms(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f} ms"


def small(value: float | None) -> str:
    """A number with three figures."""
    if value is None:
        return NONE
    if value == 0:
        return "0"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def sim_ms(one: Json | None, processors: int) -> float | None:
    return None if one is None else 1000 * one["makespan_s"] * processors / one["n_tasks"]


def live_ms(one: Json | None) -> float | None:
    return None if one is None else float(one["ms_per_stack"])


def value_of(one: Json | None, name: str) -> float | None:
    return None if one is None or one[name] is None else float(one[name])


def sim_hit_ratio(results: Results, locality: str) -> float | None:
    one = results.sim("dd-gz", locality, 128)
    return None if one is None else 1 - float(one["n_home"]) / float(one["n_tasks"])


def error_of(results: Results, configuration: str, locality: str, nodes: int | None = None) -> float | None:
    """The model's error of a live experiment."""
    one = results.of(configuration, locality, nodes)
    return None if one is None else results.model_error(one)


def by_processors(results: Results, locality: str) -> str:
    names = results.configurations
    nodes = sorted({key[2] for key in results.live if key[1] == locality})
    live = [
        [f"{n}, live", *(ms(live_ms(results.of(name, locality, n))) for name in names)]
        for n in nodes
        if any(results.of(name, locality, n) for name in names)
    ]
    simulated = [
        [f"{n}, simulated", *(ms(sim_ms(results.sim(name, locality, n), n)) for name in names)]
        for n in PROCESSORS
    ]
    return table(["processors", *(NAMES[name] for name in names)], live + simulated)


def hits(results: Results) -> str:
    caches = [name for name in results.configurations if not name.startswith("shared")]
    head = ["locality", "ideal"]
    for name in caches:
        head += [f"{NAMES[name]}, live", "of ideal"]
    head += ["128 processors, simulated (GZ)", "of ideal", "the paper, 128 processors"]
    rows = []
    for locality in results.localities:
        known = next(
            (one for name in caches if (one := results.of(name, locality))), {"hit_ratio_ideal": None}
        )
        row = [locality, exact_percent(known["hit_ratio_ideal"])]
        for name in caches:
            one = results.of(name, locality)
            row += [exact_percent(value_of(one, "hit_ratio")), exact_percent(value_of(one, "of_ideal"))]
        objects, files = TABLE_3[locality]
        hit, ideal = sim_hit_ratio(results, locality), 1 - files / objects
        row += [exact_percent(hit), exact_percent(hit / ideal if hit is not None and ideal > 0 else None)]
        rows.append([*row, "at least 90 % of ideal"])
    return table(head, rows)


def by_locality(results: Results) -> str:
    names = results.configurations
    head = ["locality", *(f"{NAMES[name]}, live" for name in names)]
    head += [f"{NAMES[name]}, simulated" for name in SIMULATED]
    rows = []
    for locality in results.localities:
        rows.append(
            [locality, *(ms(live_ms(results.of(name, locality))) for name in names)]
            + [ms(sim_ms(results.sim(name, locality, 128), 128)) for name in SIMULATED]
        )
    local = {name: results.alone.get((f"local-{name}", results.most)) for name in ("gz", "fit")}
    ideal = [
        ms(live_ms(local["gz" if name == "shared-gz" else "fit"]))
        for name in names  # what data diffusion reads is unpacked
    ]
    rows.append(["the local disk alone", *ideal, *[NONE] * len(SIMULATED)])
    return table(head, rows)


def sources_of(one: Json | None, simulated: bool, plain_bytes: float) -> list[float | None]:
    """Bytes of a stack from the local disk, from other nodes and from home."""
    if one is None:
        return [None, None, None]
    if simulated:
        n = one["n_tasks"]
        return [plain_bytes, one["moved_peer_bytes"] / n, one["moved_home_bytes"] / n]
    n = one["n_objects"]
    return [one["local_bytes"] / n, one["peer_bytes"] / n, one["home_bytes"] / n]


def moved(results: Results, throughput: bool) -> str:
    """Figures 48 (Gb/s) and 49 (MB a stack)."""
    caches = [name for name in results.configurations if not name.startswith("shared")]
    shared = [name for name in results.configurations if name.startswith("shared")]
    head = ["locality"]
    for name in caches:
        head += [f"{NAMES[name]}: local", "between nodes", "home"]
    head += [f"{NAMES[name]}: home" for name in shared]
    head += ["simulated (GZ): local", "between nodes", "home"]

    def shown(one: Json | None, simulated: bool) -> list[str]:
        values = sources_of(one, simulated, 6e6)
        if throughput and one is not None:
            n = one["n_tasks"] if simulated else one["n_objects"]
            values = [None if value is None else value * n * 8 / one["makespan_s"] / 1000 for value in values]
        return [small(None if value is None else value / 1e6) for value in values]

    rows = []
    for locality in results.localities:
        row = [locality]
        for name in caches:
            row += shown(results.of(name, locality), False)
        row += [shown(results.of(name, locality), False)[2] for name in shared]
        rows.append(row + shown(results.sim("dd-gz", locality, 128), True))
    return table(head, rows)


def steps_of(results: Results) -> str:
    profile = results.measured["profile"]
    gz, fit = profile["gz"], profile["fit"]
    says = {
        "open": "with `readHDU` most of the time",
        "readHDU": "with `open` most of the time",
        "radec2xy": "10 to 20 % of the time",
        "calibration": "less than 1 ms",
        "interpolation": "less than 1 ms",
        "doStacking": "less than 1 ms",
        "whole program": "GZ takes about twice as long as FIT",
    }
    rows = [
        [
            f"`{step}`" if step != "whole program" else step,
            says.get(step, NONE),
            *(f"{side.get(step, 0.0):.2f} ms" for side in (gz, fit)),
        ]
        for step in STEPS
    ]
    ratio = gz["whole program"] / fit["whole program"] if fit["whole program"] else None
    rows.append(["GZ beside FIT", "2", small(ratio), ""])
    n = f"{profile['n_objects']} objects, {profile['n_rounds']} times"
    rows.append(["measured on", "1,000 objects, 10 times", n, n])
    return table(["step", "the paper", "here, GZ", "here, FIT"], rows)


def goals(results: Results) -> str:
    """What was to be reached, and what was."""
    rows: list[list[str]] = []
    shared = results.goal.get("shared-gz")
    for name in ("ours-gz", "dd-gz"):
        one = results.goal.get(name)
        if one and shared:
            ratio = one["makespan_s"] / shared["makespan_s"]
            rows.append(
                [
                    f"time of {one['n_objects']:,} objects at locality 30, {NAMES[name]}, home at {one['home_rate']} a second, "
                    "beside shared (GZ)",
                    "0.25",
                    f"{ratio:.3f}: {one['makespan_s']:.1f} s, {shared['makespan_s']:.1f} s",
                    "reached" if ratio <= 0.25 else "**missed**",
                ]
            )
    for name in ("ours-gz", "dd-gz", "dd-fit"):
        reached = [
            one["of_ideal"]
            for locality in results.localities
            if (one := results.of(name, locality)) and one["of_ideal"] is not None
        ]
        if reached:
            rows.append(
                [
                    f"hit ratio beside the ideal, {NAMES[name]}, the least of all localities above 1",
                    "0.97",
                    f"{min(reached):.3f}",
                    "reached" if min(reached) >= 0.97 else "**missed**",
                ]
            )
    errors = live_errors(results)
    if errors:
        mean, worst = statistics.mean(errors), max(errors)
        rows.append(
            [
                "error of the model over the live experiments, mean and worst",
                "5 %, 20 %",
                f"{percent(mean)}, {percent(worst)}",
                "reached" if mean <= 0.05 and worst <= 0.20 else "**missed**",
            ]
        )
    return table(["what", "goal", "here", ""], rows)


def live_errors(results: Results) -> list[float]:
    every = [*results.live.values(), *results.goal.values()]
    return [error for one in every if (error := results.model_error(one)) is not None]


def errors_by_locality(results: Results) -> str:
    names = results.configurations
    head = ["locality", *(f"{NAMES[name]}, live" for name in names)]
    head += [f"{NAMES[name]}, simulated" for name in SIMULATED]
    rows = []
    for locality in results.localities:
        row = [locality]
        row += [percent(error_of(results, name, locality)) for name in names]
        rows.append(row + [percent(results.sim_error(name, locality, 128)) for name in SIMULATED])
    return table(head, rows)


def errors_by_processors(results: Results) -> str:
    names = results.configurations
    rows = []
    for locality in ("1.38", "30"):
        for n in sorted({key[2] for key in results.live if key[1] == locality}):
            if any(results.of(name, locality, n) for name in names):
                row = [percent(error_of(results, name, locality, n)) for name in names]
                rows.append([locality, f"{n}, live", *row])
        for n in PROCESSORS:
            rows.append(
                [
                    locality,
                    f"{n}, simulated",
                    *(percent(results.sim_error(name, locality, n)) for name in names),
                ]
            )
    return table(["locality", "processors", *(NAMES[name] for name in names)], rows)


def errors_together(results: Results) -> str:
    def row(name: str, errors: list[float]) -> list[str]:
        if not errors:
            return [name, "0", *[NONE] * 4]
        return [
            name,
            str(len(errors)),
            percent(statistics.mean(errors)),
            percent(statistics.median(errors)),
            percent(statistics.pstdev(errors)),
            percent(max(errors)),
        ]

    simulated = [
        error
        for locality in TABLE_3
        for n in PROCESSORS
        for name in SIMULATED
        if (error := results.sim_error(name, locality, n)) is not None
    ]
    rows = [
        ["the paper, all", "92", "5 %", "5 %", "5 %", "29 %"],
        ["the paper, 128 processors (figure 51)", NONE, "8 %", NONE, "5 %", NONE],
        row("live, here", live_errors(results)),
        row("simulated", simulated),
    ]
    return table(["", "experiments", "mean", "median", "standard deviation", "worst"], rows)


def portal() -> str:
    """Figure 41: what the paper's pages ask and show, and what ours do."""
    return table(
        ["", "the paper", "here"],
        [
            [
                "who asks",
                "user ID and password, made by hand",
                "accounts of the portal, or a provider of identities",
            ],
            [
                "what is asked",
                "a list of {ra dec band}",
                "the same, by form or file, as text, CSV or VOTable; each line is checked",
            ],
            [
                "while it runs",
                "percentage and expected end",
                "the same, tasks, nodes, and where the bytes come from",
            ],
            [
                "the result",
                "JPEG, its size in KB and in pixels, a link to FITS",
                "the same, PNG, one cutout alone, signal-to-noise, and a map of the sky",
            ],
            ["statistics", "time, number of computers, objects found", "the same"],
            [
                "objects that the survey does not have",
                "their number and addresses",
                "the same, with the line of the list and why",
            ],
            [
                "data not in the cache",
                "number and addresses: no permission, corrupt, cache inaccessible",
                "the same: `unreadable`, `corrupt`, `away`, `missing`",
            ],
        ],
    )


def workloads(results: Results) -> str:
    rows = []
    for locality in results.localities:
        objects, files = TABLE_3[locality]
        one = next(one for key, one in results.live.items() if key[1] == locality)
        rows.append([locality, f"{objects:,}", f"{files:,}", f"{one['n_objects']:,}", f"{one['n_files']:,}"])
    return table(["locality", "objects: the paper", "files: the paper", "objects here", "files here"], rows)


def shape(results: Results) -> str:
    survey, options = results.measured["survey"], results.measured["options"]
    asked = survey["options"]
    rows = [
        [
            "images",
            "SDSS DR5, five bands, 6 MB, 2 MB with gzip, 558,500 files",
            f"made by `survey.py`: {asked['width']:,} \u00d7 {asked['height']:,} pixels of 16 bits, five bands, "
            f"{survey['fit_bytes'] / 1e6:.1f} MB, {survey['gz_bytes'] / 1e6:.1f} MB with gzip, {survey['n_exposures']:,} files",
        ],
        [
            "objects (figure 42)",
            "168,529 rows of the query, 154,345 without duplicates",
            f"{survey['n_rows_of_query']:,} rows of the same query (`query.sql`), {survey['n_objects']:,} without duplicates",
        ],
        [
            "a task",
            "one object out of one image, 100 \u00d7 100 pixels",
            f"the same, {SIZE} \u00d7 {SIZE} pixels, so that one is in the middle",
        ],
        [
            "nodes",
            "1 to 64 of two processors",
            f"{' and '.join(str(n) for n in options['nodes'])} of one slot, all on this machine",
        ],
        [
            "persistent storage",
            "GPFS, 3.4 Gb/s",
            f"files of this machine, limited to {options['home_rate']} a second for all nodes together",
        ],
        ["data diffusion", "MCU, caches on local disks", f"`max-compute-util`, {options['cache']} a node"],
        [
            "GZ in data diffusion",
            "cached packed, unpacked, worked on unpacked",
            "a packed input: each node unpacks it once",
        ],
        ["GPFS alone", "FA, no caches", "`first-available`: every task reads from home"],
        [
            "beyond the paper",
            NONE,
            "`affinity`, the default placement of eyas, with packed images",
        ],
    ]
    return table(["", "the paper", "here"], rows)


def about_run(results: Results) -> str:
    program, machine = results.measured["program"], results.measured["machine"]
    loads = [load for one in results.measured["experiments"] for load in one["load"]]
    stacks = [one["stack"] for one in results.goal.values() if "stack" in one]
    rows = [
        ["program", f"{program['version']}, {program['commit'] or 'no commit'}"],
        [
            "machine",
            f"{machine['n_cores']} cores ({machine['processor']}), {machine['memory_bytes'] / 2**30:.1f} GiB, "
            f"Linux {machine['kernel']}, Python {machine['python']}",
        ],
        [
            "experiments",
            f"{len(results.measured['experiments'])}, {sum(one['wall_s'] for one in results.measured['experiments']):.0f} s together",
        ],
        [
            "load average, least to most",
            f"{min(loads):.1f} to {max(loads):.1f}" if loads else NONE,
        ],
    ]
    if stacks:
        one = stacks[0]
        rows.append(
            [
                f"the stack of {one['n_cutouts']:,} cutouts",
                f"signal-to-noise {one['snr']:.1f} ± {one['snr_error']:.1f}; {one['snr_expected']:.1f} by √N, "
                f"{one['snr_one_expected']:.2f} in one image",
            ]
        )
    return table(["", ""], rows)


def figure(name: str, alt: str) -> str:
    return f"![{alt}](figures/live-stacking-{name}.svg)"


def wrapped(text: str) -> str:
    """Paragraphs and lists in lines of 100 columns; what is no prose stays as it is."""
    made = []
    for part in text.split("\n\n"):
        if part.startswith(("#", "|", "!", "<", "```")):
            made.append(part)
            continue
        items = re.split(r"\n(?=- )", part)
        made.append(
            "\n".join(
                textwrap.fill(
                    " ".join(item.split()),
                    100,
                    subsequent_indent="  " if item.startswith("- ") else "",
                    break_long_words=False,
                    break_on_hyphens=False,
                )
                for item in items
            )
        )
    return "\n\n".join(made)


def page(results: Results) -> str:
    options = results.measured["options"]
    scale = f"{options['scale']:g}"
    parts = [
        "<!-- Written by apps/stacking/page.py. Change that program or run the evaluation again, not this page. -->",
        "# Stacking as the paper measured it",
        """What I. Raicu et al. (`Raicu09` in [papers](../papers.md)) measured of image stacking in §6, run through eyas on one machine with
real programs on images of the same shape, beside the paper's numbers and [the simulation of up to 128 processors](data-diffusion.md#stacking-6). Made by""",
        f"""```sh
python apps/stacking/evaluate.py eyas --dir evaluation --scale {scale} --least {options["least"]} --home-rate {options["home_rate"]} \\
  --goal-objects {options["goal_objects"]} --goal-rate {options["goal_rate"]}
python apps/stacking/page.py evaluation/evaluation.json
```""",
        """All numbers of live runs are in [stacking.json](stacking.json), those of simulated ones in `results.json`. **Times hold for this machine:** its
processors, on which also the dispatcher and the nodes run, and a home that was given its rate. Hit ratios and bytes depend little on how
busy the machine was: two nodes that want an image at the same moment may both read it. [Decision 0138](../decisions/0138-stacking-at-the-papers-shape.md) says why the experiments are as they are.""",
        "## The run",
        about_run(results),
        "## What was to be reached",
        goals(results),
        "## What runs",
        shape(results),
        f"""Table 3 is divided by the scale, and a row has at least as many objects as `--least` says. Objects are dealt to images evenly and come
in random order, all at once. All configurations of a workload made the same bytes, task by task; `evaluate.py` fails otherwise.

{workloads(results)}""",
    ]
    parts += [
        "## The portal (figure 41)",
        "The figure is two pictures of pages, of which the text of §6.2 gives these words. [The guide](../guides/portal.md) has the portal.",
        portal(),
        "![A request in the portal: the stack with its source beside one cutout alone, sizes, time, computers, and the object that the "
        "survey does not have](../img/portal.png)",
    ]
    if "profile" in results.measured:
        parts += [
            "## The steps of the program (figure 43)",
            """`cutout.py` alone on one processor, its image on the local disk and not in memory: means over objects in different images.
`curl` and `convertArray` of the paper are in `getTile` and `calibration` here, where rows are sliced and pixels
become floats. What the whole program takes beside its steps is the start of Python and the list of objects. The figure is a drawing of which the text
gives these words.""",
            steps_of(results),
            """Steps of arithmetic take longer here than the paper's: they are Python without a library, so that a node needs nothing else. Through
eyas no program reads from home, so the paper's bars of GPFS have no counterpart.""",
        ]
    parts += [
        "## Time per stack and processor",
        """Makespan \u00d7 processors / stacks: flat where it scales. The simulated machine is the paper's, where a program takes
longer than here: compare live rows with live ones, and simulated rows with simulated ones.""",
        "### Locality 1.38 (figure 44)",
        by_processors(results, "1.38"),
        "### Locality 30 (figure 45)",
        by_processors(results, "30"),
        "### By locality (figure 47)",
        f"Live on {results.most} processors, simulated on 128. The last row is a program whose image lies on its node's disk from the beginning.",
        by_locality(results),
        figure("47", "Figure 47: time per stack and processor by locality, live"),
        "## Hit ratio (figure 46)",
        """A task is a hit unless its image was read from home for it; ideal is `1 \u2212 1/locality`, from the exact counts.""",
        hits(results),
        figure("46", "Figure 46: hit ratio by locality, live, ideal, simulated"),
        "## Where the bytes came from",
        "### Throughput (figure 48), Gb/s",
        moved(results, True),
        """The paper's 128 processors read 39 Gb/s with data diffusion at locality 30 and at most 4 Gb/s from GPFS.""",
        "### Bytes per stack (figure 49), MB",
        moved(results, False),
        """The paper has 2 MB from GPFS and 6 MB from the local disk at locality 1 (GZ), and 0.066 MB from GPFS and 0.421 MB between nodes at
locality 30.""",
        figure("49", "Figure 49: bytes per stack from home and between nodes, by locality, live"),
        "## The abstract model (§3.1, §6.6)",
        """`|model \u2212 measured| / measured`. For live runs the model is `model_s` in `apps/stacking/page.py`: equations 4 and 5 with the ideal hit ratio, and with
what happens at the same time:

- Home divides its rate evenly among the nodes that read, and a node keeps its part while it unpacks.
- Programs, unpacking and copying share the processors of this machine.
- A node is given one task beside the one that it computes. By the paper's policy that is one whose image is there, as long as there is one. So an image comes and is
  unpacked only while the last program of the image before computes.
- Where each task has its own image, two tasks are on their way. They keep in step or meet by chance, and the model takes the middle, as
  [decision 0134](../decisions/0134-model-for-users.md) does.
- `affinity` fetches while programs compute and while nodes unpack, so the slowest of home, slots and processors decides.

What the model has to know was measured before: programs whose images are on the local disk, programs that read them from a home without a limit, and how long a node
takes to unpack an image while a processor is free. For simulated runs it is
[that of the page on data diffusion](data-diffusion.md#the-abstract-model-31-66). Neither is fitted to the runs that it is compared with.""",
        errors_together(results),
        "### By processors (figure 50)",
        errors_by_processors(results),
        "### By locality (figure 51)",
        errors_by_locality(results),
        figure("51", "Figure 51: error of the model by locality, live and simulated"),
        "## How to read the differences",
        f"""- **Few processors.** The paper varies 2 to 128; live there are {results.most}. What a shared file system does when it saturates is brought about by limiting home, not by
  adding processors.
- **A limited home does not search, lock or break down:** it gives its bytes evenly. GPFS has costs of opening a file that grow with readers (§4.2), which a
  limit of bytes has not, so that the shared configurations are quicker here than a real shared file system of this rate.
- **Shared storage does not gain by locality here,** where the paper's does a little: `first-available` has no caches, and home has none of its own that counts against its
  rate.
- **Between nodes** goes what one node has and the other one has a free slot for. `max-compute-util` lets no processor wait, so that two nodes may read the same
  image from home at the same moment; `affinity` waits for an image that is on its way.
- **The model knows no other users.** Where other programs used the processors, live times are longer than what was measured of the program alone,
  and the error shows that.""",
    ]
    return "\n\n".join(wrapped(part) for part in parts) + "\n"


# -------------------------------------------------------------------------------------------- figures


def draw(results: Results, folder: Path) -> int:
    """Figures 46, 47, 49 and 51; returns how many were drawn."""
    if find_spec("matplotlib") is None:
        return 0
    import matplotlib

    matplotlib.use("svg")
    from matplotlib.figure import Figure

    # Text stays text, ids do not depend on chance: small files, the same each time.
    style: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "eyas", "font.size": 9}
    style |= {"axes.grid": True, "grid.alpha": 0.3}
    localities = results.localities
    places = range(len(localities))
    caches = [name for name in results.configurations if not name.startswith("shared")]
    markers = dict(zip(CONFIGURATIONS, "os^vD", strict=True))
    nan = math.nan

    def line(axes: Any, name: str, values: list[float | None], label: str, dashes: str = "-") -> None:
        axes.plot(
            places,
            [nan if value is None else value for value in values],
            dashes,
            marker=markers.get(name, ""),
            label=label,
        )

    def per_stack(axes: Any) -> None:
        for name in results.configurations:
            line(axes, name, [live_ms(results.of(name, one)) for one in localities], NAMES[name])
        local = results.alone.get(("local-fit", results.most))
        if local:
            axes.axhline(local["ms_per_stack"], color="0.5", linestyle=":", label="local disk (FIT)")
        axes.set_ylabel("ms per stack and processor")
        axes.set_yscale("log")

    def hit_ratio(axes: Any) -> None:
        ideal = [
            next((one["hit_ratio_ideal"] for name in caches if (one := results.of(name, locality))), None)
            for locality in localities
        ]
        line(axes, "", ideal, "ideal, here", ":")
        for name in caches:
            values = [value_of(results.of(name, locality), "hit_ratio") for locality in localities]
            line(axes, name, values, f"{NAMES[name]}, live")
        simulated = [sim_hit_ratio(results, locality) for locality in localities]
        line(axes, "", simulated, "128 processors, simulated (GZ)", "--")
        axes.set_ylabel("hit ratio")

    def per_stack_bytes(axes: Any) -> None:
        for name in results.configurations:
            values = [sources_of(results.of(name, one), False, 0)[2] for one in localities]
            line(axes, name, [None if v is None else v / 1e6 for v in values], f"{NAMES[name]}: from home")
        for name in caches:
            values = [sources_of(results.of(name, one), False, 0)[1] for one in localities]
            between = [None if v is None else v / 1e6 for v in values]
            line(axes, name, between, f"{NAMES[name]}: between nodes", "--")
        axes.set_ylabel("MB per stack")
        axes.set_yscale("symlog", linthresh=0.05)

    def model_error(axes: Any) -> None:
        for name in results.configurations:
            values = [error_of(results, name, locality) for locality in localities]
            line(axes, name, [None if v is None else 100 * v for v in values], f"{NAMES[name]}, live")
        for name in SIMULATED:
            errors = [results.sim_error(name, locality, 128) for locality in localities]
            line(
                axes,
                name,
                [None if v is None else 100 * v for v in errors],
                f"{NAMES[name]}, simulated",
                ":",
            )
        axes.set_ylabel("error of the model, %")

    n_drawn = 0
    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(style):
        for name, fill in {
            "46": hit_ratio,
            "47": per_stack,
            "49": per_stack_bytes,
            "51": model_error,
        }.items():
            drawn = Figure(figsize=(7, 3.6), layout="constrained")
            axes = drawn.add_subplot()
            fill(axes)
            axes.set_xticks(list(places), localities)
            axes.set_xlabel("locality")
            axes.legend(fontsize=7, ncols=2)
            drawn.savefig(folder / f"live-stacking-{name}.svg", metadata={"Date": None, "Creator": None})
            n_drawn += 1
    return n_drawn


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the page of results of evaluate.py.")
    parser.add_argument("evaluation", type=Path, help="what evaluate.py wrote")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results", help="folder of the page")
    parser.add_argument(
        "--simulated",
        type=Path,
        default=ROOT / "docs" / "results" / "results.json",
        help="what `eyas-lab repro` wrote",
    )
    args = parser.parse_args()
    try:
        measured = read(args.evaluation, "eyas_stacking")
        results = Results(measured, read(args.simulated, "eyas_repro"))
        if not results.live:
            raise PageError(f"{args.evaluation} has no experiment yet")
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "stacking.md").write_text(page(results), encoding="utf-8")
        (args.out / "stacking.json").write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
        n_drawn = draw(results, args.out / "figures")
    except (PageError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    more = f"{n_drawn} figures" if n_drawn else "no figures: matplotlib is not there"
    print(f"{args.out / 'stacking.md'}, {more}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
