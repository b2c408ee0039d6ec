"""Directories as outputs: whole at home or not at all, one object on the way, and a directory again for who reads it."""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from harness import Eyas, Run, Start, wait_until
from lists import failures, nothing_is_left, write_list
from weather import Cluster, kill_now

# Of each thing that a directory may have, one; the odd name is no UTF-8.
MAKE = (
    "mkdir -p r/sub/deep r/empty && echo one > r/a && echo two > r/sub/deep/b && : > r/sub/none && ln -s sub/deep r/link"
    " && printf '#!/bin/sh\\necho ran' > r/run && chmod 755 r/run && echo odd > \"r/$(printf 'caf\\351')\""
)
MADE = {
    b".": ("d", b""),
    b"a": ("f", b"one\n"),
    b"caf\xe9": ("f", b"odd\n"),
    b"empty": ("d", b""),
    b"link": ("l", b"sub/deep"),
    b"run": ("x", b"#!/bin/sh\necho ran"),
    b"sub": ("d", b""),
    b"sub/deep": ("d", b""),
    b"sub/deep/b": ("f", b"two\n"),
    b"sub/none": ("f", b""),
}


def tree(top: Path) -> dict[bytes, tuple[str, bytes]]:
    """All that is in a directory, by relative names."""
    found: dict[bytes, tuple[str, bytes]] = {b".": ("d", b"")}
    base = os.fsencode(top)
    for folder, folders, files in os.walk(base):
        for name in folders + files:
            path = os.path.join(folder, name)
            if os.path.islink(path):
                entry = ("l", os.readlink(path))
            elif os.path.isdir(path):
                entry = ("d", b"")
            else:
                with open(path, "rb") as file:
                    entry = ("x" if os.stat(path).st_mode & 0o100 else "f", file.read())
            found[os.path.relpath(path, base)] = entry
    return found


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    "options", [(), ("--nodes", "3", "--slots", "1"), ("--dispatchers", "2", "--nodes", "2")]
)
def test_it_goes_home_whole_and_to_those_who_read_it(
    run: Run, tmp_path: Path, options: tuple[str, ...]
) -> None:
    look = "ls -A r/empty > seen; r/run >> seen; cat r/link/b r/a >> seen; test ! -w r/a || test $(id -u) = 0"
    write_list(
        tmp_path / "l.jsonl",
        {"id": "make", "command": MAKE, "outputs": ["out/r/"]},
        # What stays on the nodes, made of what goes home.
        {
            "id": "again",
            "command": "cp -a r s && echo more > s/more",
            "inputs": ["out/r/"],
            "outputs": {"s": "run:s/"},
        },
        *(
            {"id": f"look{i}", "command": look, "inputs": {"r": where}, "outputs": {"seen": f"out/seen{i}"}}
            for i, where in enumerate(["out/r/", "run:s/"] * 3)
        ),
        {"id": "last", "command": "cp -a s t", "inputs": ["run:s/"], "outputs": {"t": "out/t/"}},
    )
    run("run", "l.jsonl", *options)
    assert tree(tmp_path / "out" / "r") == MADE
    assert tree(tmp_path / "out" / "t") == {**MADE, b"more": ("f", b"more\n")}
    for i in range(6):
        assert (tmp_path / "out" / f"seen{i}").read_text() == "ran\ntwo\none\n"
    assert names(tmp_path / "out") == ["r", *(f"seen{i}" for i in range(6)), "t"]
    nothing_is_left(tmp_path)


def test_a_task_may_do_with_its_copy_what_it_likes(run: Run, tmp_path: Path) -> None:
    """Two readers on one node, one of which changes all of it: the other one does not see that, and neither does home."""
    spoil = "chmod -R u+w r && echo spoilt > r/a && rm -r r/sub && echo new > r/new && mv r elsewhere"
    gate = tmp_path / "spoilt"
    write_list(
        tmp_path / "l.jsonl",
        {"id": "make", "command": MAKE, "outputs": ["out/r/"]},
        {"id": "spoil", "command": f"{spoil} && touch {gate}", "inputs": ["out/r/"]},
        {
            "id": "read",
            "command": f"while [ ! -e {gate} ]; do sleep 0.02; done; cp -a r s",
            "inputs": ["out/r/"],
            "outputs": {"s": "out/s/"},
        },
    )
    run("run", "l.jsonl", "--slots", "2")
    assert tree(tmp_path / "out" / "r") == tree(tmp_path / "out" / "s") == MADE


