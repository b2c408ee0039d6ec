"""Build the wheel and install it into this environment: the program `eyas` and the Python package.

    .venv/bin/python scripts/wheel.py

Uses cargo's own target folder and the release profile, as the tests do, so that what one has
compiled the other does not compile again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    environment_bin = Path(sys.prefix) / "bin"
    if sys.prefix == sys.base_prefix:
        print(
            "error: run this with the Python of a virtual environment, or run `make build`", file=sys.stderr
        )
        return 2
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
