"""`eyas access --by seccomp`: the same names where there is no FUSE, by calls that wait until a file is complete."""

from __future__ import annotations

import hashlib
import os
import signal
import sqlite3
import subprocess
import tarfile
from pathlib import Path

import pytest
from harness import Eyas, Run, Start, lacking, need_program, wait_until
from test_access import PYTHON, put
from test_data import objects, spoil, tree
from test_store import Store

ACCESS = ("access", "--by", "seccomp")


@pytest.fixture(autouse=True)
def catalog(data: Run, eyas: Eyas, tmp_path: Path) -> None:
    """The catalog of `data` is that of every process, as it is with one in its usual place."""
    del data
    eyas.env["EYAS_DATA"] = f"sqlite:{tmp_path}/catalog.db"


def compiled(tmp_path: Path, text: str, *options: str) -> Path:
    compiler = need_program("cc", "gcc")
    (tmp_path / "program.c").write_text(text)
    program = tmp_path / "program"
    subprocess.run([compiler, "-O1", "-o", program, tmp_path / "program.c", *options], check=True)
    return program


def test_programs_read_what_is_elsewhere(
    data: Run, eyas: Eyas, run: Run, files: Path, tmp_path: Path
) -> None:
    put(data, files, "set")
    shell = """
        cd /eyas/set && cp -r . "$1/copy" && find . -type f | sort && sha256sum 'a b/deep/large'
        tail -n 1 text; dd if='a b/deep/large' bs=1 skip=2999999 status=none | wc -c
        ./script hello & wait; test -x script; test ! -x text
        cat /eyas/set@1/text | head -n 1; test -d ../set/'a b'/.. && ls /eyas
        ! echo x > text; ! rm text; ! mkdir new; ! cat /eyas/set/none; ! cat /eyas/other/none; ls /eyas/set@2
    """
    done = run(*ACCESS, "--", "sh", "-c", shell, "sh", tmp_path, status=2)
    assert tree(tmp_path / "copy") == tree(files)
    lines = done.stdout.splitlines()
    assert lines[:5] == ["./a b/deep/large", "./a b/größe %?", "./empty", "./script", "./text"]
    assert lines[5].split()[0] == hashlib.sha256((files / "a b/deep/large").read_bytes()).hexdigest()
    assert lines[6:10] == ["999", "2", "hello from a script", "0"]
    assert {"new", "set"} <= set(lines[10:]) <= {"new", "set", "set@1"}
    assert done.stderr.count("Read-only file system") == 3 and done.stderr.count("No such file") == 3, done
    assert "ended with exit status 2" in done.stderr, "ls says 2 where there is no such file"
    assert not list(Path(eyas.env["TMPDIR"]).glob("eyas-access*"))


@pytest.mark.parametrize(
    "there",
    [
        "cd /eyas/set; tail -n 1 text",
        "cd /eyas; cd set; [ -e text ] && tail -n 1 ./text",
        "cd '/eyas/set@1/a b'; tail -n 1 ../text",
        "cd -P link; read x < text; tail -n 1 text",
        "env -C /eyas/set tail -n 1 text",
        "cd /eyas/set; ./script hello > /dev/null && cd 'a b' && cd .. && tail -n 1 text",
    ],
)
def test_names_are_found_from_the_directory_that_a_program_is_in(
    data: Run, run: Run, files: Path, tmp_path: Path, there: str
) -> None:
    put(data, files, "set")
    (tmp_path / "link").symlink_to("/eyas/set")
    assert run(*ACCESS, "--", "sh", "-c", there, cwd=tmp_path).stdout == "999\n"


