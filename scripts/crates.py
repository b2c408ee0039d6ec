"""Draw the crates and their arrows into docs/architecture.md, from the crates' own manifests, and check their rules.

    .venv/bin/python scripts/crates.py [--check]

An arrow is a dependency of one of our crates on another. One that follows from others is left out: where A uses B and B
uses C, an arrow from A to C says nothing new about the order. --check writes nothing and fails if the drawing is not what
the manifests say now, or if a rule of this file is broken: which crates have unsafe code, what the crates of kept data see of
the engine (docs/decisions/0119-what-kept-data-sees.md), and that a file's head names what the file uses
(docs/decisions/0060-structures-of-the-dispatcher.md).
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
BEGIN = "<!-- The drawing is written by `make docs` from crates/*/*/Cargo.toml: change it there. -->\n"
END = "<!-- The end of the drawing. -->\n"

# Crates that may have unsafe code, and what for. All others forbid it to themselves.
UNSAFE = {
    "access": "seccomp, mounts, memory of other processes, and children that are forked",
    "at-data": "what a program does between its fork and its beginning",
    "catalog": "the room that is reserved for its database",
    "cli": "signals, users and processes",
    "cluster": "processes between their fork and their program, and signals",
    "data": "system calls on files and sockets",
    "fuzz": "an allocator that counts",
    "lab": "clocks and counters of the machine",
    "pairs": "files that are mapped",
    "runner": "processes between their fork and their program",
    "runtime": "signals, sockets and descriptors",
    "storage": "system calls on files, and commands between their fork and their program",
}
FORBIDS = "#![forbid(unsafe_code)]\n"
BLOCK = re.compile(r"^(?!\s*//).*\bunsafe (?:\{|fn|impl|extern|trait)", re.MULTILINE)

# All that the module above has, known by no name. Only tests take it: they are about that module.
FROM_ABOVE = re.compile(r"^(?:pub.* )?use super::(?:super::)*\*;", re.MULTILINE)

# The crates of data that outlives runs, and what they may see of our other crates: the vocabulary, homes, and what all stand on.
KEPT = {"access", "at-data", "catalog", "keeping", "site"}
SEEN_BY_KEPT = KEPT | {"config", "folder", "host", "storage", "tasklist", "terms", "text"}
# What they see besides, each with its reason. One that is not needed any more is taken out.
KEPT_MAY_SEE = {
    ("access", "data"): "digests, and the comparing of bytes with them",
    ("access", "runner"): "system calls that stop until they are answered, which watched tasks have, too",
    ("at-data", "batch"): "jobs of Slurm and Grid Engine, which no engine takes part in",
    ("at-data", "data"): "digests in plans, and random bytes",
    ("at-data", "runner"): "a program that leaves no processes behind, and the removal of its folder",
    ("catalog", "data"): "digests, objects on disk, and the hashing of many files",
    ("site", "data"): "digests, and objects on their way to a disk",
    ("site", "net"): "connections among members, with the same keys and preamble",
    ("site", "runner"): "programs that run at a site",
    ("site", "wire"): "identities and frames",
}


def sources(root: Path) -> dict[str, list[Path]]:
    """The Rust files that each crate's programs are made of; its first one is the one that has the attributes of the crate."""
    found = {}
    for manifest in sorted(root.glob("crates/**/Cargo.toml")):
        src = manifest.parent / "src"
        first = src / "lib.rs" if (src / "lib.rs").exists() else src / "main.rs"
        name = tomllib.loads(manifest.read_text(encoding="utf-8"))["package"]["name"].removeprefix("eyas-")
        found[name] = [first, *sorted(path for path in src.rglob("*.rs") if path != first)]
    return found


def broken_unsafe(root: Path, may: dict[str, str]) -> list[str]:
    """What is wrong with the crates that have unsafe code and those that have none, in sentences."""
    wrong = []
    for name, paths in sources(root).items():
        texts = [path.read_text(encoding="utf-8") for path in paths]
        has = any(BLOCK.search(text) for text in texts)
        if has and name not in may:
            wrong.append(f"{name} has unsafe code and is not listed in UNSAFE")
        if not has and name in may:
            wrong.append(f"{name} is listed in UNSAFE and has no unsafe code")
        if name not in may and FORBIDS not in texts[0]:
            wrong.append(f"{paths[0].relative_to(root)} lacks {FORBIDS.strip()}")
    return wrong


