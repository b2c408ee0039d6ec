"""The Python package finds the program of its own wheel and becomes it."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from importlib.metadata import files, version
from pathlib import Path

import eyas
import pytest

_find = importlib.import_module("eyas._find")


def make_program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_version_is_that_of_the_wheel() -> None:
    assert eyas.__version__ == version("eyas")
    assert re.fullmatch(r"\d+\.\d+\.\d+", eyas.__version__)


def test_the_wheel_holds_the_program_and_the_typed_package() -> None:
    names = {Path(str(file)).name for file in files("eyas") or ()}
    assert {"eyas", "__init__.py", "__main__.py", "py.typed"} <= names


def test_the_program_of_this_environment_is_found() -> None:
    found = eyas.find_binary()
    assert found == Path(sys.prefix) / "bin" / "eyas"
    assert os.access(found, os.X_OK)


def test_a_file_that_cannot_be_run_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = make_program(tmp_path / "one" / "eyas")
    plain.chmod(0o644)
    good = make_program(tmp_path / "two" / "eyas")
    monkeypatch.setattr(_find, "_candidates", lambda: [tmp_path / "none" / "eyas", plain, good])
    assert eyas.find_binary() == good


def test_an_old_python_without_preferred_schemes_looks_in_the_same_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_schemes = _find._candidates()
    monkeypatch.delattr("sysconfig.get_preferred_scheme")
    assert _find._candidates() == with_schemes


def test_every_layout_of_an_installer_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("target/eyas", "prefix/lib/python3.11/site-packages/eyas"):
        monkeypatch.setattr(_find, "__file__", str(tmp_path / package / "_find.py"))
        expected = tmp_path / package.split("/")[0] / "bin" / "eyas"
        assert expected in _find._candidates()


def test_an_absent_program_is_an_error_that_names_the_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_find, "_candidates", lambda: [tmp_path / "eyas"])
    with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path / "eyas"))):
        eyas.find_binary()


def test_python_m_eyas_becomes_the_program(tmp_path: Path) -> None:
    """Arguments, exit status and process id are the program's own."""
    made = make_program(tmp_path / "bin" / "eyas", '#!/bin/sh\nprintf "%s\\n" $$ "$@"\nexit 42\n')
    starter = (
        "import sys, pathlib, eyas, eyas._find, runpy;"
        f"eyas._find._candidates = lambda: [pathlib.Path({str(made)!r})];"
        "sys.argv[1:] = ['a b', '--help', '']; runpy.run_module('eyas', run_name='__main__')"
    )
    process = subprocess.Popen([sys.executable, "-c", starter], stdout=subprocess.PIPE, text=True)
    output, _ = process.communicate(timeout=60)
    assert output == f"{process.pid}\na b\n--help\n\n"
    assert process.returncode == 42


def test_python_m_eyas_without_the_program_is_one_clear_error() -> None:
    starter = (
        "import eyas, eyas._find, runpy; eyas._find._candidates = lambda: [];"
        "runpy.run_module('eyas', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", starter], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 127
    assert done.stderr.startswith("error: the program eyas is not installed") and "hint:" in done.stderr
    assert "Traceback" not in done.stderr
