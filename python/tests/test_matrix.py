"""`python -m eyas.matrix`: matrices of `eyas pairs` in other formats."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
matrix = pytest.importorskip("eyas.matrix")

CSV = ',x,"y, z"\na,1,\nb,NaN,2.5\n'


def make(folder: Path) -> tuple[Path, Path]:
    """The same matrix as CSV, and as a `.npy` file as `eyas pairs` writes it."""
    (folder / "m.csv").write_text(CSV)
    missing = np.array([matrix.MISSING_BITS], dtype="<u8").view("<f8")[0]
    np.save(folder / "m.npy", np.array([[1, missing], [np.nan, 2.5]], dtype="<f8"))
    return folder / "m.csv", folder / "m.npy"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "eyas.matrix", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


def test_missing_cells_are_named(tmp_path: Path) -> None:
    """A value that a program printed as `nan` is not missing."""
    as_csv, as_npy = make(tmp_path)
    assert run(as_csv, "--missing").stdout == "a\ty, z\n"
    assert run(as_npy, "--missing").stdout == "0\t1\n"


def test_blocks_cover_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "BLOCK_CELLS", 10)
    np.save(tmp_path / "m.npy", np.arange(35, dtype="<f8").reshape(7, 5))
    blocks = list(matrix.Matrix.read(tmp_path / "m.npy").blocks())
    assert [first for first, _ in blocks] == [0, 2, 4, 6]
    assert np.array_equal(np.concatenate([block for _, block in blocks]).ravel(), np.arange(35))


def test_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    for path, names in zip(make(tmp_path), (["a", "b"], ["0", "1"])):
        done = run(path, "--out", tmp_path / "m.parquet")
        assert done.returncode == 0, done.stderr
        table = parquet.read_table(tmp_path / "m.parquet").to_pydict()
        rows, first, second = table.values()
        assert rows == names and first[0] == 1 and np.isnan(first[1]) and second == [None, 2.5]


def test_zarr(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    as_csv, _ = make(tmp_path)
    done = run(as_csv, "--out", tmp_path / "m.zarr")
    assert done.returncode == 0, done.stderr
    array = zarr.open_array(str(tmp_path / "m.zarr"), mode="r")
    assert np.array_equal(array[:], [[1, np.nan], [np.nan, 2.5]], equal_nan=True)
    assert list(array.attrs["rows"]) == ["a", "b"] and list(array.attrs["columns"]) == ["x", "y, z"]


@pytest.mark.parametrize(
    ("name", "out", "expected"),
    [
        ("m.csv", "m.txt", "ends neither in .parquet nor in .zarr"),
        ("none.csv", "m.zarr", "cannot be read"),
        ("bad.csv", "m.zarr", "is no matrix"),
        ("bad.npy", "m.zarr", "is no matrix"),
    ],
)
def test_what_cannot_be_converted(tmp_path: Path, name: str, out: str, expected: str) -> None:
    make(tmp_path)
    (tmp_path / "bad.csv").write_text(",x\na,one\n")
    np.save(tmp_path / "bad.npy", np.arange(3))
    done = run(tmp_path / name, "--out", tmp_path / out)
    assert done.returncode == 2 and expected in done.stderr and "Traceback" not in done.stderr
