"""Nodes at three sites: a site that is cut off from the others, and comes back; real processes on hosts of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness import Background, Eyas, log_entries, need_program, wait_until
from lists import write_list
from spaces import Host, Site, sites

HOSTS = {"near": ["n0", "n1"], "mid": ["m0", "m1"], "far": ["f0", "f1"]}
N_FILES = 6
FILE_BYTES = 300_000
PORT = 8000


def on(eyas: Eyas, folder: Path, host: Host) -> Path:
    """eyas as a program that runs on this host."""
    script = folder / f"eyas-on-{host.name}"
    script.write_text(f'#!/bin/sh\nexec {host.enter} {eyas.path} "$@"\n')
    script.chmod(0o755)
    return script


@contextmanager
def web_home(host: Host, folder: Path) -> Iterator[str]:
    """A web server on a host, which gives the files of a folder; the location of that folder."""
    need_program("nsenter", "util-linux")
    words = [host.enter, sys.executable, "-m", "http.server", str(PORT), "--bind", host.address]
    log = folder.parent / "web.log"
    with log.open("wb") as out:
        server = subprocess.Popen([*map(str, words)], cwd=folder, stdout=out, stderr=out)
    try:
        ask = f"import socket; socket.create_connection(('{host.address}', {PORT}))"
        get = [str(host.enter), sys.executable, "-c", ask]
        wait_until(
            lambda: subprocess.run(get, capture_output=True, check=False).returncode == 0, "the web server"
        )
        yield f"http://{host.address}:{PORT}"
    finally:
        server.terminate()
        server.wait(20)


@contextmanager
def cluster(eyas: Eyas, folder: Path, at: Mapping[str, Site], lease: str) -> Iterator[Path]:
    """A dispatcher on the first host and an executor with one slot on each other one; the dispatcher's directory."""
    head, *others = [host for site in at.values() for host in site.hosts]
    state = folder / "dispatcher"
    words: list[str | Path] = [
        "dispatcher",
        "--dir",
        state,
        "--listen",
        f"{head.address}:0",
        "--lease",
        lease,
    ]
    parts: list[Background] = [eyas.start(*words, program=on(eyas, folder, head))]
    join = state / "join.json"
    wait_until(join.is_file, "join.json", alive=parts[0])
    try:
        for host in others:
            words = ["executor", "--join", join, "--dir", folder / host.name, "--name", host.name]
            words += ["--slots", "1"]
            words += ["--data-listen", f"{host.address}:0", "--data-plane", "signed"]
            parts.append(eyas.start(*words, program=on(eyas, folder, host)))
        yield state
    finally:
        for part in reversed(parts):
            part.stop()


def ends(log: Path, names: Mapping[int, str]) -> list[tuple[int, str]]:
    """The number of each task that ended well, with its executor's name, in the order of the log."""
    return [
        (entry["in"]["attempt_ended"]["report"]["task"], names[entry["in"]["attempt_ended"]["executor"]])
        for entry in log_entries(log)
        if isinstance(entry.get("in"), dict)
        and "attempt_ended" in entry["in"]
        and entry["in"]["attempt_ended"]["report"]["outcome"] == "done"
    ]


def joined(log: Path) -> list[tuple[int, str]]:
    """Each hello of an executor: its number and its name."""
    hellos = [
        entry["in"]["executor_joined"]
        for entry in log_entries(log)
        if isinstance(entry.get("in"), dict) and "executor_joined" in entry["in"]
    ]
    return [(hello["executor"], hello["offer"]["name"]) for hello in hellos]


@pytest.mark.parametrize("seconds", [3, pytest.param(20, marks=pytest.mark.long)])
def test_a_site_that_is_cut_off_comes_back_and_the_others_go_on(
    eyas: Eyas, tmp_path: Path, seconds: int
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    for n in range(N_FILES):
        (files / f"f{n}").write_bytes(os.urandom(FILE_BYTES))
    n_tasks = 5 * (seconds + 6)
    with sites(tmp_path, f"st{os.getpid() % 10_000}", "10.94.7", HOSTS) as at:
        head, *others = [host for site in at.values() for host in site.hosts]
        far = {host.name for host in at["far"].hosts}
        with (
            web_home(head, files) as home,
            cluster(eyas, tmp_path, at, lease=f"{3 * seconds + 30}s") as state,
        ):
            log = state / "events.jsonl"
            wait_until(lambda: len(joined(log)) == len(others), "all executors are there")
            names = dict(joined(log))
            tasks = [
                {
                    "id": f"t{n}",
                    "command": "sleep 0.9; cksum < in > out",
                    "inputs": {"in": f"{home}/f{n % N_FILES}"},
                    "outputs": {"out": str(tmp_path / "out" / f"{n}")},
                }
                for n in range(n_tasks)
            ]
            listed = write_list(tmp_path / "tasks.jsonl", *tasks)
            run = eyas.start("run", listed, "--join", state / "join.json", program=on(eyas, tmp_path, head))
            wait_until(
                lambda: {name for _, name in ends(log, names)} == set(names.values()), "all work", alive=run
            )

            at["far"].set_link("down")
            n_before = len(ends(log, names))
            time.sleep(seconds)
            during = ends(log, names)[n_before:]
            n_hellos = len(joined(log))
            at["far"].set_link("up")
            assert {name for _, name in during} >= set(names.values()) - far, "the others went on"
            assert len(during) >= 2 * seconds, "as quickly as before"
            done = run.wait(timeout=120)

            assert f"{n_tasks} done, 0 failed" in done.stdout + done.stderr, done
            after = ends(log, names)
            assert len({task for task, _ in after}) == n_tasks == len(after), "each task ended once"
            assert far <= {name for _, name in after[n_before + len(during) :]}, (
                "the site that was cut off works again"
            )
            lost = [
                e for e in log_entries(log) if isinstance(e.get("in"), dict) and "executor_lost" in e["in"]
            ]
            assert lost == [], "no node was given up"
            assert n_hellos >= len(others)
    for n in range(n_tasks):
        expected = subprocess.check_output(["cksum"], input=(files / f"f{n % N_FILES}").read_bytes())
        assert (tmp_path / "out" / f"{n}").read_bytes() == expected
