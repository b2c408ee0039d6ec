"""Formatters and linters over everything; goes on after a failure and names all that failed.

    .venv/bin/python scripts/check.py [--fix]

--fix lets the formatters, and the linters where they can, change the files.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

from docs import blocks_of

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.prefix) / "bin"


def mypy_groups() -> list[list[str]]:
    """Files for each run of mypy: an application is a world of its own, whose module names others repeat."""
    groups = [["python/src"], ["scripts"], ["python/tests"], ["tests"], ["conftest.py"]]
    benches = sorted(path.name for path in (ROOT / "benches").glob("*.py"))
    groups += [[f"benches/{name}" for name in benches]] if benches else []
    for app in sorted(path for path in (ROOT / "apps").iterdir() if path.is_dir()):
        groups += [[str(part.relative_to(ROOT))] for part in (app, app / "tests") if any(part.glob("*.py"))]
    return [group for group in groups if any((ROOT / part).exists() for part in group)]


def write_snippets() -> Path:
    """The programs of the guides that use the Python package, each as a file of its own: their types are checked, too."""
    folder = ROOT / "target" / "snippets"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.py"):
        old.unlink()
    for page in ("python", "slurm"):
        guide = (ROOT / "docs" / "guides" / f"{page}.md").read_text(encoding="utf-8")
        for block in blocks_of(guide):
            for name in block.files:
                if name.endswith(".py"):
                    (folder / name).write_text(block.text, encoding="utf-8")
    return folder


def commands(fix: bool) -> list[tuple[list[str], dict[str, str]]]:
    """Each command with what it needs in its environment, the quick ones first."""
    ruff, typos, mypy = str(BIN / "ruff"), str(BIN / "typos"), str(BIN / "mypy")
    python = [
        name
        for name in ("conftest.py", "python", "tests", "scripts", "apps", "benches")
        if (ROOT / name).exists()
    ]
    listed: list[tuple[list[str], dict[str, str]]] = [
        (["cargo", "fmt", "--all", *([] if fix else ["--check"])], {}),
        ([ruff, "format", "--quiet", *([] if fix else ["--diff"]), *python], {}),
        ([ruff, "check", "--quiet", *(["--fix"] if fix else []), *python], {}),
        # The package runs with older Pythons than what is here to build and test it.
        ([ruff, "check", "--quiet", "--target-version", "py39", "python/src"], {}),
        ([typos, *(["--write-changes"] if fix else [])], {}),
        ([sys.executable, "scripts/crates.py", *([] if fix else ["--check"])], {}),
        ([sys.executable, "scripts/sources.py"], {}),
    ]
    shared = [f"tests/{folder}" for folder in ("lib", "data", "homes", "nodes", "weather")]
    for group in mypy_groups():
        # Tests import what they test from its folder, as pytest does.
        beside = [str(Path(group[0]).parent)] if group[0].endswith("/tests") else []
        # The portal uses programs of the stacking.
        beside += ["apps/stacking"] if group[0].startswith("apps/portal") else []
        # A benchmark imports the portal.
        beside += ["apps/portal", "apps/stacking"] if group == ["tests"] else []
        path = os.pathsep.join(["python/src", *shared, *beside])
        exclude = (
            ["--exclude", "/tests/"] if group[0].count("/") == 1 and group[0].startswith("apps/") else []
        )
        listed.append(([mypy, "--no-error-summary", *exclude, *group], {"MYPYPATH": path}))
    snippets = [str(path) for path in sorted(write_snippets().glob("*.py"))]
    listed.append(([mypy, "--no-error-summary", *snippets], {"MYPYPATH": "python/src"}))
    listed.append(([str(BIN / "basedpyright"), "--level", "error"], {}))
    clippy = ["cargo", "clippy", "--locked", "--release", "--workspace", "--all-targets"]
    listed.append(([*clippy, *(["--fix", "--allow-dirty"] if fix else []), "--", "-D", "warnings"], {}))
    return listed


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the formatters and linters.")
    parser.add_argument("--fix", action="store_true", help="change the files where that is possible")
    args = parser.parse_args()
    failed = []
    start = time.monotonic()
    listed = commands(args.fix)
    for command, more in listed:
        shown = shlex.join([Path(command[0]).name, *command[1:]])
        print(f"check: {shown}", flush=True)
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, **more}, check=False)
        if done.returncode != 0:
            failed.append(shown)
    for shown in failed:
        print(f"failed: {shown}", file=sys.stderr)
    print(f"{len(listed) - len(failed)} of {len(listed)} checks passed in {time.monotonic() - start:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
