"""A cluster of the Python package for the tests of one file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import eyas
import pytest


@contextmanager
def embedded(folders: pytest.TempPathFactory, **options: Any) -> Iterator[eyas.Cluster]:
    """`eyas.Cluster(**options)` with a state folder of its own; afterwards none of its processes is left."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EYAS_STATE", str(folders.mktemp("state")))
        with eyas.Cluster(**options) as made:
            pids = made.processes().values()
            yield made
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