def test_every_way_to_a_file_leads_to_its_bytes(data: Run, run: Run, files: Path, tmp_path: Path) -> None:
    """Links from elsewhere, open directories, descriptors without rights, and programs that run others."""
    interpreter = files / "interpreter"
    interpreter.write_text('#!/bin/sh\necho "interpreted: $(tail -n 1 "$1")"\n')
    interpreter.chmod(0o755)
    (files / "interpreted").write_text("#!/eyas/set/interpreter\nthe last line\n")
    (files / "interpreted").chmod(0o755)
    put(data, files, "set")
    (tmp_path / "link").symlink_to("/eyas/set@1/text")
    (tmp_path / "links").symlink_to("/eyas")
    text = (files / "text").read_bytes()
    code = """
import os, sys
text = open(sys.argv[1], "rb").read()
assert os.stat("/eyas/set/text").st_size == len(text) and os.access("/eyas/set/text", os.R_OK)
root = os.open("/eyas", os.O_RDONLY)
there = os.open("set", os.O_RDONLY, dir_fd=root)
assert os.stat("a b/deep/large", dir_fd=there).st_size == 3_000_001
with os.fdopen(os.open("text", os.O_RDONLY | os.O_CLOEXEC, dir_fd=there), "rb") as file:
    assert file.read() == text and os.fstat(file.fileno()).st_ino == os.stat("/eyas/set/text").st_ino
pathless = os.open("/eyas/set/a b/größe %?", os.O_PATH)
with open(f"/proc/self/fd/{pathless}", "rb") as file:
    assert len(set(file.read())) > 200
os.chdir("/eyas/set@1/a b")
assert os.path.samestat(os.stat("."), os.stat("/eyas/set@1/a b")) and open("../text", "rb").read() == text
for wrong in ("/eyas/set/none", "/eyas/none/text", "/eyas/se", "/eyas/set/text/x"):
    try:
        open(wrong)
    except (FileNotFoundError, NotADirectoryError):
        continue
    raise AssertionError(wrong)
print("right")
"""
    shell = 'cat link && cat links/set/text | tail -n 1 && python3 -c "$1" "$2" && /eyas/set/interpreted && find links/ -name large'
    done = run(*ACCESS, "--", "sh", "-c", shell, "sh", code, files / "text")
    lines = done.stdout.splitlines()
    assert "\n".join(lines[:1000]).encode() + b"\n" == text
    assert lines[1000:1003] == ["999", "right", "interpreted: the last line"]
    assert "links/set/a b/deep/large" in lines[1003:]


@pytest.mark.parametrize("where", ["folder", "store"])
def test_any_part_is_right(
    data: Run, run: Run, start: Start, files: Path, tmp_path: Path, where: str
) -> None:
    site = "here"
    if where == "store":
        data("site", "--join", Store(start, tmp_path / "far").join)
        site = "far"
    put(data, files, "set", "--site", site)
    original = files / "a b/deep/large"
    path = "/eyas/set/a b/deep/large"
    assert run(*ACCESS, "--", "python3", "-c", PYTHON, path, "7", original).stdout == "right\n"


STATIC = """
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *path;

static void *sum(void *result) {
    int fd = open(path, O_RDONLY);
    struct stat of;
    if (fd < 0 || fstat(fd, &of)) return NULL;
    unsigned char *bytes = mmap(NULL, of.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    for (off_t n = 0; n < of.st_size; n++) *(long *)result += bytes[n];
    return NULL;
}

int main(int n, char **words) {
    pthread_t threads[8];
    long sums[8] = {0};
    path = words[1];
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, sum, &sums[i]);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 8; i++) printf("%ld\\n", sums[i]);
    return 0;
}
"""


def test_a_static_program_with_threads_reads_the_same(
    data: Run, run: Run, start: Start, files: Path, tmp_path: Path
) -> None:
    program = compiled(tmp_path, STATIC, "-static", "-pthread")
    data("site", "--join", Store(start, tmp_path / "far").join)
    put(data, files, "set", "--site", "far")
    expected = sum((files / "a b/deep/large").read_bytes())
    done = run(*ACCESS, "--", program, "/eyas/set/a b/deep/large")
    assert done.stdout.split() == [str(expected)] * 8


