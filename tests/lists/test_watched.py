"""Programs that are watched: what they name is brought, what they make goes home, and the second run is planned."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from buckets import moto
from harness import Eyas, Run
from lists import write_list
from unlinked import write_program


@pytest.fixture(params=["links", "no links"])
def any_run(request: pytest.FixtureRequest, eyas_path: Path, tmp_path: Path) -> Iterator[Run]:
    """eyas in the foreground, also on a machine where a file has one name only."""
    folder = tmp_path / ".eyas-test"
    folder.mkdir()
    path = eyas_path if request.param == "links" else write_program(folder / "eyas", eyas_path)
    made = Eyas(path, folder, uuid.uuid4().hex)
    yield made.run
    made.end()


def sort_two(folder: Path) -> None:
    (folder / "a.in").write_text("b\na\n")
    (folder / "b.in").write_text("d\nc\n")


def test_what_a_watched_program_makes_is_there(run: Run, tmp_path: Path) -> None:
    sort_two(tmp_path)
    done = run("map", "*.in", "--watch", "--shell", "--", "sort {in} > {stem}.sorted", cwd=tmp_path)
    assert "2 done, 0 failed" in done.stderr and "no output" not in done.stderr
    assert (tmp_path / "a.sorted").read_text() == "a\nb\n"
    assert (tmp_path / "b.sorted").read_text() == "c\nd\n"
    # Once more: what is there from the run before is replaced, as a declared output is.
    (tmp_path / "a.in").write_text("z\ny\n")
    run("map", "*.in", "--watch", "--shell", "--", "sort {in} > {stem}.sorted", cwd=tmp_path)
    assert (tmp_path / "a.sorted").read_text() == "y\nz\n"


def test_files_folders_and_programs_come_when_they_are_named(any_run: Run, tmp_path: Path) -> None:
    (tmp_path / "data/deep").mkdir(parents=True)
    (tmp_path / "data/x.txt").write_text("x\n")
    (tmp_path / "data/deep/y.txt").write_text("y\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "tool").write_text("#!/bin/sh\ncat data/x.txt\n")
    (tmp_path / "tool").chmod(0o755)
    # The kernel looks for what runs a script, and no call names it.
    (tmp_path / "script").write_text("#!./tool\n")
    (tmp_path / "script").chmod(0o755)
    lines = {
        "read": "cat data/x.txt > out/read",
        "child": "sh -c 'sh -c \"cat data/deep/y.txt\"' > out/child",
        "list": "ls data data/deep > out/list; find data -type f | sort >> out/list",
        "size": "stat -c %s data/x.txt > out/size; test ! -e data/none",
        "tool": "./tool > out/tool",
        "interpreter": "./script > out/interpreter",
        "copy": "cp data/x.txt out/copy",
        "moved": "cd data && cat ../data/./deep/../x.txt > ../out/moved",
        "append": "echo one > t; mv t out/append; rm -f never; echo two > gone; rm gone",
        "folder": "mv data/deep out/folder-of && mkdir d && echo f > d/f && mv d out/made",
        "link": "ln -s data/x.txt l; cat l > out/link; rm l",
        "map": 'python3 -c \'import mmap; f = open("data/x.txt", "rb");'
        ' open("out/map", "wb").write(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[:])\'',
        "walk": 'python3 -c \'import os; print(sorted(f for _, _, fs in os.walk("data") for f in fs if f[0] in "xy"))\' > out/walk',
    }
    write_list(tmp_path / "t.jsonl", *({"id": i, "command": c, "watch": True} for i, c in lines.items()))
    done = any_run("run", "t.jsonl", "--slots", "2", cwd=tmp_path)
    assert f"{len(lines)} done, 0 failed" in done.stderr
    assert (tmp_path / "out/folder-of/y.txt").read_text() == "y\n"
    assert (tmp_path / "out/made/f").read_text() == "f\n" and (tmp_path / "data/deep/y.txt").exists()
    out = {path.name: path.read_text() for path in (tmp_path / "out").iterdir() if path.is_file()}
    assert out.pop("list") == "data:\ndeep\nx.txt\n\ndata/deep:\ny.txt\ndata/deep/y.txt\ndata/x.txt\n"
    assert out == {
        "read": "x\n",
        "child": "y\n",
        "size": "2\n",
        "tool": "x\n",
        "interpreter": "x\n",
        "copy": "x\n",
        "moved": "x\n",
        "append": "one\n",
        "link": "x\n",
        "map": "x\n",
        "walk": "['x.txt', 'y.txt']\n",
    }
    assert {path.name for path in tmp_path.iterdir()} - {".eyas-test", "t.jsonl"} == {
        "data",
        "out",
        "tool",
        "script",
    }
    told = any_run("explain", "read", cwd=tmp_path).stdout
    assert "data/x.txt" in told and "named by the program, not declared" in told
    assert "Made, and not declared" in told and "out/read" in told


@pytest.mark.parametrize("nodes", ["1", "2"])
def test_the_second_run_is_planned_and_gives_the_same(run: Run, tmp_path: Path, nodes: str) -> None:
    sort_two(tmp_path)
    (tmp_path / "order").write_text("-r\n")
    line = "sort $(cat order) {in} > {stem}.sorted"
    run(
        "map",
        "*.in",
        "--nodes",
        nodes,
        "--watch",
        "--to-list",
        "t.jsonl",
        "--shell",
        "--",
        line,
        cwd=tmp_path,
    )
    tasks = [json.loads(text) for text in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert [sorted(Path(at).name for at in task["inputs"].values()) for task in tasks] == [
        ["a.in", "order"],
        ["b.in", "order"],
    ]
    assert [list(task["outputs"]) for task in tasks] == [["a.sorted"], ["b.sorted"]]
    assert not any("env" in task or "watch" in task for task in tasks)
    before = (tmp_path / "a.sorted").read_bytes()
    (tmp_path / "a.sorted").unlink()
    assert "2 done" in run("run", "t.jsonl", "--nodes", nodes, cwd=tmp_path).stderr
    assert (tmp_path / "a.sorted").read_bytes() == before == b"b\na\n"


def test_what_one_watched_program_made_another_one_reads(run: Run, tmp_path: Path) -> None:
    write_list(
        tmp_path / "t.jsonl",
        {
            "id": "make",
            "command": "echo made > middle; echo > ready",
            "watch": True,
            "outputs": {"ready": "ready"},
        },
        {"id": "read", "command": "cat middle > end", "watch": True, "inputs": ["ready"]},
        {"id": "read2", "command": "cat middle > end2", "watch": True, "inputs": ["ready"]},
    )
    done = run("run", "t.jsonl", "--nodes", "2", cwd=tmp_path)
    assert "3 done" in done.stderr
    assert (tmp_path / "end").read_text() == (tmp_path / "end2").read_text() == "made\n"


def test_tasks_that_are_added_to_a_run_are_watched(run: Run, tmp_path: Path) -> None:
    sort_two(tmp_path)
    run("up", "--nodes", "1", "--slots", "1", cwd=tmp_path)
    write_list(
        tmp_path / "wait.jsonl",
        {"id": "wait", "command": f"until test -e '{tmp_path}/gate'; do sleep 0.02; done"},
    )
    run("submit", "wait.jsonl", cwd=tmp_path)
    write_list(tmp_path / "more.jsonl", {"id": "more", "command": "sort a.in > a.sorted"})
    run("submit", "more.jsonl", "--into", "1", "--watch", cwd=tmp_path)
    (tmp_path / "gate").touch()
    run("wait", cwd=tmp_path)
    run("down", cwd=tmp_path)
    assert (tmp_path / "a.sorted").read_text() == "a\nb\n"


def test_what_would_be_wrong_is_refused_in_a_sentence(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("x\n")
    write_list(
        tmp_path / "t.jsonl",
        {"id": "one", "command": "echo 1 > same", "watch": True},
        {"id": "two", "command": "echo 2 > same", "watch": True},
        {"id": "change", "command": "cat x.txt; echo more >> x.txt", "watch": True},
        {"id": "name", "command": "echo > $(printf 'a\\377b')", "watch": True},
    )
    failed = run("run", "t.jsonl", cwd=tmp_path, status=1).stderr
    assert "both write" in failed and "same`; give each its own output" in failed
    assert "the program changed `x.txt` in place" in failed
    assert "whose name is not UTF-8" in failed
    assert "1 done, 3 failed" in failed
    assert (tmp_path / "x.txt").read_text() == "x\n"
    refused = run("map", "x.txt", "--watch", "--no-replace", "--", "true", cwd=tmp_path, status=2).stderr
    assert "--no-replace cannot be kept" in refused
    write_list(tmp_path / "c.jsonl", {"command": "true", "watch": True, "container": "i.tar"})
    assert "a task in a container is not watched" in run("run", "c.jsonl", cwd=tmp_path, status=2).stderr


def test_static_programs_many_files_and_large_ones(any_run: Run, tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    for n in range(2000):
        (tmp_path / f"many/{n}").write_text(f"{n}\n")
    (tmp_path / "large").write_bytes(os.urandom(1 << 20) * 64)
    (tmp_path / ("n" * 250)).write_text("long\n")
    lines = {
        "many": "cat many/* | sort -n | tail -1 > out",
        "large": "cksum < large > sum",
        "left": "(sleep 60; echo late > late) & echo now > now",
        "long": f"cat {'n' * 250} > long",
    }
    if shutil.which("cc"):
        source = tmp_path / "static.c"
        source.write_text(
            '#include <stdio.h>\nint main() { FILE *f = fopen("many/7", "r"); return getc(f) != 55; }\n'
        )
        subprocess.run(["cc", "-static", "-o", "static", "static.c"], cwd=tmp_path, check=True)
        lines["static"] = "./static"
    write_list(tmp_path / "t.jsonl", *({"id": i, "command": c, "watch": True} for i, c in lines.items()))
    assert f"{len(lines)} done" in any_run("run", "t.jsonl", cwd=tmp_path).stderr
    assert (tmp_path / "out").read_text() == "1999\n"
    expected = subprocess.run(
        ["cksum"], stdin=(tmp_path / "large").open("rb"), capture_output=True, check=True
    )
    assert (tmp_path / "sum").read_bytes() == expected.stdout
    assert (tmp_path / "long").read_text() == "long\n"
    assert (tmp_path / "now").read_text() == "now\n" and not (tmp_path / "late").exists()


def watch(run: Run, folder: Path, command: str, status: int = 0, **more: object) -> str:
    write_list(folder / "t.jsonl", {"id": "t", "command": command, "watch": True} | more)
    return run("run", "t.jsonl", cwd=folder, status=status).stderr


def test_what_a_program_removes_stays_away_and_its_number_goes_to_nobody(
    any_run: Run, tmp_path: Path
) -> None:
    """A file system gives the number of a removed file to the next one that is made."""
    for name in ["a", "b", "c", "d/x", "e/x"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"home's {name}\n")
    watch(
        any_run,
        tmp_path,
        "ls -l a; rm a; echo mine > new-a; cat new-a > seen-a\n"
        "ls -l b; rm b; echo mine > b; cat b > seen-b\n"
        "rm c; test ! -e c && ls > names\n"
        "rm -r d; mkdir d; echo mine > d/y; ls d > seen-d; cat d/y >> seen-d\n"
        'python3 -c \'import os; os.chmod("e/x", 0o600); os.remove("e/x"); os.rmdir("e")\'',
    )
    made = {
        name: (tmp_path / name).read_text() for name in ["new-a", "seen-a", "b", "seen-b", "d/y", "seen-d"]
    }
    assert set(made.values()) == {"mine\n", "y\nmine\n"}
    assert (tmp_path / "names").read_text() == "b\nd\ne\nnames\nnew-a\nseen-a\nseen-b\nt.jsonl\n"
    assert [(tmp_path / name).read_text() for name in ["a", "c", "d/x", "e/x"]] == [
        f"home's {name}\n" for name in ["a", "c", "d/x", "e/x"]
    ]


def test_a_makefile_makes_anew_what_is_old(run: Run, tmp_path: Path) -> None:
    """Compilers remove what they write, and make it anew."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.in").write_text("1\n")
    (tmp_path / "Makefile").write_text(
        "all: build/b\nbuild/a: src/a.in | build\n\trm -f $@; cat $< > $@\n"
        "build/b: build/a\n\ttest ! -e $@ || rm $@; cat $< > $@\nbuild:\n\tmkdir -p build\n"
    )
    map_it = ["map", "--range", "0..1", "--watch", "--to-list", "made.jsonl", "--", "make"]
    run(*map_it, cwd=tmp_path)
    (tmp_path / "src/a.in").write_text("2\n")
    os.utime(tmp_path / "src/a.in", (2_000_000_000, 2_000_000_000))
    run(*map_it, cwd=tmp_path)
    assert (tmp_path / "build/a").read_text() == (tmp_path / "build/b").read_text() == "2\n"
    [task] = [json.loads(line) for line in (tmp_path / "made.jsonl").read_text().splitlines()]
    assert sorted(task["outputs"]) == ["build/a", "build/b"]


