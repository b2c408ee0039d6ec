"""Inputs that each node makes once of packed files: archives, compressed files, environments, transforms of the user."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from harness import Eyas, Run, need_program, wait_until
from lists import failures, nothing_is_left, write_list
from weather import Cluster, kill_now

FILES = {"a": b"one\n", "sub/b": b"two\n", "sub/deep/c": b"three\n"}
SHOW = "cat t/a t/sub/b t/sub/deep/c"
SHOWN = "one\ntwo\nthree\n"


def tar(path: Path, mode: str = "w:gz", files: dict[str, bytes] = FILES) -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(content), 1_700_000_000, 0o755
            archive.addfile(entry, io.BytesIO(content))
    return path


def zipped(path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in FILES.items():
            archive.writestr(name, content)
    return path


def n_made(folder: Path) -> int:
    """How often something was made, as the transform notes it."""
    notes = folder / "made"
    return len(notes.read_text().splitlines()) if notes.exists() else 0


def makes(folder: Path, command: str) -> list[str]:
    """A transform that notes that it ran."""
    return ["sh", "-c", f"echo made >> {folder}/made && {command}", "-", "{in}", "{out}"]


@pytest.mark.parametrize("kind", ["tar.gz", "tar", "tar.zst", "zip"])
def test_an_archive_is_a_directory_for_the_tasks(run: Run, tmp_path: Path, kind: str) -> None:
    packed = tmp_path / f"t.{kind}"
    if kind == "zip":
        zipped(packed)
    elif kind == "tar.zst":
        need_program("zstd")
        subprocess.run(["zstd", "-q", "--rm", tar(tmp_path / "t.tar", "w"), "-o", packed], check=True)
    else:
        tar(packed, "w:gz" if kind == "tar.gz" else "w")
    unpack = "zip" if kind == "zip" else "tar"
    tasks = [
        {"command": SHOW, "inputs": [{"from": packed.name, "unpack": unpack}], "stdout": f"out/{i}"}
        for i in range(4)
    ]
    write_list(tmp_path / "l.jsonl", *tasks)
    run("run", "l.jsonl", "--nodes", "2", "--slots", "2")
    assert [(tmp_path / f"out/{i}").read_text() for i in range(4)] == [SHOWN] * 4
    # What was done with these bytes is up to date, and what is done with others is not.
    again = run("run", "l.jsonl", "--resume", "--dry-run").stdout
    assert "all 4 tasks are up to date" in again
    packed.write_bytes(packed.read_bytes() + b"\0")
    again = run("run", "l.jsonl", "--resume", "--dry-run").stdout
    assert "4 of 4 tasks would run" in again and f"an input changed (`{packed}`)" in again
    nothing_is_left(tmp_path)


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_a_compressed_file_is_the_file_for_the_tasks(run: Run, tmp_path: Path, kind: str) -> None:
    # Larger than the packed file by far, so that more room is needed than was taken at first.
    content = b"0123456789abcdef" * 200_000
    if kind == "gzip":
        (tmp_path / "x.gz").write_bytes(gzip.compress(content[:100]) + gzip.compress(content[100:]))
    else:
        (tmp_path / "x").write_bytes(content)
        subprocess.run([need_program("zstd"), "-q", "--rm", "x", "-o", "x.gz"], cwd=tmp_path, check=True)
    look = "wc -c < x; ls; ls -d .packed 2> /dev/null; test ! -w x || test $(id -u) = 0"
    tasks = [
        {"command": look, "inputs": {"x": {"from": "x.gz", "unpack": kind}}, "stdout": f"out/{i}"}
        for i in range(3)
    ]
    write_list(tmp_path / "l.jsonl", *tasks)
    run("run", "l.jsonl", "--nodes", "2", "--slots", "1")
    for i in range(3):
        # The packed file is not in the sandbox.
        assert (tmp_path / f"out/{i}").read_text().split() == [str(len(content)), "x"]


def test_a_transform_runs_once_on_each_node(eyas: Eyas, tmp_path: Path) -> None:
    (tmp_path / "x.raw").write_text("raw\n")
    cluster = Cluster(eyas, tmp_path / "cluster", tmp_path / "home")
    cluster.dispatcher()
    for name in ("n1", "n2"):
        cluster.executor(name, slots=2)
    make = makes(tmp_path, 'sleep 0.3; mkdir -p "$2" && tr a-z A-Z < "$1" > "$2/x"')
    gate = tmp_path / "gate"
    # All tasks are held until both nodes have some, so that both make it.
    task = {
        "command": f"cat t/x; echo x >> {tmp_path}/ran; while [ ! -e {gate} ]; do sleep 0.02; done",
        "inputs": {"t/": {"from": f"{tmp_path}/x.raw", "make": make}},
    }
    cluster.submit([{**task, "id": f"t{i}", "stdout": f"{tmp_path}/out/{i}"} for i in range(12)])
    wait_until(lambda: (tmp_path / "ran").exists() and len((tmp_path / "ran").read_text()) >= 8, "four run")
    gate.touch()
    cluster.wait()
    assert n_made(tmp_path) == 2
    assert [(tmp_path / f"out/{i}").read_text() for i in range(12)] == ["RAW\n"] * 12


def test_a_transform_that_makes_a_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x.raw").write_text("raw\n")
    made = {"from": "x.raw", "make": makes(tmp_path, 'tr a-z A-Z < "$1" > "$2"')}
    write_list(
        tmp_path / "l.jsonl",
        *({"command": "cat y", "inputs": {"y": made}, "stdout": f"out/{i}"} for i in range(5)),
    )
    run("run", "l.jsonl", "--slots", "3")
    assert {(tmp_path / f"out/{i}").read_text() for i in range(5)} == {"RAW\n"}
    assert n_made(tmp_path) == 1


def test_an_archive_that_a_task_makes(run: Run, tmp_path: Path) -> None:
    """The readers wait for the archive, whether it goes home or stays on the nodes."""
    for where in ("out/t.tar", "run:t.tar"):
        make = "mkdir -p d/sub/deep && echo one > d/a && echo two > d/sub/b && echo three > d/sub/deep/c"
        write_list(
            tmp_path / "l.jsonl",
            {"id": "pack", "command": f"{make} && tar cf t.tar -C d .", "outputs": {"t.tar": where}},
            *(
                {
                    "id": f"read{i}",
                    "command": SHOW,
                    "inputs": {"t": {"from": where, "unpack": "tar"}},
                    "stdout": f"out/{i}",
                }
                for i in range(4)
            ),
        )
        run("run", "l.jsonl", "--nodes", "2", "--slots", "1")
        assert [(tmp_path / f"out/{i}").read_text() for i in range(4)] == [SHOWN] * 4
        shutil.rmtree(tmp_path / "out")


def test_an_environment_runs_its_programs(run: Run, tmp_path: Path) -> None:
    """A virtual environment with a package in it, packed; it may have links that lead out of it, to the Python of the node."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "v"], check=True)
    (site,) = (tmp_path / "v" / "lib").glob("python*/site-packages")
    (site / "greeter.py").write_text("print('hello from the environment')\n")
    subprocess.run(["tar", "czf", "env.tar.gz", "-C", "v", "."], cwd=tmp_path, check=True)
    shutil.rmtree(tmp_path / "v")
    tasks = [
        {
            "command": ["env/bin/python", "-c", "import greeter"],
            "inputs": {"env": {"environment": "env.tar.gz"}},
            "stdout": f"out/{i}",
        }
        for i in range(3)
    ]
    write_list(tmp_path / "l.jsonl", *tasks)
    run("run", "l.jsonl", "--slots", "2")
    assert {(tmp_path / f"out/{i}").read_text() for i in range(3)} == {"hello from the environment\n"}


