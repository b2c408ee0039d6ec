"""Find circles among the files of crates: files that use each other, directly or through others.

    .venv/bin/python scripts/modules.py [--parents-may] [CRATE...]

Prints each circle of these crates, or of all, with its arrows, and fails if there is one. A name that a file passes on
(`pub use`) counts as its own file's. Tests, and `mod` alone, use nothing.

With `--parents-may`, a file may use the files above it: `dispatcher/moves.rs`, which has methods of the type in
`dispatcher.rs`, then makes no circle with it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Raw strings with quotes in them are rare enough; what they hold looks like no path.
NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|b?"(?:\\.|[^"\\])*"', re.DOTALL)
TESTS = re.compile(
    r"^#\[cfg\(test\)\]\n(?:#\[[^\n]*\n)*(?:pub(?:\(crate\))? )?mod (\w+)(?:;| \{\n.*?^\})",
    re.MULTILINE | re.DOTALL,
)
USE = re.compile(r"^ *(pub(?:\([\w: ]+\))? )?use ([^;]+);", re.MULTILINE)
PATH = re.compile(r"(?<![\w:.])([a-z_]\w*(?:::\w+)+)(?![\w!])")

Module = tuple[str, ...]


def leaves(tree: str) -> Iterator[tuple[str, str]]:
    """The paths of a `use`, and the names that they have from then on."""
    stem, brace, rest = tree.partition("{")
    if not brace:
        path, _, name = tree.strip().partition(" as ")
        yield path.removesuffix("::self"), name or path.removesuffix("::self").rpartition("::")[2]
        return
    depth, part = 0, ""
    for sign in rest.rpartition("}")[0] + ",":
        depth += (sign == "{") - (sign == "}")
        if sign == "," and depth == 0:
            if part.strip():
                yield from leaves(stem.strip() + part.strip())
            part = ""
        else:
            part += sign


class Crate:
    def __init__(self, src: Path) -> None:
        self.code: dict[Module, str] = {}
        tests: set[Module] = set()
        for path in sorted(src.rglob("*.rs")):
            *folders, name = path.relative_to(src).with_suffix("").parts
            module = (*folders, name) if name not in ("lib", "main", "mod") else tuple(folders)
            if name == "main" and (src / "lib.rs").exists():
                continue
            code = NOISE.sub('""', path.read_text(encoding="utf-8"))
            tests |= {(*module, name) for name in TESTS.findall(code)}
            self.code[module] = TESTS.sub("", code)
        for module in [m for m in self.code if any(m[: len(test)] == test for test in tests)]:
            del self.code[module]
        self.passed_on = {
            module: {
                name: path for is_pub, tree in USE.findall(code) if is_pub for path, name in leaves(tree)
            }
            for module, code in self.code.items()
        }

    def file_of(self, path: str, here: Module, n_hops: int = 9) -> Module | None:
        """The file that has what `path` means in the file `here`; `None`: it is of another crate."""
        words = path.split("::")
        at = here
        if words[0] == "crate":
            at, words = (), words[1:]
        elif words[0] in ("self", "super"):
            while words and words[0] in ("self", "super"):
                at = at[:-1] if words.pop(0) == "super" else at
        elif (*here, words[0]) not in self.code:
            return None
        while words and (*at, words[0]) in self.code:
            at = (*at, words.pop(0))
        on = self.passed_on.get(at, {}).get(words[0]) if words else None
        return (on and n_hops and self.file_of("::".join([on, *words[1:]]), at, n_hops - 1)) or at

    def arrows(self) -> dict[Module, set[Module]]:
        found: dict[Module, set[Module]] = {}
        for module, code in self.code.items():
            uses = USE.findall(code)
            paths = [path for is_pub, tree in uses if not is_pub for path, _ in leaves(tree)]
            paths += PATH.findall(USE.sub("", code))
            found[module] = {to for path in paths if (to := self.file_of(path, module)) is not None} - {
                module
            }
        return found


def circles(arrows: dict[Module, set[Module]]) -> list[list[Module]]:
    """Sets of files each of which reaches all others."""

    def below(start: Module) -> set[Module]:
        seen: set[Module] = set()
        left = [start]
        while left:
            new = arrows.get(left.pop(), set()) - seen
            seen |= new
            left += new
        return seen

    reached = {module: below(module) for module in arrows}
    found = {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in arrows
        if module in reached[module]
    }
    return sorted(sorted(circle) for circle in found)


def main() -> int:
    parser = argparse.ArgumentParser(description="Find circles among the files of crates.")
    parser.add_argument("crates", nargs="*", help="names of crates, or folders [default: all crates]")
    parser.add_argument("--parents-may", action="store_true", help="a file may use the files above it")
    args = parser.parse_args()
    n_circles = 0
    folders = {path.parent.name: path.parent / "src" for path in sorted(ROOT.glob("crates/*/*/Cargo.toml"))}
    for crate in args.crates or sorted(folders):
        src = folders.get(crate, Path(crate))
        if not any(src.glob("*.rs")):
            print(f"error: there is no Rust in {src}; name a crate, or its folder `src`", file=sys.stderr)
            return 2
        arrows = Crate(src).arrows()
        if args.parents_may:
            arrows = {
                file: {used for used in uses if file[: len(used)] != used} for file, uses in arrows.items()
            }
        for circle in circles(arrows):
            n_circles += 1
            print(f"{crate}: a circle of {len(circle)} files")
            for module in circle:
                used = sorted("::".join(other) or "lib" for other in arrows[module] & set(circle))
                print(f"    {'::'.join(module) or 'lib'} --> {', '.join(used)}")
    return 1 if n_circles else 0


if __name__ == "__main__":
    sys.exit(main())
