"""`eyas data` as a user calls it: data sets come back as they were put, also after disks and people have damaged copies."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import threading
import time
from pathlib import Path

import pytest
from harness import Finished, Run, Start, need_program, wait_until
from weather import small_disks


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def objects(site: Path) -> list[Path]:
    return sorted(path for path in (site / "objects").rglob("*") if path.is_file())


def spoil(path: Path) -> None:
    """Another byte in the middle, as a disk does it: neither name nor size nor times change."""
    stat = path.stat()
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(stat.st_size // 2)
        byte = file.read(1)
        file.seek(stat.st_size // 2)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.fixture
def traj(tmp_path: Path) -> Path:
    folder = tmp_path / "traj"
    (folder / "a b" / "größe").mkdir(parents=True)
    (folder / "frames.bin").write_bytes(os.urandom(300_000))
    (folder / "again.bin").write_bytes((folder / "frames.bin").read_bytes())
    (folder / "a b" / "größe" / "it's; DROP TABLE file").write_text("x")
    (folder / "empty").write_bytes(b"")
    (folder / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (folder / "run.sh").chmod(0o755)
    return folder


def test_what_was_put_comes_back(data: Run, traj: Path, tmp_path: Path) -> None:
    put = data("put", traj, "--tag", "protein=adk", "--tag", 'note=it\'s "50 %"', "--copies", "2")
    key = put.stdout.strip()
    assert len(key.split()) == 1, "only the label is on standard output"
    data("get", key, "back")
    assert tree(tmp_path / "back") == tree(traj)
    assert os.access(tmp_path / "back" / "run.sh", os.X_OK)
    assert not os.access(tmp_path / "back" / "frames.bin", os.X_OK)
    assert len(objects(tmp_path / "here")) == 4, "equal files are one object"
    [found] = json.loads(data("find", "protein = adk and note like '%50 \\%%'", "--json").stdout or "[]") or [
        None
    ]
    assert found is None, "a backslash is a character like others"
    [found] = json.loads(data("find", "protein = adk and note = 'it''s \"50 %\"'", "--json").stdout)
    assert (found["label"], found["n_files"], found["version"]) == (key, 5, 1)
    data("get", f"{key}/a b/größe/it's; DROP TABLE file", "one")
    assert (tmp_path / "one").read_text() == "x"


def test_versions_never_change(data: Run, traj: Path, tmp_path: Path) -> None:
    before = tree(traj)
    data("put", traj, "--label", "adk")
    (traj / "frames.bin").write_bytes(b"new")
    (traj / "empty").unlink()
    assert data("put", traj, "--label", "adk").stdout == "adk\n"
    data("get", "adk@1", "first")
    data("get", "adk", "second")
    assert tree(tmp_path / "first") == before
    assert tree(tmp_path / "second") == tree(traj)
    refused = data("get", "adk@3", "third", status=2).stderr
    assert "has no version 3" in refused
    assert "is there already; nothing was copied" in data("get", "adk", "second", status=2).stderr
    data("rm", "adk")
    assert "is not given again" in data("put", traj, "--label", "adk", status=2).stderr
    assert [entry["verb"] for entry in json.loads(data("history", "adk", "--json").stdout)] == [
        "put",
        "put",
        "remove",
    ]
    data("repair")
    assert objects(tmp_path / "here") == []


def test_nothing_of_eyas_itself_is_put_whatever_link_leads_there(
    data: Run, traj: Path, tmp_path: Path
) -> None:
    data("put", traj, "--label", "first")
    (folder := tmp_path / "project").mkdir()
    (folder / "data.txt").write_text("d")
    (folder / "linked.db").symlink_to(tmp_path / "catalog.db")
    (folder / "hard.db").hardlink_to(tmp_path / "catalog.db")
    (folder / "objects of a site").symlink_to(tmp_path / "here" / "objects")
    journal = folder / "cluster" / "dispatcher" / "journal"
    journal.mkdir(parents=True)
    (journal / "lock").write_text("1\n")
    (journal / "segment-00000000000000000001.log").write_text("environments of tasks")
    done = data("put", folder, "--label", "project")
    assert "left out" in done.stderr and " and 3 more" in done.stderr, done.stderr
    data("get", "project", "back")
    assert tree(tmp_path / "back") == {"data.txt": b"d"}
    refused = data("put", folder / "linked.db", "--label", "db", status=2)
    assert "is a file of the catalog, which belongs to eyas" in refused.stderr


def test_a_repair_says_for_whom_it_waits(data: Run, start: Start, traj: Path, tmp_path: Path) -> None:
    """A process of another machine had said that it makes a copy, and was killed."""
    data("put", traj / "run.sh", "--label", "adk", "--copies", "2")
    data("site", "shelf", tmp_path / "shelf")
    with sqlite3.connect(tmp_path / "catalog.db") as db:
        until_ms = time.time_ns() // 1_000_000 + 15_000
        db.execute(
            "INSERT INTO making SELECT object.id, t.id, f.id, '1-ffffffffffff-0-on far', ? "
            "FROM object, site t, site f WHERE t.name = 'shelf' AND f.name = 'here'",
            [until_ms],
        )
    repair = start("data", "--db", f"sqlite:{tmp_path}/catalog.db", "repair")
    repair.wait_for_text("process 1 on `far` makes 1 copy")
    with sqlite3.connect(tmp_path / "catalog.db") as db:
        db.execute("UPDATE making SET until_ms = 0")
    repair.wait()
    assert len(objects(tmp_path / "shelf")) == 1


def test_damage_is_found_and_repaired(data: Run, traj: Path, tmp_path: Path) -> None:
    data("put", traj, "--label", "adk", "--copies", "3")
    short = data("repair", status=1).stdout
    assert "there are not enough sites" in short
    data("site", "shelf", "shelf", "--domain", "hall")
    data("site", "attic", "attic", "--domain", "hall")
    assert "8 copies made" in data("repair").stdout
    before = tree(traj)

    # One copy is spoilt, one is gone, at different sites; a third site has something that is nobody's.
    spoil(max(objects(tmp_path / "here"), key=lambda path: path.stat().st_size))
    objects(tmp_path / "shelf")[0].unlink()
    foreign = tmp_path / "attic" / "objects" / "00" / ("0" * 64)
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_bytes(b"")
    audits = {audit["site"]: audit for audit in json.loads(data("audit", "--json", status=1).stdout)}
    counts = {site: [len(a[what]) for what in ("bad", "missing", "foreign")] for site, a in audits.items()}
    assert counts == {"here": [1, 0, 0], "shelf": [0, 1, 0], "attic": [0, 0, 1]}
    assert "2 copies made" in data("repair").stdout
    after = json.loads(data("audit", "--json").stdout)
    assert [(len(audit["bad"]), len(audit["missing"]), audit["n_good"]) for audit in after] == [(0, 0, 4)] * 3
    data("get", "adk", "back")
    assert tree(tmp_path / "back") == before


def test_a_damaged_copy_is_never_given_out(data: Run, traj: Path, tmp_path: Path) -> None:
    data("put", traj, "--label", "adk")
    spoil(max(objects(tmp_path / "here"), key=lambda path: path.stat().st_size))
    refused = data("get", "adk", "back", status=2).stderr
    assert "is damaged" in refused and "Traceback" not in refused
    assert not (tmp_path / "back").exists()
    assert not list(tmp_path.glob(".back*")), "half a copy is left"
    # What is lost is lost, and said; the other files are still there.
    assert "no site has a good copy" in data("repair", status=1).stdout
    data("get", "adk/run.sh", "run.sh")
    # The only copy, bad as it is, has not been thrown away.
    assert len(objects(tmp_path / "here")) == 4


def test_a_second_site_answers_for_a_damaged_one(data: Run, traj: Path, tmp_path: Path) -> None:
    data("put", traj, "--label", "adk", "--copies", "2", "--site", "here")
    data("site", "there", "there")
    data("repair")
    spoil(max(objects(tmp_path / "here"), key=lambda path: path.stat().st_size))
    data("get", "adk", "back")
    assert tree(tmp_path / "back") == tree(traj)
    assert "here (bad), there" in data("where", "adk").stdout, "what the reader found is noted"
    shutil.rmtree(tmp_path / "there")
    repaired = data("repair", status=1)
    assert "the site `there` took no part" in repaired.stderr


def test_a_site_that_goes_gives_its_copies_to_others(data: Run, traj: Path, tmp_path: Path) -> None:
    data("put", traj, "--label", "adk")
    data("drain", "here")
    assert "there are not enough sites" in data("repair", status=1).stdout
    data("site", "there", "there")
    assert "4 copies made" in data("repair").stdout
    shutil.rmtree(tmp_path / "here")
    data("get", "adk", "back")
    assert tree(tmp_path / "back") == tree(traj)


def test_a_lost_catalog_is_made_anew_from_the_sites(data: Run, run: Run, traj: Path, tmp_path: Path) -> None:
    data("put", traj, "--label", "adk", "--tag", "frames=90", "--copies", "2")
    before = tree(traj)
    (traj / "empty").write_bytes(b"not any more")
    data("put", traj, "--label", "adk")
    data("site", "there", "there")
    data("tag", "adk", "state=done")
    data("repair")
    shown = json.loads(data("show", "adk", "--json").stdout)
    (tmp_path / "catalog.db").unlink()
    shutil.rmtree(tmp_path / "here")

    # The site that only ever got copies is enough.
    new = ["data", "--db", f"sqlite:{tmp_path}/new.db"]
    (tmp_path / "there" / "seals" / "broken@1.json").write_text("{")
    rebuilt = run(*new, "rebuild", "there", status=1)
    assert "2 versions taken over, 5 objects good, 0 bad" in rebuilt.stdout
    assert "a seal cannot be read" in rebuilt.stderr and "broken@1.json" in rebuilt.stderr
    again = json.loads(run(*new, "show", "adk", "--json").stdout)
    for what in ("label", "owner", "tags", "copies", "n_files", "size_bytes", "version", "created_ms"):
        assert again[what] == shown[what], what
    run(*new, "get", "adk@1", "back")
    assert tree(tmp_path / "back") == before
    assert "0 versions taken over" in run(*new, "rebuild", "there", status=1).stdout


def test_bad_input_is_named(data: Run, run: Run, traj: Path, tmp_path: Path) -> None:
    def refused(*args: str | Path) -> str:
        stderr: str = data(*args, status=2).stderr
        assert "panicked" not in stderr
        return stderr

    assert "cannot put `nothing`" in refused("put", "nothing")
    (tmp_path / "bare").mkdir()
    assert "there is no file" in refused("put", "bare")
    os.mkfifo(tmp_path / "bare" / "pipe")
    assert "neither a file nor a directory" in refused("put", tmp_path / "bare" / "pipe")
    assert "it is a named pipe" in refused("put", "bare")
    assert "would both become `run.sh`" in refused("put", traj, traj / "run.sh")
    assert "is no tag: write name=value" in refused("put", traj, "--tag", "x")
    assert "is given twice" in refused("put", traj, "--tag", "x=1", "--tag", "x=2")
    assert "each data set has a field of that name" in refused("put", traj, "--tag", "owner=me")
    assert "is no label" in refused("put", traj, "--label", "../x")
    assert "from 1 to 100 copies" in refused("put", traj, "--copies", "0")
    assert "the catalog knows no site `nowhere`" in refused("put", traj, "--site", "nowhere")
    assert "there is no data set `x`" in refused("show", "x")
    assert "the query is wrong at character 5" in refused("find", "a = ")
    assert "a site `here` already" in refused("site", "here", "elsewhere")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("x")
    assert "has files in it that are no site's" in refused("site", "more", "full")
    key = data("put", traj).stdout.strip()
    assert "has no file `no/such`" in refused("get", f"{key}/no/such", "x")
    assert "are no rights" in refused("acl", key, "user:bo=rq")
    assert "is nobody" in refused("acl", key, "bo=r")
    gone = run("data", "--db", "sqlite:no/such/folder/x.db", "find", status=2).stderr
    assert "`eyas data init` makes one" in gone


def test_what_an_interrupted_put_had_written_goes(data: Run, start: Start, tmp_path: Path) -> None:
    """At once after a signal that asks for its end, and after `kill -9` with the next put into that site."""
    with (tmp_path / "large").open("wb") as file:
        file.truncate(20 << 30)
    (tmp_path / "small").write_text("small")
    incoming = tmp_path / "here" / "incoming"
    words = ("data", "--db", f"sqlite:{tmp_path}/catalog.db", "put", tmp_path / "large", "--label", "large")
    for number, is_left in [(signal.SIGTERM, False), (signal.SIGINT, False), (signal.SIGKILL, True)]:
        putting = start(*words)
        wait_until(lambda: any(path.stat().st_size for path in incoming.iterdir()), "bytes", alive=putting)
        putting.signal(number)
        ended = putting.wait(status=None)
        assert ended.status == (-signal.SIGKILL if is_left else 130), ended
        assert bool(list(incoming.iterdir())) == is_left
    data("put", "small")
    assert not list(incoming.iterdir())
    # What a writer of another machine writes now is left alone.
    (incoming / "4194304-0123456789ab-0-0").write_text("on its way")
    data("put", "small", "--label", "again")
    assert len(list(incoming.iterdir())) == 1


def test_a_first_version_that_fails_leaves_no_label(data: Run, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    incoming = tmp_path / "here" / "incoming"
    incoming.rmdir()
    incoming.write_text("no directory")
    data("put", "x", "--label", "x", status=None)
    assert "there is no data set `x`" in data("show", "x", status=2).stderr
    incoming.unlink()
    incoming.mkdir()
    assert "as version 1 of `x`" in data("put", "x", "--label", "x").stderr


def test_a_seal_that_is_a_directory_is_written_again(data: Run, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    data("put", "x", "--label", "x")
    seal = tmp_path / "here" / "seals" / "x@1.json"
    seal.unlink()
    (seal / "below").mkdir(parents=True)
    data("audit")
    data("repair")
    assert seal.is_file() and json.loads(seal.read_text())["key"] == "x@1"


def test_a_file_that_changes_while_it_is_put_is_refused(data: Run, tmp_path: Path) -> None:
    growing = tmp_path / "growing"
    # Large and without blocks on the disk, so that it is read for longer than a writer sleeps on busy processors.
    with growing.open("wb") as file:
        file.truncate(300_000_000)
    done = threading.Event()

    def grow() -> None:
        while not done.is_set():
            with growing.open("ab") as file:
                file.write(b"x")

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        wait_until(lambda: growing.stat().st_size > 300_000_000, "the writer's first byte")
        refused = data("put", growing, "--label", "growing", status=2).stderr
    finally:
        done.set()
        writer.join()
    assert "changed while it was read; nothing was put" in refused
    assert "no data set" in data("show", "growing", status=2).stderr
    assert not list((tmp_path / "here" / "incoming").iterdir()), "half an object is left"
    data("put", growing, "--label", "growing")


def test_a_path_of_a_catalog_leads_nowhere_else(data: Run, run: Run, tmp_path: Path) -> None:
    """Whoever writes to the database, or gave it away, does not choose where its readers write."""
    (tmp_path / "set").mkdir()
    for name in ("a", "b"):
        (tmp_path / "set" / name).write_text(name)
    data("put", "set", "--label", "set")
    database = sqlite3.connect(tmp_path / "catalog.db")
    for path in ("../../beside", "/etc/beside", "x/../../beside", ".."):
        with database:
            database.execute("UPDATE file SET path = ? WHERE path NOT IN ('b')", (path,))
        refused = data("get", "set", "in/it", status=2, cwd=tmp_path).stderr
        assert "cannot be a file of a data set" in refused, refused
        assert not (tmp_path / "in").exists()
    database.close()
    assert not list(tmp_path.glob("**/beside"))


def test_a_quota_is_kept_by_every_way_into_the_catalog(data: Run, run: Run, tmp_path: Path) -> None:
    db = {"EYAS_DATA": f"sqlite:{tmp_path}/catalog.db"}
    for name, byte in {"one": b"1", "two": b"2"}.items():
        (tmp_path / name).write_bytes(byte * 600)
    key = data("put", "one").stdout.strip()
    user = json.loads(data("show", key, "--json").stdout)["owner"]
    listed = data("quota", f"user:{user}", "1000").stdout
    assert listed.splitlines()[0].split() == [f"user:{user}", "600", "B", "of", "1000", "B"]

    def used() -> int:
        [usage] = json.loads(data("quota", "--json").stdout)["users"]
        assert (usage["user"], usage["allowed_bytes"], usage["is_own"]) == (user, 1000, True)
        return int(usage["used_bytes"])

    # The same bytes again are no more bytes, under whatever label and path.
    data("put", "one", "--label", "again")
    (tmp_path / "both").mkdir()
    shutil.copy(tmp_path / "one", tmp_path / "both" / "x")
    data("put", "both", "--label", "again")
    assert used() == 600

    too_much = (
        f"`{user}` may have 1000 B of data in this catalog and has 600 B, and `%s` would add at least 600 B"
    )
    before = objects(tmp_path / "here")
    for label in ("second", "again"):
        refused = data("put", "two", "one", "--label", label, status=2).stderr
        assert too_much % label in refused and f"eyas data quota user:{user} BYTES" in refused
    program = ["--label", "made", "--output", "out=out", "--", "sh", "-c", "head -c 600 /dev/zero > out"]
    assert too_much % "made" in run("at-data", *program, env=db, status=1).stderr
    (tmp_path / "tasks.jsonl").write_text(
        json.dumps(
            {
                "id": "t",
                "command": "head -c 600 /dev/zero > out",
                "outputs": {"out": "data:result/out"},
            }
        )
    )
    said = run("run", "tasks.jsonl", env=db, status=1)
    assert too_much % "result" in said.stderr + said.stdout
    assert objects(tmp_path / "here") == before, "nothing of what was refused is kept"
    found = {found["label"]: found["version"] for found in json.loads(data("find", "--json").stdout)}
    assert found == {key: 1, "again": 2}
    assert used() == 600

    # Room comes from a removal, once no data set has the bytes, or from a larger quota.
    data("rm", key)
    assert used() == 600
    data("rm", "again")
    assert used() == 0
    data("put", "two", "--label", "second")
    data("quota", "everyone", "5")
    data("quota", f"user:{user}", "none")
    quotas = json.loads(data("quota", "--json").stdout)
    assert quotas == {
        "everyone_bytes": 5,
        "users": [{"user": user, "used_bytes": 600, "allowed_bytes": 5, "is_own": False}],
    }
    assert "may have 5 B" in data("put", "one", "--label", "third", status=2).stderr
    data("quota", "everyone", "none")
    data("put", "one", "--label", "third")
    assert json.loads(data("quota", "--json").stdout)["users"][0]["used_bytes"] == 1200
    assert "is nobody" in data("quota", "bo", "5", status=2).stderr
    assert "is a group" in data("quota", "group:md", "5", status=2).stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="the catalog is root's")
def test_root_of_a_user_namespace_is_not_the_catalogs(
    data: Run, start: Start, eyas_path: Path, traj: Path, tmp_path: Path
) -> None:
    data("put", traj, "--label", "adk")
    need_program("unshare", "util-linux")
    find = ("data", "--db", f"sqlite:{tmp_path / 'catalog.db'}", "find", "-q")
    for n, within in enumerate(["unshare -Ur", "unshare -Ur unshare -Ur"]):
        script = tmp_path / f"within{n}"
        script.write_text(f'#!/bin/sh\nexec {within} {eyas_path} "$@"\n')
        script.chmod(0o755)
        assert start(*find, program=script).wait(60, 0).stdout == ""
    data("acl", "adk", "everyone=rl")
    assert start(*find, program=script).wait(60, 0).stdout == "adk\n"


def test_a_full_disk_is_not_chosen_for_what_is_put(data: Run, tmp_path: Path) -> None:
    for disks in small_disks():
        disks(tmp_path / "small", 2 << 20)
        data("site", "small", tmp_path / "small" / "site")
        # It has fewer bytes than the first site, which is on a larger disk.
        for n in range(2):
            (tmp_path / "x").write_bytes(os.urandom(3_000_000))
            data("put", tmp_path / "x", "--label", f"x{n}")
            assert "here" in data("where", f"x{n}").stdout


def test_a_full_disk_lets_people_remove(run: Run, tmp_path: Path) -> None:
    for disks in small_disks():
        disk = disks(tmp_path / "small", 4 << 20)

        def data(*args: str | Path, at: Path = disk.at, status: int = 0) -> Finished:
            return run("data", "--db", f"sqlite:{at}/catalog.db", *args, status=status)

        data("init", "--dir", "site")
        for label in ("one", "two"):
            (tmp_path / label).write_text(label)
            data("put", label, "--label", label)
        disk.fill()
        assert data("find", "-q").stdout == "two\none\n"
        assert "is full; nothing was changed" in data("put", "one", "--label", "three", status=4).stderr
        data("rm", "one")
        data("rm", "two")
        assert "2 objects removed" in data("repair").stdout
        assert data("find", "-q").stdout == ""
        disk.free()
        data("put", "one", "--label", "three")


def test_the_label_new_is_not_given(data: Run, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    assert "no data set is given the label `new`" in data("put", "x", "--label", "new", status=2).stderr
