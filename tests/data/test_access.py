"""`eyas access` and `eyas mount`: programs that are not changed open files of data sets where they are."""

from __future__ import annotations

import hashlib
import lzma
import os
import signal
import sqlite3
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from harness import Eyas, Run, Start, need_path, need_program, wait_until
from test_data import objects, spoil, tree
from test_store import Store


@pytest.fixture(autouse=True)
def catalog(data: Run, eyas: Eyas, tmp_path: Path) -> None:
    """The catalog of `data` is that of every process, as it is with one in its usual place."""
    del data
    need_path("/dev/fuse", "the kernel's module fuse")
    eyas.env["EYAS_DATA"] = f"sqlite:{tmp_path}/catalog.db"


def put(data: Run, folder: Path, label: str, *options: str) -> None:
    data("put", folder, "--label", label, *options)


def test_a_user_who_lacks_the_helper_is_given_its_package(
    data: Run, eyas: Eyas, files: Path, tmp_path: Path
) -> None:
    """As a user who is not root, with a /dev/fuse that all may open and no `fusermount3` in PATH."""
    put(data, files, "set")
    place = tmp_path / "place"
    place.mkdir(mode=0o777)
    # That user gets to this test's own folder, and into no other.
    subprocess.run(["chmod", "-R", "a+rwX", tmp_path], check=True)
    subprocess.run(
        [
            "chmod",
            "a+x",
            *(
                path
                for path in tmp_path.parents
                if path.owner() == "root" and path.is_relative_to(tempfile.gettempdir())
            ),
        ],
        check=True,
    )
    script = tmp_path / "as-nobody"
    script.write_text(
        f"""#!/bin/sh
exec unshare --mount sh -c '
mount -t tmpfs -o dev none /mnt && mknod -m 666 /mnt/fuse c 10 229 && mount --bind /mnt/fuse /dev/fuse
PATH=/nowhere exec /usr/bin/setpriv --reuid=65534 --regid=65534 --clear-groups {eyas.path} "$@"' sh "$@"
"""
    )
    script.chmod(0o755)
    env = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = eyas.start("mount", "/", place, program=script, env=env).wait(status=4)
    assert "cannot mount at" in done.stderr and "install the package fuse3" in done.stderr, done.stderr


def test_programs_read_what_is_elsewhere(data: Run, run: Run, files: Path, tmp_path: Path) -> None:
    put(data, files, "set")
    shell = """
        cd /eyas/set && cp -r . "$1/copy" && find . -type f | sort && sha256sum 'a b/deep/large'
        tail -n 1 text; dd if='a b/deep/large' bs=1 skip=2999999 status=none | wc -c
        ./script hello & wait; test -x script; test ! -x text
        cat /eyas/set@1/text | head -n 1; test -d ../set/'a b'/.. && ls /eyas
        ! echo x > text; ! rm text; ! mkdir new; ! cat /eyas/set/none; ! cat /eyas/other/none; ls /eyas/set@2
    """
    done = run("access", "--", "sh", "-c", shell, "sh", tmp_path, status=2)
    assert tree(tmp_path / "copy") == tree(files)
    lines = done.stdout.splitlines()
    assert lines[:5] == ["./a b/deep/large", "./a b/größe %?", "./empty", "./script", "./text"]
    assert lines[5].split()[0] == hashlib.sha256((files / "a b/deep/large").read_bytes()).hexdigest()
    assert lines[6:] == ["999", "2", "hello from a script", "0", "new", "set"]
    assert done.stderr.count("Read-only file system") == 3 and done.stderr.count("No such file") == 3, done
    assert "ended with exit status 2" in done.stderr, "ls says 2 where there is no such file"


@pytest.mark.parametrize("by", ["fuse", "seccomp"])
def test_copies_of_what_is_shown_can_be_written(
    data: Run, run: Run, files: Path, tmp_path: Path, by: str
) -> None:
    put(data, files, "set")
    shell = "umask 022; cp -r /eyas/set copy; stat -c %a copy 'copy/a b' copy/text copy/script"
    done = run("access", "--by", by, "--", "sh", "-c", shell, cwd=tmp_path)
    assert done.stdout.split() == ["755", "755", "644", "755"]


