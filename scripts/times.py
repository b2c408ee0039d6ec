"""Write the page that says where the time of a build and of the tests goes, from what they noted in a folder.

    .venv/bin/python scripts/times.py FOLDER PAGE

`.ci/run` names the folder in EYAS_TIMES and writes the page at its end, to target/times.md; `scripts/test.py --times PAGE` writes it
of the tests alone. In the folder are, as far as there was something to note:

- `steps.tsv`, of `.ci/run`: second at which a step began, second at which it ended, its name;
- `NAME.html`, cargo's own report of what `NAME` compiled (`cargo build --timings`);
- `tests.json`, of `scripts/test.py`.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

# Tests in the table of the slowest.
N_SLOWEST = 50
# Crates that take less, in seconds, are one line together.
CRATE_MIN_S = 1.0

# Where times are noted; None: nobody wants them. Programs that are started from here and note times are under test.
folder = Path(named) if (named := os.environ.pop("EYAS_TIMES", None)) else None


def cargo_options() -> list[str]:
    """What cargo is given besides, so that it writes its report."""
    return ["--timings"] if folder else []


def keep_cargo_report(name: str, target: Path) -> None:
    """Keeps the report of what cargo has just compiled under this name."""
    report = target / "cargo-timings" / "cargo-timing.html"
    if folder and report.exists():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.move(report, folder / f"{name}.html")


def table(*columns: str, numbers: int, rows: list[list[str]]) -> list[str]:
    """A table whose last `numbers` columns are numbers."""
    marks = ["---"] * (len(columns) - numbers) + ["---:"] * numbers
    return ["", *(f"| {' | '.join(row)} |" for row in [list(columns), marks, *rows])]


def machine() -> str:
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = re.search(r"^model name\s*: (.+)$", cpu, re.MULTILINE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    command = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    what = f"{os.cpu_count()} processors ({model[1] if model else platform.machine()}), {memory:.0f} GB"
    return f"Measured on {what}, {datetime.now(UTC):%Y-%m-%d}, {commit or 'no commit'}."


def steps_of_ci(noted: Path) -> list[str]:
    rows = []
    for line in noted.read_text(encoding="utf-8").splitlines():
        began, ended, name = line.split("\t")
        rows.append([name, began, str(int(ended) - int(began))])
    return [
        "",
        "## Steps of `.ci/run`",
        "",
        "What is installed for tests comes beside `make check`. `make build` waits for nothing but what it is built with, and",
        "`make test` for all of these. Tests in Rust are compiled beside those in Python, with the lowest priority, and run after them.",
        *table("step", "begins at (s)", "seconds", numbers=2, rows=rows),
    ]


def units_of(report: Path) -> list[dict[str, Any]]:
    text = report.read_text(encoding="utf-8")
    found = re.search(r"^const UNIT_DATA = (\[.*?^\]);", text, re.MULTILINE | re.DOTALL)
    units: list[dict[str, Any]] = json.loads(found[1]) if found else []
    return units


def name_of(unit: dict[str, Any]) -> str:
    """The crate with its version, and what of it is compiled where that is not its library."""
    target = unit["target"].strip()
    return f"{unit['name']} {unit['version']}{f' ({target})' if target else ''}"


def chain(units: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The unit that ended last, and before it the one whose end let it begin, and so on; the first one comes first."""
    waited_for: dict[int, dict[str, Any]] = {}
    for unit in units:
        for other in unit["unblocked_units"] + unit["unblocked_rmeta_units"]:
            waited_for[other] = unit
    at = max(units, key=lambda unit: unit["start"] + unit["duration"])
    found = [at]
    while at["i"] in waited_for:
        at = waited_for[at["i"]]
        found.append(at)
    return found[::-1]


def compiled(reports: list[Path]) -> list[str]:
    lines = ["", "## What is compiled"]
    for report in reports:
        units = units_of(report)
        if not units:
            continue
        whole = max(unit["start"] + unit["duration"] for unit in units)
        total = sum(unit["duration"] for unit in units)
        lines += ["", f"### `{report.stem}`", ""]
        lines += [f"{len(units)} compilations, {whole:.0f} s; one after the other {total:.0f} s."]
        long = sorted((u for u in units if u["duration"] >= CRATE_MIN_S), key=lambda u: -u["duration"])
        rows = [[f"`{name_of(unit)}`", f"{unit['duration']:.1f}"] for unit in long]
        short = [unit["duration"] for unit in units if unit["duration"] < CRATE_MIN_S]
        rows += [[f"{len(short)} others", f"{sum(short):.1f}"]] if short else []
        lines += table("crate", "seconds", numbers=1, rows=rows)
        lines += ["", "What the last one waited for, one after the other:"]
        rows = [
            [f"`{name_of(u)}`", f"{u['start']:.1f}", f"{u['start'] + u['duration']:.1f}"]
            for u in chain(units)
        ]
        lines += table("crate", "begins at (s)", "ends at (s)", numbers=2, rows=rows)
    return lines


def tested(noted: dict[str, Any]) -> list[str]:
    times: list[tuple[str, str, float, bool]] = [tuple(of) for of in noted["python"]]
    files: dict[str, list[tuple[float, bool]]] = {}
    for file, _, seconds, is_alone in times:
        files.setdefault(file, []).append((seconds, is_alone))
    total, alone = sum(of[2] for of in times), sum(of[2] for of in times if of[3])
    lines = ["", "## Tests", "", *(f"- {line}" for line in noted["lines"])]
    if times:
        lines += [
            "",
            f"{len(times):,} tests in Python ran side by side in {noted['lanes']} lanes. One after the other they are {total:,.0f} s, of",
            f"which {alone:,.0f} s are of tests that run alone, when all others have ended.",
        ]
        rows = []
        for file, of in sorted(files.items(), key=lambda file: -sum(seconds for seconds, _ in file[1])):
            n_alone = sum(is_alone for _, is_alone in of)
            rows.append([f"`{file}`", str(len(of)), str(n_alone or ""), f"{sum(s for s, _ in of):.1f}"])
        lines += table("file", "tests", "alone", "seconds", numbers=3, rows=rows)
        lines += ["", "### The slowest"]
        slowest = sorted(times, key=lambda of: -of[2])[:N_SLOWEST]
        rows = [
            [f"`{file}.{name.replace('|', '/')}`", f"{seconds:.1f}"] for file, name, seconds, _ in slowest
        ]
        lines += table("test", "seconds", numbers=1, rows=rows)
    if noted["rust"]:
        lines += ["", "### Programs of tests in Rust"]
        rows = [
            [f"`{name}`", str(n), f"{s:.1f}"] for name, n, s in sorted(noted["rust"], key=lambda of: -of[2])
        ]
        lines += table("program", "tests", "seconds", numbers=2, rows=rows)
    return lines


def write_page(noted: Path, page: Path) -> None:
    lines = [
        "# Where the time of a build and of the tests goes",
        "",
        "<!-- Written by `.ci/run` to target/times.md, and in part by `scripts/test.py --times PAGE`; do not edit. -->",
        "",
        machine(),
    ]
    if (steps := noted / "steps.tsv").exists():
        lines += steps_of_ci(steps)
    if reports := sorted(noted.glob("*.html"), key=lambda report: report.stat().st_mtime):
        lines += compiled(reports)
    if (tests := noted / "tests.json").exists():
        lines += tested(json.loads(tests.read_text(encoding="utf-8")))
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    write_page(Path(sys.argv[1]), Path(sys.argv[2]))
