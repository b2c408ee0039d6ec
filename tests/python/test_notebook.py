"""How things look in notebooks, and the notebooks of the documents."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import eyas
import nbformat
import pytest
from embedded import embedded
from harness import ROOT
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[eyas.Cluster]:
    with embedded(tmp_path_factory, nodes=1, slots=2) as made:
        yield made


def html_of(value: Any) -> str:
    text: str = value._repr_html_()
    return text


def test_clusters_runs_and_calls_are_shown_as_html(
    cluster: eyas.Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    run = cluster.map("echo '<b>'; exit {index}", range="0..3", shell=True)
    run.progress()
    assert run.wait(60, check=False)
    assert capsys.readouterr().err == "1 of 3 tasks done, 2 failed\n"
    text = html_of(run)
    assert f"<b>run {run.number}</b> echo &#x27;&lt;b&gt;&#x27;; exit {{index}}" in text
    assert "1 of 3 tasks done, 2 failed" in text and "width:33.3%" in text and "width:66.7%" in text
    assert "<td>2</td><td>the program ended with status 2" in text
    sleeps = cluster.map("sleep 600", range="0..1")
    text = html_of(cluster)
    assert "<td>node1</td><td>connected</td><td>2</td>" in text
    assert f"<td>{sleeps.number}</td><td>sleep 600</td><td>0 of 1 tasks done" in text
    sleeps.cancel()
    call: Any = cluster.submit(int, "<x>")
    with pytest.raises(ValueError):
        call.result(60)
    assert f"<code>{call.task}</code> raised ValueError" in html_of(call) and "&lt;x&gt;" in html_of(call)
    call = cluster.submit(abs, -1)
    assert call.result(60) == 1 and html_of(call).endswith("returned a value of the type int")


def test_what_is_gone_is_shown_as_far_as_it_is_known(tmp_path: Path) -> None:
    with eyas.Cluster(nodes=1, slots=1, dir=str(tmp_path / "c")) as c:
        ended, open_run = c.map("true", range="0..1"), c.map("sleep 600", range="0..1")
        ended.wait()
    assert html_of(c) == "<b>eyas cluster</b>: the connection to the cluster was closed"
    assert "1 of 1 tasks done" in html_of(ended)
    assert html_of(open_run).startswith(f"<b>run {open_run.number}</b>: 1 tasks; the connection")


CELLS = [
    "import sys, eyas\n{before}\nc = eyas.Cluster(nodes=1, slots=2)",
    "run = c.map('true', range='0..5')\nrun.progress()\nrun.wait()",
    "c.close()",
]


def executed(folder: Path, before: str = "") -> Any:
    """A notebook that has shown the progress of a run."""
    cells = [nbformat.v4.new_code_cell(text.format(before=before)) for text in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=str(folder / "kernel"))
    NotebookClient(notebook, km=kernel, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook


def test_a_bar_shows_how_far_a_run_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EYAS_STATE", str(tmp_path / "state"))
    notebook = executed(tmp_path)
    outputs = notebook.cells[1].outputs
    (bar,) = [
        output.data
        for output in outputs
        if "application/vnd.jupyter.widget-view+json" in output.get("data", {})
    ]
    states = notebook.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
    shown = states[bar["application/vnd.jupyter.widget-view+json"]["model_id"]]["state"]
    assert shown["state"] == {"n_tasks": 5, "n_ended": 5, "line": "5 of 5 tasks done"}


def test_without_anywidget_a_text_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EYAS_STATE", str(tmp_path / "state"))
    outputs = executed(tmp_path, "sys.modules['anywidget'] = None").cells[1].outputs
    texts = [output.data["text/plain"] for output in outputs if output.output_type == "display_data"]
    assert texts == ["5 of 5 tasks done"]


def test_the_notebooks_of_the_documents_show_what_they_did() -> None:
    command: list[str | Path] = [sys.executable, ROOT / "scripts" / "notebooks.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        done.stdout.count("shows what it did")
        == len(list((ROOT / "docs" / "notebooks").glob("*.ipynb")))
        == 3
    )
