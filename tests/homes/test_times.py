"""What a file is beside its bytes: times, permissions and holes, on the way to programs and home."""

from __future__ import annotations

import os
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from harness import Eyas, Run
from lists import write_list
from weather import Cluster

NS = 1_000_000_000
LOOK = "stat -c '%n %.9Y %a' {names} > look"
UNKNOWN = f"{NS}.000000000"


@pytest.fixture
def cluster(eyas: Eyas, tmp_path: Path) -> Cluster:
    return Cluster(eyas, tmp_path / "cluster", tmp_path / "home")


def dated(path: Path, seconds: int, ns: int = 0, text: str = "x\n", mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    os.utime(path, ns=(0, seconds * NS + ns))
    return path


def looked(path: Path) -> dict[str, tuple[str, str]]:
    lines = (line.split() for line in path.read_text().splitlines())
    return {name: (time, mode) for name, time, mode in lines}


def look_at(*names: str) -> str:
    return LOOK.format(names=" ".join(names))


def test_inputs_have_the_times_of_home_and_outputs_those_of_the_program(run: Run, tmp_path: Path) -> None:
    """Equal bytes with several times, in one task, in tasks at the same time and in later runs; long ago and far ahead."""
    times = {"a": 1_600_000_000, "b": 1_600_000_100, "old": -86_400, "far": 4_000_000_000}
    for name, at in times.items():
        dated(tmp_path / name, at, 123_456_789)
    dated(tmp_path / "tree/p", 1_500_000_000)
    dated(tmp_path / "tree/sub/q", 1_400_000_000, text="q\n", mode=0o755)
    tree = (tmp_path / "tree").as_uri() + "/"
    each = [
        {
            "id": f"{name}{i}",
            "command": f"{look_at(name)}; sleep 0.05",
            "inputs": [name],
            "outputs": {"look": f"{name}{i}"},
        }
        for i in range(3)
        for name in times
    ]
    write_list(
        tmp_path / "tasks.jsonl",
        {"id": "all", "command": look_at(*times), "inputs": list(times), "outputs": {"look": "all"}},
        {
            "id": "tree",
            "command": look_at("t/p", "t/sub/q"),
            "inputs": {"t": tree},
            "outputs": {"look": "looked"},
        },
        {
            "id": "makes",
            "command": "touch -d @5.000000007 late; echo > first; mkdir d; echo > d/f; touch -d @9 d/f; echo > kept; touch -d @8 kept;"
            " chmod 755 kept; sleep 0.02; echo > last",
            "outputs": {"late": "late", "first": "first", "last": "last", "d": "d/", "kept": "run:kept"},
        },
        {
            "id": "reads",
            "command": look_at("late", "d/f", "kept"),
            "inputs": {"late": "late", "d": "d/", "kept": "run:kept"},
            "outputs": {"look": "made"},
        },
        *each,
    )
    run("run", "tasks.jsonl", "--slots", "3")
    expected = {name: (f"{at}.123456789", "644") for name, at in times.items()}
    expected["old"] = ("-86399.876543211", "644")
    assert looked(tmp_path / "all") == expected
    assert all(looked(tmp_path / f"{name}{i}") == {name: expected[name]} for name in times for i in range(3))
    assert looked(tmp_path / "looked") == {
        "t/p": ("1500000000.000000000", "644"),
        "t/sub/q": ("1400000000.000000000", "755"),
    }
    at_home = {name: (tmp_path / name).stat().st_mtime_ns for name in ("late", "first", "last", "d/f")}
    assert (at_home["late"], at_home["d/f"]) == (5 * NS + 7, 9 * NS)
    assert at_home["last"] - at_home["first"] >= NS // 100
    assert looked(tmp_path / "made") == {
        "late": ("5.000000007", "644"),
        "d/f": ("9.000000000", "644"),
        "kept": ("8.000000000", "755"),
    }
    dated(tmp_path / "a", 7)
    run("run", "tasks.jsonl")
    assert looked(tmp_path / "all")["a"] == ("7.000000000", "644")


def test_times_come_from_peers(cluster: Cluster) -> None:
    cluster.dispatcher()
    cluster.executor("N1", "--resource", "one=1")
    make = (
        "echo > kept; touch -d @8 kept; echo > same; touch -d @9 same; mkdir d; echo > d/f; touch -d @7.5 d/f"
    )
    kept = {"kept": "run:kept", "same": "run:same", "d": "run:d/"}
    home = dated(cluster.folder / "home.txt", 6, mode=0o600)
    look = "stat -c '%n %.9Y %a' kept same d/f home > out; stat -c %h kept home >> out"
    made = {"id": "makes", "command": make, "outputs": kept, "resources": {"one": 1}}
    reads = {"inputs": {**kept, "home": str(home)}, "command": look}
    reader = {"id": "here", **reads, "outputs": {"out": str(cluster.home / "here")}, "resources": {"one": 1}}
    there = {"id": "there", **reads, "outputs": {"out": str(cluster.home / "there")}, "resources": {"two": 1}}
    cluster.executor("N2", "--resource", "two=1")
    cluster.submit([made, reader, there])
    cluster.wait()
    expected = "kept 8.000000000 644\nsame 9.000000000 644\nd/f 7.500000000 644\nhome 6.000000000 600\n"
    for name in ("here", "there"):
        assert (cluster.home / name).read_text().startswith(expected), name


@pytest.mark.parametrize("says", [True, False])
def test_a_web_server_says_the_time_or_nobody_does(run: Run, tmp_path: Path, says: bool) -> None:
    dated(tmp_path / "served/x", 1_000_000)

    class Server(SimpleHTTPRequestHandler):
        def send_header(self, keyword: str, value: str) -> None:
            if keyword != "Last-Modified" or says:
                super().send_header(keyword, value)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Server, directory=tmp_path / "served"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/x"
    write_list(
        tmp_path / "t.jsonl", {"command": look_at("x"), "inputs": {"x": url}, "outputs": {"look": "look"}}
    )
    run("run", "t.jsonl")
    server.shutdown()
    expected = "1000000.000000000" if says else UNKNOWN
    assert looked(tmp_path / "look")["x"][0] == expected


def test_copies_of_inputs_are_as_writable_as_other_files(run: Run, tmp_path: Path) -> None:
    """An input may be read-only or secret at home."""
    for name, mode in [("usual", 0o644), ("final", 0o444), ("secret", 0o600), ("tool", 0o755)]:
        dated(tmp_path / name, 5, text="#!/bin/sh\n", mode=mode)
    names = ["usual", "final", "secret", "tool"]
    script = (
        "for f in usual final secret tool; do cp $f $f.c; cp -p $f $f.p; install -m 640 $f $f.i; done;"
        " python3 -c \"import shutil; [shutil.copy(f, f + '.s') for f in ('usual', 'final', 'secret', 'tool')]\";"
        " for f in *.?; do [ $(( 0$(stat -c %a $f) & 0200 )) != 0 ] && echo more >> $f || exit 9; done"
    )
    outputs = {f"{name}.{how}": f"out/{name}.{how}" for name in names for how in "cpis"}
    write_list(tmp_path / "t.jsonl", {"command": script, "inputs": names, "outputs": outputs})
    run("run", "t.jsonl")
    modes = {name: (tmp_path / "out" / name).stat().st_mode & 0o777 for name in outputs}
    usual = {"usual": 0o644, "final": 0o644, "secret": 0o600, "tool": 0o755}
    assert modes == {f"{n}.{how}": 0o640 if how == "i" else usual[n] for n in names for how in "cpis"}
    assert all((tmp_path / name).read_text() == "#!/bin/sh\n" for name in names)


def test_holes_stay_holes(run: Run, tmp_path: Path) -> None:
    """Through a cache, a sandbox, a directory as one object, and home again."""
    sparse = tmp_path / "sparse"
    sparse.write_bytes(b"begin")
    os.truncate(sparse, 40 << 20)
    with sparse.open("ab") as file:
        file.write(b"end")
    make = "cp --sparse=never sparse full; mkdir d; cp --sparse=always sparse d/s; cp --sparse=always sparse kept"
    outputs = {"full": "full", "d": "d/", "kept": "run:kept"}
    write_list(
        tmp_path / "t.jsonl",
        {"id": "makes", "command": make, "inputs": ["sparse"], "outputs": outputs},
        {
            "id": "reads",
            "command": "echo >> kept; cp --sparse=always d/s s; cmp d/s s; stat -c %b d/s kept > look",
            "inputs": {"kept": "run:kept", "d": "d/"},
            "outputs": {"look": "look", "s": "s"},
        },
    )
    run("run", "t.jsonl")
    run("cp", "sparse", "copy")
    for name in ("full", "d/s", "s", "copy"):
        path = tmp_path / name
        assert path.read_bytes() == sparse.read_bytes()
        assert path.stat().st_blocks * 512 < 1 << 20, (name, path.stat().st_blocks)
    assert all(int(blocks) * 512 < 1 << 20 for blocks in (tmp_path / "look").read_text().split())
