"""What a listing, a copy, a pattern or a put leaves out is named, and all that can be brought is brought."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from buckets import Server, moto
from harness import Eyas, Finished, Run, Start

GOOD = {"file", "real/deep", "linked/far", "to-file"}
ODD = ("lost", "socket", "back", "caf")


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a linked folder and a linked file, and with four things that are no files."""
    top, far = tmp_path / "top", tmp_path / "elsewhere"
    (top / "real").mkdir(parents=True)
    far.mkdir()
    (top / "file").write_text("file")
    (top / "real" / "deep").write_text("deep")
    (far / "far").write_text("far")
    (top / "linked").symlink_to(far)
    (top / "to-file").symlink_to("../elsewhere/far")
    (top / "real" / "back").symlink_to("..")
    (top / "lost").symlink_to("nowhere")
    with socket.socket(socket.AF_UNIX) as made:
        here = os.getcwd()
        os.chdir(top)
        made.bind("socket")
        os.chdir(here)
    with open(os.fsencode(top) + b"/caf\xe9", "w"):
        pass
    return top


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def names(done: Finished) -> list[str]:
    """What was left out, each by the one of ODD that is in its line."""
    lines = [line for line in done.stderr.splitlines() if "left out `" in line]
    return sorted(
        next(odd for odd in ODD if f"/{odd}" in line or odd in line.split(":")[0]) for line in lines
    )


