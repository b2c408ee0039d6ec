"""The user chooses the site whose copy is read: `/eyas/@SITE/KEY/PATH`, `--input NAME=/@SITE/KEY/PATH` and `eyas data get --site`."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import Eyas, Run, Start, need_path
from test_data import objects, spoil
from test_store import Store

TEXT = "".join(f"{n}\n" for n in range(2000))


@pytest.fixture
def stores(data: Run, eyas: Eyas, start: Start, tmp_path: Path) -> dict[str, Store]:
    """Two stores with a copy of a data set, of which that at `far` is damaged. The site `here` has none."""
    eyas.env["EYAS_DATA"] = f"sqlite:{tmp_path}/catalog.db"
    (tmp_path / "traj" / "log").mkdir(parents=True)
    for name in ("frames", "log/run"):
        (tmp_path / "traj" / name).write_text(f"{name}\n{TEXT}")
    found = {name: Store(start, tmp_path / name) for name in ("far", "near")}
    for store in found.values():
        data("site", "--join", store.join)
    data("put", tmp_path / "traj", "--label", "adk", "--site", "near", "--copies", "2")
    data("drain", "here")
    data("repair")
    for copy in objects(found["far"].folder):
        spoil(copy)
    return found


@pytest.mark.parametrize("by", ["fuse", "seccomp"])
def test_a_program_opens_the_copy_at_a_site(stores: dict[str, Store], run: Run, by: str) -> None:
    if by == "fuse":
        need_path("/dev/fuse", "the kernel's module fuse")
    access = ("access", "--by", by, "--", "sh", "-c")
    shell = "cd /eyas/@near/adk@1 && cat log/run && ls && ls /eyas/@near && cat ../../@near/adk/frames"
    done = run(*access, shell)
    assert done.stdout == f"log/run\n{TEXT}frames\nlog\nadk@1\nframes\n{TEXT}"
    none = run(*access, "! cat /eyas/@nowhere/adk/frames; ! ls /eyas/@nowhere; ! cat /eyas/@near/none/frames")
    assert none.stderr.count("the catalog knows no site `nowhere`: `eyas data site` lists them") == 1, none
    assert none.stderr.count("No such file") == 3
    lacks = run(*access, "! cat /eyas/@here/adk/frames", status=1)
    assert (
        "`adk@1/frames` cannot be read: the site `here` has no good copy of `frames` of `adk@1`"
        in lacks.stderr
    )
    damaged = run(*access, "! cat /eyas/@far/adk/frames", status=1)
    assert "the copy at the site `far` is damaged or missing" in damaged.stderr, damaged
    # Without a site, another copy is read.
    assert run(*access, "cat /eyas/adk/frames").stdout == f"frames\n{TEXT}"


def test_inputs_come_from_the_site_that_is_named(
    stores: dict[str, Store], data: Run, run: Run, tmp_path: Path
) -> None:
    program = ("--explain", "--", "wc", "-l", "in")
    chosen = run("at-data", "--input", "in=/@near/adk/frames", *program)
    assert "from the site near (over the network)" in chosen.stderr and "2001 in" in chosen.stdout
    for site, said in (
        ("nowhere", "the catalog knows no site `nowhere`"),
        ("here", "the site `here` has no good copy of `frames` of `adk@1`"),
        ("far", "the copy at the site `far` is damaged"),
    ):
        assert said in run("at-data", "--input", f"in=/@{site}/adk@1/frames", *program, status=2).stderr
    assert (
        "behind a site stands a data set" in run("at-data", "--input", "in=/@near", *program, status=2).stderr
    )
    data("get", "adk", "all", "--site", "near")
    assert (tmp_path / "all" / "log" / "run").read_text() == f"log/run\n{TEXT}"
    for site in ("far", "here"):
        lacks = data("get", "adk/frames", "one", "--site", site, status=2)
        assert f"the site `{site}` has no good copy of `frames` of `adk`" in lacks.stderr, lacks
    assert not (tmp_path / "one").exists()
