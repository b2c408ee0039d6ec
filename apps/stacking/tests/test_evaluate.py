"""The evaluation: table 3 through a real eyas on a tiny survey, its counts, going on where it stopped, and the page of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import evaluate
import page
import pytest

APP = Path(evaluate.__file__).parent
ROOT = APP.parent.parent
EYAS = Path(sys.prefix) / "bin" / "eyas"
SIMULATED = ROOT / "docs" / "results" / "results.json"
# 12 objects in two images of 0.1 MB, packed, or 0.2 MB.
TINY = ["--localities", "30", "--least", "12", "--scale", "1e9", "--width", "320", "--height", "300"]
TINY += ["--objects", "6", "--home-rate", "4MB", "--cache", "64MiB", "--profile-objects", "2"]
TINY += ["--profile-rounds", "1", "--goal-objects", "11", "--goal-rate", "2MB", "--alone-objects", "4"]

Json = dict[str, Any]


def call(program: str, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(APP / program), *(str(word) for word in words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Json]:
    """The folder of a whole evaluation, and what it wrote."""
    folder = tmp_path_factory.mktemp("evaluation")
    done = call("evaluate.py", EYAS, "--dir", folder, *TINY, "--nodes", "1", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    read: Json = json.loads((folder / "evaluation.json").read_text())
    return folder, read


def by_name(measured: Json) -> dict[tuple[str, str, int, str], Json]:
    return {
        (one["configuration"], one["locality"], one["nodes"], one["home_rate"]): one
        for one in measured["experiments"]
    }


def test_every_experiment_is_there_with_what_was_measured(measured: tuple[Path, Json]) -> None:
    folder, read = measured
    runs = by_name(read)
    # Each configuration at each locality and number of nodes, the local disk for each number, and two at the demo's rate.
    assert len(runs) == len(read["experiments"]) == 5 * 2 + 5 * 2 + 2
    for one in read["experiments"]:
        n = one["n_local"] + one["n_remote"] + one["n_home"]
        assert n == one["n_done"] == one["n_objects"] and one["makespan_s"] > 0
        assert 0 < one["start_s"] < one["makespan_s"]
        assert (one["making_s"] is None) == (one["n_made"] == 0) and (one["making_s"] or 1) > 0
        assert one["stack"]["n_cutouts"] == one["n_objects"] and one["stack"]["snr_one_expected"] < 0.5
    assert read["program"]["digest"] and read["machine"]["n_cores"] >= 1
    assert read["survey"]["n_rows_of_query"] > read["survey"]["n_objects"]
    # What a run leaves is removed; the survey stays.
    assert sorted(path.name for path in folder.iterdir()) == ["evaluation.json", "survey"]


def test_images_are_counted_where_they_came_from(measured: tuple[Path, Json]) -> None:
    runs = by_name(measured[1])
    packed, plain = measured[1]["survey"]["gz_bytes"], measured[1]["survey"]["fit_bytes"]
    for (configuration, locality, nodes, _), one in runs.items():
        n, n_files = one["n_objects"], one["n_files"]
        if configuration.startswith(("shared", "home")):
            # Every task reads its image from home, and no local disk.
            size = packed if configuration.endswith("gz") else plain
            assert one["n_home"] == n and one["home_bytes"] == pytest.approx(n * size, rel=0.25)
            assert one["local_bytes"] == one["peer_bytes"] == one["n_made"] == 0
            assert one["hit_ratio"] == 0 and one["of_ideal"] is None
        elif configuration.startswith("local"):
            assert one["n_local"] == n and one["home_bytes"] == one["peer_bytes"] == 0
        else:
            # Each image is read from home by one node at least, and by each at most once.
            assert n_files <= one["n_home"] <= n_files * nodes
            assert one["hit_ratio"] == pytest.approx(1 - one["n_home"] / n, abs=1e-4)
            assert one["hit_ratio_ideal"] == pytest.approx(1 - n_files / n, abs=1e-4)
            size = plain if configuration == "dd-fit" else packed
            assert one["home_bytes"] == pytest.approx(one["n_home"] * size, rel=0.25)
            # Programs read what is unpacked.
            assert one["local_bytes"] == n * plain
            if nodes == 1:
                assert one["n_home"] == n_files and one["n_remote"] == 0
                assert one["of_ideal"] == (None if configuration == "made-gz" else 1.0)
                assert one["n_made"] == (0 if configuration == "dd-fit" else n_files)
        assert (locality, n, n_files) in (("30", 12, 2), ("30", 11, 2), ("30", 4, 1), ("1", 4, 4))


def test_all_configurations_make_the_same_bytes_and_another_one_is_noticed(
    measured: tuple[Path, Json],
) -> None:
    experiments = measured[1]["experiments"]
    evaluate.check_outputs(experiments)
    digests = {(one["locality"], one["n_objects"]): one["outputs_digest"] for one in experiments}
    assert len(set(digests.values())) == len(digests)  # of other workloads others
    changed = [dict(one) for one in experiments]
    changed[-1]["outputs_digest"] = "0"
    with pytest.raises(evaluate.EvaluationError, match="are not those of"):
        evaluate.check_outputs(changed)


def test_it_goes_on_where_it_stopped(measured: tuple[Path, Json], tmp_path: Path) -> None:
    folder, read = measured
    half = {**read, "experiments": read["experiments"][:-1]}
    out = tmp_path / "half.json"
    out.write_text(json.dumps(half))
    words = [EYAS, "--dir", folder, *TINY, "--nodes", "1", "2", "--json", out]
    done = call("evaluate.py", *words)
    assert done.returncode == 0, done.stderr
    # One line of a run, that of the missing experiment, which stands last.
    ran = [line for line in done.stdout.splitlines() if re.match(r" *\d+/22 ", line)]
    assert len(ran) == 1 and ran[0].startswith(" 22/22")
    again = json.loads(out.read_text())
    assert again["experiments"][:-1] == half["experiments"] and again["profile"] == read["profile"]


def test_what_another_program_measured_is_measured_again() -> None:
    survey = evaluate.Survey(Path(), {"generator": "a"}, [], [])
    experiment = evaluate.Experiment("dd-gz", "1.38", 1, 5, 3, "1MB", "1GB", 7)
    key = evaluate.key_of(experiment, {"digest": "p"}, survey)
    assert key == evaluate.key_of(experiment, {"digest": "p", "commit": "any"}, survey)
    assert key != evaluate.key_of(experiment, {"digest": "q"}, survey)
    assert key != evaluate.key_of(replace(experiment, home_rate="2MB"), {"digest": "p"}, survey)
    assert key != evaluate.key_of(experiment, {"digest": "p"}, replace(survey, truth={"generator": "b"}))


def test_objects_are_dealt_evenly(measured: tuple[Path, Json]) -> None:
    survey = evaluate.Survey(Path(), {}, ["a", "b", "c"], [["p", "q"], ["r", "s"], ["t", "u"]])
    experiment = evaluate.Experiment("dd-gz", "1.38", 1, 5, 3, "1MB", "1GB", 7)
    dealt = evaluate.deal(survey, experiment)
    assert sorted(dealt) == [(0, "p"), (0, "q"), (1, "r"), (1, "s"), (2, "t")]
    with pytest.raises(evaluate.EvaluationError, match=r"image a has 2 objects.* needs 3; --objects"):
        evaluate.deal(survey, evaluate.Experiment("dd-gz", "3", 1, 7, 3, "1MB", "1GB", 7))


def test_table_3_is_that_of_the_simulator() -> None:
    source = (ROOT / "crates" / "lab" / "papers" / "src" / "workload" / "stacking.rs").read_text()
    rows = re.findall(r'name: "([\d.]+)", n_objects: ([\d_]+), n_files: ([\d_]+)', source)
    assert {
        name: (int(o.replace("_", "")), int(f.replace("_", ""))) for name, o, f in rows
    } == evaluate.TABLE_3


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["/nowhere/eyas"], 1, "/nowhere/eyas cannot be started"),
        ([str(EYAS), "--localities", "7"], 2, "invalid choice: '7'"),
        ([str(EYAS), "--least", "0"], 2, "start at 1"),
        ([str(EYAS), "--home-rate", "fast"], 2, "`fast` is not a size"),
        (
            [str(EYAS), "--localities", "30", "--least", "40", "--width", "250", "--height", "250"],
            1,
            "no room for 31",
        ),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, words: list[str], status: int, said: str) -> None:
    done = call("evaluate.py", *words, "--dir", tmp_path, "--profile-objects", "0", "--goal-objects", "0")
    assert done.returncode == status and said in done.stderr, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


# ---------------------------------------------------------------------------------------------------- the page


def test_the_page_has_the_paper_and_the_simulation_beside_it(
    measured: tuple[Path, Json], tmp_path: Path
) -> None:
    made = []
    for _ in range(2):
        done = call("page.py", measured[0] / "evaluation.json", "--out", tmp_path, "--simulated", SIMULATED)
        assert done.returncode == 0, done.stderr
        made.append({path.name: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()})
    # The same file gives the same page and the same figures.
    assert made[0] == made[1]
    text = (tmp_path / "stacking.md").read_text()
    assert json.loads((tmp_path / "stacking.json").read_text()) == measured[1]
    for figure in ("41", "42", "43", "44", "45", "46", "47", "48", "49", "50", "51"):
        assert re.search(rf"\bfigures? {figure}\b", text), figure
    for said in ("168,529", "0.421 MB", "0.066 MB", "39 Gb/s", "154,345", "| the paper, all | 92 | 5 % |"):
        assert said in text
    assert "nan" not in text and "None" not in text and "inf" not in text.replace("information", "")
    # All rows of a table have as many cells as its head.
    for block in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        assert len({line.count("|") for line in block.replace("|model", "").splitlines()}) == 1, block
    # A cell of the page is the number that was measured.
    one = by_name(measured[1])["shared-fit", "30", 2, "4MB"]
    row = next(line for line in text.splitlines() if line.startswith("| 2, live |") and "ms" in line)
    assert row.count("ms") == 5
    assert f"{one['ms_per_stack']:,.0f} ms" in text.split("### Locality 30 (figure 45)")[1].split("###")[0]
    # Simulated rows are those of the page that `eyas-lab repro` wrote.
    written = (ROOT / "docs" / "results" / "data-diffusion.md").read_text()
    for cells in ("456 ms | 267 ms | 312 ms | 181 ms", "202 ms | 194 ms | 606 ms | 1,798 ms"):
        assert (cells in written) == (cells in text)
    pytest.importorskip("matplotlib")
    for name in re.findall(r"\((figures/[^)]*)\)", text):
        assert (tmp_path / name).read_text().startswith("<?xml")


def test_goals_are_called_missed_when_they_are() -> None:
    def one(name: str, seconds: float, rate: str, of_ideal: float | None) -> Json:
        keys = ("configuration", "makespan_s", "home_rate", "of_ideal", "locality", "nodes")
        return dict(zip(keys, (name, seconds, rate, of_ideal, "30", 2), strict=True))

    options = {"nodes": [2], "goal_objects": 1000, "goal_rate": "10MB"}
    goal = [{**one("shared-gz", 100.0, "10MB", None), "n_objects": 1000}]
    goal += [{**one("ours-gz", 26.0, "10MB", 1.0), "n_objects": 1000}]
    goal += [{**one("dd-gz", 24.0, "10MB", 1.0), "n_objects": 1000}]
    live = [
        {**one("ours-gz", 1.0, "40MB", 0.98), "n_objects": 9},
        {**one("dd-gz", 1.0, "40MB", 0.96), "n_objects": 9},
    ]
    results = page.Results({"options": options, "experiments": goal + live}, {"experiments": {}, "about": {}})
    rows = page.goals(results).splitlines()[2:]
    assert [row.split("|")[-2].strip() for row in rows] == ["**missed**", "reached", "reached", "**missed**"]
    assert "0.260: 26.0 s, 100.0 s" in rows[0] and "0.960" in rows[3]


BASE = {"n_objects": 100, "n_files": 10, "nodes": 2, "home_rate": "10MB"}
COSTS = page.Costs(
    start_s=0.3, local_s=0.05, home_s=0.08, making_s=0.1, file_bytes=2e6, output_bytes=1e5, n_processors=2
)
# Programs of a second, and half a second more where the image is copied from home.
BUSY = replace(COSTS, local_s=1.0, home_s=1.5, output_bytes=0)


def test_the_model_of_shared_storage_is_the_slower_of_processors_and_home() -> None:
    shared = {**BASE, "configuration": "shared-gz"}
    # 100 files of 2 MB and 100 outputs of 0.1 MB at 10 MB/s; behind the last file 0.03 s of copying and the last program, of which the
    # output is not awaited.
    assert page.model_s(shared, COSTS) == pytest.approx(0.3 + 20 + 1 + 0.03 + 0.05 - 0.02)
    # Home is quick: two processors have 1.5 s for each of 100 programs, and stacks that meet by chance wait a little.
    quick = {**shared, "home_rate": "100GB"}
    assert page.model_s(quick, BUSY) == pytest.approx(0.3 + 100 * 1.5 / 2, rel=0.01)
    # With two processors for each node, copying takes none from programs.
    assert page.model_s(quick, replace(BUSY, n_processors=4)) < 0.3 + 100 * 1.2 / 2


def test_by_the_papers_policy_files_come_while_the_last_program_of_the_file_before_computes() -> None:
    # The file takes 0.4 s, its copy 0.5 s, and a program 1 s: only the first file is waited for.
    fit = {**BASE, "configuration": "dd-fit"}
    assert page.model_s(fit, BUSY) == pytest.approx(0.3 + 0.9 + 100 / 2)
    # Files come slowly: five of a node in 4.5 s each, the others' 45 programs, and the last one.
    slow = {**fit, "home_rate": "1MB"}
    assert page.model_s(slow, BUSY) == pytest.approx(0.3 + 5 * 4.5 + 45 + 1)
    # A packed file comes, too, and then it is unpacked.
    packed = {**slow, "configuration": "dd-gz"}
    assert page.model_s(packed, BUSY) == pytest.approx(0.3 + 5 * 4.6 + 45 + 1)
    # Of 100 stacks in 80 files 60 are alone in theirs, and their files come side by side.
    many = {**packed, "n_files": 80}
    assert page.model_s(many, BUSY) == pytest.approx(0.3 + 1 + 30 * 4 + 10 * 4.6 + 10)


def test_affinity_fetches_while_programs_compute_and_nodes_unpack() -> None:
    ours = {**BASE, "configuration": "ours-gz"}
    # Two processors do everything: 50 programs each, and five copies and unpackings.
    assert page.model_s(ours, BUSY) == pytest.approx(0.3 + 0.4 + 50 + 5 * 0.6)
    # With a processor more for each node, what is unpacked costs nothing but the first file.
    assert page.model_s(ours, replace(BUSY, n_processors=4)) == pytest.approx(0.3 + 0.4 + 0.6 + 50)
    # Home is slow: 50 files of 2 MB, the last one's copy, and its two programs.
    slow = {**ours, "home_rate": "1MB", "n_files": 50}
    assert page.model_s(slow, BUSY) == pytest.approx(0.3 + 100 + 0.6 + 2)


def test_two_on_their_way_are_between_in_step_and_by_chance() -> None:
    # In step nobody waits; by chance each finds the other in half of the cases, with half of its time over.
    assert page.two_on_their_way_s(1, 1, 2) == pytest.approx((1 + 1.25) / 2)
    assert page.two_on_their_way_s(1, 1, 4) == pytest.approx((2 + 2.125) / 2)
    # What is full decides.
    assert page.two_on_their_way_s(10, 1, 11) == 10


def test_sizes_are_read_as_eyas_reads_them() -> None:
    assert [evaluate.bytes_of(text) for text in ("40MB", "4GiB", "500KB", "12")] == [40e6, 2**32, 5e5, 12]


def test_a_file_that_is_no_evaluation_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    done = call("page.py", tmp_path / "x.json", "--out", tmp_path / "out")
    assert done.returncode == 1 and "x.json is not what was expected" in done.stderr
    assert not (tmp_path / "out").exists()
