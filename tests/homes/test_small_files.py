"""Many small inputs: how often home is asked for them, and that tasks read the right bytes all the same."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from buckets import Server, moto, weather
from harness import Run
from lists import write_list
from test_homes_presets import box, needs

__all__ = ["box"]

# More questions than this are never under way at one home, so so many are begun before the first answer.
ASKS_MAX = 64


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


def contents(seed: int, sizes: list[int]) -> dict[str, bytes]:
    draw = random.Random(seed)
    return {f"{n:03}": draw.randbytes(size) for n, size in enumerate(sizes)}


def task(place: str, folder: str, files: dict[str, bytes]) -> dict[str, object]:
    """Tells the digest of all files of one folder."""
    return {
        "id": folder,
        "command": "cat d/* | sha256sum > n",
        "inputs": {f"d/{name}": f"{place}/{folder}/{name}" for name in files},
        "outputs": {"n": f"out/{folder}"},
    }


def check(cwd: Path, folder: str, files: dict[str, bytes]) -> None:
    digest = hashlib.sha256(b"".join(files[name] for name in sorted(files))).hexdigest()
    assert (cwd / "out" / folder).read_text().split()[0] == digest, folder


def test_a_small_object_costs_one_request_once_its_neighbours_are_known(
    run: Run, s3: Server, tmp_path: Path
) -> None:
    bucket = s3.new_bucket()
    folders = {
        "first": contents(1, [100] * 100 + [0]),
        # Nothing is asked about a folder beside it.
        "second": contents(2, [1000] * 60),
        # Its small objects are no reason to think that the large ones are, and the other way round.
        "mixed": contents(3, [70_000, 10, 300_000, 20, 65_536, 65_537]),
    }
    for folder, files in folders.items():
        for name, content in files.items():
            s3.ask("PUT", f"/{bucket}/{folder}/{name}", content)
    asked: list[tuple[str, str]] = []

    def count(method: str, path: str) -> None:
        asked.append((method, path))

    with weather(s3, count) as endpoint:
        for folder, files in folders.items():
            write_list(tmp_path / f"{folder}.jsonl", task(f"s3://{bucket}", folder, files))
        place = ["--dir", "c"]
        whole = [(tmp_path / f"{folder}.jsonl").read_text() for folder in folders]
        (tmp_path / "tasks.jsonl").write_text("".join(whole))
        # One after the other, so that the first folder is known when the second one is asked for.
        run("run", "tasks.jsonl", *place, "--slots", "1", cwd=tmp_path, env=s3.env(endpoint))
    for folder, files in folders.items():
        check(tmp_path, folder, files)
    small = [f"/{bucket}/{folder}/{name}" for folder in ("first", "second") for name in folders[folder]]
    n_of = Counter(asked)
    assert {n_of["GET", path] for path in small if path != f"/{bucket}/first/100"} == {1}
    n_looks = sum(n_of["HEAD", path] for path in small)
    assert n_looks <= 2 * ASKS_MAX < len(small), n_looks


@needs("sshd", "ssh")
def test_small_files_of_a_host_come_together(run: Run, box: dict[str, str], tmp_path: Path) -> None:
    """Each command of `ssh` is counted, which is a connection."""
    (tmp_path / "eyas.toml").write_text('[home.far]\npreset = "ssh"\n')
    calls = tmp_path / "calls"
    wrapper = tmp_path / "bin" / "ssh"
    lines = wrapper.read_text().splitlines()
    wrapper.write_text("\n".join([lines[0], f"echo >> {calls}", *lines[1:]]) + "\n")
    files = {**contents(4, [500] * 250), "a b'c": b"x", "large": bytes(100_000), "empty": b""}
    folder = tmp_path / "far" / "all"
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    write_list(tmp_path / "tasks.jsonl", task(f"far://box{tmp_path}/far", "all", files))
    run("run", "tasks.jsonl", "--dir", "c", cwd=tmp_path, env=box)
    check(tmp_path, "all", files)
    # Three times a hundred files at most, and the large one with a look before, its bytes, and a look behind them.
    assert len(calls.read_text()) <= 8


@needs("sshd", "ssh")
def test_what_does_not_come_together_is_explained(run: Run, box: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "eyas.toml").write_text('[home.far]\npreset = "ssh"\n')
    folder = tmp_path / "far" / "all"
    folder.mkdir(parents=True)
    files = contents(5, [50, 50])
    for name, content in files.items():
        (folder / name).write_bytes(content)
    write_list(tmp_path / "tasks.jsonl", task(f"far://box{tmp_path}/far", "all", {**files, "gone": b""}))
    done = run("run", "tasks.jsonl", "--dir", "c", cwd=tmp_path, env=box, status=1)
    assert "there is no such object" in done.stdout + done.stderr
    assert "all/gone" in done.stdout + done.stderr