def test_a_directory_at_home_is_read_as_the_files_in_it_or_as_one(run: Run, tmp_path: Path) -> None:
    write_list(tmp_path / "make.jsonl", {"command": MAKE.rpartition(" && ")[0], "outputs": ["out/r/"]})
    run("run", "make.jsonl")
    listed = {"command": "ls -A r", "stdout": "seen"}
    write_list(tmp_path / "l.jsonl", {**listed, "inputs": ["out/r/"]})
    run("run", "l.jsonl")
    # A link to a directory stands for the files in it; an empty directory has none.
    assert (tmp_path / "seen").read_text().split() == ["a", "link", "run", "sub"]
    for options in [(), ("--home-local", tmp_path)]:
        write_list(tmp_path / "l.jsonl", {**listed, "inputs": [f"file://{tmp_path}/out/r/"]})
        run("run", "l.jsonl", *options)
        assert (tmp_path / "seen").read_text().split() == ["a", "empty", "link", "run", "sub"]


def test_maps_write_directories(run: Run, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"{name}\n")
    split = "mkdir {out} && cp {in} {out}/one && cp {in} {out}/other"
    run("map", "*.txt", "--out", "dir/{.}/", "--shell", "--", split)
    for name in "ab":
        text = ("f", f"{name}\n".encode())
        assert tree(tmp_path / "dir" / name) == {b".": ("d", b""), b"one": text, b"other": text}
    run("map", "--range", "0..3", "--out", "n/{index}/", "--", "mkdir", "{out}")
    assert [tree(tmp_path / "n" / str(i)) for i in range(3)] == [{b".": ("d", b"")}] * 3
    done = run("map", "*.txt", "--out", "dir/{.}/", "--resume", "--shell", "--", split)
    assert "all 2 tasks are up to date" in done.stderr
    to_list = run("map", "*.txt", "--out", "dir/{.}/", "--shell", "--to-list", "-", "--", split).stdout
    assert [json.loads(line)["outputs"] for line in to_list.splitlines()] == [
        {name: f"{tmp_path}/dir/{name}/"} for name in "ab"
    ]


def test_what_was_there_is_replaced_as_a_whole_and_counted(run: Run, tmp_path: Path) -> None:
    write_list(
        tmp_path / "l.jsonl",
        {"id": "r", "command": MAKE, "outputs": ["out/r/"]},
        {"id": "f", "command": "echo f > f", "outputs": ["out/f"]},
    )
    old = tmp_path / "out" / "r"
    (old / "mine").mkdir(parents=True)
    (old / "mine" / "own").write_text("precious")
    refused = run("run", "l.jsonl", "--no-replace", status=2).stderr
    assert f"the run would replace the existing directory `{old}/` with all that is in it" in refused
    assert (old / "mine" / "own").read_text() == "precious"
    done = run("run", "l.jsonl")
    assert done.notes == [f"the existing directory `{old}/` with all that is in it will be replaced"]
    assert tree(old) == MADE
    done = run("run", "l.jsonl")
    assert done.notes == [
        f"the existing file `{tmp_path}/out/f` and the existing directory `{old}/` with all that is in it will be replaced"
    ]
    write_list(tmp_path / "two.jsonl", *({"command": MAKE, "outputs": {"r": f"{name}/"}} for name in "ab"))
    run("run", "two.jsonl")
    both = f"2 existing directories with all that is in them will be replaced, among them `{tmp_path}/a/`"
    assert run("run", "two.jsonl").notes == [both]
    # What is empty is not missed; through a link it goes to where that leads.
    write_list(
        tmp_path / "l.jsonl",
        {"command": MAKE, "outputs": {"r": "empty/"}},
        {"command": MAKE, "outputs": {"r": "link/"}},
    )
    (tmp_path / "empty").mkdir()
    (tmp_path / "behind").mkdir()
    (tmp_path / "link").symlink_to("behind")
    assert run("run", "l.jsonl", "--no-replace").notes == []
    assert tree(tmp_path / "empty") == tree(tmp_path / "behind") == MADE
    assert names(tmp_path / "out") == ["f", "r"] and (tmp_path / "link").is_symlink()


