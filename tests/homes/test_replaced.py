"""What lies at home already: a run says what it replaces, and never replaces what it must not."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import Run, lacking
from lists import failures, no_run_was_made, write_list

MAKEFLOW = """\
one.n: one.txt
\twc -w < one.txt > one.n
two.n: one.txt
\twc -c < one.txt > two.n
sum: one.n two.n
\tcat one.n two.n > sum
"""


@pytest.fixture
def exported(run: Run, tmp_path: Path) -> Path:
    """A run that has been written as WfFormat; its results lie in `done`."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "one.txt").write_text("a b c\n")
    (tmp_path / "work" / "w.makeflow").write_text('MAKEFLOW_OUTPUTS="one.n"\n' + MAKEFLOW)
    run("run", "work/w.makeflow", "--out", "done", "--dir", "cluster", cwd=tmp_path)
    assert (tmp_path / "done" / "sum").read_text().split() == ["3", "6"]
    run("export", "--dir", "cluster", "--wfformat", "r.json", cwd=tmp_path)
    return tmp_path / "r.json"


def written_locations(path: Path) -> list[str | None]:
    """Where the file says that the files are which its tasks write; `None`: nowhere."""
    spec = json.loads(path.read_text())["workflow"]["specification"]
    written = {name for task in spec["tasks"] for name in task["outputFiles"]}
    return [f.get("eyas", {}).get("location") for f in spec["files"] if f["id"] in written]


def test_stand_ins_of_an_exported_run_leave_its_results_alone(
    run: Run, exported: Path, tmp_path: Path
) -> None:
    before = {p.name: p.read_text() for p in (tmp_path / "done").iterdir()}
    assert set(before) == {"one.n", "sum"}
    run("run", "--stand-ins", "--out", "elsewhere", exported, cwd=tmp_path)
    assert {p.name: p.read_text() for p in (tmp_path / "done").iterdir()} == before
    assert {p.name: p.stat().st_size for p in (tmp_path / "elsewhere").iterdir()} == {
        name: len(text) for name, text in before.items()
    }


def test_an_exported_run_names_its_outputs_relatively(run: Run, exported: Path, tmp_path: Path) -> None:
    assert written_locations(exported) == [None, None, None]
    # It runs again, where the inputs still are, into another folder.
    run("run", exported, "--out", "again", cwd=tmp_path)
    assert (tmp_path / "again" / "sum").read_text() == (tmp_path / "done" / "sum").read_text()


def test_out_wins_over_locations_in_the_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("x\n")
    tasks = [
        {"id": "a", "command": "cp in a", "inputs": ["in"], "outputs": {"a": "here/deep/a"}},
        {"id": "b", "command": "cat a a > b", "inputs": ["here/deep/a"], "outputs": {"b": "here/b"}},
    ]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(t) + "\n" for t in tasks))
    run("convert", "tasks.jsonl", "--to", "wfformat", "-o", "w.json", cwd=tmp_path)
    run("run", "w.json", "--out", "there", cwd=tmp_path)
    assert not (tmp_path / "here").exists()
    assert (tmp_path / "there" / "deep" / "a").read_text() == "x\n"
    assert (tmp_path / "there" / "b").read_text() == "x\nx\n"
    # Without --out the file's own places count.
    run("run", "w.json", cwd=tmp_path)
    assert (tmp_path / "here" / "deep" / "a").exists()


def test_stand_ins_never_write_where_something_lies(run: Run, exported: Path, tmp_path: Path) -> None:
    before = (tmp_path / "done" / "sum").read_text()
    done = run("run", "--stand-ins", "--out", "done", exported, cwd=tmp_path, status=2)
    assert "stand-ins" in done.stderr and "done/" in done.stderr and "--out" in done.stderr
    assert (tmp_path / "done" / "sum").read_text() == before


