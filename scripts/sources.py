"""Whether the numbers in the text of the results' pages are those of their tables, and whether the pages are older than what decides.

    .venv/bin/python scripts/sources.py [--stamp PAGE COMMIT]

In: docs/results.md and docs/results/*.md, docs/results/sources.toml, docs/decisions/. Out: a line for each fault; status 1 with any.

A number in prose has to be in a table of the same section (that of a heading with two #), with the same unit where both have one.
Every other number is in sources.toml, with where it is from; the check reads what it can:

    paper: Raicu09 §6.5          what the paper says, or the slides; the place is for readers
    file: results.json a/b/c     a number of this file of JSON, at this path; it is looked up, rounded as the text has it
    computed: 1 - 1440 / 1658    of numbers that stand in a table of the page or in an entry; it is computed
    setting: PATH                what was chosen, in this file of the tree, which has to exist
    written: REASON              the program that writes the page puts it into a sentence
    unfiled: REASON              measured, and in no file: the exceptions

An entry that no text needs is a fault. Numbers in code, references (§5.1, figure 7, decision 0013) and dates are not looked at, nor are
numbers in words.

A page depends on the decisions that it links to, on those that link to it, and on those that sources.toml names under `depends`.
`--stamp PAGE COMMIT` notes what each of them said at the commit of the program that wrote the page. The page is too old when such a
decision says something else now, or is new; then it is written again and stamped, or its line under `unchanged` says why the numbers
stand. What a decision says is its part "Decision", without code. docs/results.md names the commit of each page.

What it cannot see: a number that stands in the section's tables by chance, and a decision that nobody has linked or named.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import operator
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path("docs/results")
SOURCES = RESULTS / "sources.toml"
DECISIONS = Path("docs/decisions")
KEYS = ("Raicu09", "Raicu10s", "Zhang12", "Miceli10", "Wozniak06")

UNIT = r"(?:%|s|ms|µs|min|h|B|KB|kB|MB|GB|TB|KiB|MiB|GiB|TiB|[Gg]b/s|Gbit/s|Mbit/s|MB/s|GB/s|tasks/s|\u00d7)(?![\w/])"
NUMBER = re.compile(
    rf"(?<![\w.,/])(?P<number>\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?|\d+(?:\.\d+)?(?:e-?\d+)?)"
    rf"(?P<unit>[ \u00a0]?{UNIT})?(?![\w/]|-\d|[.,]\d)"
)
# In "77 to 78 %" and "35, 27 and 6 %" each number has the unit of the last one.
SHARED = re.compile(rf"(?:, [\d.,]*\d)*,? (?:to|and|or) [\d.,]*\d(?P<unit>[ \u00a0]?{UNIT})")
# What a number behind it only names: "figures 36 to 40", "§5.1.6", "decision 0013", "Slurm 22.05".
NAMING = r"(?i:figures?|figs?\.|tables?|equations?|decisions?|seeds?|slurm|hdfs|debian|linux|postgresql|sqlite|java)"
REFERENCE = re.compile(
    rf"(?:\b{NAMING}[ \u00a0]?|§§? ?)[\dIVX][\w.-]*(?:(?:,| to| and|, and) (?:§ ?)?\d[\w.-]*)*"
)
DATE = re.compile(r"\d{4}-\d\d-\d\d|\b\d{1,2} (?:November|December)(?: \d{4})?|November \d{4}")


@dataclass(frozen=True, order=True)
class Number:
    """A number as a text has it: its digits without commas, and its unit, or nothing."""

    digits: str
    unit: str

    @property
    def value(self) -> float:
        return float(self.digits)

    def is_in(self, others: Iterable[Number]) -> bool:
        return any(
            self.value == other.value and (self.unit == other.unit or not self.unit or not other.unit)
            for other in others
        )

    def __str__(self) -> str:
        return f"{self.digits} {self.unit}".strip()


def numbers_in(text: str) -> list[Number]:
    """All numbers of a text without references and dates, in their order."""
    text = DATE.sub(" ", REFERENCE.sub(" ", text))
    found = []
    for match in NUMBER.finditer(text):
        unit = match["unit"]
        if unit is None and (shared := SHARED.match(text, match.end())):
            unit = shared["unit"]
        found.append(Number(match["number"].replace(",", ""), (unit or "").strip()))
    return found


@dataclass
class Section:
    title: str
    prose: list[Number] = field(default_factory=list)
    tables: set[Number] = field(default_factory=set)


def title_of(heading: str) -> str:
    """A heading without code, as :func:`sections_of` has it."""
    return re.sub(r"`[^`]*`", " ", heading).strip()


def sections_of(page: str) -> list[Section]:
    """A page's parts from heading to heading; what stands above the first one has the title ``.``"""
    page = re.sub(r"<!--.*?-->", "", page, flags=re.DOTALL)
    page = re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    page = re.sub(r"`[^`]*`", " ", page)
    page = re.sub(r"!\[[^\]]*\]\([^)]*\)", " ", page)
    page = re.sub(r"\[(\d{4})\]\([^)]*\)", " ", page)
    page = re.sub(r"\]\([^)]*\)", "]", page)
    parts = re.split(r"^## (.*)$", page, flags=re.MULTILINE)
    found = []
    for title, body in zip([".", *parts[1::2]], parts[::2], strict=True):
        lines = body.splitlines()
        prose = " ".join(line.strip() for line in lines if not line.startswith(("|", "#")))
        rows = "\n".join(line for line in lines if line.startswith("|"))
        found.append(Section(title.strip(), numbers_in(prose), set(numbers_in(rows))))
    return found


