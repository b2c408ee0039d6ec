"""A million tasks: they stay folded, in the client and in the dispatcher, and start at once."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from harness import Eyas, Run, Start, peak_mib, wait_until
from lists import nothing_is_left

N_TASKS = 1_000_000
# Beside the pages of the program, of which a dispatcher has some 10 MB in use.
DISPATCHER_MIB_MAX = 118
CLIENT_MIB_MAX = 500


def dispatcher_of(eyas: Eyas) -> int:
    (pid,) = [pid for pid, command in eyas.left_behind() if " dispatcher " in command]
    return pid


def n_done(run: Run) -> int:
    return int(re.findall(r'"n_done": (\d+)', run("status", "--json").stdout)[-1])


def test_a_range_of_a_million_tasks_stays_folded(run: Run, start: Start, eyas: Eyas, tmp_path: Path) -> None:
    run("up", "--nodes", "1", "--slots", "2", "--no-event-log")
    join = next(tmp_path.glob(".eyas-test/t/eyas-*/cluster/dispatcher/join.json"))
    client = start("map", "--range", f"0..{N_TASKS}", "--join", join, "--", "true")
    wait_until(
        lambda: '"runs": []' not in run("status", "--json").stdout and n_done(run) > 500,
        "some tasks",
        alive=client,
    )
    dispatcher = dispatcher_of(eyas)
    assert peak_mib(client.pid) < 64
    assert peak_mib(dispatcher) < DISPATCHER_MIB_MAX
    run("cancel", "--all")
    client.wait(status=1)
    assert f"{N_TASKS:,}" in client.stderr
    run("down")


def test_a_million_names_from_standard_input(run: Run, eyas: Eyas, tmp_path: Path) -> None:
    """A thousand files under a thousand links to their folder: a million names, as `find -L -print0` would say."""
    real = tmp_path / "real"
    real.mkdir()
    for i in range(1000):
        (real / f"f{i:03}.dat").touch()
        os.symlink("real", tmp_path / f"d{i:03}")
    names = tmp_path / "names"
    with open(names, "w") as out:
        for i in range(1000):
            out.write("".join(f"d{i:03}/f{j:03}.dat\0" for j in range(1000)))
    run("up", "--nodes", "1", "--slots", "2", "--no-event-log")
    join = next(tmp_path.glob(".eyas-test/t/eyas-*/cluster/dispatcher/join.json"))
    dispatcher = dispatcher_of(eyas)
    with open(names, "rb") as given, open(tmp_path / "said", "wb") as said:
        command = [str(eyas.path), "map", "-", "-0", "--join", str(join), "--", "true", "{in}"]
        client = subprocess.Popen(command, cwd=tmp_path, env=eyas.env, stdin=given, stderr=said)
    wait_until(
        lambda: '"runs": []' not in run("status", "--json").stdout and n_done(run) > 100,
        "some tasks",
        timeout=120,
    )
    assert f'"n_tasks": {N_TASKS}' in run("status", "--json").stdout
    client_mib, dispatcher_mib = peak_mib(client.pid), peak_mib(dispatcher)
    print(f"1,000,000 names: client {client_mib:.0f} MiB, dispatcher {dispatcher_mib:.0f} MiB")
    assert client_mib < CLIENT_MIB_MAX
    assert dispatcher_mib < DISPATCHER_MIB_MAX
    run("cancel", "--all")
    assert client.wait(60) == 1
    run("down")


def test_ten_thousand_real_files_are_all_done(run: Run, tmp_path: Path) -> None:
    n = 10_000
    (tmp_path / "in").mkdir()
    for i in range(n):
        (tmp_path / "in" / f"{i}.dat").write_text(f"{i}\n")
    found = subprocess.run(
        ["find", "in", "-name", "*.dat", "-print0"], cwd=tmp_path, stdout=subprocess.PIPE, check=True
    )
    done = run(
        "map", "-", "-0", "--out", "out/{stem}", "--", "cp", "{in}", "{out}", stdin=found.stdout, timeout=300
    )
    assert f"{n:,} done, 0 failed" in done.stderr
    assert len(os.listdir(tmp_path / "out")) == n
    assert all((tmp_path / "out" / f"{i}").read_text() == f"{i}\n" for i in range(0, n, 97))
    nothing_is_left(tmp_path)
