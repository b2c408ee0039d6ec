"""Workflow files of others, run as they are: real shell programs, linked by files."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from harness import Run

WORDS = {"one.txt": "a b c\nd\n", "two.txt": "x y\n", "three.txt": "1 2 3 4 5\n"}

MAKEFLOW = """\
# Counts words, file by file, and adds up.
PARTS=one two three
MAKEFLOW_OUTPUTS="total.txt"
CATEGORY=count
one.n: one.txt count.sh
\t./count.sh one.txt > one.n
two.n: two.txt count.sh
\t./count.sh two.txt > two.n
three.n: three.txt count.sh
\t./count.sh three.txt > three.n
CATEGORY=sum
total.txt: one.n two.n three.n
\tLOCAL cat one.n two.n three.n | awk '{s += $1} END {print s}' > total.txt
"""

# The reader of a file that nobody links to the last job by a file: it must wait all the same.
PEGASUS = """\
pegasus: 5.0.4
name: words
replicaCatalog:
  replicas:
  - {{lfn: text, pfns: [{{site: local, pfn: '{folder}/one.txt'}}]}}
transformationCatalog:
  transformations:
  - {{name: count, sites: [{{name: local, pfn: '{folder}/count.sh', type: stageable}}]}}
jobs:
- type: job
  name: count
  id: ID1
  stdout: n.txt
  arguments: [text]
  uses:
  - {{lfn: text, type: input}}
  - {{lfn: n.txt, type: output, stageOut: false}}
- type: job
  name: cp
  id: ID2
  arguments: [n.txt, final.txt]
  uses:
  - {{lfn: n.txt, type: input}}
  - {{lfn: final.txt, type: output, stageOut: true}}
- type: job
  name: touch
  id: ID3
  arguments: [last.txt]
  uses:
  - {{lfn: last.txt, type: output, stageOut: true}}