def test_a_file_in_its_place_is_not_replaced(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "out"
    place.write_text("a file")
    write_list(tmp_path / "l.jsonl", {"id": "r", "command": MAKE, "outputs": {"r": "out/"}})
    refused = run("run", "l.jsonl", status=2).stderr
    assert f"an output is the directory `{place}`, and a file has that name" in refused
    place.unlink()
    # One that comes while the task runs.
    write_list(
        tmp_path / "l.jsonl",
        {"id": "r", "command": f"{MAKE} && echo late > {place}", "outputs": {"r": "out/"}},
    )
    why = failures(run("run", "l.jsonl", status=1))["r"]
    assert f"cannot write `{place}/`: it is a file, and a directory is to be written there" in why
    assert place.read_text() == "late\n"


@pytest.mark.parametrize(
    ("command", "outputs", "why"),
    [
        (
            "mkdir r; ln -s ../../../etc r/l",
            ["out/r/"],
            "a directory that cannot be taken: `l` in it is a symbolic link to `../../../etc`, which leads out",
        ),
        (
            "mkdir r; ln -s /etc r/l",
            ["out/r/"],
            "`l` in it is a symbolic link to `/etc`, which is an absolute path",
        ),
        ("mkdir -p r/s; mkfifo r/s/p", ["out/r/"], "`s/p` in it is a named pipe"),
        ("echo x > r", ["out/r/"], "is a file, and a location that ends in `/` is for a directory"),
        ("true", ["out/r/"], "its declared output `r` (for `{at}/out/r/`) is not there"),
        ("ln -s / r", ["out/r/"], "is a symbolic link out of the sandbox"),
        ("mkdir r", ["out/r"], "is a directory; a location that ends in `/` takes all of it"),
    ],
)
def test_what_cannot_be_taken_is_named(
    run: Run, tmp_path: Path, command: str, outputs: list[str], why: str
) -> None:
    write_list(tmp_path / "l.jsonl", {"id": "a", "command": command, "outputs": outputs})
    assert why.format(at=tmp_path) in failures(run("run", "l.jsonl", status=1))["a"]
    assert not (tmp_path / "out").exists()


def test_resume_looks_at_what_is_in_it(run: Run, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    write_list(
        tmp_path / "l.jsonl",
        {"id": "make", "command": f"echo make >> {ran}; {MAKE}", "outputs": ["out/r/"]},
        {
            "id": "read",
            "command": f"echo read >> {ran}; cat r/a > b",
            "inputs": ["out/r/"],
            "outputs": ["out/b"],
        },
    )
    run("run", "l.jsonl")
    made = tmp_path / "out" / "r"

    def again(expect: str) -> None:
        ran.write_text("")
        run("run", "l.jsonl", "--resume")
        assert ran.read_text().split() == expect.split()
        assert tree(made) == MADE

    again("")
    os.utime(made / "a", (1, 1))
    (made / "a").chmod(0o600)
    again("")
    (made / "sub" / "more").write_text("")
    dry = run("run", "l.jsonl", "--resume", "--dry-run").stdout
    assert f"an output is not what the task made (`{made}/`)" in dry
    again("make read")
    (made / "run").chmod(0o644)
    again("make read")
    (made / "empty").rmdir()
    again("make read")
    # Who reads it alone, of what is at home.
    (tmp_path / "out" / "b").unlink()
    again("read")
    assert (tmp_path / "out" / "b").read_text() == "one\n"


def test_a_failed_run_goes_on_where_it_was(run: Run, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    write_list(
        tmp_path / "l.jsonl",
        {"id": "make", "command": MAKE, "outputs": {"r": "run:r/"}},
        {
            "id": "read",
            "command": f"test -e {mark} && cp -a r s",
            "inputs": ["run:r/"],
            "outputs": {"s": "out/"},
        },
    )
    run("run", "l.jsonl", status=1)
    mark.touch()
    run("run", "l.jsonl", "--resume")
    assert tree(tmp_path / "out") == MADE


# As many files as it takes for a directory to be on its way home for a while, each of other bytes in each run.
MANY = "mkdir r; i=0; while [ $i -lt 300 ]; do head -c 5000 /dev/urandom > r/$i; i=$((i+1)); done; echo $(ls r | wc -l) > r/whole"


def parts(home: Path) -> list[Path]:
    return sorted(home.glob(".eyas-part-*"))


def is_on_its_way(home: Path, but: set[Path]) -> bool:
    return any(names(part) for part in set(parts(home)) - but)


@pytest.mark.parametrize("is_there", [False, True], ids=["new", "replaced"])
def test_an_executor_that_is_killed_on_the_way_home_leaves_no_half(
    eyas: Eyas, tmp_path: Path, is_there: bool
) -> None:
    cluster = Cluster(eyas, tmp_path / "cluster", tmp_path / "home")
    cluster.dispatcher("--home-rate", "500kB", "--lease", "2s")
    place = cluster.home / "a"
    if is_there:
        place.mkdir()
        (place / "old").write_text("old")
    halves: list[list[str]] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            with suppress(FileNotFoundError):
                there = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    seen = sorted(os.listdir(there))
                    # One that was replaced meanwhile is removed, and lies no more where its reader found it.
                    lies_there = os.path.samestat(os.fstat(there), place.stat())
                finally:
                    os.close(there)
                if lies_there and len(seen) != 301 and seen != ["old"]:
                    halves.append(seen)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for _ in range(2):
            killed = cluster.executor("N1")
            if not cluster.ran():
                cluster.submit([cluster.task("a", MANY, outputs={"r": f"{place}/"})])
            before = set(parts(cluster.home))
            wait_until(
                partial(is_on_its_way, cluster.home, before), "a directory on its way home", alive=killed
            )
            kill_now(killed)
            assert is_there == place.exists()
        cluster.executor("N1")
        cluster.wait()
    finally:
        ended.set()
        watcher.join()
    assert halves == []
    assert len(names(place)) == 301 and (place / "whole").read_text() == "300\n"
    wait_until(lambda: not parts(cluster.home), "what was left at home to go")
    assert names(cluster.home) == ["a"]


def test_a_cluster_that_stays(start: Start, run: Run, tmp_path: Path) -> None:
    run("up", "--nodes", "2", "--slots", "1", "--dir", "c")
    join = ("--join", "c/dispatcher/join.json")
    write_list(
        tmp_path / "l.jsonl",
        {"id": "make", "command": MAKE, "outputs": ["out/r/"]},
        {"id": "read", "command": "cp -a r s", "inputs": ["out/r/"], "outputs": {"s": "out/s/"}},
    )
    run("submit", "l.jsonl", *join)
    run("wait", *join)
    assert tree(tmp_path / "out" / "s") == MADE
    explanation = run("explain", "make", *join).stdout
    assert "made 1 output" in explanation
    run("report", "--join", "c/dispatcher/join.json", "--out", "rep")
    run("export", "--wfformat", "w.json", *join)
    # Exported, its outputs have names of their own; stand-ins make directories of the sizes.
    run("run", "--stand-ins", "w.json", "--out", "elsewhere", *join)
    found = tmp_path / "elsewhere"
    assert {path.name: path.is_dir() for path in found.iterdir()} == {"s": True, "r": True}
    made = sum(path.stat().st_size for path in (found / "s").iterdir())
    assert made > 0 and tree(tmp_path / "out" / "s") == MADE
    run("down", *join)


def test_makeflow_targets_that_are_directories(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("word\n")
    (tmp_path / "w.makeflow").write_text(
        "parts: in\n\tmkdir parts && cp in parts/1 && cp in parts/2\n"
        "last: parts\n\tmkdir last; cat parts/1 parts/2 > last/both\n"
    )
    run("run", "w.makeflow", "--out", "results")
    both = {b".": ("d", b""), b"both": ("f", b"word\nword\n")}
    assert tree(tmp_path / "results" / "last") == both and names(tmp_path / "results") == ["last"]
    converted = run("convert", "--to", "jsonl", "w.makeflow").stdout
    (tmp_path / "l.jsonl").write_text(converted)
    run("run", "l.jsonl")
    assert tree(tmp_path / "last") == both