def test_nothing_at_home_is_lost_to_a_file_that_is_not_written(run: Run, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("of before\n")
    failed = watch(run, tmp_path, "ls -l out || true", status=1, outputs=["out"])
    assert "its declared output `out`" in failed and "is not there" in failed
    assert (tmp_path / "out").read_text() == "of before\n"
    # What a declared output was before is not seen, and so not added to.
    watch(run, tmp_path, "echo more >> out", outputs=["out"])
    assert (tmp_path / "out").read_text() == "more\n"
    # A call that would empty a file, and fails.
    (tmp_path / "full").mkdir()
    (tmp_path / "full/kept").write_text("kept\n")
    line = "ls -l full/kept; setpriv --bounding-set -all --reuid 65534 sh -c 'echo > full/kept'; true"
    if os.geteuid() == 0 and shutil.which("setpriv"):
        watch(run, tmp_path, f"chmod 711 .; {line}")
    assert (tmp_path / "full/kept").read_text() == "kept\n"
    # An old file of which nothing is read may be written anew.
    watch(run, tmp_path, "ls -l full/kept; echo new > full/kept")
    assert (tmp_path / "full/kept").read_text() == "new\n"


@pytest.mark.parametrize(
    "line", ["echo new > {}", "sed -i s/old/new/ {}", "rm {}; echo new > {}", "echo new >> {}"]
)
def test_a_declared_input_that_is_changed_is_not_lost_without_a_word(
    run: Run, tmp_path: Path, line: str
) -> None:
    (tmp_path / "a").write_text("old\n")
    failed = watch(run, tmp_path, line.replace("{}", "a"), status=1, inputs=["a"])
    assert "in place" in failed or "which this run has read before" in failed
    assert (tmp_path / "a").read_text() == "old\n"
    watch(run, tmp_path, "touch a; cat a > b", inputs=["a"])
    assert (tmp_path / "b").read_text() == "old\n"


def test_a_result_that_the_command_names_is_no_input_the_next_time(run: Run, tmp_path: Path) -> None:
    for n in range(2):
        told = run(
            "map", "--range", "0..1", "--watch", "--shell", "--", f"echo {n} > out", cwd=tmp_path
        ).stderr
        assert "is an input of every task" not in told
        assert (tmp_path / "out").read_text() == f"{n}\n"


def test_a_folder_of_home_that_a_path_leads_through_is_not_moved_in_part(run: Run, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for name in ["x", "y"]:
        (tmp_path / "d" / name).write_text(f"{name}\n")
    watch(run, tmp_path, 'python3 -c \'import shutil; open("d/x"); shutil.move("d", "e")\'')
    assert {path.name: path.read_text() for path in (tmp_path / "e").iterdir()} == {"x": "x\n", "y": "y\n"}


RACE = r"""
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static char path[8];
static volatile int stop;
static void *change(void *x) {
  while (!stop) { path[0] = 'a'; for (volatile int i = 0; i < 2000; i++); path[0] = 'b'; for (volatile int i = 0; i < 20; i++); }
  return x;
}
int main() {
  int n_zeros = 0;
  close(open(".", O_RDONLY | O_DIRECTORY));
  for (int i = 0; i < 100; i++) {
    pthread_t thread;
    sprintf(path, "a%02d", i);
    close(open(path, O_RDONLY));
    stop = 0;
    pthread_create(&thread, 0, change, 0);
    for (int k = 0; k < 20; k++) {
      char byte = 1;
      int fd = open(path, O_RDONLY);
      n_zeros += fd >= 0 && read(fd, &byte, 1) == 1 && byte == 0;
      close(fd);
    }
    stop = 1;
    pthread_join(thread, 0);
  }
  printf("%d\n", n_zeros);
}
"""


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_zeros_that_a_program_reads_by_changing_a_path_count_for_nothing(run: Run, tmp_path: Path) -> None:
    """One thread opens a file, and another one changes the path after it was looked at."""
    (tmp_path / "race.c").write_text(RACE)
    subprocess.run(["cc", "-pthread", "-o", "race", "race.c"], cwd=tmp_path, check=True)
    for n in range(100):
        (tmp_path / f"a{n:02}").write_text("a\n")
        (tmp_path / f"b{n:02}").write_text("b\n")
    write_list(tmp_path / "t.jsonl", {"command": "./race > n_zeros", "watch": True})
    told = run("run", "t.jsonl", cwd=tmp_path, status=None).stderr
    if "1 failed" in told:
        assert "before its bytes were there: one of its threads changed the path" in told
        assert not (tmp_path / "n_zeros").exists()
    else:
        assert (tmp_path / "n_zeros").read_text() == "0\n"


def test_home_may_be_a_bucket_or_another_folder(run: Run, tmp_path: Path) -> None:
    with moto(tmp_path) as server:
        bucket, env = server.new_bucket(), server.env()
        for name, text in {"a.txt": "a\n", "sub/x": "x\n", "sub/y": "y\n"}.items():
            server.ask("PUT", f"/{bucket}/h/{name}", text.encode())
        at = f"s3://{bucket}/h"
        line = "cat a.txt sub/* > new; ls | tr '\\n' ' ' >> new; rm sub/x; find sub -type f >> new; mkdir d; mv a.txt d/b"
        write_list(tmp_path / "t.jsonl", {"command": line, "env": {"EYAS_WATCH": at}})
        run("run", "t.jsonl", cwd=tmp_path, env=env)
        inputs = {"new": f"{at}/new", "b": f"{at}/d/b"}
        write_list(
            tmp_path / "t.jsonl", {"command": "cat new b > c", "inputs": inputs, "outputs": {"c": "c"}}
        )
        run("run", "t.jsonl", cwd=tmp_path, env=env)
        assert (tmp_path / "c").read_text() == "a\nx\ny\na.txt new sub sub/y\na\n"
        map_it = ["map", "--range", "0..1", "--watch", "--shell"]
        failed = run(
            *map_it, "--env", f"EYAS_WATCH={at}", "--", "echo >> a.txt", cwd=tmp_path, env=env, status=1
        )
        assert "the program changed `a.txt` in place" in failed.stderr
    (tmp_path / "there").mkdir()
    run(*map_it, "--env", "EYAS_WATCH=there", "--", "echo one > r", cwd=tmp_path)
    assert (tmp_path / "there/r").read_text() == "one\n"
    write_list(tmp_path / "t.jsonl", {"command": "cat r > s", "env": {"EYAS_WATCH": "there"}})
    run("run", "t.jsonl", cwd=tmp_path)
    assert (tmp_path / "there/s").read_text() == "one\n"
    wrong = run(*map_it, "--env", "EYAS_WATCH=ftp://x/", "--", "true", cwd=tmp_path, status=2).stderr
    assert "--env" in wrong and "the scheme `ftp` is unknown" in wrong
