"""Files of data sets as inputs of runs, and outputs that become data sets, with real nodes and real stores."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from harness import Eyas, Run, Start, wait_until
from lists import failures, write_list
from test_data import objects, spoil
from test_store import Store
from weather import Cluster, payload


@pytest.fixture(autouse=True)
def catalog(data: Run, eyas: Eyas, tmp_path: Path) -> None:
    """The catalog of `data` is that of every process, as it is with one in its usual place."""
    del data
    eyas.env["EYAS_DATA"] = f"sqlite:{tmp_path}/catalog.db"


def found(data: Run, query: str) -> list[dict[str, Any]]:
    return list(json.loads(data("find", query, "--json").stdout))


def put(data: Run, folder: Path, label: str, files: dict[str, bytes], *options: str) -> None:
    source = folder / f"of-{label}"
    source.mkdir()
    for name, content in files.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(content)
    data("put", source, "--label", label, *options)


def test_a_list_reads_data_sets_and_makes_new_ones(data: Run, run: Run, tmp_path: Path) -> None:
    put(data, tmp_path, "adk", {"frames.txt": b"1\n2\n3\n", "log/run 1.txt": b"x\n"}, "--tag", "protein=adk")
    frames = tmp_path / "tasks.jsonl"
    count = {
        "id": "count",
        "command": "wc -l < frames.txt > n",
        "inputs": ["data:adk/frames.txt"],
        "outputs": {"n": "data:?kind=count&protein=adk"},
    }
    again = {
        "id": "again",
        "command": "cat n 'run 1.txt'",
        "inputs": {"n": "data:sum/n?step=1", "run 1.txt": "data:adk@1/log/run 1.txt"},
        "stdout": "data:printed?step=2",
    }
    first = {"id": "sum", "command": "echo 6 > n", "outputs": {"n": "data:sum?step=1"}}
    write_list(frames, count, again, first)
    run("run", frames)
    [counted] = found(data, "kind = count and protein = adk")
    assert (counted["version"], counted["n_files"]) == (1, 1)
    assert run("cat", f"data:{counted['label']}/n").stdout == "3\n"
    assert run("cat", "data:printed/stdout").stdout == "6\nx\n"

    # The same task again makes the same data set, and nothing where its file is the same.
    run("run", frames)
    assert found(data, "kind = count") == [counted]
    put_again = tmp_path / "more"
    put_again.mkdir()
    (put_again / "frames.txt").write_text("1\n")
    data("put", put_again, "--label", "adk")
    run("run", write_list(frames, count))
    assert found(data, "kind = count")[0]["version"] == 2
    assert run("cat", f"data:{counted['label']}@2/n").stdout == "1\n"

    run(
        "map",
        "data:adk@1/**/*.txt",
        "--out",
        "data:{stem}/bytes?by=map",
        "--shell",
        "--",
        "wc -c < {in} > {out}",
        status=2,
    )
    run(
        "map",
        "data:adk@1/*.txt",
        "--out",
        "data:m-{stem}/bytes?by=map",
        "--shell",
        "--",
        "wc -c < {in} > {out}",
    )
    assert [one["label"] for one in found(data, "by = map")] == ["m-frames"]
    assert run("ls", "data:adk@1/").stdout.splitlines() == [
        "data://adk@1/frames.txt",
        "data://adk@1/log/run%201.txt",
    ]


def test_what_is_wrong_is_said(data: Run, run: Run, eyas: Eyas, tmp_path: Path) -> None:
    put(data, tmp_path, "adk", {"a": b"a", "b": b"b"})
    list_of = tmp_path / "tasks.jsonl"

    def ended(**task: Any) -> str:
        write_list(list_of, {"id": "t", "command": "echo x > n", **task})
        return failures(run("run", list_of, status=1))["t"]

    assert "there is no data set `none`" in ended(inputs=["data:none/a"])
    assert "`adk` has no file `c`: `eyas data ls adk` lists them" in ended(inputs=["data:adk/c"])
    assert "has no version 7" in ended(inputs=["data:adk@7/a"])
    assert "has other files" in ended(outputs={"n": "data:adk?x=1"})
    assert not found(data, "x = 1"), "nothing is made of what failed"
    eyas.env["EYAS_DATA"] = f"sqlite:{tmp_path}/none.db"
    assert "EYAS_DATA=postgres://" in ended(inputs=["data:adk/a"])


def test_what_can_never_be_written_is_refused_before_it_runs(
    data: Run, run: Run, eyas: Eyas, tmp_path: Path
) -> None:
    put(data, tmp_path, "gone", {"x": b"x"})
    data("rm", "gone")
    ran = tmp_path / "ran"
    for location, reason in [
        ("data:?owner=me", "a tag cannot be called `owner`"),
        ("data:?and=1", "a word of the query language"),
        ("data:?a=1&a=2", "the tag `a` is given twice"),
        ("data:?1st=x", "is no name of a tag"),
        ("data:adk@2/n", "a version never changes"),
        ("data:adk@2?a=b", "a version never changes"),
        (f"data:{'x' * 101}/n", "is no label"),
        ("data:-x/n", "is no label"),
        ("data:adk/", "names a directory"),
        ("data:gone/n", "the label of a data set that has been removed"),
    ]:
        command = f"touch {ran}; echo 1 > n"
        tasks = write_list(
            tmp_path / "tasks.jsonl", {"id": "t", "command": command, "outputs": {"n": location}}
        )
        for verb in ("run", "map"):
            words: tuple[str | Path, ...] = ("run", tasks)
            if verb == "map":
                if "?" in location or location.endswith("/"):
                    continue
                words = (
                    "map",
                    "of-gone/*",
                    "--out",
                    location,
                    "--shell",
                    "--",
                    f"touch {ran}; cp {{in}} {{out}}",
                )
            refused = run(*words, status=2)
            assert reason in refused.stderr, (location, refused)
        assert not ran.exists(), location
    # Each task of an array is looked at.
    names = [{"id": n, "command": "echo > n", "outputs": {"n": f"data:?{n}=1"}} for n in ("x", "y", "size")]
    assert (
        "task `size`: the output" in run("run", write_list(tmp_path / "many.jsonl", *names), status=2).stderr
    )
    eyas.env["EYAS_DATA"] = f"sqlite:{tmp_path}/nosuch.db"
    tasks = write_list(
        tmp_path / "tasks.jsonl", {"id": "t", "command": command, "outputs": {"n": "data:?a=b"}}
    )
    text = run("run", tasks, status=2).stderr
    assert "outputs of this list become data sets" in text and "nosuch.db" in text, text
    assert not ran.exists()


def test_places_of_data_sets_that_are_no_files_are_named(data: Run, run: Run, tmp_path: Path) -> None:
    put(data, tmp_path, "lab", {"dir/x": b"x\n", "y": b"y\n"})
    for place in ("data:lab/", "data:lab/dir/"):
        text = run("cat", place, status=2).stderr
        assert "it is a directory" in text and "`eyas data ls lab` lists the files" in text, text
    (tmp_path / "new").write_text("new\n")
    (tmp_path / "other").write_text("other\n")
    run("cp", "new", "data:fresh/")
    assert run("cat", "data:fresh/new").stdout == "new\n"
    assert run("ls", "data:fresh/").stdout.split()
    text = run("cp", "new", "other", "data:two/", status=2).stderr
    assert "several files would become the data set `two`" in text and "eyas data put" in text, text
    assert "has other files" in run("cp", "new", "data:lab/", status=None).stderr
    # What is checked is read, and nothing stays behind.
    before = data("find", "-q").stdout
    assert "names no file" in run("home", "check", "data:", status=2).stderr
    assert "names no file" in run("home", "check", "data:lab/", status=2).stderr
    checked = run("home", "check", "data:lab/y").stdout
    assert "read, bandwidth" in checked and "FAILS" not in checked, checked
    assert data("find", "-q").stdout == before


def test_a_damaged_copy_is_no_input(data: Run, run: Run, tmp_path: Path) -> None:
    """The good copy is read; where there is none the task fails, and never reads what is wrong."""
    content = {"small": payload(1000, 1), "large": payload(3_000_000, 2)}
    put(data, tmp_path, "adk", content, "--copies", "2")
    data("site", "shelf", tmp_path / "shelf")
    data("repair")
    list_of = write_list(
        tmp_path / "tasks.jsonl",
        *(
            {
                "id": name,
                "command": f"cat {name} > o",
                "inputs": [f"data:adk/{name}"],
                "outputs": {"o": f"data:o-{name}?x=1"},
            }
            for name in content
        ),
    )
    for path in objects(tmp_path / "here"):
        spoil(path)
    run("run", list_of)
    for name, expected in content.items():
        run("cp", f"data:o-{name}/o", tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == expected
        (tmp_path / "back").unlink()
    # What was made has the same bytes, so that its site has a good copy again.
    for path in [*objects(tmp_path / "shelf"), *objects(tmp_path / "here")]:
        spoil(path)
    list_of.write_text(list_of.read_text().replace("data:o-", "data:p-"))
    failed = failures(run("run", list_of, status=1))
    assert set(failed) == set(content), failed


def test_tasks_run_where_stores_have_their_data(data: Run, eyas: Eyas, start: Start, tmp_path: Path) -> None:
    """Two executors, each on the machine of a store: what lies there is read there, and what is made is put there."""
    hosts = {"N1": "127.0.0.2", "N2": "127.0.0.3"}
    for name, host in hosts.items():
        store = Store(start, tmp_path / f"disk-{name}", listen=host)
        data("site", "--join", store.join)
        # No two are equal: equal files are one object with two copies.
        files = {f"{n}": payload(300_000, n + 10 * int(name[1])) for n in range(6)}
        put(data, tmp_path, f"of-{name}", files, "--site", f"disk-{name}")
    cluster = Cluster(eyas, tmp_path / "c", tmp_path / "home")
    cluster.dispatcher()
    for name, host in hosts.items():
        cluster.executor(name, "--host", host)
    tasks = [
        cluster.task(f"{name}-{n}", "sleep 0.2; cat input/* > out", inputs=[f"data:of-{name}/{n}"])
        for n in range(6)
        for name in hosts
    ]
    cluster.submit(tasks)
    cluster.wait()
    ran_on = dict(line.split() for line in cluster.ran_log.read_text().splitlines())
    # By chance it would be half of them. The last tasks may go to whoever is idle.
    assert sum(task.split("-")[0] != node for task, node in ran_on.items()) <= 3, ran_on
    for n in range(6):
        assert cluster.output(f"N1-{n}") == payload(300_000, n + 10)


def test_a_store_that_is_killed_costs_no_task(data: Run, start: Start, run: Run, tmp_path: Path) -> None:
    """While it is read slowly, so that it dies in the middle; the other copy goes on where it broke off."""
    content = os.urandom(6_000_000)
    # Whoever knows a store by the name of this machine asks it first; other stores are asked in any order.
    slow = Store(start, tmp_path / "slow", listen="0.0.0.0")
    data("site", "--join", slow.join)
    put(data, tmp_path, "adk", {"large": content}, "--site", "slow", "--copies", "2")
    fast = Store(start, tmp_path / "zast")
    data("site", "--join", fast.join)
    data("drain", "here")
    data("repair")
    assert "slow, zast" in data("where", "adk").stdout
    # From here on it takes a minute to give the file.
    slow.process.stop()
    slow.options = ("--rate", "100kB/s")
    slow.start()
    list_of = write_list(
        tmp_path / "tasks.jsonl",
        {
            "id": "t",
            "command": "cat large > o",
            "inputs": ["data:adk/large"],
            "outputs": {"o": str(tmp_path / "o")},
        },
    )
    running = start("run", list_of, "--dir", tmp_path / "c")

    def has_begun() -> bool:
        arriving = [path.stat().st_size for path in (tmp_path / "c").glob("**/incoming/*")]
        return any(0 < n_bytes < len(content) for n_bytes in arriving)

    wait_until(has_begun, "a part of the file", alive=running)
    slow.process.kill()
    running.wait()
    assert (tmp_path / "o").read_bytes() == content
