"""A machine whose loopback has IPv6 alone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Eyas, lacking

SPACE = f"six{os.getpid()}"


@pytest.fixture
def space() -> Iterator[str]:
    if os.geteuid() != 0:
        lacking("root, for a network namespace")
    subprocess.run(["ip", "netns", "add", SPACE], check=True)
    try:
        for words in (["link", "set", "lo", "up"], ["addr", "del", "127.0.0.1/8", "dev", "lo"]):
            subprocess.run(["ip", "-n", SPACE, *words], check=True)
        yield SPACE
    finally:
        subprocess.run(["ip", "netns", "delete", SPACE], check=False)


def test_a_run_works_where_only_ipv6_has_a_loopback(space: str, eyas: Eyas, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for n in range(4):
        (tmp_path / "in" / str(n)).write_text(f"{n}\n")
    words = ["map", "in/*", "--nodes", "2", "--shell", "--print", "--", "cat {in}"]
    done = subprocess.run(
        ["nsenter", f"--net=/run/netns/{space}", str(eyas.path), *words],
        cwd=tmp_path,
        env=eyas.env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done
    assert sorted(done.stdout.split()) == ["0", "1", "2", "3"]
