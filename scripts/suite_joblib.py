"""A plugin of pytest for joblib's own tests (scripts/suites.py): ours is among their backends.

With `JOBLIB_BACKEND=eyas` it is the default one, and each list of backends with "loky" in it also has "eyas". The tests that name the
backend that is asked for are run, and those that name none.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from joblib.parallel import BACKENDS, ParallelBackendBase

WHICH = os.environ["JOBLIB_BACKEND"]

if WHICH == "eyas":
    import eyas.joblib  # noqa: F401
    from joblib import register_parallel_backend

    register_parallel_backend("eyas", BACKENDS["eyas"], make_default=True)


def name_of(value: object) -> str | None:
    """The name of a backend, of an object of its class, or of a context of `multiprocessing`."""
    if isinstance(value, ParallelBackendBase):
        return f"{next(name for name, made in BACKENDS.items() if type(value) is made)}()"
    if value is None or (isinstance(value, str) and value in {*BACKENDS, "spawn"}):
        return str(value)
    return "context" if type(value).__name__.endswith("Context") else None


def pytest_make_parametrize_id(config: object, val: object, argname: str) -> str | None:
    # Objects would have numbers, which differ where there is one backend more.
    return name_of(val) if argname.endswith("backend") else None


def with_ours(values: Any) -> list[Any]:
    """The same values, with a copy that has "eyas" where one has "loky"."""
    found: list[Any] = []
    for value in values:
        parts = value if isinstance(value, tuple) else (value,)
        found.append(value)
        if "loky" in [part for part in parts if isinstance(part, str)] and "eyas" not in values:
            ours = tuple("eyas" if part == "loky" else part for part in parts)
            found.append(ours if isinstance(value, tuple) else ours[0])
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for at, mark in enumerate(metafunc.definition.own_markers):
        if mark.name == "parametrize":
            names, values, *rest = mark.args
            # A set has another order in each process.
            values = sorted(values) if isinstance(values, (set, dict)) else list(values)
            values = with_ours(values) if WHICH == "eyas" else values
            metafunc.definition.own_markers[at] = pytest.mark.parametrize(
                names, values, *rest, **mark.kwargs
            ).mark


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        params: dict[str, object] = item.callspec.params if hasattr(item, "callspec") else {}
        named = {
            str(name_of(value)).removesuffix("()")
            for name, value in params.items()
            if "backend" in name and value is not None
        } - {"None"}
        (kept if not named or WHICH in named else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept
