"""`eyas at-data --mode remote`: programs that run at a site, by its store, while copies are damaged and processes are killed."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from harness import Run, Start, need_program, wait_until
from test_data import objects, spoil
from test_store import Store

COUNT = ("--input", "in=/adk/frames.txt", "--output", "n=count")
WORDS = ("--", "sh", "-c", "wc -l < in > n; pwd; echo counted >&2")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"EYAS_DATA": f"sqlite:{tmp_path}/catalog.db", "TMPDIR": str(tmp_path / "tmp")}


@pytest.fixture
def near(run: Run, start: Start, env: dict[str, str], tmp_path: Path) -> Store:
    """A store that runs a program, with the only copy of a data set."""
    need_program("bwrap", "bubblewrap")
    (tmp_path / "tmp").mkdir()
    (tmp_path / "traj").mkdir()
    (tmp_path / "traj" / "frames.txt").write_text("".join(f"{n}\n" for n in range(90)))
    run("data", "init", "--dir", tmp_path / "here", env=env)
    store = Store(start, tmp_path / "near", "--programs", "1")
    run("data", "site", "--join", store.join, env=env)
    run("data", "put", tmp_path / "traj", "--label", "adk", "--site", "near", env=env)
    return store


def at_data(*words: str) -> tuple[str, ...]:
    return ("at-data", "--mode", "remote", *words)


def sets(run: Run, env: dict[str, str]) -> set[str]:
    return set(run("data", "find", "-q", env=env).stdout.split())


def written(store: Store, name: str) -> list[Path]:
    """The files of this name that programs have written in their folders at a store."""
    return list((store.folder / "programs").glob(f"*/*/work/{name}"))


def with_argument(text: str) -> list[str]:
    """The processes that have this argument."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if text in (process / "cmdline").read_text().split("\0"):
                found.append(process.name)
    return found


def with_shelf(run: Run, start: Start, env: dict[str, str], tmp_path: Path) -> Store:
    """Another store, which runs no programs. All three sites have a copy then."""
    shelf = Store(start, tmp_path / "shelf")
    run("data", "site", "--join", shelf.join, env=env)
    run("data", "copies", "adk", "3", env=env)
    run("data", "repair", env=env)
    return shelf


@pytest.fixture
def key_of_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_OF_STORE", "secret")


@pytest.mark.usefixtures("key_of_store")
def test_a_program_has_no_keys_of_the_store(
    run: Run, env: dict[str, str], near: Store, tmp_path: Path
) -> None:
    show = ("--", "sh", "-c", 'echo "${KEY_OF_STORE-none}" > n; test -n "$PATH" && test -n "$HOME"')
    run(*at_data(*COUNT, "--label", "n", *show), env=env)
    run("data", "get", "n/count", tmp_path / "got", env=env)
    assert (tmp_path / "got").read_text() == "none\n"


def test_a_program_runs_at_the_site_that_has_its_input(
    run: Run, env: dict[str, str], near: Store, tmp_path: Path
) -> None:
    done = run(*at_data("--explain", *COUNT, "--label", "n", *WORDS), env=env)
    where, label = done.stdout.split()
    assert Path(where).is_relative_to(near.folder / "programs") and label == "n"
    assert "site near: holds all inputs (260 B); no processor is in use" in done.stderr
    assert "260 B from this host, 0 B over the network, from 1 site: near" in done.stderr
    assert "counted" in done.stderr
    run("data", "get", "n", "got", env=env)
    assert (tmp_path / "got" / "count").read_text() == "90\n"
    assert "near" in run("data", "where", "n", env=env).stdout
    assert not list((near.folder / "programs").iterdir())
    history = run("data", "history", "n", env=env).stdout
    assert "on /adk@1/frames.txt as in" in history


def test_what_a_program_makes_comes_back_as_it_is(
    run: Run, env: dict[str, str], near: Store, tmp_path: Path
) -> None:
    script = (
        "mkdir -p d/e; : > d/empty; head -c 3000000 /dev/urandom > d/e/large;"
        " printf '#!/bin/sh\\n' > d/run; chmod +x d/run; sha256sum < d/e/large; printf '\\001\\377'"
    )
    made = ("--input", "in=/adk", "--output", "d=made", "--label", "d", "--", "sh", "-c", script)
    done = run(*at_data(*made), env=env)
    run("data", "get", "d", "got", env=env)
    got = tmp_path / "got" / "made"
    assert sorted(str(path.relative_to(got)) for path in got.rglob("*") if path.is_file()) == [
        "e/large",
        "empty",
        "run",
    ]
    assert (got / "empty").stat().st_size == 0 and os.access(got / "run", os.X_OK)
    assert (got / "e" / "large").stat().st_size == 3_000_000
    assert "\x01" in done.stdout


def test_a_program_that_fails_makes_nothing(run: Run, env: dict[str, str], near: Store) -> None:
    failed = run(*at_data(*COUNT, "--", "sh", "-c", "echo x > n; echo why >&2; exit 3"), env=env, status=1)
    assert "the program on near: `sh` ended with exit status 3; no data set was made" in failed.stderr
    assert "why" in failed.stderr
    lacks = run(*at_data(*COUNT, "--", "true"), env=env, status=1)
    assert "`true` made no `n`, which --output names; no data set was made" in lacks.stderr
    absent = run(*at_data(*COUNT, "--", "no-such-program"), env=env, status=2)
    assert "cannot run `no-such-program`" in absent.stderr
    assert sets(run, env) == {"adk"}
    assert not list((near.folder / "programs").iterdir())


def test_sites_that_are_busy_or_run_nothing_are_passed_over(
    run: Run, start: Start, env: dict[str, str], near: Store, tmp_path: Path
) -> None:
    shelf = with_shelf(run, start, env, tmp_path)
    first = start(*at_data(*COUNT, "--", "sh", "-c", "echo > begun; sleep 600"), env=env)
    wait_until(lambda: written(near, "begun"), "the first program's begin")
    busy = run(*at_data(*COUNT, *WORDS), env=env, status=2)
    assert "no site that holds inputs runs the program now" in busy.stderr
    for why in ("`near` runs as many as it may, 1", "`shelf` runs no programs"):
        assert why in busy.stderr, busy
    shelf.process.stop()
    shelf.options = ("--programs", "2")
    shelf.start()
    done = run(*at_data("--explain", *COUNT, *WORDS), env=env)
    assert Path(done.stdout.split()[0]).is_relative_to(shelf.folder)
    # Whoever leaves has the program ended.
    first.signal(signal.SIGINT)
    assert first.wait(60, 130)
    wait_until(lambda: not list((near.folder / "programs").iterdir()), "the first program's folder to vanish")
    # Both are idle again, and take turns.
    where = Path(run(*at_data(*COUNT, *WORDS), env=env).stdout.split()[0])
    assert where.is_relative_to(near.folder) or where.is_relative_to(shelf.folder)


@pytest.mark.parametrize("who", ["client", "store"])
def test_a_kill_leaves_no_program_and_no_data_set(
    run: Run, start: Start, env: dict[str, str], near: Store, tmp_path: Path, who: str
) -> None:
    # In its box it has another number, so it is found by an argument that no other process has.
    mark = f"600.{os.getpid()}"
    script = f"setsid sleep {mark} & echo > begun; exec sleep 600"
    going = start(*at_data(*COUNT, "--", "sh", "-c", script), env=env)
    wait_until(lambda: written(near, "begun") and with_argument(mark), "the program's begin")
    (going.process if who == "client" else near.process.process).kill()
    ended = going.wait(60, status=None)
    assert ended.status != 0
    if who == "store":
        assert "near" in ended.stderr, ended
    wait_until(lambda: not with_argument(mark), "all of the program to end", 30)
    assert sets(run, env) == {"adk"}
    if who == "store":
        near.start()
    wait_until(lambda: not list((near.folder / "programs").iterdir()), "the program's folder to vanish")
    assert run(*at_data(*COUNT, *WORDS), env=env)


def test_a_damaged_copy_at_the_site_is_not_read(
    run: Run, start: Start, env: dict[str, str], near: Store, tmp_path: Path
) -> None:
    with_shelf(run, start, env, tmp_path)
    for copy in objects(near.folder):
        spoil(copy)
    done = run(*at_data("--explain", *COUNT, *WORDS), env=env)
    assert "0 B from this host, 260 B over the network, from 1 site: shelf" in done.stderr
    assert "1 bad" in run("data", "audit", "near", env=env, status=None).stdout


def test_what_the_mode_does_not_take_is_refused(run: Run, env: dict[str, str], near: Store) -> None:
    cases = (
        (at_data("--", "true"), "name one with --input"),
        (
            at_data(*COUNT, "--spool", ".", "--", "true"),
            "--spool, --scheduler, --submit-option and --script are for jobs",
        ),
        (at_data("--input", "in=/no", "--", "true"), "no"),
    )
    for words, said in cases:
        assert said in run(*words, env=env, status=2).stderr
    Path(env["TMPDIR"], "own").write_text("of this machine\n")
    run("data", "put", Path(env["TMPDIR"], "own"), "--label", "own", "--site", "here", env=env)
    own = run(*at_data("--input", "in=/adk", "--input", "own=/own", "--", "true"), env=env, status=2)
    assert "has no copy at a store, only in folders of this machine (`here`)" in own.stderr
    near.process.stop()
    away = run(*at_data(*COUNT, *WORDS), env=env, status=2)
    assert "no site that holds inputs runs the program now" in away.stderr and "near" in away.stderr