RACE = """
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char path[64];
static const char *ours, *other;

static void *change(void *nothing) {
    for (;;) {
        memcpy(path, other, strlen(other) + 1);
        memcpy(path, ours, strlen(ours) + 1);
    }
    return nothing;
}

int main(int n, char **words) {
    pthread_t thread;
    char pattern[64];
    other = "/dev/null/no";
    for (int i = 0; i < 400; i++) {
        snprintf(pattern, sizeof pattern, "/eyas/set/%d", i);
        ours = pattern;
        if (i == 0) { strcpy(path, ours); pthread_create(&thread, NULL, change, NULL); }
        for (int k = 0; k < 20; k++) {
            int fd = open(path, O_RDONLY);
            char bytes[16];
            if (fd < 0) continue;
            ssize_t got = read(fd, bytes, sizeof bytes);
            if (got > 0 && bytes[0] == 0) { printf("zeros in %d\\n", i); return 0; }
            close(fd);
        }
    }
    printf("never\\n");
    return 0;
}
"""


def test_a_path_that_changes_during_the_call_never_gives_wrong_bytes_unnoticed(
    data: Run, run: Run, tmp_path: Path
) -> None:
    program = compiled(tmp_path, RACE, "-pthread")
    source = tmp_path / "source"
    source.mkdir()
    for n in range(400):
        (source / str(n)).write_text(f"the text of {n} is not empty")
    put(data, source, "set")
    done = run(*ACCESS, "--", program, status=None)
    if done.stdout.startswith("zeros"):
        assert done.status == 1 and "was opened before its bytes were there" in done.stderr, done
    else:
        assert done.stdout == "never\n" and done.status == 0, done


def test_a_file_that_is_changed_by_another_path_is_found_out(data: Run, run: Run, tmp_path: Path) -> None:
    """The files are in a folder below TMPDIR, which their user can find."""
    (tmp_path / "a").write_text("right")
    put(data, tmp_path / "a", "set")
    evil = "chmod u+w $f $(dirname $f); echo EVIL > $f"
    change = f"for f in $TMPDIR/eyas-access-*/view/set/a; do {evil}; done"
    program = f"cat /eyas/set/a > /dev/null; {change}; cat /eyas/set/a > /eyas/new/a"
    done = run(*ACCESS, "--label", "made", "--", "sh", "-c", program, status=1)
    assert "set@1/a was changed while the program ran" in done.stderr.replace("`", ""), done
    assert "made" not in data("find", "-q").stdout


def test_one_file_of_many_is_made_alone(
    data: Run, eyas: Eyas, run: Run, start: Start, files: Path, tmp_path: Path
) -> None:
    """A file is there when somebody names it, and all are when somebody opens one of the directories."""
    for n in range(300):
        (files / f"a b/deep/{n}").write_text(f"the text of {n}\n")
    put(data, files, "set")
    code = """
import os, sys, time
assert open("/eyas/set/a b/deep/17").read() == "the text of 17\\n" and os.stat("/eyas/set/a b/deep").st_nlink == 2
assert os.stat("/eyas/set/a b/deep/18").st_size == 15 and not os.path.exists("/eyas/set/a b/deep/300")
print("begun", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
"""
    reading = start(*ACCESS, "--", "python3", "-c", code, tmp_path / "go")
    reading.wait_for_text("begun")

    [view] = Path(eyas.env["TMPDIR"]).glob("eyas-access-*/view")
    assert {path.name for path in (view / "set").rglob("*") if path.is_file()} == {"17", "18"}
    (tmp_path / "go").touch()
    assert reading.wait().stderr == ""
    shell = """
        cat '/eyas/set/a b/deep/200' && cd '/eyas/set/a b' && test "$(find . -type f | wc -l)" = 302
        cat deep/*[0-9] | sort | sha256sum; stat -c %Y:%a deep ../text; ls deep | wc -l
    """
    done = run(*ACCESS, "--", "sh", "-c", shell)
    texts = "".join(sorted(f"the text of {n}\n" for n in range(300)))
    lines = done.stdout.splitlines()
    assert lines[:2] == ["the text of 200", f"{hashlib.sha256(texts.encode()).hexdigest()}  -"]
    times, modes = zip(*(line.split(":") for line in lines[2:4]), strict=True)
    assert len(set(times)) == 1 and modes == ("755", "644") and lines[4] == "301", done


