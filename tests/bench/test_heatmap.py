"""`python -m eyas.heatmap`: the picture of a matrix, and the order of a clustered one."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest
from eyas import heatmap


def groups(n: int, seed: int) -> list[int]:
    items = [i % 3 for i in range(n)]
    random.Random(seed).shuffle(items)
    return items


@pytest.mark.parametrize("seed", range(5))
def test_items_that_are_alike_become_neighbours(seed: int) -> None:
    kinds = groups(24, seed)
    noise = np.random.default_rng(seed).random((24, 24))
    apart = np.array([[0.0 if a == b else 10.0 for b in kinds] for a in kinds])
    order = heatmap.cluster(apart + noise)
    assert sorted(order) == list(range(24))
    found = [kinds[i] for i in order]
    n_borders = sum(1 for a, b in itertools.pairwise(found) if a != b)
    assert n_borders == 2, found


def test_small_and_empty_matrices() -> None:
    assert heatmap.cluster(np.zeros((0, 0))) == []
    assert heatmap.cluster(np.zeros((1, 1))) == [0]
    assert sorted(heatmap.cluster(np.full((3, 3), np.nan))) == [0, 1, 2]


def test_pictures_of_both_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.csv").write_text(",x,y\nx,1,\ny,0.5,1\n")
    np.save(tmp_path / "m.npy", np.eye(3))
    for name, options in (("m.csv", ["--clustered"]), ("m.npy", [])):
        out = tmp_path / f"{name}.png"
        assert heatmap.main([str(tmp_path / name), "--out", str(out), *options]) == 0
        assert out.read_bytes().startswith(b"\x89PNG")
    (tmp_path / "wide.csv").write_text(",x,y\nx,1,2\n")
    for name, expected in (
        ("wide.csv", "--clustered needs a square matrix, and"),
        ("none.csv", "cannot be read: No such file or directory"),
    ):
        arguments = [str(tmp_path / name), "--out", str(tmp_path / "p.png"), "--clustered"]
        assert heatmap.main(arguments) == 2
        assert expected in capsys.readouterr().err
    (tmp_path / "bad.csv").write_text(",x\nx,one\n")
    assert heatmap.main([str(tmp_path / "bad.csv"), "--out", str(tmp_path / "p.png")]) == 2
    assert "is no matrix" in capsys.readouterr().err