def test_a_program_of_a_stranger_sees_its_own_folder_only(
    run: Run, start: Start, env: dict[str, str], near: Store, tmp_path: Path
) -> None:
    """Neither the store's files nor a catalog, a neighbour or the network; and it is nobody, without rights."""
    near.process.stop()
    near.options = ("--programs", "2", "--program-folder", str(tmp_path / "tools"))
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "hello").write_text("#!/bin/sh\necho hello\n")
    (tmp_path / "tools" / "hello").chmod(0o755)
    near.start()
    neighbour = start(*at_data(*COUNT, "--", "sh", "-c", "echo > secret; sleep 600"), env=env)
    wait_until(lambda: written(near, "secret"), "the neighbour's begin")
    shell = f"""
        id -u; id -g; grep CapEff /proc/self/status; ls {near.folder}; ls {near.folder}/programs | wc -l
        ls -d /proc/[0-9]* | wc -l; grep -c : /proc/net/dev; ls /root /home /run /var /sys
        for file in {tmp_path}/catalog.db {near.join} {near.folder}/objects {tmp_path}/traj/frames.txt {written(near, "secret")[0]}
        do test ! -e "$file" || echo "sees $file"; done
        {tmp_path}/tools/hello; ! touch /usr/x; ! touch {tmp_path}/tools/x; wc -l < in | tee "$HOME/n"; echo "$HOME"; pwd
    """
    done = run(*at_data(*COUNT, "--label", "n", "--", "sh", "-c", shell), env=env)
    said = done.stdout.split("\n")
    folders = ["programs", "1"]
    assert said[:2] == ["65534", "65534"] and said[2].split() == ["CapEff:", "0" * 16], said
    assert said[3:5] == folders and int(said[5]) < 8 and said[6] == "1", said
    assert not [line for line in said if line.startswith("sees")], said
    home, where = said[-4:-2]
    assert home == where and Path(where).is_relative_to(near.folder / "programs"), said
    assert said[-6:-4] == ["hello", "90"], said
    assert done.stderr.count("Read-only file system") == 2, done
    hidden = run(*at_data(*COUNT, "--", str(near.join)), env=env, status=2)
    assert "the box in which programs of others run here shows no such program" in hidden.stderr, hidden
    neighbour.signal(signal.SIGINT)
    assert neighbour.wait(60, 130)


def test_a_site_without_bubblewrap_runs_programs_only_where_its_owner_says_so(
    run: Run, env: dict[str, str], near: Store, tmp_path: Path
) -> None:
    near.process.stop()
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sh", "wc", "id", "tee"):
        (programs / name).symlink_to(shutil.which(name) or "")
    without = {**env, "PATH": str(programs)}
    place = ("--dir", near.folder, "--programs", "1")
    refused = run("store", *place, env=without, status=4)
    assert "this machine has no program bwrap: install bubblewrap" in refused.stderr
    assert "--without-box lets programs of others run as this user" in refused.stderr
    weak = tmp_path / "weak"
    weak.mkdir()
    (weak / "bwrap").write_text("#!/bin/sh\necho bwrap: Operation not permitted >&2; exit 1\n")
    (weak / "bwrap").chmod(0o755)
    path = {**env, "PATH": f"{weak}:{os.environ['PATH']}"}
    cannot = run("store", *place, env=path, status=4)
    assert "does not let bwrap make the box" in cannot.stderr and "Operation not permitted" in cannot.stderr
    near.options = ("--programs", "1", "--without-box")
    near.start()
    done = run(*at_data(*COUNT, "--label", "n", "--", "sh", "-c", "id -u; wc -l < in > n"), env=env)
    assert done.stdout.split()[0] == str(os.getuid())


def test_outputs_stay_at_the_site_within_its_limit_or_go_where_they_are_wanted(
    run: Run, env: dict[str, str], near: Store
) -> None:
    make = ("--", "sh", "-c", "head -c 1000 /dev/urandom > n")
    for site, label in ((), "stays"), (("--site", "here"), "goes"):
        run(*at_data(*COUNT, "--label", label, *site, *make), env=env)
    assert "near" in run("data", "where", "stays", env=env).stdout
    assert "here" in run("data", "where", "goes", env=env).stdout
    audit = "2 good (1.2 KiB), 0 bad, 0 missing, 0 foreign"
    assert audit in run("data", "audit", "near", env=env).stdout
    near.process.stop()
    near.options = (*near.options, "--keep", "2000")
    near.start()
    full = run(*at_data(*COUNT, "--label", "more", *make), env=env, status=None)
    assert full.status != 0 and "it keeps at most 2000 bytes, and has 1260" in full.stderr, full
    assert sets(run, env) == {"adk", "stays", "goes"}
    run("data", "quota", "everyone", "2500", env=env)
    much = run(
        *at_data(*COUNT, "--label", "more", "--", "sh", "-c", "head -c 700 /dev/urandom > n"),
        env=env,
        status=1,
    )
    assert "may have 2.4 KiB" in much.stderr and "no data set was made" in much.stderr, much
    # What was not committed is removed by the next repair.
    run("data", "quota", "everyone", "none", env=env)
    run("data", "repair", env=env)
    assert audit in run("data", "audit", "near", env=env).stdout