def test_databases_and_biology_run_on_it(data: Run, run: Run, tmp_path: Path) -> None:
    blast, make = (need_program(name, "ncbi-blast+") for name in ("blastp", "makeblastdb"))
    source = tmp_path / "source"
    source.mkdir()
    with sqlite3.connect(source / "numbers.db") as database:
        database.execute("create table squares (n, square)")
        database.executemany("insert into squares values (?, ?)", ((n, n * n) for n in range(5000)))
    letters = "ACDEFGHIKLMNPQRSTVWY"
    proteins = [
        "".join(letters[byte % 20] for byte in hashlib.shake_256(str(n).encode()).digest(300))
        for n in range(200)
    ]
    (source / "proteins.faa").write_text("".join(f">p{n}\n{text}\n" for n, text in enumerate(proteins)))
    subprocess.run(
        [make, "-in", "proteins.faa", "-dbtype", "prot"], cwd=source, check=True, stdout=subprocess.DEVNULL
    )
    put(data, source, "set")
    query = "import sqlite3; print(sqlite3.connect('file:/eyas/set/numbers.db?mode=ro', uri=True).execute('select sum(square) from squares where n > 4000').fetchone()[0])"
    squares = run(*ACCESS, "--", "python3", "-c", query)
    assert int(squares.stdout) == sum(n * n for n in range(4001, 5000))
    (tmp_path / "query.faa").write_text(f">one\n{proteins[77]}\n")
    search = ("-query", tmp_path / "query.faa", "-outfmt", "6")
    expected = subprocess.run(
        [blast, *search, "-db", source / "proteins.faa"], check=True, capture_output=True, text=True
    ).stdout
    hits = run(*ACCESS, "--", blast, *search, "-db", "/eyas/set/proteins.faa")
    assert hits.stdout == expected and expected
    run(*ACCESS, "--", "tar", "-C", "/eyas/set", "-cf", tmp_path / "all.tar", ".")
    with tarfile.open(tmp_path / "all.tar") as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    assert tree(tmp_path / "unpacked") == tree(source)


def test_what_is_written_becomes_a_data_set(
    data: Run, eyas: Eyas, run: Run, files: Path, tmp_path: Path
) -> None:
    put(data, files, "set")
    shell = "mkdir /eyas/new/a; wc -l < /eyas/set/text > /eyas/new/a/part; mv /eyas/new/a/part /eyas/new/a/n"
    made = run(*ACCESS, "--label", "result", "--tag", "kind=result", "--", "sh", "-c", shell)
    assert made.stdout == "result\n"
    assert run("cat", "data:result/a/n").stdout == "1000\n"
    failed = run(*ACCESS, "--", "sh", "-c", "echo x > /eyas/new/x; exit 3", status=3)
    assert "ended with exit status 3; no data set was made" in failed.stderr
    assert "cannot run `/no/program`" in run(*ACCESS, "--", "/no/program", status=2).stderr
    assert len(data("find", "-q").stdout.split()) == 2
    assert not list(Path(eyas.env["TMPDIR"]).glob("eyas-*")), "its folders are gone"