# ---------------------------------------------------------------------------------- where numbers are from

OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def computed(text: str) -> tuple[float, list[float]]:
    """The value of an expression of numbers, and the numbers in it. Raises ValueError for anything else."""
    used: list[float] = []

    def value(node: ast.expr) -> float:
        match node:
            case ast.Constant(value=int() | float() as number):
                used.append(float(number))
                return float(number)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                return OPERATORS[type(op)](value(left), value(right))
        raise ValueError(f"not a number, + - * / or **: {text}")

    try:
        return value(ast.parse(text, mode="eval").body), used
    except (SyntaxError, ZeroDivisionError) as e:
        raise ValueError(f"cannot be computed: {text}") from e


# Bits of a byte, per cent, units of time and of data.
CONSTANTS = {1.0, 2.0, 8.0, 10.0, 24.0, 60.0, 100.0, 1000.0}
# From the unit of a file to that of a text.
SCALES = {
    "%": 1e2,
    "ms": 1e3,
    "µs": 1e6,
    "KB": 1e-3,
    "kB": 1e-3,
    "MB": 1e-6,
    "GB": 1e-9,
    "TB": 1e-12,
    "GiB": 2**-30,
    "Gb/s": 8e-9,
    "h": 1 / 3600,
}


def shows(number: Number, value: float) -> bool:
    """Whether a value, in its basic unit or in the number's own, is written like this."""
    decimals = len(number.digits.partition(".")[2]) if "e" not in number.digits else 0
    slack = 0.5000001 * 10.0**-decimals
    # 12,000 may stand for 11,950, as a text has it in round numbers.
    whole = number.digits.rstrip("0") if not decimals else number.digits
    slack *= 10.0 ** (len(number.digits) - len(whole)) if len(whole) > 1 else 1.0
    return any(
        abs(abs(value) * scale - number.value) <= slack for scale in (1.0, SCALES.get(number.unit, 1.0))
    )


def at_path(file: Path, path: str) -> float:
    """The number at a path of keys and places in a file of JSON. Raises ValueError if there is none."""
    try:
        found: Any = json.loads(file.read_text(encoding="utf-8"))
        for key in path.split("/"):
            found = found[int(key)] if isinstance(found, list) else found[key]
        return float(found)
    except (OSError, KeyError, IndexError, TypeError, ValueError) as e:
        raise ValueError(f"{file.name} has no number at {path}") from e


def fault_of(source: str, numbers: list[Number], known: set[Number], root: Path) -> str | None:
    """What is wrong with the source of these numbers, or nothing."""
    kind, _, what = source.partition(": ")
    try:
        match kind:
            case "paper" if what.startswith(KEYS) and len(what.split(" ", 1)) == 2:
                return None
            case "setting":
                return None if (root / what).is_file() else f"there is no file {what}"
            case "written" | "unfiled" if what:
                return None
            case "file":
                name, _, path = what.partition(" ")
                value = at_path(root / RESULTS / name, path)
            case "computed":
                value, used = computed(what)
                strange = [x for x in used if x not in CONSTANTS]
                strange = [x for x in strange if x not in {number.value for number in known}]
                if strange:
                    return f"{strange[0]:g} is in no table of the page and in no entry"
            case _:
                return "not a kind of source that the head of scripts/sources.py lists"
    except ValueError as e:
        return str(e)
    other = [number for number in numbers if not shows(number, value)]
    return f"says {value:g} and not {other[0]}" if other else None


def number_faults(name: str, page: str, entries: dict[str, dict[str, list[str]]], root: Path) -> list[str]:
    """Numbers in the text that are from nowhere, and entries that are wrong or for nothing.

    entries : the sources of each section, and the numbers of each source.
    """
    sections = sections_of(page)
    titles = {section.title for section in sections}
    named = {title_of(title): sources for title, sources in entries.items()}
    faults = [f"{name}: there is no section “{title}”" for title in named if title not in titles]
    tables = set().union(*(section.tables for section in sections))
    for section in sections:
        at = f"{name}, “{section.title}”"
        here = {source: numbers_in(" ; ".join(said)) for source, said in named.get(section.title, {}).items()}
        listed = {number for numbers in here.values() for number in numbers}
        for source, numbers in here.items():
            if fault := fault_of(source, numbers, tables | listed, root):
                faults.append(f"{at}: {source}: {fault}")
            idle = [str(number) for number in numbers if number not in section.prose]
            faults += [f"{at}: no text has {number}, which sources.toml lists" for number in idle]
        faults += [
            f"{at}: {number} is in no table there, and sources.toml does not say where it is from"
            for number in dict.fromkeys(section.prose)
            if not number.is_in(section.tables) and number not in listed
        ]
    return faults