def test_a_run_says_what_it_will_replace_or_refuses(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for n in range(3):
        (tmp_path / "in" / f"{n}.txt").write_text(str(n))
    command = ("map", "in/*", "--out", "out/{name}", "--slots", "2")
    tail = ("--shell", "--", "cat {in} > {out}")
    first = run(*command, *tail, cwd=tmp_path)
    assert "replaced" not in first.stderr
    (tmp_path / "out" / "2.txt").unlink()
    (tmp_path / "in" / "0.txt").write_text("new")
    refused = run(*command, "--no-replace", *tail, cwd=tmp_path, status=2)
    assert "2 existing files" in refused.stderr and f"{tmp_path}/out/" in refused.stderr
    assert (tmp_path / "out" / "0.txt").read_text() == "0"
    second = run(*command, *tail, cwd=tmp_path)
    assert "2 existing files will be replaced" in second.stderr
    assert (tmp_path / "out" / "0.txt").read_text() == "new"


def test_no_run_replaces_one_of_its_own_inputs(run: Run, tmp_path: Path) -> None:
    """The same file by two names: through a link to its folder, and through a link to itself."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("precious")
    (tmp_path / "same").symlink_to("data")
    (tmp_path / "link").symlink_to("data/x")
    for source in ("same/x", "link"):
        task = {"command": "tr a-z A-Z < i > o", "inputs": {"i": source}, "outputs": {"o": "data/x"}}
        (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n")
        done = run("run", "tasks.jsonl", cwd=tmp_path, status=2)
        assert "data/x" in done.stderr and "input" in done.stderr, done.stderr
        assert (tmp_path / "data" / "x").read_text() == "precious"
    # An output that is a link is written where it leads to.
    done = run("map", "data/x", "--out", "link", "--", "cp", "{in}", "{out}", cwd=tmp_path, status=2)
    assert "input" in done.stderr and (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("origin", ["table", "list"])
def test_no_run_replaces_what_its_tasks_come_from(run: Run, tmp_path: Path, origin: str) -> None:
    (tmp_path / "o").mkdir()
    if origin == "table":
        (tmp_path / "o" / "t").write_text("s\na\n")
        words = ["map", "--csv", "o/t", "--out", "o/", "--shell", "--", "mkdir {out}; echo {s} > {out}/r"]
    else:
        write_list(tmp_path / "o" / "t", {"command": "mkdir m; echo > m/r", "outputs": {"m": "o/"}})
        words = ["run", "o/t"]
    done = run(*words, cwd=tmp_path, status=2)
    assert "the run would replace `o/t`, which its tasks come from" in done.stderr
    assert [path.name for path in (tmp_path / "o").iterdir()] == ["t"]


def test_a_result_does_not_take_the_place_of_an_input(run: Run, exported: Path, tmp_path: Path) -> None:
    """A workflow whose result would go where another task's input lies is refused, not linked by it."""
    (tmp_path / "one.n").write_text("an input of the same name\n")
    text = exported.read_text()
    input_ = str(tmp_path / "work" / "one.txt")
    assert input_ in text
    exported.write_text(text.replace(input_, str(tmp_path / "one.n")))
    done = run("run", exported, "--out", tmp_path, cwd=tmp_path, status=2)
    assert "one.n" in done.stderr and "input" in done.stderr
    assert (tmp_path / "one.n").read_text() == "an input of the same name\n"


def test_a_submission_says_it_too(run: Run, tmp_path: Path) -> None:
    task = {"command": "echo > o", "outputs": {"o": "made"}}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    (tmp_path / "made").write_text("before")
    run("up", "--nodes", "1", "--slots", "1", cwd=tmp_path)
    try:
        refused = run("submit", "tasks.jsonl", "--no-replace", cwd=tmp_path, status=2)
        assert "made" in refused.stderr
        done = run("submit", "tasks.jsonl", cwd=tmp_path)
        assert "will be replaced" in done.stderr
        run("wait", cwd=tmp_path)
        assert (tmp_path / "made").read_text() == "\n"
    finally:
        run("down", cwd=tmp_path)


def test_outputs_that_can_never_be_written_are_refused_before_anything_runs(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "o"
    (folder / "dir").mkdir(parents=True)
    (folder / "file").write_text("f")
    os.mkfifo(folder / "pipe")
    (tmp_path / "link").symlink_to(folder)
    (folder / "dangling").symlink_to("nowhere/x")
    (folder / "below").symlink_to("file/x")
    (folder / "to-dir").symlink_to("dir")
    (folder / "to-file").symlink_to("file")
    ran = tmp_path / "ran"
    # Nobody's credentials, and no network.
    env = {
        "HOME": str(tmp_path),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    }
    for where, why in (
        ("o/dir", "it is a directory"),
        ("o/file/x", "/o/file is a file and no folder"),
        ("o/file/x/y", "/o/file is a file and no folder"),
        ("o/pipe", "there is something that is no file"),
        ("o/dangling", "it is a symbolic link to nowhere/x, which is not there"),
        ("o/below", "it is a symbolic link to file/x, which is not there"),
        ("o/to-dir", "it is a directory"),
        ("o/" + "n" * 256, "more than 255 bytes"),
        ("http://127.0.0.1:9/x", "http home storage does not support it"),
        ("s3://bucket/x", "no credentials for S3 were found"),
        ("az://container/x", "no storage account of Azure is named"),
    ):
        write_list(
            tmp_path / "t.jsonl", {"command": f"touch {ran}; echo words", "stdout": where, "retries": 2}
        )
        done = run("run", "t.jsonl", status=2, cwd=tmp_path, env=env)
        assert (
            "can never be written" in done.stderr or "cannot write" in done.stderr
        ) and why in done.stderr.replace("`", "")
    assert not ran.exists()
    # Two spellings of one file, also of one that is not there yet.
    for one, other in (("o/x", "link/x"), ("o/new/x", "link/new/x"), ("o/file", "o/to-file")):
        outputs = [{"command": "echo > m", "outputs": {"m": where}} for where in (one, other)]
        write_list(tmp_path / "t.jsonl", *outputs)
        assert "two tasks write one file" in run("run", "t.jsonl", status=2, cwd=tmp_path).stderr
    # What goes to /dev/null is wanted by nobody, and any number of tasks may write there.
    write_list(
        tmp_path / "t.jsonl",
        *(
            {"command": "echo words; touch m", "stdout": "/dev/null", "outputs": {"m": "/dev/null"}}
            for _ in range(2)
        ),
    )
    run("run", "t.jsonl", cwd=tmp_path)
    run("map", "--range", "0..2", "--out", "/dev/null", "--shell", "--", "echo > {out}", cwd=tmp_path)
    run("map", "o/file", "t.jsonl", "--out", "/dev/null", "--", "cp", "{in}", "{out}", cwd=tmp_path)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


Bind = Callable[[Path, Path], None]


@pytest.fixture
def bind() -> Iterator[Bind]:
    """Gives what is at one path a second place, until the test ends."""
    if os.geteuid() != 0:
        lacking("needs root, to mount")
    bound: list[Path] = []

    def bind(what: Path, at: Path) -> None:
        subprocess.run(["mount", "--bind", what, at], check=True)
        bound.append(at)

    yield bind
    for at in reversed(bound):
        subprocess.run(["umount", "--lazy", at], check=True)


def writes(*places: str) -> list[dict[str, object]]:
    return [{"id": f"t{n}", "command": "echo > m", "outputs": {"m": place}} for n, place in enumerate(places)]


def refused(run: Run, folder: Path, *places: str) -> str:
    write_list(folder / "t.jsonl", *writes(*places))
    said = run("run", "t.jsonl", status=2, cwd=folder).stderr.replace("`", "")
    no_run_was_made(folder)
    return said


def test_no_output_is_a_file_above_another_one(run: Run, tmp_path: Path) -> None:
    (tmp_path / "o" / "sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to("o")
    for places, above, folder in (
        (("x", "x/y"), "x", "x"),
        (("x/y/z/w", "x/y"), "x/y", "x/y/z"),
        (("o/sub/x", "x", "o/x", "link/x/y"), "o/x", "link/x"),
    ):
        said = refused(run, tmp_path, *places)
        why = f"it is a file, and another output goes into the folder {tmp_path}/{folder}"
        assert f"the output {tmp_path}/{above} can never be written: {why}" in said
    write_list(
        tmp_path / "t.jsonl",
        *writes("x"),
        {"id": "d", "command": "mkdir m", "outputs": {"m/": "x/"}},
    )
    assert (
        "another output is a directory of this name" in run("run", "t.jsonl", status=2, cwd=tmp_path).stderr
    )
    no_run_was_made(tmp_path)
    # Names beside each other that begin alike.
    write_list(tmp_path / "t.jsonl", *writes("n/x", "n/x.d/y", "n/xx", "n/d/x"))
    run("run", "t.jsonl", cwd=tmp_path)


def test_no_output_goes_below_a_link_that_leads_nowhere(run: Run, tmp_path: Path) -> None:
    (tmp_path / "lost").symlink_to("nowhere")
    (tmp_path / "circle").symlink_to("circle")
    why = f"{tmp_path}/lost is a symbolic link to nowhere, which is not there"
    assert why in refused(run, tmp_path, "lost/x")
    assert why in refused(run, tmp_path, "lost/new/x")
    assert "is a symbolic link to circle, which is not there" in refused(run, tmp_path, "circle/x")


def test_no_output_has_a_path_that_no_system_call_takes(run: Run, tmp_path: Path) -> None:
    part = "d" * 200
    said = "paths of this machine have 4095 bytes at most"
    assert said in refused(run, tmp_path, "/".join([part] * 30))
    # The file has another name beside its own until it is whole: this path of its own has 4,095 bytes.
    folder = "d/" * 2000
    folder = folder[: (4095 - len(f"{tmp_path}/x")) // 2 * 2]
    assert said in refused(run, tmp_path, f"{folder}x")
    assert "more than 255 bytes" in refused(run, tmp_path, "n" * 256 + "/x")


def test_two_writers_of_one_file_through_a_second_place_of_its_folder(
    run: Run, bind: Bind, tmp_path: Path
) -> None:
    for name in ("out/deep", "second", "third"):
        (tmp_path / name).mkdir(parents=True)
    bind(tmp_path / "out", tmp_path / "second")
    bind(tmp_path / "out" / "deep", tmp_path / "third")
    for one, other in (
        ("out/x", "second/x"),
        ("second/new/x", "out/new/x"),
        ("second/deep/x", "third/x"),
        ("third/x", "out/deep/x"),
    ):
        assert "two tasks write one file" in refused(run, tmp_path, one, other)
    # An input, too.
    (tmp_path / "out" / "deep" / "in").write_text("in")
    write_list(
        tmp_path / "t.jsonl",
        {"command": "cat third/in > m", "inputs": ["third/in"], "stdout": "second/deep/in"},
    )
    assert "would replace one of its inputs" in run("run", "t.jsonl", status=2, cwd=tmp_path).stderr
    write_list(tmp_path / "t.jsonl", *writes("out/x", "second/y", "third/x"))
    run("run", "t.jsonl", cwd=tmp_path)
    assert sorted(os.listdir(tmp_path / "out")) == ["deep", "x", "y"]


def test_an_output_that_is_a_mount_point_fails_alone(run: Run, bind: Bind, tmp_path: Path) -> None:
    (tmp_path / "mounted").write_text("old")
    bind(tmp_path / "mounted", tmp_path / "mounted")
    after = {"id": "after", "command": "cat t1 > m", "inputs": ["t1"], "outputs": {"m": "end"}}
    write_list(tmp_path / "t.jsonl", *writes("mounted", "t1"), after)
    done = run("run", "t.jsonl", status=1, cwd=tmp_path)
    assert list(failures(done)) == ["t0"]
    assert "it is a mount point" in failures(done)["t0"] and "name another place" in failures(done)["t0"]
    assert "does not answer" not in done.stderr
    assert (tmp_path / "end").exists() and (tmp_path / "mounted").read_text() == "old"