PYTHON = """
import mmap, random, sqlite3, sys, threading
path, seed = sys.argv[1], int(sys.argv[2])
expected = open(sys.argv[3], "rb").read()
def read(seed):
    rng = random.Random(seed)
    with open(path, "rb", buffering=0) as file:
        for _ in range(200):
            start, size = rng.randrange(len(expected)), rng.choice([1, 4096, 100_000])
            file.seek(start)
            assert file.read(size) == expected[start:start + size]
threads = [threading.Thread(target=read, args=[seed + n]) for n in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
    assert mapped[:] == expected
print("right")
"""


@pytest.mark.parametrize("where", ["folder", "store"])
def test_any_part_is_right(
    data: Run, run: Run, start: Start, files: Path, tmp_path: Path, where: str
) -> None:
    """Many threads read here and there, through the kernel's own cache and through a map of the file."""
    site = "here"
    if where == "store":
        data("site", "--join", Store(start, tmp_path / "far").join)
        site = "far"
    put(data, files, "set", "--site", site)
    original = files / "a b/deep/large"
    path = "/eyas/set/a b/deep/large"
    assert run("access", "--", "python3", "-c", PYTHON, path, "7", original).stdout == "right\n"


def test_databases_and_biology_run_on_it(data: Run, run: Run, tmp_path: Path) -> None:
    """SQLite reads a database, BLAST searches in one, and prodigal finds the genes that it finds elsewhere."""
    prodigal, blast, make = (need_program(name) for name in ("prodigal", "blastp", "makeblastdb"))
    examples = need_path("/usr/share/doc/kleborate/examples/data", "kleborate-examples")
    source = tmp_path / "source"
    source.mkdir()
    with sqlite3.connect(source / "numbers.db") as database:
        database.execute("create table squares (n, square)")
        database.executemany("insert into squares values (?, ?)", ((n, n * n) for n in range(5000)))
    genome = lzma.decompress(min(examples.glob("*.fna.xz")).read_bytes())[:300_000]
    (source / "genome.fna").write_bytes(genome)
    plain = subprocess.run(
        [prodigal, "-i", source / "genome.fna", "-a", source / "proteins.faa", "-q", "-f", "gff"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    subprocess.run(
        [make, "-in", "proteins.faa", "-dbtype", "prot"], cwd=source, check=True, stdout=subprocess.DEVNULL
    )
    put(data, source, "set")

    query = "import sqlite3; print(sqlite3.connect('file:/eyas/set/numbers.db?mode=ro', uri=True).execute('select sum(square) from squares where n > 4000').fetchone()[0])"
    squares = run("access", "--", "python3", "-c", query)
    assert int(squares.stdout) == sum(n * n for n in range(4001, 5000))
    genes = run("access", "--", prodigal, "-i", "/eyas/set/genome.fna", "-q", "-f", "gff")

    def found(text: str) -> list[str]:
        return [line for line in text.splitlines() if not line.startswith("#")]

    assert found(genes.stdout) == found(plain) and found(plain)
    (tmp_path / "query.faa").write_text(
        ">one\n" + (source / "proteins.faa").read_text().split(">")[1].split("\n", 1)[1]
    )
    search = ("-query", tmp_path / "query.faa", "-outfmt", "6")
    expected = subprocess.run(
        [blast, *search, "-db", source / "proteins.faa"], check=True, capture_output=True, text=True
    ).stdout
    hits = run("access", "--", blast, *search, "-db", "/eyas/set/proteins.faa")
    assert hits.stdout == expected and expected


def test_what_is_written_becomes_a_data_set(
    data: Run, eyas: Eyas, run: Run, files: Path, tmp_path: Path
) -> None:
    put(data, files, "set")
    made = run(
        "access",
        *("--label", "result", "--tag", "kind=result", "--"),
        *(
            "sh",
            "-c",
            "mkdir /eyas/new/a; wc -l < /eyas/set/text > /eyas/new/a/part; mv /eyas/new/a/part /eyas/new/a/n",
        ),
    )
    assert made.stdout == "result\n"
    assert data("ls", "result").stdout == "a/n\n"
    assert run("cat", "data:result/a/n").stdout == "1000\n"
    assert "access   version 1 by sh -c" in data("history", "result").stdout

    def n_sets() -> int:
        return len(data("find", "-q").stdout.split())

    failed = run("access", "--", "sh", "-c", "echo x > /eyas/new/x; exit 3", status=3)
    assert "ended with exit status 3; no data set was made" in failed.stderr
    nothing = run("access", "--tag", "a=b", "--", "true", status=1)
    assert "`true` wrote nothing below /eyas/new; no data set was made" in nothing.stderr
    link = run("access", "--", "ln", "-s", "/etc/passwd", "/eyas/new/link", status=1)
    assert "`/eyas/new/link` is a symbolic link" in link.stderr
    assert run("access", "--", "true").stdout == ""
    assert n_sets() == 2
    # What the data set could not have is kept for its user, and nothing else.
    [left] = Path(eyas.env["TMPDIR"]).glob("eyas-*")
    assert f"what `ln` wrote is in `{left}/new`" in link.stderr
    absent = run("access", "--", "/no/program", status=2)
    assert "cannot run `/no/program`" in absent.stderr


def test_a_store_that_dies_is_replaced_by_another_copy(data: Run, start: Start, tmp_path: Path) -> None:
    """While a program is in the middle of a file; the other copy has the rest."""
    content = os.urandom(8_000_000)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "x").write_bytes(content)
    stores = [Store(start, tmp_path / name, "--rate", "3MB/s") for name in ("one", "two")]
    for store in stores:
        data("site", "--join", store.join)
    put(data, tmp_path / "source", "set", "--site", "one", "--copies", "2")
    data("drain", "here")
    data("repair")
    reading = start("access", "--", "cp", "/eyas/set/x", tmp_path / "copy")
    wait_until(
        lambda: (tmp_path / "copy").exists() and (tmp_path / "copy").stat().st_size > 500_000, "some bytes"
    )
    stores[0].process.kill()
    reading.wait()
    assert (tmp_path / "copy").read_bytes() == content
    # With the other one gone as well, the program is told so, and the user why.
    stores[1].process.kill()
    done = start("access", "--", "sha256sum", "/eyas/set/x").wait(status=1)
    assert "Input/output error" in done.stderr
    assert "`set@1/x` cannot be read" in done.stderr or "cannot be reached" in done.stderr, done


@pytest.mark.parametrize("where", ["folder", "store"])
def test_a_damaged_copy_is_never_read(data: Run, run: Run, start: Start, tmp_path: Path, where: str) -> None:
    content = {"small": os.urandom(5000), "large": os.urandom(500_000)}
    source = tmp_path / "source"
    source.mkdir()
    for name, text in content.items():
        (source / name).write_bytes(text)
    first = tmp_path / "here"
    site: tuple[str, ...] = ()
    if where == "store":
        first = tmp_path / "far"
        data("site", "--join", Store(start, first).join)
        site = ("--site", "far")
    put(data, source, "set", *site)
    for path in objects(first):
        spoil(path)
    alone = run("access", "--", "cat", "/eyas/set/small", "/eyas/set/large", status=1)
    # Blocks that are right may have been printed; none that is wrong.
    assert alone.stderr.count("Input/output error") == 2 and "damaged" in alone.stderr, alone
    assert "has no good copy" not in alone.stderr
    data("rm", "set")
    put(data, source, "other", "--copies", "2")
    data("site", "shelf", tmp_path / "shelf")
    data("repair")
    for path in objects(tmp_path / "here"):
        spoil(path)
    copied = run("access", "--", "cp", "-r", "/eyas/other", tmp_path / "copy")
    assert not copied.stderr
    assert tree(tmp_path / "copy") == content


def test_a_signal_ends_program_and_view(
    data: Run, eyas: Eyas, start: Start, files: Path, tmp_path: Path
) -> None:
    put(data, files, "set")
    for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 130)):
        running = start("access", "--", "sh", "-c", "echo begun; cat /eyas/set/text > /eyas/new/x; sleep 60")
        running.wait_for_text("begun")
        running.signal(number)
        assert "no data set was made" in running.wait(status=status).stderr
    assert data("find", "-q").stdout == "set\n"
    assert not list(Path(eyas.env["TMPDIR"]).glob("eyas-access*"))