def test_what_an_archive_becomes_is_bounded(run: Run, tmp_path: Path) -> None:
    """An archive of a few bytes can say any number of bytes and levels."""
    with gzip.open(tmp_path / "zeros.gz", "wb", compresslevel=1) as packed:
        packed.writelines(bytes(1 << 20) for _ in range(100))
    with tarfile.open(tmp_path / "zeros.tar.gz", "w:gz", compresslevel=1) as archive:
        entry = tarfile.TarInfo("zeros")
        entry.size = 100 << 20
        archive.addfile(entry, io.BufferedReader(open("/dev/zero", "rb")))
    with zipfile.ZipFile(tmp_path / "deep.zip", "w") as packed_tree:
        packed_tree.writestr("d/" * 1000 + "x", "")
    with tarfile.open(tmp_path / "deep.tar", "w") as archive:
        for depth in range(1, 1001):
            entry = tarfile.TarInfo("d/" * depth)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
    cases = {
        "zeros.gz": ("gzip", "becomes larger than "),
        "zeros.tar.gz": ("tar", "becomes larger than "),
        "deep.zip": ("zip", "lies deeper than 256 directories"),
        "deep.tar": ("tar", "lies deeper than 256 directories"),
    }
    tasks = [
        {"id": name, "command": "true", "inputs": {"i": {"from": name, "unpack": kind}}}
        for name, (kind, _) in cases.items()
    ]
    write_list(tmp_path / "l.jsonl", *tasks)
    failed = failures(run("run", "l.jsonl", "--cache", "20MB", status=1))
    assert sorted(failed) == sorted(cases)
    for name, (kind, said) in cases.items():
        assert f"{name}` cannot be unpacked as {kind}: " in failed[name], failed[name]
        assert said in failed[name], failed[name]