def broken_heads(root: Path) -> list[str]:
    """The files of programs whose head does not name what they use, in sentences."""
    return [
        f"{path.relative_to(root)} uses all of the module above: name what it uses"
        for paths in sources(root).values()
        for path in paths
        if path.name != "tests.rs" and "tests" not in path.relative_to(root).parts
        if FROM_ABOVE.search(path.read_text(encoding="utf-8"))
    ]


def broken_kept(uses: dict[str, set[str]], may: dict[tuple[str, str], str]) -> list[str]:
    """What the crates of kept data see and should not, in sentences."""
    seen = {(name, other) for name in KEPT & uses.keys() for other in uses[name] - SEEN_BY_KEPT}
    wrong = [
        f"{name} is kept data and uses {other}, which is the engine's"
        for name, other in sorted(seen - may.keys())
    ]
    needless = sorted(pair for pair in may.keys() - seen if pair[0] in uses)
    return wrong + [
        f"{name} does not use {other} any more: take it out of KEPT_MAY_SEE" for name, other in needless
    ]


def dependencies(root: Path) -> dict[str, set[str]]:
    """Each crate, by its name without `eyas-`, with those of ours that its programs are built with."""
    found = {}
    for path in sorted(root.glob("crates/*/*/Cargo.toml")):
        manifest = tomllib.loads(path.read_text(encoding="utf-8"))
        needed = manifest.get("dependencies", {}).keys()
        name = manifest["package"]["name"].removeprefix("eyas-")
        found[name] = {other.removeprefix("eyas-") for other in needed if other.startswith("eyas-")}
    return found


def wings(root: Path) -> dict[str, list[str]]:
    """The crates of each wing: a folder of `crates/`."""
    found: dict[str, list[str]] = {}
    for path in sorted(root.glob("crates/*/*/Cargo.toml")):
        found.setdefault(path.parent.parent.name, []).append(path.parent.name)
    return found


def all_below(uses: dict[str, set[str]], name: str) -> set[str]:
    """What `name` uses, directly or through others."""
    below: set[str] = set()
    left = list(uses[name])
    while left:
        other = left.pop()
        if other not in below:
            below.add(other)
            left += uses[other]
    return below


def without_implied(uses: dict[str, set[str]]) -> dict[str, set[str]]:
    reached = {name: all_below(uses, name) for name in uses}
    return {
        name: {other for other in direct if not any(other in reached[third] for third in direct)}
        for name, direct in uses.items()
    }


def heights(uses: dict[str, set[str]]) -> dict[str, int]:
    """How many arrows the longest way down from each crate has."""
    known: dict[str, int] = {}

    def height(name: str) -> int:
        if name not in known:
            known[name] = max((height(other) + 1 for other in uses[name]), default=0)
        return known[name]

    return {name: height(name) for name in uses}


def drawing(uses: dict[str, set[str]], rooms: dict[str, list[str]]) -> str:
    """A box for each wing, then an arrow a line, those of the highest crates first."""
    arrows, height = without_implied(uses), heights(uses)
    order = sorted(uses, key=lambda name: (-height[name], name))
    edges = [f"    {name} --> {other}" for name in order for other in sorted(arrows[name])]
    boxes = [
        line
        for wing, crates in rooms.items()
        for line in (f"    subgraph {wing}_wing[{wing}]", *(f"        {name}" for name in crates), "    end")
    ]
    return "\n".join(["```mermaid", "flowchart TD", *boxes, *edges, "```"]) + "\n"


def page(old: str, uses: dict[str, set[str]], rooms: dict[str, list[str]]) -> str:
    before, begin, rest = old.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"error: {PAGE} lacks the lines between which the drawing goes:\n{BEGIN}{END}")
    return f"{before}{BEGIN}\n{drawing(uses, rooms)}\n{END}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Draw the crates and their arrows.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail if the drawing is not true")
    args = parser.parse_args()
    uses = dependencies(ROOT)
    broken = broken_unsafe(ROOT, UNSAFE) + broken_kept(uses, KEPT_MAY_SEE) + broken_heads(ROOT)
    for sentence in broken:
        print(f"error: {sentence}", file=sys.stderr)
    if broken:
        return 1
    old = PAGE.read_text(encoding="utf-8")
    new = page(old, uses, wings(ROOT))
    if args.check and new != old:
        print(
            f"error: the drawing in {PAGE.relative_to(ROOT)} is not what the manifests say", file=sys.stderr
        )
        print("hint: `make docs` writes it anew", file=sys.stderr)
        return 1
    if new != old:
        PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