# ---------------------------------------------------------------------------------- pages and decisions


def digest(record: str) -> str:
    """Of what a record decides, without code and links: names and files move, and lines are wrapped anew."""
    decides = record.partition("\n## Decision\n")[2].partition("\n### Alternatives\n")[0]
    decides = re.sub(r"`[^`]*`", " ", re.sub(r"\]\([^)]*\)", "]", decides))
    return hashlib.sha256(" ".join(decides.split()).encode()).hexdigest()[:12]


def decisions_of(name: str, about: dict[str, Any], root: Path) -> dict[str, str]:
    """The decisions that a page depends on, by number: the names of their files."""
    page = (root / RESULTS / name).read_text(encoding="utf-8")
    wanted = {*about.get("depends", []), *re.findall(r"\.\./decisions/(\d{4})-", page)}
    found = {}
    for path in sorted((root / DECISIONS).glob("[0-9]*.md")):
        links_here = f"../results/{name}" in path.read_text(encoding="utf-8")
        if path.name[:4] in wanted or links_here:
            found[path.name[:4]] = path.name
    return found


def age_faults(name: str, about: dict[str, Any], root: Path) -> list[str]:
    """Decisions that the page does not know."""
    faults = []
    known, unchanged = about.get("decisions", {}), about.get("unchanged", {})
    files = decisions_of(name, about, root)
    faults += [
        f"{name} depends on decision {one}, which is not there"
        for one in about["depends"]
        if one not in files
    ]
    current = {
        one: digest((root / DECISIONS / file).read_text(encoding="utf-8")) for one, file in files.items()
    }
    for number, now in current.items():
        # `unchanged` has the digest that was judged, and why.
        if now not in (known.get(number), unchanged.get(number, "").partition(" ")[0]):
            how = "changed" if number in known else "was made"
            faults.append(
                f"{name} is of {about['commit']}, and decision {number} {how} after it: write the page again ({about['command']}) and "
                f'stamp it, or say why its numbers stand: {number} = "{now} REASON" under unchanged'
            )
    for number, said in unchanged.items():
        if current.get(number) == known.get(number):
            faults.append(
                f"{name}: decision {number} is as the page knows it, and needs no line under unchanged"
            )
        elif " " not in said:
            faults.append(f"{name}: the line of decision {number} under unchanged gives no reason")
    row = rf"^\| \[[^|]*\]\(results/{re.escape(name)}\) \|.*\b{re.escape(about['commit'])}\b"
    if not re.search(row, (root / "docs" / "results.md").read_text(encoding="utf-8"), re.MULTILINE):
        faults.append(f"docs/results.md does not say that {name} is of {about['commit']}")
    return faults


def stamp(name: str, commit: str, root: Path) -> None:
    """Writes into sources.toml what the decisions of the page said at a commit, and the commit."""
    path = root / SOURCES
    text = path.read_text(encoding="utf-8")
    lines = []
    for number, file in decisions_of(name, tomllib.loads(text)["pages"][name], root).items():
        command = ["git", "show", f"{commit}:{(DECISIONS / file).as_posix()}"]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        # One that was not there yet is not known to the page.
        if done.returncode == 0:
            lines.append(f'{number} = "{digest(done.stdout)}"\n')
    page = re.escape(f'[pages."{name}"')
    text = re.sub(
        rf"(^{page}\.decisions\]\n)(?:\d.*\n)*",
        lambda head: head[1] + "".join(lines),
        text,
        flags=re.MULTILINE,
    )
    text = re.sub(
        rf'(^{page}\]\n(?:(?!\[).*\n)*?commit = )"[^"]*"', rf'\1"{commit}"', text, flags=re.MULTILINE
    )
    path.write_text(text, encoding="utf-8")


def check(root: Path) -> list[str]:
    about = tomllib.loads((root / SOURCES).read_text(encoding="utf-8"))["pages"]
    pages = {
        path.name: path for path in [root / "docs" / "results.md", *sorted((root / RESULTS).glob("*.md"))]
    }
    faults = [f"sources.toml has nothing on {name}" for name in pages if name not in about]
    faults += [f"sources.toml has {name}, which is not there" for name in about if name not in pages]
    for name in sorted(pages.keys() & about.keys()):
        text = pages[name].read_text(encoding="utf-8")
        if "whole" in about[name]:
            continue
        faults += age_faults(name, about[name], root)
        faults += number_faults(name, text, about[name].get("numbers", {}), root)
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Compare the text of the results' pages with their tables and with what they depend on."
    )
    parser.add_argument(
        "--stamp", nargs=2, metavar=("PAGE", "COMMIT"), help="note the decisions as they were at this commit"
    )
    args = parser.parse_args()
    if args.stamp:
        stamp(args.stamp[0], args.stamp[1], ROOT)
        return 0
    faults = check(ROOT)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