def mounts(below: Path) -> list[str]:
    """Where eyas is mounted in this test's own folder: other tests mount beside this one."""
    lines = Path("/proc/mounts").read_text().splitlines()
    places = [line.split()[1] for line in lines if line.startswith("eyas ")]
    return [place for place in places if Path(place).is_relative_to(below)]


def test_a_mount_ends_with_its_command(
    data: Run, run: Run, start: Start, files: Path, tmp_path: Path
) -> None:
    put(data, files, "set")
    place = tmp_path / "place"
    place.mkdir()
    for number, key in ((signal.SIGINT, "set@1"), (signal.SIGTERM, "/")):
        mounted = start("mount", key, place)
        mounted.wait_for_text("until this command is ended")
        shown = place / "set" if key == "/" else place
        assert tree(shown) == tree(files)
        assert shown.joinpath("script").stat().st_mode & 0o777 == 0o755
        with shown.joinpath("text").open():
            # Somebody is in it.
            mounted.signal(number)
            mounted.wait()
        assert not mounts(tmp_path) and not list(place.iterdir())
    mounted = start("mount", "set", place)
    mounted.wait_for_text("until this command is ended")
    subprocess.run(["umount", place], check=True)
    mounted.wait()

    full = run("mount", "set", files, status=2)
    assert "has files in it: name an empty directory" in full.stderr
    assert "there is no data set `none`" in run("mount", "none", place, status=2).stderr
    assert "cannot mount at" in run("mount", "set", tmp_path / "none", status=4).stderr