@pytest.mark.parametrize("where", ["folder", "store"])
def test_a_damaged_copy_is_never_read(data: Run, run: Run, start: Start, tmp_path: Path, where: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "large").write_bytes(os.urandom(500_000))
    site = tmp_path / "here"
    if where == "store":
        site = tmp_path / "far"
        data("site", "--join", Store(start, site).join)
        put(data, source, "set", "--site", "far")
    else:
        put(data, source, "set")
    for path in objects(site):
        spoil(path)
    shell = "cat /eyas/set/large > /eyas/new/copy; exit 0"
    unread = run(*ACCESS, "--", "sh", "-c", shell, status=1)
    assert "Input/output error" in unread.stderr and "damaged" in unread.stderr, unread
    assert "1 file could not be read; no data set was made" in unread.stderr


def test_signals_end_the_program(data: Run, eyas: Eyas, start: Start, files: Path, tmp_path: Path) -> None:
    put(data, files, "set")
    shell = "echo begun $$; cat /eyas/set/text > /eyas/new/x; exec sleep 60"
    for number in (signal.SIGINT, signal.SIGTERM):
        running = start(*ACCESS, "--", "sh", "-c", shell)
        running.wait_for_text("begun")
        running.signal(number)
        assert "no data set was made" in running.wait(status=130).stderr
    assert not list(Path(eyas.env["TMPDIR"]).glob("eyas-access*"))
    running = start(*ACCESS, "--", "sh", "-c", shell)
    running.wait_for_text("begun")
    program = int(running.stdout.split()[1])
    running.kill()
    wait_until(lambda: not Path(f"/proc/{program}").exists(), "the program's end")


def test_no_call_of_a_program_fails_when_the_command_is_killed(
    data: Run, start: Start, files: Path, tmp_path: Path
) -> None:
    """Processes far below the command end with it, also those that make calls all the time."""
    put(data, files, "set")
    below = 'while cat /eyas/set/text > /dev/null; do :; done; echo "a call failed"'
    shell = f"""
        setsid sh -c 'echo $$; {below}' & (sh -c 'echo $$; exec sleep 60' &); {below}
    """
    running = start(*ACCESS, "--", "sh", "-c", shell)
    wait_until(lambda: len(running.stdout.split()) == 2, "the numbers of the programs", alive=running)
    programs = [Path("/proc", word) for word in running.stdout.split()]
    assert all(program.exists() for program in programs)
    running.kill()
    wait_until(lambda: not any(program.exists() for program in programs), "the programs' end")
    wait_until(lambda: "was killed" in running.stderr, "the message", 5)
    assert "a call failed" not in running.stdout and "not implemented" not in running.stderr
    said = [line for line in running.stderr.splitlines() if "note" not in line]
    assert said == ["eyas access was killed, so the program that it ran has been ended"], said


WITHOUT_FUSE = """
set -e
mount -t tmpfs none /dev
mknod -m 666 /dev/null c 1 3
mknod -m 666 /dev/urandom c 1 9
exec "$@"
"""


def test_it_is_chosen_where_there_is_no_fuse(
    data: Run, eyas: Eyas, run: Run, files: Path, tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        lacking("needs root, to take a device away")
    put(data, files, "set")
    hidden = ("unshare", "-m", "sh", "-c", WITHOUT_FUSE, "sh")
    shell = "tail -n 1 /eyas/set/text"

    def without_fuse(*words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        command = [*hidden, str(eyas.path), "access", *words, "--", "sh", "-c", shell]
        done = subprocess.run(command, env=eyas.env, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == status, done
        return done

    chosen = without_fuse()
    assert chosen.stdout == "999\n"
    assert "sees data sets by seccomp" in chosen.stderr and "`/dev/fuse`" in chosen.stderr
    assert "`/dev/fuse`" in without_fuse("--by", "fuse", status=4).stderr
    asked = run(*ACCESS, "--explain", "--", "true")
    assert "by seccomp, as you asked for it: a file comes as a whole when it is opened" in asked.stderr
    assert run(*ACCESS, "--", "true").stderr == ""
    within = run(*ACCESS, "--", eyas.path, *ACCESS, "--", "true", status=2)
    assert "somebody else answers calls of this process" in within.stderr
