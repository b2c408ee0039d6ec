"""Build the wheel where `pip` asks for it: the program `eyas` first, then maturin makes the wheel with the program in it.

maturin builds one crate, and a wheel has two: the module of the package (`crates/app/py`) and the program (`crates/app/cli`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# As pyproject.toml says.
DATA = ROOT / "target" / "wheel.data"


def put_program(program: Path | None) -> None:
    """Place the program where maturin takes it from; without one, an empty file that holds its place."""
    place = DATA / "scripts" / "eyas"
    place.parent.mkdir(parents=True, exist_ok=True)
    if program is None:
        place.write_bytes(b"")
    else:
        shutil.copy(program, place)
    place.chmod(0o755)


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, object] | None = None,
    metadata_directory: str | None = None,
) -> str:
    import maturin

    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
    command = ["cargo", "build", "--release", "--locked", "-p", "eyas-cli"]
    if (status := subprocess.run(command, cwd=ROOT, check=False).returncode) != 0:
        sys.exit(f"error: `cargo build -p eyas-cli` ended with exit status {status}")
    put_program(target / "release" / "eyas")
    made: str = maturin.build_wheel(wheel_directory, config_settings, metadata_directory)
    return made


def build_sdist(sdist_directory: str, config_settings: dict[str, object] | None = None) -> str:
    import maturin

    put_program(None)
    made: str = maturin.build_sdist(sdist_directory, config_settings)
    return made


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: dict[str, object] | None = None
) -> str:
    import maturin

    put_program(None)
    made: str = maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings)
    return made