def test_many_names_are_shown_at_once(data: Run, run: Run, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for n in range(10_000):
        (source / f"{n:05}").write_text(str(n))
    put(data, source, "set")
    shell = "ls /eyas/set | wc -l; cat /eyas/set/* | sha256sum"
    done = run("access", "--", "sh", "-c", shell)
    expected = hashlib.sha256("".join(str(n) for n in range(10_000)).encode()).hexdigest()
    assert done.stdout.split() == ["10000", expected, "-"]


def test_damage_that_comes_later_is_seen(data: Run, run: Run, tmp_path: Path) -> None:
    """A file that was right when it was opened first is compared again where it has changed."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "x").write_bytes(os.urandom(3_000_000))
    put(data, source, "set")
    [path] = objects(tmp_path / "here")
    path.chmod(0o644)
    shell = 'head -c 5 /eyas/set/x > /dev/null; printf Y | dd of="$1" bs=1 seek=2000000 conv=notrunc status=none; cp /eyas/set/x "$1.copy"'
    done = run("access", "--label", "wrong", "--", "sh", "-c", shell, "sh", path, status=1)
    assert "Input/output error" in done.stderr and "damaged" in done.stderr, done


def test_what_would_be_lost_is_refused(data: Run, run: Run, files: Path, tmp_path: Path) -> None:
    put(data, files, "set")
    root = run("access", "--", "sh", "-c", "echo x > /lost || exit 1", status=1)
    assert "Read-only file system" in root.stderr
    # A program that goes on although it could not read makes nothing.
    for path in objects(tmp_path / "here"):
        if path.stat().st_size > 0:
            spoil(path)
    shell = "cat /eyas/set/text | sort > /eyas/new/x; exit 0"
    unread = run("access", "--label", "bad", "--", "sh", "-c", shell, status=1)
    assert "ended well, but 1 file could not be read; no data set was made" in unread.stderr
    # What was written stays where only the put fails.
    kept = run("access", "--", "sh", "-c", "echo hours > /eyas/new/a; ln -s /etc/hosts /eyas/new/b", status=1)
    [line] = [line for line in kept.stderr.splitlines() if "wrote is in" in line]
    assert (Path(line.split("`")[-2]) / "a").read_text() == "hours\n"
    assert data("find", "-q").stdout == "set\n"


def test_a_closed_terminal_leaves_nothing(
    data: Run, eyas: Eyas, start: Start, files: Path, tmp_path: Path
) -> None:
    put(data, files, "set")
    running = start("access", "--", "sh", "-c", "echo begun; sleep 60")
    running.wait_for_text("begun")
    running.signal(signal.SIGHUP)
    running.wait(status=130)
    assert not list(Path(eyas.env["TMPDIR"]).glob("eyas-access*"))
    # Nor does the command's own violent end leave the program.
    running = start("access", "--", "sh", "-c", "setsid sleep 61 & echo begun $$ $!; exec sleep 61")
    running.wait_for_text("begun")
    programs = [Path("/proc", word) for word in running.stdout.split()[1:]]
    assert all(program.exists() for program in programs)
    running.kill()
    wait_until(lambda: not any(program.exists() for program in programs), "the programs' end")


def test_the_end_of_the_program_is_that_of_the_command(data: Run, run: Run, files: Path) -> None:
    put(data, files, "set")
    for command, status in [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -KILL $$", 137)]:
        run("access", "--", "sh", "-c", command, status=status)
    run("access", "--", "grep", "-q", "nosuch", "/eyas/set/text", status=1)
    run("access", "--", "nosuchprogram", status=2)


def test_a_data_set_that_is_removed_meanwhile_is_not_called_damaged(
    data: Run, start: Start, tmp_path: Path
) -> None:
    """What was not read yet is gone with the data set, and the message says that."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "x").write_bytes(os.urandom(3_000_000))
    store = Store(start, tmp_path / "far")
    data("site", "--join", store.join)
    put(data, source, "set", "--site", "far")
    shell = (
        "exec 3< /eyas/set/x; echo begun; while [ ! -e removed ]; do sleep 0.05; done; cat <&3 > /dev/null"
    )
    reading = start("access", "--memory", "64KiB", "--", "sh", "-c", shell)
    reading.wait_for_text("begun")
    data("rm", "set")
    data("repair")
    assert not objects(store.folder)
    (tmp_path / "removed").touch()
    ended = reading.wait(status=1)
    assert "the data set `set@1` has been removed" in ended.stderr, ended
    assert "damaged" not in ended.stderr, ended


def test_a_data_set_that_is_removed_while_it_is_open_is_read_to_its_end(
    data: Run, run: Run, eyas: Eyas, tmp_path: Path
) -> None:
    """Also by those who open it again: the bytes stay as long as somebody has them open."""
    content = os.urandom(3_000_000)
    (tmp_path / "x").write_bytes(content)
    data("put", "x", "--label", "set")
    shell = """
        exec 3< /eyas/set/x; head -c 5 <&3 > /eyas/new/first
        "$0" data rm set && "$0" data repair
        cat /eyas/set/x > /eyas/new/again; cat <&3 > /eyas/new/rest; exit 0
    """
    run("access", "--label", "out", "--", "sh", "-c", shell, eyas.path)
    data("get", "out", tmp_path / "out")
    assert (tmp_path / "out" / "again").read_bytes() == content
    rest = (tmp_path / "out" / "rest").read_bytes()
    assert (tmp_path / "out" / "first").read_bytes() + rest == content


def test_a_copy_that_changes_while_it_is_open_makes_no_data_set(
    data: Run, run: Run, start: Start, tmp_path: Path
) -> None:
    """A program that ends well although it could not open the file again."""
    (tmp_path / "x").write_bytes(os.urandom(3_000_000))
    data("put", "x", "--label", "set")
    [path] = objects(tmp_path / "here")
    path.chmod(0o644)
    change = 'printf Y | dd of="$1" bs=1 seek=2000000 conv=notrunc status=none'
    shell = f"exec 3< /eyas/set/x; {change}; cat /eyas/set/x > /eyas/new/x; exit 0"
    done = run("access", "--label", "out", "--", "sh", "-c", shell, "sh", path, status=1)
    assert "`set@1/x` cannot be read: the copy that a program has open was changed" in done.stderr, done
    assert "ended well, but 1 file could not be read; no data set was made" in done.stderr, done
    assert data("find", "-q").stdout == "set\n"
    # A mount says so in the end, too.
    place = tmp_path / "place"
    place.mkdir()
    mounting = start("mount", "set", place)
    mounting.wait_for_text("is at")
    failed = subprocess.run(["cat", place / "x"], capture_output=True, check=False)
    assert failed.returncode == 1 and b"Input/output error" in failed.stderr
    mounting.signal(signal.SIGINT)
    assert "1 file could not be read" in mounting.wait(status=1).stderr


def named(mark: str) -> list[str]:
    """The processes that have this word among theirs, and what they wait for."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if mark.encode() in path.read_bytes().split(b"\0"):
                found.append(f"{path.parent.name}: {(path.parent / 'wchan').read_text()}")
    return found


def nobody_has(mark: str) -> bool:
    return not named(mark)


@pytest.mark.parametrize("by", ["fuse", "seccomp"])
def test_a_command_that_is_killed_as_it_begins_leaves_no_process(
    data: Run, eyas: Eyas, start: Start, files: Path, by: str
) -> None:
    put(data, files, "set")
    for n in range(25):
        mark = f"killed-{os.getpid()}-{n}"
        running = start("access", "--by", by, "--", "sh", "-c", "cat /eyas/set/text; exec sleep 60", mark)
        below = Path(f"/proc/{running.pid}/task/{running.pid}/children")
        # Its keeper begins, and then the program, after the folder for it was made: it is killed in this moment, or somewhat later.
        while not list(Path(eyas.env["TMPDIR"]).glob(f"eyas-access-{running.pid}-*")):
            assert running.is_alive()
        while not below.read_text() and running.is_alive():
            pass
        time.sleep(n * 0.0001)
        running.kill()
        wait_until(partial(nobody_has, mark), "the end of all processes", 15)


@pytest.mark.parametrize("by", ["fuse", "seccomp"])
def test_a_command_that_is_killed_leaves_no_folder(
    data: Run, eyas: Eyas, start: Start, files: Path, by: str, tmp_path: Path
) -> None:
    put(data, files, "set")
    running = start(
        "access", "--by", by, "--", "sh", "-c", "cat /eyas/set/text > /eyas/new/x; echo begun; exec sleep 60"
    )
    running.wait_for_text("begun")

    def folders() -> list[Path]:
        return list(Path(eyas.env["TMPDIR"]).glob("eyas-access-*"))

    assert folders()
    running.kill()
    wait_until(lambda: not folders(), "the end of the folder", 15)
    assert not mounts(tmp_path)


def test_a_program_that_is_still_read_from_its_data_set_ends_with_the_command(
    data: Run, start: Start, tmp_path: Path
) -> None:
    """The kernel waits for the bytes of the program, which nobody gives any more."""
    program = tmp_path / "program"
    program.write_bytes(b"#!/bin/sh\nexec sleep 60\n" + bytes(60_000))
    program.chmod(0o755)
    store = Store(start, tmp_path / "far")
    data("site", "--join", store.join)
    data("put", program, "--label", "set", "--site", "far")
    store.process.stop()
    store.options = ("--rate", "5KB/s")
    store.start()
    mark = f"program-{os.getpid()}"
    running = start("access", "--by", "fuse", "--", "/eyas/set/program", mark)
    wait_until(lambda: any("folio" in line for line in named(mark)), "the program is read", 15, running)
    running.kill()
    wait_until(lambda: not named(mark), "the end of all processes", 15)


def test_a_mount_whose_command_was_killed_is_named(
    data: Run, run: Run, start: Start, files: Path, tmp_path: Path
) -> None:
    put(data, files, "set")
    place = tmp_path / "place"
    place.mkdir()
    mounting = start("mount", "set", place)
    mounting.wait_for_text("is at")
    mounting.kill()
    try:
        for words in (
            ("mount", "set", place),
            ("data", "put", place),
            ("data", "put", place / "text"),
            ("data", "get", "set", place / "new"),
            ("data", "site", "new", place / "new"),
        ):
            text = run(*words, status=2).stderr
            assert f"`{place}` is a mount whose program is gone" in text, (words, text)
            assert f"`fusermount3 -u {place}` takes it away, or `umount {place}`" in text, text
    finally:
        subprocess.run(["umount", place], check=True)
    run("data", "get", "set", place / "new")
    assert tree(place / "new") == tree(files)


def test_files_that_were_closed_hold_nothing(data: Run, eyas: Eyas, tmp_path: Path) -> None:
    """A program may read more files, one after another, than a process may have open."""
    source = tmp_path / "source"
    source.mkdir()
    for n in range(1500):
        (source / str(n)).write_text(str(n))
    put(data, source, "set")
    limited = ("prlimit", "--nofile=700:700", eyas.path)
    shell = "cat /eyas/set/* | wc -c"
    done = subprocess.run(
        [*limited, "access", "--", "sh", "-c", shell],
        env=eyas.env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == sum(len(str(n)) for n in range(1500)), done
