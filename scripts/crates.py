"""Draw the crates and their arrows into docs/architecture.md, from the crates' own manifests.

    .venv/bin/python scripts/crates.py [--check]

An arrow is a dependency of one of our crates on another. One that follows from others is left out: where A uses B and B
uses C, an arrow from A to C says nothing new about the order. --check writes nothing and fails if the drawing is not what
the manifests say now.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
BEGIN = "<!-- The drawing is written by `make docs` from crates/*/*/Cargo.toml: change it there. -->\n"
END = "<!-- The end of the drawing. -->\n"


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
    old = PAGE.read_text(encoding="utf-8")
    new = page(old, dependencies(ROOT), wings(ROOT))
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
