"""eyas from Python.

The wheel holds the program `eyas` and this package. For now the package finds the program, so that
a script, a batch job or `python -m eyas` uses the one of its own environment, whatever PATH says.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from ._find import find_binary

__all__ = ["__version__", "find_binary"]

try:
    __version__ = version("eyas")
except PackageNotFoundError:  # run from the source tree, nothing installed
    __version__ = "0+source"
