"""Programs below scripts/, as modules for the tests of their parts."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest
from harness import ROOT


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"scripts_{name}", ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look themselves up
    monkeypatch.syspath_prepend(ROOT / "scripts")
    spec.loader.exec_module(module)
    return module
