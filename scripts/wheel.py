"""Build the wheel and install it into this environment: the program `eyas` and the Python package; or build `eyas-lab` beside them.

    .venv/bin/python scripts/wheel.py [--lab]

Uses cargo's own target folder and the release profile, as the tests do, so that what one has
compiled the other does not compile again. `eyas-lab` is for those who work on eyas, and no part of the wheel.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def target_dir() -> Path:
    """Where cargo puts what it builds."""
    return Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")


def build_lab(environment_bin: Path) -> int:
    lab = environment_bin / "eyas-lab"
    command = ["cargo", "build", "--release", "--locked", "-p", "eyas-lab"]
    built = subprocess.run(command, cwd=ROOT, check=False)
    if built.returncode == 0:
        # A program that runs cannot be overwritten, but replaced.
        shutil.copy(target_dir() / "release" / "eyas-lab", lab.with_suffix(".new"))
        lab.with_suffix(".new").rename(lab)
    return built.returncode


def main() -> int:
    environment_bin = Path(sys.prefix) / "bin"
    if sys.prefix == sys.base_prefix:
        print(
            "error: run this with the Python of a virtual environment, or run `make build`", file=sys.stderr
        )
        return 2
    if sys.argv[1:] == ["--lab"]:
        return build_lab(environment_bin)
    with tempfile.TemporaryDirectory() as folder:
        built = subprocess.run([environment_bin / "maturin", "build", "--out", folder], cwd=ROOT, check=False)
        if built.returncode != 0:
            return built.returncode
        (wheel,) = Path(folder).glob("eyas-*.whl")
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--no-index",
            "--force-reinstall",
        ]
        installed = subprocess.run([*pip, wheel], check=False)
        if installed.returncode != 0:
            return installed.returncode
        dist = ROOT / "dist"
        shutil.rmtree(dist, ignore_errors=True)
        dist.mkdir()
        shutil.move(wheel, dist / wheel.name)
    # make compares this time with those of the sources.
    os.utime(environment_bin / "eyas")
    return 0


if __name__ == "__main__":
    sys.exit(main())
