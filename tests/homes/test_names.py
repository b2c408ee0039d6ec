"""`eyas mv`, `rm`, `mkdir`, `chmod` and `stat` with folders, and between them and a bucket."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from buckets import Server, moto
from harness import Run, lacking


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    for name in ("a.txt", "b c+d%.txt", "folder/deep/é.txt"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


@contextmanager
def protected(folder: Path) -> Iterator[None]:
    """A folder whose entries stay."""
    if subprocess.run(["chattr", "+i", folder], check=False, capture_output=True).returncode != 0:
        lacking("needs root, and a file system with the attribute i")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", folder], check=True)


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_files_and_folders_are_moved_in_place(run: Run, files: Path) -> None:
    inode = (files / "a.txt").stat().st_ino
    run("mv", "a.txt", "new/name.txt", cwd=files)
    assert (files / "new/name.txt").stat().st_ino == inode, "the bytes stay where they are"
    run("mv", "*.txt", "folder", "new/", cwd=files)
    assert names(files) == [
        "new",
        "new/b c+d%.txt",
        "new/folder",
        "new/folder/deep",
        "new/folder/deep/é.txt",
        "new/name.txt",
    ]
    refused = run("mv", "new/name.txt", "new/name.txt", cwd=files, status=2).stderr
    assert "it has this name already" in refused
    below = run("mv", "new", "new/folder/", cwd=files, status=2).stderr
    assert "below itself" in below and (files / "new/folder").is_dir()
    run("mv", "none", "x", cwd=files, status=2)


def test_objects_move_between_a_folder_and_a_bucket(run: Run, files: Path, s3: Server) -> None:
    place = f"s3://{s3.new_bucket()}"
    env = s3.env()
    run("mv", "a.txt", "b c+d%.txt", f"{place}/in/", cwd=files, env=env)
    assert names(files) == ["folder", "folder/deep", "folder/deep/é.txt"]
    (files / "folder/a.txt").write_text("older")
    there = run("mv", f"{place}/in/*.txt", "folder/", cwd=files, env=env, status=4).stderr
    assert "replaces nothing" in there and (files / "folder/a.txt").read_text() == "older"
    (files / "folder/a.txt").unlink()
    run("mv", f"{place}/in/a.txt", "folder/", cwd=files, env=env)
    assert (files / "folder/b c+d%.txt").read_text() == "b c+d%.txt"
    assert run("ls", f"{place}/", env=env).stdout == ""
    refused = run("mv", "folder", f"{place}/", cwd=files, env=env, status=2).stderr
    assert "cp -r" in refused and (files / "folder/a.txt").exists()
    run("cp", "-r", "folder", f"{place}/one/", cwd=files, env=env)
    run("mv", f"{place}/one/", f"{place}/two", env=env)
    assert run("cat", f"{place}/two/deep/é.txt", env=env).stdout == "folder/deep/é.txt"
    run("rm", f"{place}/two/", env=env, status=2)
    assert "removed 3 files" in run("rm", "-r", f"{place}/two", env=env).stderr
    assert run("ls", f"{place}/", env=env).stdout == ""
    assert "need no directory" in run("mkdir", f"{place}/d", env=env, status=2).stderr
    for whole in (place, f"{place}/"):
        assert "nothing was done" in run("rm", "-r", whole, env=env, status=2).stderr
    run("cp", "-r", "folder", f"{place}/one/", cwd=files, env=env)
    run("mv", f"{place}/one/", f"{place}/two/", env=env)
    assert run("cat", f"{place}/two/one/a.txt", env=env).stdout == "a.txt"


def test_links_are_moved_themselves(run: Run, files: Path) -> None:
    (files / "link").symlink_to("folder")
    (files / "dangling").symlink_to("nowhere")
    run("mv", "link", "dangling", "new/", cwd=files)
    assert (files / "new/link").readlink() == Path("folder")
    assert (files / "new/dangling").is_symlink()
    run("rm", "-r", f"file://{files}/folder", cwd=files)
    assert not (files / "folder").exists()


def test_removing_follows_no_links(run: Run, files: Path) -> None:
    (files / "kept").mkdir()
    (files / "kept/x").write_text("x")
    (files / "folder/link").symlink_to(files / "kept")
    (files / "other").symlink_to(files / "kept")
    refused = run("rm", "folder", cwd=files, status=2).stderr
    assert "names a directory" in refused
    assert "removed 2 files" in run("rm", "-r", "folder", cwd=files).stderr
    run("rm", "-r", "other", cwd=files)
    assert names(files) == ["a.txt", "b c+d%.txt", "kept", "kept/x"]
    assert "no such file" in run("rm", "none", "a.txt", cwd=files, status=4).stderr.lower()
    assert not (files / "a.txt").exists(), "one that is not there keeps no other"
    run("rm", "--force", "none", "no*ne", cwd=files)
    (files / "up").symlink_to(files.parent)
    for above in (
        "/",
        ".",
        "..",
        str(files.parent),
        "kept/..",
        "kept/../..",
        f"{files}/kept/..",
        "up/files",
        "/tmp/..",
    ):
        assert "nothing was done" in run("rm", "-r", above, cwd=files, status=2).stderr
    (files / "up").unlink()
    assert (files / "kept/x").exists()


def test_a_removal_that_fails_half_way_says_how_many_files_are_gone(run: Run, files: Path) -> None:
    for n in range(3):
        (files / "folder/deep" / f"{n}").write_text("x")
    with protected(files / "folder"):
        done = run("rm", "-r", "folder", "a.txt", cwd=files, status=4)
    assert names(files) == ["b c+d%.txt", "folder", "folder/deep"]
    assert "removed 5 files" in done.stderr and "1 name could not be removed" in done.stderr


def test_what_is_known_of_a_file_is_shown_and_its_mode_changed(run: Run, files: Path) -> None:
    run("mkdir", "x/y", "x/y", cwd=files)
    assert (files / "x/y").is_dir()
    run("chmod", "640", "*.txt", cwd=files)
    assert (files / "a.txt").stat().st_mode & 0o777 == 0o640
    assert "octal" in run("chmod", "u+x", "a.txt", cwd=files, status=2).stderr
    [story] = json.loads(run("stat", "--json", "a.txt", cwd=files).stdout)
    assert (story["size_bytes"], story["mode"]) == (5, "640")
    assert story["modified_ns"] == (files / "a.txt").stat().st_mtime_ns
    assert "5 B" in run("stat", "a.txt", cwd=files).stdout
    assert "is a directory" in run("stat", "folder", cwd=files, status=2).stderr


def test_one_name_that_is_not_there_keeps_no_other(run: Run, files: Path) -> None:
    for words in (["stat"], ["chmod", "600"]):
        failed = run(*words, "none.txt", "a.txt", cwd=files, status=4)
        assert "none.txt" in failed.stderr and "1 of 2 names" in failed.stderr
    assert "a.txt" in run("stat", "a.txt", "none.txt", cwd=files, status=4).stdout
    assert (files / "a.txt").stat().st_mode & 0o777 == 0o600
    assert run("ls", "a.txt", cwd=files).stdout == f"{files}/a.txt\n"
    assert run("cat", "*.txt", cwd=files).stdout == "a.txtb c+d%.txt"
    for verb, word in (("ls", "*.none"), ("cat", "*.none"), ("ls", "none")):
        assert "none" in run(verb, word, cwd=files, status=2).stderr


def test_a_file_that_is_called_like_a_pattern_is_that_file(
    run: Run, data: Run, s3: Server, tmp_path: Path
) -> None:
    """What is there under a name is no pattern, for any command; a bucket's object is found where the pattern finds nothing."""
    odd = ["*.txt", "[x].fits", "a{b}.c", "what?"]
    for name in [*odd, "a.txt", "x.fits"]:
        (tmp_path / name).write_text(name)
    for name in odd:
        run("map", f"./{name}", "--out", "mapped/{name}", "--", "cp", "{in}", "{out}")
        run("cp", name, "copies/", cwd=tmp_path)
        assert run("ls", name, cwd=tmp_path).stdout.strip().endswith(name)
        assert (tmp_path / "mapped" / name).read_text() == (tmp_path / "copies" / name).read_text() == name
        listed = {"command": "cat seen", "inputs": {"seen": name}}
        (tmp_path / "l.jsonl").write_text(json.dumps(listed) + "\n")
        run("run", "l.jsonl")
        cat = ("--shell", "--", "cat *")
        assert run("map", "--range", "0..1", "--with", name, *cat).stdout == name
        label = data("put", name, "--label", f"put{odd.index(name)}", cwd=tmp_path).stdout
        assert label, name
    assert sorted(path.name for path in (tmp_path / "mapped").iterdir()) == sorted(odd)
    for name in odd:
        run("rm", f"copies/{name}", cwd=tmp_path)
    assert list((tmp_path / "copies").iterdir()) == []
    url, env = f"s3://{s3.new_bucket()}/d", s3.env()
    run("cp", "[x].fits", f"{url}/[x].fits", cwd=tmp_path, env=env)
    run("cp", f"{url}/[x].fits", "back", cwd=tmp_path, env=env)
    assert (tmp_path / "back").read_text() == "[x].fits"
    run("rm", f"{url}/[x].fits", env=env)
    run("cp", "a.txt", f"{url}/other.txt", cwd=tmp_path, env=env)
    refused = run("rm", f"{url}/[x].fits", env=env, status=2)
    assert "hint: in a pattern, [*], [?] and [[] stand for these characters themselves" in refused.stderr