def test_a_folder_is_listed_and_copied_but_for_what_is_no_file(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    listed = run("ls", folder, status=4)
    assert {line.removeprefix(f"{folder}/") for line in listed.stdout.splitlines()} == GOOD
    copied = run("cp", "-r", folder, "copy/", status=4, cwd=tmp_path)
    assert files_below(tmp_path / "copy") == GOOD
    for done in (listed, copied):
        assert names(done) == sorted(ODD)
        assert "4 of 8 objects were left out" in done.stderr


def test_directories_without_files_are_copied_or_named(run: Run, s3: Server, tmp_path: Path) -> None:
    top = tmp_path / "top"
    for name in ("a/b/c", "a/d", "e"):
        (top / name).mkdir(parents=True)
    (top / "e" / "file").write_text("file")
    run("cp", "-r", "top", "copy", cwd=tmp_path)
    below = sorted(str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*"))
    assert below == ["a", "a/b", "a/b/c", "a/d", "e", "e/file"]
    run("cp", "-r", "top/a/d", "bare", cwd=tmp_path)
    assert list((tmp_path / "bare").iterdir()) == []
    # No link is followed out of the target, and what is there stays.
    (tmp_path / "far").mkdir()
    (tmp_path / "linked" / "a" / "d").mkdir(parents=True)
    (tmp_path / "linked" / "a" / "d" / "old").write_text("old")
    (tmp_path / "linked" / "a" / "b").symlink_to(tmp_path / "far")
    done = run("cp", "-r", "top", "linked", cwd=tmp_path, status=4)
    assert f"left out `{top}/a/b/c`" in done.stderr and list((tmp_path / "far").iterdir()) == []
    assert (tmp_path / "linked" / "a" / "d" / "old").exists() and (
        tmp_path / "linked" / "e" / "file"
    ).exists()
    url = f"s3://{s3.new_bucket()}/d"
    done = run("cp", "-r", "top", url, cwd=tmp_path, env=s3.env(), status=4)
    for name in ("a/b/c", "a/d"):
        said = f"left out `{top}/{name}`: it is an empty directory, and the target has no directories"
        assert said in done.stderr
    assert "2 of 3 objects were left out" in done.stderr
    assert run("cat", f"{url}/e/file", env=s3.env()).stdout == "file"


def test_a_pattern_and_a_folder_of_inputs_name_what_they_leave_out(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    by_pattern = run("map", "top/**", "--shell", "--print", "--", "cat {in}", cwd=tmp_path, status=1)
    # The link that leads nowhere is a task, which fails.
    assert names(by_pattern) == ["back", "caf", "socket"]
    assert "`" + str(folder / "lost") + "`" in by_pattern.stderr
    (tmp_path / "list.jsonl").write_text(
        '{"command": "cat top/linked/far top/real/deep", "inputs": ["top/"]}\n'
    )
    by_folder = run("run", "list.jsonl", cwd=tmp_path)
    assert names(by_folder) == sorted(ODD)


def test_a_put_names_what_it_leaves_out(data: Run, folder: Path, tmp_path: Path) -> None:
    put = data("put", folder, "--label", "set", status=4)
    assert names(put) == sorted(ODD)
    data("get", "set", "back", cwd=tmp_path)
    assert files_below(tmp_path / "back") == GOOD


def test_a_file_that_may_not_be_read_stands_alone(
    eyas: Eyas, start: Start, data: Run, folder: Path, tmp_path: Path
) -> None:
    (folder / "secret").write_text("secret")
    (folder / "closed").mkdir()
    (folder / "closed" / "in").write_text("in")
    for name in ("secret", "closed"):
        (folder / name).chmod(0)
    # Root reads everything as long as it has the right to.
    weak = tmp_path / "weak"
    rights = "-dac_override,-dac_read_search"
    bound = f"setpriv --bounding-set={rights} --inh-caps={rights} --" if os.geteuid() == 0 else ""
    weak.write_text(f'#!/bin/sh\nexec {bound} "{eyas.path}" "$@"\n')
    weak.chmod(0o755)
    catalog = f"sqlite:{tmp_path}/catalog.db"

    def put(what: Path, label: str, status: int, *options: str) -> str:
        put = start("data", "--db", catalog, "put", what, "--label", label, *options, program=weak)
        return put.wait(60, status).stderr

    try:
        copied = start("cp", "-r", folder, "copy/", program=weak, cwd=tmp_path).wait(60, 4).stderr
        said = put(folder, "set", 4)
        data("quota", "everyone", "15")
        assert "6 names could not be put" in put(folder, "set", 4)
        alone = put(folder / "secret", "secret", 2)
    finally:
        (folder / "closed").chmod(0o755)
    assert files_below(tmp_path / "copy") == GOOD
    for out in (copied, said):
        assert "/secret`: " in out and "/closed`: cannot list it: Permission denied" in out, out
    assert "6 names could not be put, and all others are" in said
    data("get", "set", "back", cwd=tmp_path)
    assert files_below(tmp_path / "back") == GOOD
    assert "Permission denied" in alone
    only = tmp_path / "only"
    only.mkdir()
    (only / "secret").touch(mode=0)
    assert "there is no file in what is to be put but what can be in no data set" in put(only, "only", 2)


@pytest.mark.parametrize("how", ["list", "commands", "with"])
def test_a_folder_of_a_bucket_is_an_input_as_a_folder_is(
    run: Run, s3: Server, tmp_path: Path, how: str
) -> None:
    bucket = s3.new_bucket()
    for key in ("d/ok", "d/a/x y", "other"):
        s3.ask("PUT", f"/{bucket}/{key.replace(' ', '%20')}", b"bytes")
    url = f"s3://{bucket}/d/"
    if how == "list":
        (tmp_path / "t.jsonl").write_text(
            json.dumps({"command": "find q -type f > r", "inputs": {"q": url}, "outputs": {"r": "r"}}) + "\n"
        )
        words = ["run", "t.jsonl"]
    elif how == "commands":
        (tmp_path / "t.txt").write_text(f"find {{in:{url}}} -type f > {{out:r}}\n")
        words = ["run", "t.txt"]
    else:
        words = [
            "map",
            "--range",
            "0..1",
            "--with",
            url,
            "--out",
            "r",
            "--shell",
            "--",
            "find d -type f > {out}",
        ]
    run(*words, env=s3.env(), cwd=tmp_path)
    top = "q" if how == "list" else "d"
    assert set((tmp_path / "r").read_text().splitlines()) == {f"{top}/ok", f"{top}/a/x y"}


@pytest.mark.parametrize("how", ["list", "with", "map", "command home"])
def test_an_object_that_can_be_no_input_stands_alone(run: Run, s3: Server, tmp_path: Path, how: str) -> None:
    bucket, long = s3.new_bucket(), "n" * 300
    env, url = s3.env(), f"s3://{bucket}/d"
    for key in ("d/ok", "d/.hidden", "d/a//b", f"d/{long}"):
        s3.ask("PUT", f"/{bucket}/{key}", b"bytes")
    if how == "command home":
        names = tmp_path / "names"
        names.write_text(f"ok\na//b\n{long}\n")
        home = f'[home.lab]\nget = "printf bytes"\nstat = "echo 5 v"\nlist = "cat {names}"\n'
        (tmp_path / "eyas.toml").write_text(home + 'put = "false"\nremove = "false"\n')
        env, url = {}, "lab://h/d"
    (tmp_path / "t.jsonl").write_text(
        json.dumps({"command": "find q -type f > r", "inputs": {"q": f"{url}/"}, "outputs": {"r": "r"}})
    )
    words = {
        "list": ["run", "t.jsonl"],
        "with": [
            "map",
            "--range",
            "0..1",
            "--with",
            f"{url}/",
            "--out",
            "r",
            "--shell",
            "--",
            "find d -type f > {out}",
        ],
    }.get(how, ["map", f"{url}/**", "--print", "--shell", "--", "cat {in} && echo"])
    done = run(*words, env=env, cwd=tmp_path)
    assert f"left out `{url}/{long[:20]}" in done.stderr and "more than 255 bytes" in done.stderr
    if how in ("list", "with"):
        top = "q" if how == "list" else "d"
        assert set((tmp_path / "r").read_text().split()) == {f"{top}/ok", f"{top}/.hidden"}
        assert f"left out `{url}/a//b`: " in done.stderr and "has an empty part" in done.stderr
    else:
        # A pattern gives files one by one, each by its last name.
        assert done.stdout == "bytes\nbytes\n"
        assert "a//b" not in done.stderr


def test_objects_whose_keys_are_no_paths_are_named(run: Run, s3: Server, tmp_path: Path) -> None:
    bucket = s3.new_bucket()
    for key in ("d/good", "d/a//b", "d/mark/", "d/full/", "d/full/x"):
        s3.ask("PUT", f"/{bucket}/{key}", b"" if key == "d/mark/" else b"bytes")
    env = s3.env()
    listed = run("ls", f"s3://{bucket}/d/", env=env, status=4)
    assert set(listed.stdout.split()) == {f"s3://{bucket}/d/{name}" for name in ("good", "a//b", "full/x")}
    assert "left out `d/full/`: its key ends in `/`" in listed.stderr
    assert "1 of 4 objects were left out" in listed.stderr
    by_pattern = run("ls", f"s3://{bucket}/d/**", env=env, status=4)
    assert by_pattern.stdout == listed.stdout
    copied = run("cp", "-r", f"s3://{bucket}/d/", "got/", env=env, cwd=tmp_path, status=4)
    assert files_below(tmp_path / "got") == {"good", "full/x"}
    assert "2 of 4 objects were left out" in copied.stderr
    assert "a//b" in copied.stderr
