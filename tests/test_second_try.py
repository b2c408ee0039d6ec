"""`scripts/test.py` runs a few failed tests of Rust once more: those that pass then are named, and the others fail the whole."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from harness import ROOT

LIB = """
DOC
fn first(mark: &str) -> bool {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(mark);
    std::fs::File::create_new(path).is_ok()
}
mod tests {
    #[test]
    fn passes() {}
    #[test]
    fn fails_once() { assert!(!super::first("once")); }
    #[test]
    fn fails_once_longer_name() { assert!(!super::first("longer")); }
    #[test]
    fn fails_always() { assert!(!ALWAYS); }
}
"""
# A documentation test that fails.
DOC = """
/// ```
/// assert!(false);
/// ```
pub fn documented() {}
"""
ABORTS = "#[test] fn aborts() { std::process::abort(); }"


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, on a workspace of one small crate."""
    spec = importlib.util.spec_from_file_location("run_all_tests", ROOT / "scripts" / "test.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "run_all_tests", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setenv("CARGO_TARGET_DIR", str(tmp_path / "target"))
    package = '[package]\nname = "flaky"\nversion = "0.1.0"\nedition = "2024"\n[workspace]\n'
    (tmp_path / "Cargo.toml").write_text(package)
    (tmp_path / "src").mkdir()
    return module


def make(folder: Path, always: bool = False, doc: str = "") -> None:
    lib = LIB.replace("ALWAYS", str(always).lower()).replace("DOC", doc)
    (folder / "src" / "lib.rs").write_text(lib)
    subprocess.run(["cargo", "generate-lockfile", "--offline"], cwd=folder, check=True, capture_output=True)


def test_what_passes_alone_is_named_and_does_not_fail(runner: ModuleType, tmp_path: Path) -> None:
    make(tmp_path)
    tally = runner.run_rust()
    assert sorted(tally.passed_alone) == ["tests::fails_once", "tests::fails_once_longer_name"]
    assert tally.trouble(True) is None
    assert (tally.n_passed, tally.n_failed, tally.failed) == (4, 0, [])


def test_what_fails_twice_fails_the_whole(runner: ModuleType, tmp_path: Path) -> None:
    make(tmp_path, always=True)
    tally = runner.run_rust()
    assert tally.passed_alone == [] and "tests::fails_always" in tally.failed
    assert tally.trouble(True) == "Rust: ended with exit status 101"


def test_a_documentation_test_stays_failed(runner: ModuleType, tmp_path: Path) -> None:
    make(tmp_path, doc=DOC)
    tally = runner.run_rust()
    assert tally.passed_alone == [] and len(tally.failed) == 3
    assert tally.trouble(True) == "Rust: ended with exit status 101"


def test_a_binary_that_aborts_fails_the_whole(runner: ModuleType, tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "aborts.rs").write_text(ABORTS)
    tally = runner.run_rust()
    assert tally.passed_alone == []
    assert tally.trouble(True) == "Rust: ended with exit status 101"
