"""`eyas store`: sites that real processes serve, with a catalog that keeps copies there, while stores are killed, stopped and limited."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
from harness import Background, Run, Start, wait_until
from test_data import objects, spoil, tree


class Store:
    """A store process, which can be started again where it was."""

    def __init__(self, start: Start, folder: Path, *options: str, listen: str = "127.0.0.1") -> None:
        self.start_process = start
        self.folder = folder
        self.listen = listen
        self.options = options
        self.process = self.start()

    def start(self) -> Background:
        place = ("--dir", self.folder, "--name", self.folder.name, "--listen", f"{self.listen}:0")
        self.process = self.start_process("store", *place, *self.options)
        self.process.wait_for_text("where the catalog is")
        return self.process

    @property
    def join(self) -> Path:
        return self.folder / "join.json"


def audited(data: Run, *sites: str) -> dict[str, tuple[int, int, int]]:
    """By site: how many copies are good, bad and missing."""
    reports = json.loads(data("audit", "--json", *sites, status=None).stdout)
    return {
        report["site"]: (report["n_good"], len(report["bad"]), len(report["missing"])) for report in reports
    }


def test_copies_are_kept_on_other_machines(data: Run, run: Run, start: Start, tmp_path: Path) -> None:
    far, near = Store(start, tmp_path / "far", "--keep", "1GiB"), Store(start, tmp_path / "near")
    data("site", "--join", far.join, "--domain", "hall")
    sites = {site["name"]: site for site in json.loads(data("site", "--join", near.join, "--json").stdout)}
    assert (sites["far"]["keep_bytes"], sites["far"]["domain"]) == (1 << 30, "hall")
    assert "secret" not in json.dumps(sites), "the key to a store is not shown"
    source = tmp_path / "traj"
    (source / "a b").mkdir(parents=True)
    for name, n_bytes in [("large", 3_000_000), ("a b/größe", 10), ("empty", 0)]:
        (source / name).write_bytes(os.urandom(n_bytes))
    data("put", source, "--label", "adk", "--copies", "3")
    assert "6 copies made" in data("repair").stdout
    assert "3 files: far, here, near" in data("where", "adk").stdout

    # A disk damages one copy and loses another; the audit says so, and the repair brings them back.
    damaged, lost = (path for path in objects(far.folder) if path.stat().st_size > 0)
    spoil(damaged)
    lost.unlink()
    audit = data("audit", "far", status=1).stdout
    assert "1 good" in audit and "1 bad, 1 missing" in audit, audit
    assert "2 copies made" in data("repair").stdout
    assert audited(data) == dict.fromkeys(("far", "here", "near"), (3, 0, 0))
    assert audited(data, "--older", "1h") == dict.fromkeys(("far", "here", "near"), (0, 0, 0))
    assert audited(data, "--older", "0s") == audited(data, "--now")

    # The first machine is gone for good: its folder, the catalog and all.
    (tmp_path / "catalog.db").unlink()
    assert "3 objects good" in data("rebuild", "--join", near.join).stdout
    data("get", "adk", "back")
    assert tree(tmp_path / "back") == tree(source)

    # A program that is not changed runs on data that lies there, and what it makes is put there.
    done = run(
        *(
            "at-data",
            "--db",
            f"sqlite:{tmp_path}/catalog.db",
            "--input",
            "in=/adk/a b/größe",
            "--output",
            "out=out",
        ),
        *("--label", "made", "--", "cp", "in", "out"),
    )
    assert "at the site `near`" in done.stderr, done.stderr
    far.process.stop(status=0)
    near.process.stop(status=0)


def test_a_copy_at_a_site_that_is_away_is_shown_as_such(data: Run, start: Start, tmp_path: Path) -> None:
    """And it is no copy more than asked for, though the catalog has its row."""
    far = Store(start, tmp_path / "far")
    data("site", "--join", far.join)
    data("site", "shelf", tmp_path / "shelf")
    (tmp_path / "x").write_text("x")
    data("put", tmp_path / "x", "--label", "x", "--copies", "3")
    assert "2 copies made" in data("repair").stdout
    data("copies", "x", "2")
    assert data("where", "x").stdout == "x: far, here, shelf (1 more than asked for)\n"
    far.process.kill()
    (tmp_path / "shelf").rename(tmp_path / "gone")
    where = data("where", "x")
    assert where.stdout == "x: far (away), here, shelf (away)\n"
    assert "the site `far` cannot be reached now: " in where.stderr
    rows = json.loads(data("where", "x", "--json").stdout)
    assert [(row["site"], row["away"] is None) for row in rows] == [
        ("far", False),
        ("here", True),
        ("shelf", False),
    ]


def test_a_store_that_is_killed_in_the_middle_loses_nothing(data: Run, start: Start, tmp_path: Path) -> None:
    """Ten kills at random moments of repairs: what was committed stays, what was half there vanishes."""
    rng = random.Random(1611)
    # Slow enough to be killed in the middle.
    store = Store(start, tmp_path / "far", "--rate", "8MB/s")
    data("site", "--join", store.join)
    source = tmp_path / "traj"
    source.mkdir()
    n_files = 40
    for n in range(n_files):
        (source / f"f{n}").write_bytes(rng.randbytes(rng.choice([10, 70_000, 400_000])))
    data("put", source, "--label", "adk", "--copies", "2")
    for _ in range(10):
        repair = start("data", "--db", f"sqlite:{tmp_path}/catalog.db", "repair")
        time.sleep(rng.uniform(0.0, 0.9))
        store.process.kill()
        ended = repair.wait(status=None)
        assert ended.status in (0, 1), ended
        if ended.status == 1:
            assert "took no part" in ended.stderr or "was not" in ended.stderr, ended
        store.start()
        assert not list((store.folder / "incoming").iterdir()), "what was half there is gone"
        known = audited(data)
        assert known["here"] == (n_files, 0, 0)
        assert known["far"][1:] == (0, 0), "the catalog knew of no copy that is not there"
        if known["far"][0] == n_files:
            # All copies are there; they are made anew.
            for path in objects(store.folder):
                path.unlink()
            data("audit", "far", status=1)
    data("repair")
    assert audited(data) == {"here": (n_files, 0, 0), "far": (n_files, 0, 0)}


def test_a_full_store_is_said_and_others_are_used(data: Run, start: Start, tmp_path: Path) -> None:
    small, large = Store(start, tmp_path / "small", "--keep", "100KB"), Store(start, tmp_path / "large")
    # The catalog believes that there is more room than the store gives.
    data("site", "--join", small.join, "--keep", "1GB")
    source = tmp_path / "big"
    source.write_bytes(os.urandom(300_000))
    data("put", source, "--label", "big", "--copies", "2")
    assert "the other sites have no room" in data("repair", status=1).stdout
    assert "it keeps at most 100000 bytes" in data("put", source, "--site", "small", status=4).stderr
    data("site", "--join", large.join)
    data("repair", status=None)
    assert audited(data)["large"] == (1, 0, 0)


def test_wrong_keys_and_places_are_named(data: Run, run: Run, start: Start, tmp_path: Path) -> None:
    store = Store(start, tmp_path / "far")
    text = run("status", "--join", store.join, status=3).stderr
    assert "is the join file of the store `far`; this needs the join file of a dispatcher" in text, text
    assert "another `eyas store` serves" in run("store", "--dir", store.folder, status=2).stderr
    assert (
        "belongs to the site `far`" in run("store", "--dir", store.folder, "--name", "near", status=2).stderr
    )
    store.join.chmod(0o644)
    assert "chmod 600" in data("site", "--join", store.join, status=2).stderr
    store.join.chmod(0o600)
    data("site", "--join", store.join)
    # It is started again elsewhere with a new key: the old one is refused, and the new file is taken.
    store.process.kill()
    (store.folder / "identity.json").unlink()
    store.start()
    text = data("audit", "far", status=1).stderr
    assert "does not accept this join file" in text and "eyas data site --join" in text, text
    data("site", "--join", store.join)
    data("audit", "far")


def test_nothing_is_said_to_have_failed_that_was_done(data: Run, start: Start, tmp_path: Path) -> None:
    """A data set that was committed is a success, also where its site could not write down what it is."""
    store = Store(start, tmp_path / "far")
    data("site", "--join", store.join)
    (tmp_path / "x").write_text("x")
    (store.folder / "seals").rmdir()
    (store.folder / "seals").write_text("no directory")
    done = data("put", "x", "--label", "x", "--site", "far")
    assert done.stdout == "x\n" and "did not write down" in done.stderr, done
    (store.folder / "seals").unlink()
    (store.folder / "seals").mkdir()
    data("repair")
    assert (store.folder / "seals" / "x@1.json").exists()
    data("drain", "far")
    assert "takes no more" in data("put", "x", "--site", "far", status=2).stderr
    # The keys of stores are in the catalog, and copies of private data in the sites.
    private = [tmp_path / "catalog.db", tmp_path / "here", store.folder, store.join]
    assert [path.stat().st_mode & 0o077 for path in private] == [0] * 4
    store.process.kill()
    assert "away" in data("site").stdout
    assert "`far` cannot be reached" in data("get", "x", "back", status=4).stderr
    assert "knows no site `nosuch`" in data("audit", "nosuch", status=2).stderr
    assert "only sites that do not answer have a good copy" in data("repair", status=1).stdout


def test_an_interrupted_get_leaves_nothing(data: Run, start: Start, tmp_path: Path) -> None:
    store = Store(start, tmp_path / "far", "--rate", "4MB/s")
    data("site", "--join", store.join)
    source = tmp_path / "source"
    source.mkdir()
    (source / "x").write_bytes(os.urandom(12_000_000))
    data("put", source, "--label", "set", "--site", "far")
    for key in ("set", "set/x"):
        getting = start("data", "--db", f"sqlite:{tmp_path}/catalog.db", "get", key, "back")
        wait_until(lambda: list(tmp_path.glob(".back.*.part")), "it has begun", alive=getting)
        getting.signal(signal.SIGINT)
        getting.wait(status=130)
        assert not list(tmp_path.glob("*back*")) and not list(tmp_path.glob(".back*"))


def test_sites_say_whether_they_answer_and_damaged_keys_are_named(
    data: Run, start: Start, tmp_path: Path
) -> None:
    store = Store(start, tmp_path / "far")
    data("site", "--join", store.join)

    def answers() -> dict[str, bool]:
        return {site["name"]: site["answers"] for site in json.loads(data("site", "--json").stdout)}

    assert answers() == {"far": True, "here": True}
    store.process.kill()
    assert answers() == {"far": False, "here": True}
    join = json.loads(store.join.read_text())
    for part in ("certificate_pem", "authority_pem", "key_pem"):
        damaged = tmp_path / "damaged.json"
        damaged.write_text(json.dumps({**join, part: join[part].replace("M", "!", 3)}))
        damaged.chmod(0o600)
        text = data("site", "--join", damaged, status=4).stderr
        assert "a certificate or the key in the join file is damaged" in text, text
        assert "bring the file anew" in text and "cannot make" not in text, text


@pytest.mark.long
def test_a_store_that_stands_still_is_given_up(data: Run, start: Start, tmp_path: Path) -> None:
    store = Store(start, tmp_path / "far")
    data("site", "--join", store.join)
    (tmp_path / "x").write_bytes(os.urandom(5_000_000))
    data("put", "x", "--label", "x", "--copies", "2")
    store.process.signal(signal.SIGSTOP)
    ended = data("repair", status=1)
    assert "`far` took no part" in ended.stderr, ended
    assert ended.seconds < 90
    store.process.signal(signal.SIGCONT)
    wait_until(lambda: data("repair", status=None).status == 0, "the copy is made")


def test_copies_are_looked_after_in_the_background(data: Run, start: Start, tmp_path: Path) -> None:
    """One process makes missing copies, finds damage within its period, and tells when a site goes and comes back."""
    store = Store(start, tmp_path / "far")
    data("site", "--join", store.join)
    catalog = f"sqlite:{tmp_path}/catalog.db"
    tend = start("data", "--db", catalog, "tend", "--every", "200ms", "--audit-within", "2s")
    tend.wait_for_text("looking after")
    (tmp_path / "x").write_bytes(os.urandom(100_000))
    data("put", "x", "--label", "x", "--copies", "2")
    tend.wait_for_text("1 copy made")
    spoil(objects(store.folder)[0])
    tend.wait_for_text("1 copy at the site `far` turned out to be bad")
    wait_until(lambda: tend.stderr.count("1 copy made") == 2, "it is replaced", alive=tend)
    assert audited(data) == {"far": (1, 0, 0), "here": (1, 0, 0)}
    store.process.kill()
    tend.wait_for_text("the site `far` took no part")
    tend.wait_for_text("short: x of `x` lacks 1 copy: no other site can take a copy now")
    store.start()
    tend.wait_for_text("the site `far` is back")
    tend.wait_for_text("no file is short of copies any more")
    # What changes is in the seals of both sites, of a tag too, and a seal that is lost comes back after an audit.
    data("tag", "x", "protein=adk")
    seals = [site / "seals" / "x@1.json" for site in (store.folder, tmp_path / "here")]
    wait_until(lambda: all("adk" in seal.read_text() for seal in seals), "the seals have the tag", alive=tend)
    seals[0].unlink()
    data("audit")
    wait_until(seals[0].exists, "the seal is written again", alive=tend)
    assert tend.stderr.count("took no part") == 1, tend.stderr
    tend.stop(status=0)
