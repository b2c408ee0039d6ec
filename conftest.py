"""How tests are shared out over lanes that run side by side (docs/decisions/0096-tests-side-by-side.md)."""

from __future__ import annotations

import pytest


def _shares_a_server(item: pytest.Item) -> bool:
    """Whether this test asks for a fixture that is made once for its whole file, as a batch system is."""
    known = getattr(item, "_fixtureinfo", None)
    return known is not None and any(
        definitions[-1].scope == "module" for definitions in known.name2fixturedefs.values()
    )


# Before the hook of pytest-xdist, which reads the marks.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What shares a server stays in one lane and in order; any other test goes to the next lane that is free."""
    for item in items:
        if _shares_a_server(item) and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
