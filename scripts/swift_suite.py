"""Run the scripts of Swift/K's own tests and tutorials with eyas, unmodified, and count what becomes of them.

    .venv/bin/python scripts/swift_suite.py CHECKOUT [--tutorial CHECKOUT] [--only TEXT]

CHECKOUT is one of github.com/swift-lang/swift-k; --tutorial is one of github.com/swift-lang/swift-tutorial. Each
script runs by itself in a copy of its folder, with the suite's own preparation (`NAME.setup.sh`), arguments (`NAME.args`),
expected files (`NAME.*.expected`) and check (`NAME.check.sh`). Programs of a tutorial are found by PATH, as its `setup.sh`
says; what the suite's `swift.conf` says about programs (`app.NAME`) is done by PATH, too.

Prints a line for each script that did not end as expected, and the counts. Ends with 1 if a script fails that eyas has
read.
"""

from __future__ import annotations

import argparse
import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

EYAS = Path(sys.executable).parent / "eyas"
BAD_INPUT = 2
SECONDS_MAX = 120
# Comments with which a script of the suite says that Swift/K refuses it, too.
SHOULD_FAIL = "THIS-SCRIPT-SHOULD-FAIL"

RAN, REFUSED, RIGHTLY, DIFFERS, FAILED = (
    "ran, with the expected output",
    "refused, with its line",
    "refused, as the suite expects",
    "ran, with other output than expected",
    "read, and a task failed",
)


@dataclass
class Outcome:
    """What became of a script, and the first line that says why."""

    kind: str
    why: str = ""


# A program that a test's folder has under another name.
APP = re.compile(r'app\.(\w+)\s*\{\s*executable:\s*\$\{env\.GROUP\}"?/([\w.-]+)')


def expected(script: Path) -> dict[str, bytes]:
    """Names of files that the script writes, and their expected content."""
    found = script.parent.glob(f"{script.stem}.*.expected")
    return {path.name.removesuffix(".expected"): path.read_bytes() for path in found}


def run(script: Path, programs: list[Path], root: Path | None = None) -> Outcome:
    """Run one script in a copy of its folder, or of `root`, which the folder is in."""
    root = root or script.parent
    with tempfile.TemporaryDirectory(prefix="swift-suite-") as temporary:
        copy = Path(temporary, root.name)
        shutil.copytree(root, copy, ignore=shutil.ignore_patterns("*.expected"))
        folder = copy / script.parent.relative_to(root)
        inside = [Path(temporary, "own-programs"), *(copy / path.relative_to(root) for path in programs)]
        env = os.environ | {
            "GROUP": str(script.parent),
            "PATH": os.pathsep.join([*map(str, inside), os.environ.get("PATH", "")]),
        }
        for path in folder.glob("*.sh*"):
            path.chmod(0o755)
        settings = script.with_name("swift.conf")
        own = Path(temporary, "own-programs")
        own.mkdir()
        for name, program in APP.findall(settings.read_text()) if settings.exists() else []:
            own.joinpath(name).symlink_to(folder / program)

        def shell(step: str) -> bool:
            path = script.with_name(f"{script.stem}.{step}.sh")
            if not path.exists():
                return True
            return (
                subprocess.run(
                    ["bash", path], cwd=folder, env=env, capture_output=True, check=False
                ).returncode
                == 0
            )

        if not shell("setup"):
            return Outcome(FAILED, "the suite's preparation failed")
        arguments = script.with_suffix(".args")
        words = arguments.read_text().split() if arguments.exists() else []
        command: list[str | Path] = [EYAS, "run", "--run-mappers", "--slots", "4", script.name, "--", *words]
        ended = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )
        Path(folder, f"{script.stem}.stdout").write_text(ended.stdout + ended.stderr)
        should_fail = SHOULD_FAIL in script.read_text()
        lines = [
            line for line in ended.stderr.splitlines() if line.startswith("error")
        ] or ended.stderr.splitlines()
        why = lines[0].removeprefix("error: ") if lines else ""
        if ended.returncode == BAD_INPUT:
            return Outcome(RIGHTLY if should_fail else REFUSED, why)
        if ended.returncode != 0:
            return Outcome(FAILED, next((line for line in ended.stderr.splitlines() if "fail" in line), why))
        if should_fail:
            return Outcome(DIFFERS, "the suite expects that it is refused")
        for name, content in expected(script).items():
            written = folder / name
            if not written.exists() or written.read_bytes() != content:
                return Outcome(DIFFERS, f"{name} {'differs' if written.exists() else 'is not there'}")
        return Outcome(RAN) if shell("check") else Outcome(DIFFERS, "the suite's check fails")


def counted(
    title: str, scripts: list[Path], base: Path, programs: list[Path], root: Path | None
) -> collections.Counter[str]:
    """Run the scripts, print what did not end as expected, and give the counts."""
    counts: collections.Counter[str] = collections.Counter()
    print(f"\n## {title}: {len(scripts)} scripts")
    for script in scripts:
        try:
            outcome = run(script, programs, root)
        except subprocess.TimeoutExpired:
            outcome = Outcome(FAILED, f"it runs for more than {SECONDS_MAX} s")
        counts[outcome.kind] += 1
        if outcome.kind not in (RAN, RIGHTLY):
            print(f"{script.relative_to(base)}: {outcome.kind}: {outcome.why}", flush=True)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--tutorial", type=Path)
    parser.add_argument("--only", default="", help="only scripts with this text in their path")
    options = parser.parse_args()
    checkout = options.checkout.resolve()
    groups: list[tuple[str, list[Path], Path, list[Path], Path | None]] = []
    suite = checkout / "tests/language-behaviour"
    by_group: dict[str, list[Path]] = {}
    for script in sorted(suite.rglob("*.swift")):
        by_group.setdefault(script.relative_to(suite).parts[0], []).append(script)
    groups += [
        (f"tests/language-behaviour/{name}", scripts, suite, [], None) for name, scripts in by_group.items()
    ]
    tutorial = checkout / "examples/tutorial"
    groups.append(
        ("examples/tutorial", sorted(tutorial.rglob("*.swift")), tutorial, [tutorial / "bin"], tutorial)
    )
    if options.tutorial:
        other = options.tutorial.resolve()
        places = [other / name for name in ("bin", "app", "part07", "part08", "mpi", "mandelbrot/bin")]
        groups.append(("swift-tutorial", sorted(other.rglob("*.swift")), other, places, other))
    total: collections.Counter[str] = collections.Counter()
    rows = []
    for title, scripts, base, programs, root in groups:
        scripts = [script for script in scripts if options.only in str(script)]
        if scripts:
            counts = counted(title, scripts, base, programs, root)
            total += counts
            rows.append((title, counts))
    print(f"\n| scripts of | all | {' | '.join((RAN, RIGHTLY, REFUSED, DIFFERS, FAILED))} |")
    print(f"|---|{'---|' * 6}")
    for title, counts in [*rows, ("all", total)]:
        numbers = [sum(counts.values()), *(counts[kind] for kind in (RAN, RIGHTLY, REFUSED, DIFFERS, FAILED))]
        print(f"| {title} | {' | '.join(map(str, numbers))} |")
    return 1 if total[FAILED] else 0


if __name__ == "__main__":
    sys.exit(main())
