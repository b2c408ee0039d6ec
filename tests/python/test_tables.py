"""Tables of pandas, Polars and PyArrow as tasks, and runs as tables."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import eyas
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest
from embedded import embedded
from eyas._find import find_binary

KINDS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "pandas": pandas.DataFrame,
    "polars": polars.DataFrame,
    "pyarrow": pyarrow.table,
}


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest) -> Callable[[dict[str, Any]], Any]:
    return KINDS[request.param]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[eyas.Cluster]:
    with embedded(tmp_path_factory, nodes=1, slots=2) as made:
        yield made


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_row_is_a_task(cluster: eyas.Cluster, here: Path, make: Callable[[dict[str, Any]], Any]) -> None:
    for n in range(2):
        (here / f"{n}.txt").write_text("x\n" * n)
    table = make(
        {"reads": ["0.txt", "1.txt"], "sample": ['a "b", c', "d"], "weight": [0.5, None], "n": [1, 22]}
    )
    run = cluster.map(
        "cat {reads} > {out}; echo {sample}:{weight}:{n} >> {out}",
        table,
        files_=["reads"],
        out="o/{n}",
        shell=True,
    )
    assert run.wait(60)
    assert (here / "o/1").read_text() == 'a "b", c:0.5:1\n'
    assert (here / "o/22").read_text() == "x\nd::22\n"
    assert [task.id for task in run.tasks()] == ["0.txt", "1.txt"]


def test_columns_are_fields_of_tasks(
    cluster: eyas.Cluster, here: Path, make: Callable[[dict[str, Any]], Any]
) -> None:
    (here / "in").write_text("b\na\n")
    table = make(
        {
            "id": ["one", "two"],
            "command": ["sort in > out", "cp in out"],
            "inputs": [["in"], ["in"]],
            "outputs": [{"out": "o1"}, {"out": "o2"}],
            "retries": [2, 3],
        }
    )
    run = cluster.run(table)
    assert run.wait(60)
    assert ((here / "o1").read_text(), (here / "o2").read_text()) == ("a\nb\n", "b\na\n")


def report(*words: str, status: int = 0) -> str:
    command = [str(find_binary()), "report", "--format", "parquet", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done.stderr


def test_tasks_and_events_of_a_run_are_tables(cluster: eyas.Cluster, here: Path) -> None:
    cluster.map("true", range="0..2").wait()
    run = cluster.map("echo {index}; exit {index}", range="0..3", shell=True)
    run.wait(60, check=False)
    tasks = run.tasks(as_="arrow")
    assert tasks.column_names == ["id", "state", "reason", "n_attempts", "stdout", "stderr"]
    assert tasks["state"].to_pylist() == ["done", "failed", "failed"]
    assert tasks["stdout"].to_pylist() == [b"0\n", b"1\n", b"2\n"]
    events = run.events()
    ended = events.filter(pyarrow.compute.equal(events["name"], "attempt_ended"))
    # The numbers of tasks go on from the run before.
    first = min(ended["task"].to_pylist())
    assert sorted(ended["task"].to_pylist()) == [first, first + 1, first + 2] and first >= 2
    assert [name for name in events["name"].to_pylist() if name.startswith("run_")] == [
        "run_opened",
        # It has no files, so it starts while the journal is written.
        "run_started",
        "run_committed",
    ]
    assert events["name"].to_pylist()[-1] == "end_run" and set(events["direction"].to_pylist()) == {
        "in",
        "out",
    }
    times = events["t"].to_pylist()
    assert times == sorted(times) and times[0].tzinfo is not None
    pyarrow.parquet.write_table(events, here / "events.parquet")
    assert pyarrow.parquet.read_table(here / "events.parquet").num_rows == events.num_rows
    folder = str(cluster.join.parent)
    report("--dir", folder, "--run", str(run.number))
    assert pyarrow.parquet.read_table(here / "report.parquet").num_rows == events.num_rows
    report("--dir", folder, "--all", "--out", "all.parquet")
    assert pyarrow.parquet.read_table(here / "all.parquet").num_rows > events.num_rows
    assert "give each a command of its own" in report("--dir", folder, "--figures", "f", status=2)


def test_the_events_of_a_dispatcher_that_was_killed_are_read(tmp_path: Path) -> None:
    from eyas import tables

    header = '{"eyas_event_log":1,"t":0}\n'
    added = [f'{{"t":1,"in":{{"array_added":{{"run":{run},"array":{{"n_tasks":2}}}}}}}}\n' for run in (1, 2)]
    ended = '{"t":2,"out":{"end_task":{"task":2,"outcome":"done"}}}\n'
    # The first life ends in the middle of a line; the second one has forgotten run 1.
    second = [
        header,
        '{"t":3,"in":{"tasks_numbered":{"n_tasks":2}}}\n',
        added[1],
        '{"t":4,"in":"recovered"}\n',
        ended,
    ]
    (tmp_path / "events.jsonl").write_text("".join([header, *added, ended, ended[:20], *second]))
    assert tables.events_of(tmp_path, 2)["name"].to_pylist() == ["array_added", "end_task"] * 2
    assert tables.events_of(tmp_path, 1)["name"].to_pylist() == ["array_added"]


def test_what_is_wrong_is_said(cluster: eyas.Cluster, make: Callable[[dict[str, Any]], Any]) -> None:
    with pytest.raises(eyas.EyasError, match="has to be one value"):
        cluster.map("echo {a} {b}", make({"a": [["x"]], "b": [1]}))
    with pytest.raises(eyas.EyasError, match="the table has no rows"):
        cluster.map("echo {a} {b}", make({"a": [], "b": []}))
    with pytest.raises(eyas.EyasError, match=r"\{c\}"):
        cluster.map("echo {c}", make({"a": [1], "b": [1]}))
    with pytest.raises(eyas.EyasError, match="has a column 0"):
        cluster.map("echo {a}", pandas.DataFrame([[1, 2]]))
    with pytest.raises(ValueError, match="as_ is 'pandas'"):
        cluster.map("true", range="0..1").tasks(as_="pandas")  # type: ignore[call-overload]


def test_a_missing_pyarrow_is_said_in_a_sentence() -> None:
    program = "import sys; sys.modules['pyarrow'] = None; from eyas import tables; tables.of_tasks([])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.endswith("pyarrow is not installed\nhint: pip install 'eyas[tables]'\n")