jobDependencies:
- id: ID2
  children: [ID3]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with texts and a program that counts their words."""
    folder = tmp_path / "work"
    folder.mkdir()
    for name, text in WORDS.items():
        (folder / name).write_text(text)
    (folder / "count.sh").write_text('#!/bin/sh\nwc -w < "$1"\n')
    (folder / "count.sh").chmod(0o755)
    (folder / "words.makeflow").write_text(MAKEFLOW)
    (folder / "words.yml").write_text(PEGASUS.format(folder=folder))
    return folder


def test_a_makeflow_runs_and_its_results_are_where_they_should_be(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    run("run", "work/words.makeflow", "--out", "results", "--slots", "2", cwd=tmp_path)
    assert (tmp_path / "results" / "total.txt").read_text().strip() == "11"
    # What stays on the nodes is not at home.
    assert [p.name for p in (tmp_path / "results").iterdir()] == ["total.txt"]
    assert not list(folder.glob("*.n"))


def test_a_pegasus_workflow_runs(run: Run, folder: Path, tmp_path: Path) -> None:
    dir_ = tmp_path / "cluster"
    run("run", "words.yml", "--dir", dir_, "--slots", "2", cwd=folder)
    assert (folder / "final.txt").read_text().strip() == "4"
    assert (folder / "last.txt").exists()
    assert not (folder / "n.txt").exists()
    # The last job waited for the second, though it reads nothing of it.
    run("export", "--dir", dir_, "--wfformat", "run.json", cwd=tmp_path)
    done = json.loads((tmp_path / "run.json").read_text())["workflow"]
    parents = {t["id"]: t["parents"] for t in done["specification"]["tasks"]}
    assert parents["ID3"] == ["ID2"]


def test_a_converted_workflow_is_a_task_list_that_gives_the_same(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    run(
        "convert",
        "work/words.makeflow",
        "--to",
        "jsonl",
        "--out",
        "results",
        "-o",
        "tasks.jsonl",
        cwd=tmp_path,
    )
    tasks = [json.loads(line) for line in (tmp_path / "tasks.jsonl").read_text().splitlines()]
    assert sorted(t["label"] for t in tasks) == ["count", "count", "count", "sum"]
    run("run", "tasks.jsonl", cwd=tmp_path)
    assert (tmp_path / "results" / "total.txt").read_text().strip() == "11"
    run("convert", "tasks.jsonl", "--to", "wfformat", "-o", "words.json", cwd=tmp_path)
    again = run("convert", "words.json", "--to", "jsonl", cwd=tmp_path).stdout
    by_id = sorted((json.loads(line) for line in again.splitlines()), key=lambda t: t["id"])
    assert by_id == sorted(tasks, key=lambda t: t["id"])


def test_folders_are_sources_and_targets_of_a_makeflow(run: Run, tmp_path: Path) -> None:
    """A folder at home is all its files; one that a rule writes reaches its reader on another node, and home."""
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "a").write_text("1 2\n")
    (tmp_path / "in" / "deep" / "b").write_text("3\n")
    (tmp_path / "w.makeflow").write_text(
        "CATEGORY=cut\nMEMORY=1\n"
        "words: in\n\tmkdir -p words/x; for f in in/a in/deep/b; do tr ' ' '\\\\n' < \\$f > words/x/\\$(basename \\$f); done\n"
        "CATEGORY=sum\n"
        "n: words\n\tcat words/x/* | wc -l > n; echo $CATEGORY >> n\n"
        "kept/: words\n\tcp -r words kept\n"
    )
    run("run", "w.makeflow", "--out", "out", "--nodes", "2", "--slots", "1", cwd=tmp_path)
    assert (tmp_path / "out" / "n").read_text().split() == ["3", "sum"]
    assert sorted(p.name for p in (tmp_path / "out" / "kept" / "x").iterdir()) == ["a", "b"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["kept", "n"]


def test_a_makeflow_in_jx_runs(run: Run, folder: Path, tmp_path: Path) -> None:
    (folder / "words.jx").write_text(
        """# Counts words, file by file, and adds up.
{
  "define": { "PARTS": ["one", "two", "three"], "SUMS": [p + ".n" for p in PARTS] },
  "rules": [
    { "command": template("./count.sh {p}.txt > {p}.n"),
      "inputs": ["count.sh", p + ".txt"], "outputs": [p + ".n"] } for p in PARTS,
    { "command": "cat " + join(SUMS) + " | awk '{s += $1} END {print s}' > total.txt",
      "inputs": SUMS, "outputs": ["total.txt"] },
  ],
}
"""
    )
    run("run", "work/words.jx", "--out", "results", "--slots", "2", cwd=tmp_path)
    assert (tmp_path / "results" / "total.txt").read_text().strip() == "11"


def test_a_run_of_nextflow_runs_with_stand_ins(run: Run, tmp_path: Path) -> None:
    """Files are called by work folders, tasks by their kind, and programs are pieces of scripts."""
    tasks = [
        ("P.QC", "P.QC_1", ["/data/reads"], ["/b6/e9/qc.html", "/b6/e9/versions.yml"]),
        ("P.QC", "P.QC_2", ["/data/reads"], ["/a1/07/qc.html", "/a1/07/versions.yml"]),
        ("P.ALL", "P.ALL_3", ["/b6/e9/versions.yml", "/a1/07/versions.yml"], ["/c3/00/all.html"]),
    ]
    specification = {
        "tasks": [
            {
                "name": name,
                "id": id_,
                "parents": [],
                "children": [],
                "inputFiles": reads,
                "outputFiles": writes,
            }
            for name, id_, reads, writes in tasks
        ],
        "files": [{"id": f, "sizeInBytes": 100} for t in tasks for f in t[3]]
        + [{"id": "/data/reads", "sizeInBytes": 1000}],
    }
    execution = {
        "makespanInSeconds": 1,
        "executedAt": "x",
        "tasks": [{"id": t[1], "runtimeInSeconds": 1, "command": {"program": 'g" > x\n END'}} for t in tasks],
    }
    text = {"name": "n", "schemaVersion": "1.5"}
    workflow = {"specification": specification, "execution": execution}
    (tmp_path / "n.json").write_text(json.dumps({**text, "workflow": workflow}))
    run("run", "--stand-ins", "--out", "out", "n.json", cwd=tmp_path)
    assert (tmp_path / "out" / "c3" / "00" / "all.html").stat().st_size == 100
    lines = run("convert", "n.json", "--to", "jsonl", "--stand-ins", cwd=tmp_path).stdout.splitlines()
    assert sorted(json.loads(line)["label"] for line in lines) == ["P.ALL", "P.QC", "P.QC"]


def test_a_run_is_exported_with_what_was_measured(run: Run, folder: Path, tmp_path: Path) -> None:
    dir_ = tmp_path / "cluster"
    run("run", "work/words.makeflow", "--dir", dir_, "--nodes", "2", cwd=tmp_path)
    run("export", "--dir", dir_, "--wfformat", "run.json", cwd=tmp_path)
    doc = json.loads((tmp_path / "run.json").read_text())
    assert doc["schemaVersion"] == "1.5"
    spec, execution = doc["workflow"]["specification"], doc["workflow"]["execution"]
    sizes = {f["id"]: f["sizeInBytes"] for f in spec["files"]}
    assert sizes["one.txt"] == len(WORDS["one.txt"])
    assert sizes["total.txt"] == len("11\n")
    assert {t["name"] for t in spec["tasks"]} == {"count", "sum"}
    assert all(t["runtimeInSeconds"] > 0 for t in execution["tasks"])
    assert execution["makespanInSeconds"] > 0
    assert {t["machine"] for t in execution["tasks"]} <= {m["nodeName"] for m in execution["machines"]}
    # Others can use it, and so can we.
    run("run", "run.json", "--stand-ins", "--out", "again", cwd=tmp_path)
    run("predict", "run.json", "--nodes", "2", cwd=tmp_path)


def test_a_drawing_has_the_stages_and_the_pattern_between_them(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    assert run("graph", "work/words.makeflow", cwd=tmp_path).stdout == "words.svg\n"
    root = ElementTree.fromstring((tmp_path / "words.svg").read_text())
    texts = [e.text for e in root.iter() if e.tag.endswith("text")]
    assert {"count", "sum", "3 tasks", "1 task"} <= set(texts)
    assert any(t and t.startswith("gather · 3 files") for t in texts)
    assert len([e for e in root.iter() if e.tag.endswith("circle")]) == 4


@pytest.mark.parametrize(
    ("name", "text", "expect"),
    [
        ("w.json", '{"name":"x","schemaVersion":"1.5","workflow":{"specification":{"tasks":[', "breaks off"),
        ("w.json", '{"schemaVersion":"3.1","workflow":{}}', "WfFormat `3.1`, and 1.0 to 1.6 are known"),
        ("w.yml", "pegasus: 4.9\njobs: []\n", "version `4.9`, and 5.x is known"),
        ("w.dax", '<adag version="3.6"><job id="a" name="p">', "breaks off"),
        (
            "w.makeflow",
            "a: b\n\tcat b > a\n",
            "line 1: `b`, which task `a` reads and no task writes, is missing",
        ),
        ("w.makeflow", "a:\n\tx\na:\n\ty\n", "line 3: two tasks have the id `a`; the other is on line 1"),
        ("w.xml", "<html/>", "XML without an `adag`, which is no workflow that eyas knows"),
    ],
)
def test_a_wrong_workflow_starts_nothing(run: Run, tmp_path: Path, name: str, text: str, expect: str) -> None:
    (tmp_path / name).write_text(text)
    done = run("run", name, "--dir", "cluster", cwd=tmp_path, status=2)
    assert done.stderr.startswith(f"error: {name}") and expect in done.stderr
    assert not (tmp_path / "cluster").exists()
