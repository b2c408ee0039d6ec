"""`eyas data hosts`: the hosts of data sets, in the words of batch systems that eyas does not drive."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import classad2  # type: ignore[import-untyped]
import htcondor2  # type: ignore[import-untyped]
import pytest
from harness import Run, Start
from test_store import Store


@pytest.fixture
def sites(data: Run, start: Start, tmp_path: Path) -> list[Store]:
    """Two stores at addresses of their own. The first one has all of the data set, the other one half of it, and the folder none."""
    stores = [Store(start, tmp_path / f"s{n}", listen=f"127.0.0.{n}") for n in (2, 3)]
    for store in stores:
        data("site", "--join", store.join)
    for name in ("a", "b"):
        (tmp_path / name).write_text(name * 100)
    data("put", tmp_path / "a", tmp_path / "b", "--label", "set", "--site", "s2")
    data("put", tmp_path / "a", "--label", "half", "--site", "s3")
    return stores


def machine(name: str, address: str) -> classad2.ClassAd:
    """A machine as HTCondor's collector has it."""
    return classad2.ClassAd(
        {"Machine": name, "MyAddress": f"<{address}:9618?alias={name}>", "Requirements": True}
    )


def job(text: str) -> classad2.ClassAd:
    """A job as HTCondor's own library makes it of a submit file."""
    submit = htcondor2.Submit(f"executable = /bin/true\n{text}")
    ad = classad2.ClassAd()
    ad["Requirements"], ad["Rank"] = (
        classad2.ExprTree(submit["requirements"]),
        classad2.ExprTree(submit["rank"]),
    )
    return ad


NEAR, HALF, FAR = (
    machine("n2.x.org", "127.0.0.2"),
    machine("n3.x.org", "127.0.0.3"),
    machine("n4", "127.0.0.22"),
)


@pytest.mark.usefixtures("sites")
def test_htcondor_takes_the_hosts_with_most(data: Run) -> None:
    ad = job(data("hosts", "set", "half", "--format", "condor").stdout)
    assert [ad.symmetricMatch(of) for of in (NEAR, HALF, FAR)] == [True, False, False]
    assert [ad["Rank"].eval(scope=ad, target=of) for of in (NEAR, HALF, FAR)] == [300, 200, 0]
    line = data("hosts", "half", "--format", "dagman", "--job", "A").stdout
    assert line.startswith('VARS A eyas_hosts="') and '\\"^<[[]?127[.]0[.]0[.]' in line


def test_what_is_away_is_no_host(data: Run, sites: list[Store]) -> None:
    rows = json.loads(data("hosts", "set/b", "--json").stdout)
    assert rows == [{"host": "127.0.0.2", "held_bytes": 100, "all_bytes": 100}]
    assert data("hosts", "set").stdout == "127.0.0.2  200 of 200 B\n127.0.0.3  100 of 200 B\n"
    assert data("hosts", "set", "--format", "pbs").stdout == "#PBS -l select=1:host=127.0.0.2\n"
    sites[0].process.kill()
    done = data("hosts", "set")
    assert done.stdout == "127.0.0.3  100 of 200 B\n" and "`s2` cannot be reached now" in done.stderr
    sites[1].process.kill()
    assert "no site that answers has a copy" in data("hosts", "set", status=4).stderr
    (sites[0].folder.parent / "c").write_text("c")
    data("put", sites[0].folder.parent / "c", "--label", "here", "--site", "here")
    assert data("hosts", "here").stdout == f"{socket.gethostname()}  1 of 1 B\n"


def test_what_is_wrong_is_said(data: Run, sites: list[Store]) -> None:
    assert "has no file `z`" in data("hosts", "set/z", status=2).stderr
    assert "--job" in data("hosts", "set", "--format", "dagman", status=2).stderr
    assert "without spaces" in data("hosts", "set", "--format", "dagman", "--job", "a b", status=2).stderr
    assert "there is no data set" in data("hosts", "none", status=2).stderr
