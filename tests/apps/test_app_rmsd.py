"""apps/rmsd: clusters of trajectories in data sets are those of a plain double loop, however the program gets at its input."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from app import App, Json
from harness import Eyas, Start, lacking, need_path, need_program
from test_store import Store

N_TRAJECTORIES = 2
EVERY = ["--every", "4"]


@pytest.fixture
def rmsd(eyas: Eyas, tmp_path: Path) -> App:
    for package in ("MDAnalysis", "MDAnalysisTests"):
        if importlib.util.find_spec(package) is None:
            pytest.fail(f"{package} is missing: requirements-apps.txt lists it", pytrace=False)
    eyas.env["EYAS_DATA"] = f"sqlite:{tmp_path}/catalog.db"
    return App("rmsd", eyas, tmp_path)


@pytest.fixture
def kept(rmsd: App, start: Start) -> App:
    """Two trajectories in data sets, one at each of two stores."""
    need_path("/dev/fuse", "the kernel's module fuse")
    sizes = ["--megabytes", "2", "--trajectories", str(N_TRAJECTORIES)]
    rmsd.program("make_data.py", "--out", rmsd.data, *sizes)
    rmsd.eyas.run("data", "init", "--dir", "here")
    for number in range(N_TRAJECTORIES):
        folder = rmsd.folder / f"store-{number}"
        rmsd.eyas.run("data", "site", "--join", Store(start, folder).join)
        what: list[str | Path] = [
            rmsd.data / f"adk-{number:03d}",
            "--label",
            f"adk-{number:03d}",
            "--site",
            folder.name,
        ]
        rmsd.eyas.run("data", "put", *what, "--tag", "protein=adk", "--tag", f"trajectory={number}")
    return rmsd


def results(app: App, model: str) -> Json:
    """What check.py says of the results that a model has made data sets of."""
    (app.folder / model).mkdir()
    for number in range(N_TRAJECTORIES):
        label = app.eyas.run("match", f"model={model}", f"trajectory={number}").stdout.strip()
        target = app.folder / model / f"adk-{number:03d}.npz"
        app.eyas.run("data", "get", f"{label}/rmsd.npz", target)
    return app.checked(model, "--data", app.data)


def test_clusters_are_those_of_a_double_loop(kept: App) -> None:
    program = [sys.executable, str(kept.home / "rmsd.py")]
    options = ["--out", "rmsd.npz", *EVERY]
    for number in range(N_TRAJECTORIES):
        key = kept.eyas.run("match", "protein=adk", f"trajectory={number}").stdout.strip()
        tags = ["--tag", f"trajectory={number}", "--site", f"store-{number}"]
        names = ["adk.psf", "traj.dcd"]
        inputs = [word for name in names for word in ("--input", f"{name}=/{key}/{name}")]
        made = ["--output", "rmsd.npz=rmsd.npz", "--tag", "model=copies", *tags]
        kept.eyas.run("at-data", *inputs, *made, "--", *program, *names, *options)
        opened = [f"/eyas/{key}/{name}" for name in names]
        out = ["--out", "/eyas/new/rmsd.npz", *EVERY]
        kept.eyas.run("access", "--tag", "model=opened", *tags, "--", *program, *opened, *out)

    n_frames = json.loads((kept.data / "data.json").read_text())["frames"]
    n_sampled = -(-n_frames // 4)
    found = results(kept, "copies")
    assert found["trajectories"] == N_TRAJECTORIES and found["clusters"] > N_TRAJECTORIES
    assert found["pairs_equal"] == N_TRAJECTORIES * n_sampled**2
    assert found["frames_equal"] == N_TRAJECTORIES * n_frames
    assert results(kept, "opened") == found
    # The same as a run whose inputs are data sets.
    assert "2 done, 0 failed" in kept.run("run", kept.plan("run", *EVERY)).stderr
    assert kept.checked("run", "--data", kept.data) == found
    for path in (kept.folder / "copies").iterdir():
        contents = {(kept.folder / model / path.name).read_bytes() for model in ("copies", "opened", "run")}
        assert len(contents) == 1


def test_wrong_results_are_refused(rmsd: App) -> None:
    rmsd.program("make_data.py", "--out", rmsd.data, "--megabytes", "1", "--trajectories", "1")
    files = [rmsd.data / "adk-000" / name for name in ("adk.psf", "traj.dcd")]
    found = rmsd.folder / "found"
    found.mkdir()
    rmsd.program("rmsd.py", *files, "--out", found / "adk-000.npz", *EVERY, "--cutoff", "0.6")
    whole = rmsd.checked("found", "--data", rmsd.data)
    (rmsd.folder / "part").mkdir()
    sampled = [*EVERY, "--cutoff", "0.6", "--sampled-only"]
    rmsd.program("rmsd.py", *files, "--out", rmsd.folder / "part" / "adk-000.npz", *sampled)
    assert rmsd.checked("part", "--data", rmsd.data) == {**whole, "frames_equal": 6}
    good = dict(np.load(found / "adk-000.npz"))

    def refused(**changed: np.ndarray) -> str:
        with (found / "adk-000.npz").open("wb") as out:
            np.savez(out, **{**good, **changed})
        return rmsd.refused("found", "--data", rmsd.data)

    matrix = good["matrix"].copy()
    matrix[1, 2] += 0.01
    assert "frames 4 and 8 have" in refused(matrix=matrix)
    assert "the middles are" in refused(middles=good["middles"][::-1])
    assert "from its middle, the loop finds" in refused(cluster_of=good["cluster_of"][::-1])
    assert "frames have a cluster" in refused(cluster_of=good["cluster_of"][:-1])


def test_equal_seeds_give_equal_trajectories(rmsd: App) -> None:
    sizes = ["--megabytes", "1", "--trajectories", "2"]
    made = {}
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        rmsd.program("make_data.py", "--out", rmsd.folder / name, *sizes, "--seed", seed)
        made[name] = [(rmsd.folder / name / f"adk-00{n}" / "traj.dcd").read_bytes() for n in range(2)]
    assert made["a"] == made["b"]
    assert len({*made["a"], *made["c"]}) == 4
    assert 900_000 < len(made["a"][0]) <= 1_000_000


def test_what_figure_7_measures_is_equal_in_all_models(rmsd: App) -> None:
    """On hosts of their own: what is staged or read from elsewhere passes the links, and what is at its data does not."""
    need_program("nsenter", "util-linux")
    need_program("tc", "iproute2")
    if os.geteuid() != 0:
        lacking("only root makes network namespaces")
    out, svg = rmsd.folder / "figure7.json", rmsd.folder / "figure7.svg"
    sizes = ["--processors", "2", "--executions", "1", "--internet-megabytes", "2"]
    measured = ["--configurations", "internet", "--eyas", str(rmsd.eyas.path), "--dir", str(rmsd.folder)]
    rmsd.program("figure7.py", "--out", out, "--svg", svg, *sizes, *measured)
    found = json.loads(out.read_text())["configurations"]["internet"]
    assert found["results_equal"] == 6
    bars = {bar["model"]: bar for bar in found["bars"]}
    for model in ("staging", "remote"):
        # Two trajectories of two megabytes, over links of one megabyte a second.
        assert bars[model]["sent_over_links_bytes"] > 4_000_000 and bars[model]["turnaround_s"] > 1.9
    assert bars["collocation"]["sent_over_links_bytes"] < 100_000
    assert svg.read_text().startswith("<?xml")