def test_what_cannot_be_made_is_named_in_one_sentence(run: Run, tmp_path: Path) -> None:
    whole = tar(tmp_path / "t.tar.gz").read_bytes()
    (tmp_path / "torn.tar.gz").write_bytes(whole[: len(whole) // 2])
    noise = tar(tmp_path / "v.tar.gz", files={"a": os.urandom(50_000)}).read_bytes()
    (tmp_path / "within.tar.gz").write_bytes(noise[: len(noise) // 2])
    (tmp_path / "cut.tar").write_bytes(tar(tmp_path / "u.tar", "w").read_bytes()[:514])
    (tmp_path / "flipped.gz").write_bytes(gzip.compress(b"x" * 1000)[:-8] + b"\0" * 8)
    (tmp_path / "text.zip").write_text("no archive")
    with tarfile.open(tmp_path / "out.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("../evil"), None)
    failing = ["sh", "-c", "echo working; echo 'no such column: x' >&2; exit 3", "-", "{in}", "{out}"]
    inputs = {
        "torn": {"from": "torn.tar.gz", "unpack": "tar"},
        "within": {"from": "within.tar.gz", "unpack": "tar"},
        "cut": {"from": "cut.tar", "unpack": "tar"},
        "flipped": {"from": "flipped.gz", "unpack": "gzip"},
        "text": {"from": "text.zip", "unpack": "zip"},
        "out": {"from": "out.tar", "unpack": "tar"},
        "failing": {"from": "text.zip", "make": failing},
        "idle": {"from": "text.zip", "make": ["true", "{in}", "{out}"]},
    }
    write_list(
        tmp_path / "l.jsonl",
        *({"id": name, "command": "true", "inputs": {"x": made}} for name, made in inputs.items()),
    )
    failed = failures(run("run", "l.jsonl", status=1))
    assert sorted(failed) == sorted(inputs)
    for name, packed in [
        ("torn", "torn.tar.gz"),
        ("within", "within.tar.gz"),
        ("cut", "cut.tar"),
        ("flipped", "flipped.gz"),
        ("text", "text.zip"),
        ("out", "out.tar"),
    ]:
        assert f"{tmp_path}/{packed}` cannot be unpacked as" in failed[name], failed[name]
    assert "it ends within its entry `a`" in failed["cut"], failed["cut"]
    assert re.search(r"failed to unpack `a` into `.+`: .*deflate", failed["within"]), failed["within"]
    assert "leads out of it" in failed["out"]
    assert "it ended with status 3 and said `no such column: x`" in failed["failing"]
    assert "it ended without an error, and made nothing at {out}" in failed["idle"]
    assert not (tmp_path / "evil").exists()


def test_another_archive_of_the_name_is_made_anew(eyas: Eyas, tmp_path: Path) -> None:
    cluster = Cluster(eyas, tmp_path / "cluster", tmp_path / "home")
    cluster.dispatcher()
    cluster.executor("n1")
    for content in (b"first\n", b"second\n"):
        tar(tmp_path / "t.tar", "w", {"a": content})
        made = {"from": f"{tmp_path}/t.tar", "unpack": "tar"}
        cluster.submit([{"command": "cat t/a", "inputs": [made], "stdout": f"{tmp_path}/out/a"}])
        cluster.wait()
        assert (tmp_path / "out/a").read_bytes() == content


def test_a_program_that_writes_to_a_shared_tree_spoils_it_once(eyas: Eyas, tmp_path: Path) -> None:
    tar(tmp_path / "t.tar", "w")
    cluster = Cluster(eyas, tmp_path / "cluster", tmp_path / "home")
    cluster.dispatcher()
    node = cluster.executor("n1")
    made = {"inputs": [{"from": f"{tmp_path}/t.tar", "unpack": "tar"}]}

    def run_one(command: str) -> None:
        cluster.submit([{"command": command, **made}])
        cluster.wait()

    run_one("chmod -R u+w t/ && echo spoilt > t/a")
    node.wait_for_text("was changed; it is dropped")
    run_one(f"{SHOW} > {tmp_path}/seen")
    assert (tmp_path / "seen").read_text() == SHOWN


def test_a_node_that_is_killed_while_it_makes_something(eyas: Eyas, tmp_path: Path) -> None:
    (tmp_path / "x.raw").write_text("raw\n")
    cluster = Cluster(eyas, tmp_path / "cluster", tmp_path / "home")
    cluster.dispatcher()
    first = cluster.executor("n1")
    command = f'mkdir -p "$2" && echo half > "$2/x" && while [ ! -e {tmp_path}/gate ]; do sleep 0.02; done'
    make = makes(tmp_path, f'{command}; cp "$1" "$2/x"')
    made = {"t/": {"from": f"{tmp_path}/x.raw", "make": make}}
    cluster.submit([{"command": "cat t/x", "inputs": made, "stdout": f"{tmp_path}/out/x"}])
    wait_until(lambda: n_made(tmp_path) == 1, "it is being made")
    kill_now(first)
    (tmp_path / "gate").touch()
    # In the same folder, where half of it still lies.
    cluster.executor("n1")
    cluster.wait()
    assert (tmp_path / "out/x").read_text() == "raw\n"
    assert n_made(tmp_path) == 2


def test_both_forms_share_a_small_cache(run: Run, tmp_path: Path) -> None:
    """Trees that do not fit together come and go, and one that fits no cache is made for each task."""
    for name, n_bytes in [("a", 600_000), ("b", 600_000), ("huge", 3_000_000)]:
        tar(tmp_path / f"{name}.tar.gz", files={"x": os.urandom(n_bytes // 4) * 4})
    tasks = [
        {
            "command": "wc -c < t/x",
            "inputs": {"t": {"from": f"{name}.tar.gz", "unpack": "tar"}},
            "stdout": f"out/{name}{i}",
        }
        for i in range(3)
        for name in ("a", "b", "huge")
    ]
    write_list(tmp_path / "l.jsonl", *tasks)
    run("run", "l.jsonl", "--slots", "1", "--cache", "1MiB")
    for i in range(3):
        sizes = [(tmp_path / f"out/{name}{i}").read_text().strip() for name in ("a", "b", "huge")]
        assert sizes == ["600000", "600000", "3000000"]


def test_wrong_forms_are_refused_with_a_hint(run: Run, tmp_path: Path) -> None:
    wrong = {
        "{'from': 'a'}": "an input says `from`",
        "{'unpack': 'tar'}": "does not say the file that it is made `from`",
        "{'from': 'a', 'unpack': 'rar'}": "eyas cannot `unpack` `rar`",
        "{'from': 'a*', 'unpack': 'tar'}": "stands for several files",
        "{'from': 'a', 'make': ['x', '{in}']}": "has to have `{in}`",
        "{'from': 'a', 'unpak': 'tar'}": "did you mean `unpack`?",
    }
    for form, said in wrong.items():
        text = json.dumps({"command": ["true"]})[:-1] + ', "inputs": {"x": ' + form.replace("'", '"') + "}}\n"
        (tmp_path / "l.jsonl").write_text(text)
        assert said in run("run", "l.jsonl", status=2).stderr
