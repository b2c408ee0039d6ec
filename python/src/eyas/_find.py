"""Where the program `eyas` is: installed by the same wheel as this package."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path


def _candidates() -> list[Path]:
    """Places where an installer puts a wheel's programs, the most likely first."""
    package = Path(__file__).resolve().parent
    # The function came with Python 3.10; before, there was one scheme on Linux.
    preferred = getattr(sysconfig, "get_preferred_scheme", lambda _: "posix_user")
    folders = [
        Path(sysconfig.get_path("scripts")),  # this environment
        Path(sysconfig.get_path("scripts", scheme=preferred("user"))),  # pip install --user
        package.parent / "bin",  # pip install --target
    ]
    # pip install --prefix: .../lib/python3.x/site-packages/eyas
    if len(package.parents) > 3:
        folders.append(package.parents[3] / "bin")
    return [folder / "eyas" for folder in folders]


def find_binary() -> Path:
    """The program `eyas` that belongs to this package, as an absolute path.

    PATH is not searched: it could name the program of another version.

    Raises
    ------
    FileNotFoundError : it is in none of the places where an installer puts it; they are named.
    """
    candidates = _candidates()
    for path in candidates:
        if path.is_file() and os.access(path, os.X_OK):
            return path
    looked = ", ".join(str(path) for path in dict.fromkeys(candidates))
    raise FileNotFoundError(
        f"the program eyas is not installed beside its Python package\n"
        f"  looked for: {looked}\n"
        f"hint: `make build` in the source tree, or install the wheel again"
    )
