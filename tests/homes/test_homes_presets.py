"""Homes of commands by the presets of eyas: each with its tool and a real server of its own."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from buckets import answers_at, free_port
from harness import Run, wait_until
from lists import write_list

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def needs(*programs: str) -> pytest.MarkDecorator:
    """Skips where a program is missing, but not in CI, which installs all of them."""
    missing = [name for name in programs if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")]
    return pytest.mark.skipif(bool(missing) and not os.environ.get("CI"), reason=f"needs {missing}")


@contextmanager
def served(command: list[str], port: int, log: Path) -> Iterator[None]:
    """A server for the time of a test."""
    with open(log, "wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    try:

        def answers() -> bool:
            assert server.poll() is None, log.read_text()
            return answers_at(port)

        wait_until(answers, command[0])
        yield
    finally:
        server.terminate()
        server.wait(30)


def make_key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A host `box` of ssh, and the environment in which `ssh` knows it."""
    port, user = free_port(), os.environ.get("USER") or "root"
    for name in ("host", "user"):
        make_key(tmp_path / name)
    (tmp_path / "keys").write_text((tmp_path / "user.pub").read_text())
    (tmp_path / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {tmp_path}/host\nAuthorizedKeysFile {tmp_path}/keys\n"
        "StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n"
        f"PidFile {tmp_path}/sshd.pid\nMaxStartups 100\nSubsystem sftp internal-sftp\n"
    )
    (tmp_path / "ssh_config").write_text(
        f"Host box\n  HostName 127.0.0.1\n  Port {port}\n  User {user}\n  IdentityFile {tmp_path}/user\n"
        f"  StrictHostKeyChecking no\n  UserKnownHostsFile {tmp_path}/known\n  LogLevel ERROR\n"
        f"  ControlPath {tmp_path}/m\n"
    )
    # `ssh` takes the home folder from the system's list of users, so the configuration is given by a wrapper.
    (tmp_path / "bin").mkdir()
    wrapper = tmp_path / "bin" / "ssh"
    wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {tmp_path}/ssh_config "$@"\n')
    wrapper.chmod(0o755)
    (tmp_path / "rclone.conf").write_text(
        f"[box]\ntype = alias\nremote = sftp:/\n[sftp]\ntype = sftp\nhost = 127.0.0.1\nport = {port}\nuser = {user}\nkey_file = {tmp_path}/user\n"
        "shell_type = none\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    log = tmp_path / "sshd.log"
    with served([str(SSHD), "-D", "-e", "-f", str(tmp_path / "sshd_config")], port, log):
        yield {
            "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
            "RCLONE_CONFIG": str(tmp_path / "rclone.conf"),
        }


@pytest.fixture
def master(box: dict[str, str], tmp_path: Path) -> Iterator[None]:
    """One connection that all commands share, as a user of many small files would have it."""
    client = subprocess.Popen(["ssh", "-F", str(tmp_path / "ssh_config"), "-M", "-N", "box"])
    try:
        wait_until((tmp_path / "m").exists, "ssh -M")
        yield
    finally:
        client.terminate()
        client.wait(30)


def a_task_reads_and_writes(
    run: Run, place: str, names: tuple[str, str], env: dict[str, str], cwd: Path
) -> None:
    """An unmodified program gets its input from there, and its output goes there."""
    first, second = names
    (cwd / "words").write_text("one two")
    run("cp", "words", f"{place}/{first.replace('%', '%25')}", cwd=cwd, env=env)
    task = {
        "id": "t",
        "command": f"wc -w < {shlex.quote(first)} > n",
        "inputs": [f"{place}/{first.replace('%', '%25')}"],
        "outputs": {"n": f"{place}/{second}"},
    }
    write_list(cwd / "tasks.jsonl", task)
    run("run", "tasks.jsonl", "--dir", "c", cwd=cwd, env=env)
    assert run("cat", f"{place}/{second}", cwd=cwd, env=env).stdout.strip() == "2"


@needs("sshd", "ssh", "rsync", "rclone")
@pytest.mark.usefixtures("master")
@pytest.mark.parametrize(
    "preset", [pytest.param(slow, marks=pytest.mark.long) for slow in ("ssh", "rsync", "rclone")]
)
def test_a_host_of_ssh_keeps_every_promise(
    run: Run, lab: Run, box: dict[str, str], tmp_path: Path, preset: str
) -> None:
    (tmp_path / "eyas.toml").write_text(f'[home.far]\npreset = "{preset}"\n')
    folder = tmp_path / "far"
    folder.mkdir()
    place = f"far://box{folder}"
    done = lab("homes", f"{place}/base", "--no-line-breaks", cwd=tmp_path, env=box)
    assert "keeps every promise" in done.stdout
    assert not [path for path in folder.rglob("*") if path.name.startswith(".eyas-part-")]
    a_task_reads_and_writes(run, place, ("a b's.txt", "out/n"), box, tmp_path)
    assert (folder / "out" / "n").read_text().strip() == "2"


@needs("sshd", "ssh")
def test_sftp_keeps_every_promise(lab: Run, box: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "far"
    folder.mkdir()
    done = lab("homes", f"sftp://box{folder}/base", cwd=tmp_path, env=box)
    assert "keeps every promise" in done.stdout
    assert not [path for path in folder.rglob("*") if path.name.startswith(".eyas-part-")]


@needs("sshd", "ssh")
def test_a_copy_at_sftp_keeps_its_time_unless_it_would_look_like_what_it_replaces(
    run: Run, box: dict[str, str], tmp_path: Path
) -> None:
    at = 1_500_000_000
    for text in ("one", "two"):
        (tmp_path / "x").write_text(text)
        os.utime(tmp_path / "x", (at, at))
        run("cp", "x", f"sftp://box{tmp_path}/far/x", cwd=tmp_path, env=box)
        landed = (tmp_path / "far" / "x").stat().st_mtime
        assert (landed == at) == (text == "one"), landed
    run("cp", f"sftp://box{tmp_path}/far/x", "back", cwd=tmp_path, env=box)
    assert int((tmp_path / "back").stat().st_mtime) == int(landed)


@needs("sshd", "ssh")
def test_a_host_that_does_not_let_us_in_is_no_missing_file(
    run: Run, box: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "eyas.toml").write_text('[home.far]\npreset = "ssh"\n')
    (tmp_path / "keys").write_text("")
    said = run("cat", f"far://box{tmp_path}/x", cwd=tmp_path, env=box, status=4).stderr
    assert "permission denied" in said
    assert "no such" not in said


@needs("xrootd", "xrdcp", "xrdfs")
def test_xrootd_keeps_every_promise(run: Run, lab: Run, tmp_path: Path) -> None:
    port = free_port()
    # The server refuses to run as root, and its user has to reach its folders.
    top = Path(subprocess.run(["mktemp", "-d"], check=True, capture_output=True, text=True).stdout.strip())
    try:
        for name in ("data", "admin"):
            (top / name).mkdir()
        (top / "x.cfg").write_text(
            f"all.export /\noss.localroot {top}/data\nxrd.port {port}\n"
            f"all.adminpath {top}/admin\nall.pidpath {top}/admin\n"
        )
        command = ["xrootd", "-c", str(top / "x.cfg"), "-n", "test"]
        if os.geteuid() == 0:
            for path in (top, *top.rglob("*")):
                shutil.chown(path, "xrootd")
            command = ["setpriv", "--reuid=xrootd", "--regid=xrootd", "--clear-groups", *command]
        (tmp_path / "eyas.toml").write_text('[home.xrd]\npreset = "xrootd"\n')
        place = f"xrd://127.0.0.1:{port}/lot"
        with served(command, port, tmp_path / "xrootd.log"):
            done = lab("homes", f"{place}/base", "--plain-names", cwd=tmp_path)
            assert "keeps every promise" in done.stdout
            a_task_reads_and_writes(run, place, ("a b.txt", "out/n"), {}, tmp_path)
        assert (top / "data" / "lot" / "out" / "n").read_text().strip() == "2"
        assert not [path for path in top.rglob("*") if path.name.startswith(".eyas-part-")]
    finally:
        shutil.rmtree(top)


def test_the_list_of_an_xrootd_server_has_a_bound(run: Run, tmp_path: Path) -> None:
    """Its links may lead around in circles, and look like directories."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "xrdfs").write_text(
        "#!/bin/sh\n"
        'awk \'BEGIN {m = " u g 1 2026-01-01 00:00:00 /lot/"; print "-rw-r--r--" m "first"; '
        'for (n = 0; n < 50000; n++) print "drwxr-xr-x" m "d" n; print "-rw-r--r--" m "d1/a b"; '
        'if (ENVIRON["MORE"]) print "drwxr-xr-x" m "d" n; print "-rw-r--r--" m "last"}\'\n'
    )
    (tools / "xrdfs").chmod(0o755)
    (tmp_path / "eyas.toml").write_text('[home.xrd]\npreset = "xrootd"\n')
    env = {"PATH": f"{tools}:{os.environ['PATH']}"}

    def listed(more: str, status: int) -> tuple[list[str], str]:
        done = run("ls", "xrd://server/lot/", cwd=tmp_path, env=env | {"MORE": more}, status=status)
        return [line.removeprefix("xrd://server/lot/") for line in done.stdout.splitlines()], done.stderr

    assert listed("", 0)[0] == ["d1/a%20b", "first", "last"]
    found, said = listed("1", 4)
    assert found == ["d1/a%20b", "first"]
    assert "left out `more than 50,000 directories`: links may lead around in circles" in said


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that servers which run as `nobody` may write to."""
    top = Path(subprocess.run(["mktemp", "-d"], check=True, capture_output=True, text=True).stdout.strip())
    top.chmod(0o777)
    yield top
    shutil.rmtree(top)


@pytest.fixture
def gridftp(open_folder: Path, tmp_path: Path) -> Iterator[str]:
    """A GridFTP server that lets everybody in, and the location of a folder there."""
    port = free_port()
    (tmp_path / "eyas.toml").write_text('[home.ftp]\npreset = "gridftp"\n')
    command = [
        shutil.which("globus-gridftp-server", path=f"{os.environ['PATH']}:/usr/sbin") or "",
        *("-s", "-no-detach", "-aa", "-anonymous-user", "nobody", "-p", str(port)),
        *("-control-interface", "127.0.0.1", "-data-interface", "127.0.0.1"),
    ]
    with served(command, port, tmp_path / "gridftp.log"):
        yield f"ftp://127.0.0.1:{port}{open_folder}/lot"


@pytest.fixture
def chirp(open_folder: Path, tmp_path: Path) -> Iterator[str]:
    """A chirp server, and the location of a folder there."""
    port = free_port()
    (tmp_path / "eyas.toml").write_text('[home.ch]\npreset = "chirp"\n')
    (open_folder / ".__acl").write_text("unix:root rwldav(rwldav)\naddress:127.0.0.1 rwldav(rwldav)\n")
    command = ["chirp_server", "-r", str(open_folder), "-p", str(port), "-I", "127.0.0.1"]
    # It tells nobody of itself, and as root it wants the name of a user who may do less.
    command += ["-u", f"127.0.0.1:{free_port()}", "-o", str(tmp_path / "chirp.txt")]
    if os.geteuid() == 0:
        command += ["-i", "nobody"]
        for path in (open_folder, *open_folder.iterdir()):
            shutil.chown(path, "nobody")
    with served(command, port, tmp_path / "chirp.log"):
        yield f"ch://127.0.0.1:{port}/lot"


def no_parts_in(folder: Path) -> bool:
    return not [path for path in folder.rglob("*") if path.name.startswith(".eyas-part-")]


# 1,000 bytes.
LONG_NAME = "/".join(["long-name-" * 20] * 4 + ["long-name-" * 19 + "123456"])


def checked(run: Run, cwd: Path, place: str) -> None:
    """`eyas home check` finds nothing wrong, a file is no directory, and `eyas cp` takes a `/` at the end for a directory."""
    table = json.loads(run("home", "check", place, "--size", "1", "--json", cwd=cwd).stdout)
    works = {row["what"]: row["works"] for row in table["rows"]}
    assert works["names beyond ASCII"] is None, table
    for what in ("write", "stat", "read", "read a range", "versions follow the object", "list", "remove"):
        assert works[what], table
    (cwd / "words").write_text("one two")
    run("cp", "words", f"{place}/into/", cwd=cwd)
    assert run("cat", f"{place}/into/words", cwd=cwd).stdout == "one two"
    for name in ("into/", "into", "into/words/"):
        said = run("cat", f"{place}/{name}", cwd=cwd, status=None)
        assert said.status != 0 and said.stdout == "", (name, said)
    assert f"{place}/into/words" in run("ls", f"{place}/*/w*", cwd=cwd).stdout


def long_name_is_kept(run: Run, cwd: Path, place: str) -> None:
    run("cp", "words", f"{place}/{LONG_NAME}", cwd=cwd)
    assert run("cat", f"{place}/{LONG_NAME}", cwd=cwd).stdout == "one two"


def refuses(run: Run, cwd: Path, place: str, name: str) -> None:
    """A name that the server would take for another one is refused before it is asked: nothing is read, written or removed."""
    (cwd / "words").write_text("one two")
    for words in (["cp", "words", f"{place}/{name}"], ["cat", f"{place}/{name}"]):
        said = run(*words, cwd=cwd, status=None)
        assert said.status != 0 and "takes no such name" in said.stderr, said


@needs("globus-gridftp-server", "globus-url-copy", "curl")
@pytest.mark.long
def test_gridftp_keeps_every_promise(
    run: Run, lab: Run, gridftp: str, open_folder: Path, tmp_path: Path
) -> None:
    done = lab("homes", f"{gridftp}/base", "--ascii-names", cwd=tmp_path)
    assert "keeps every promise" in done.stdout
    checked(run, tmp_path, gridftp)
    long_name_is_kept(run, tmp_path, gridftp)
    assert no_parts_in(open_folder)


@needs("globus-gridftp-server", "globus-url-copy", "curl")
def test_gridftp_is_a_home(run: Run, gridftp: str, open_folder: Path, tmp_path: Path) -> None:
    a_task_reads_and_writes(run, gridftp, ("a b's+%;#?.txt", "out/n"), {}, tmp_path)
    assert (open_folder / "lot" / "out" / "n").read_text().strip() == "2"
    assert (open_folder / "lot" / "a b's+%;#?.txt").exists()
    assert no_parts_in(open_folder)
    # The server leaves out what is no ASCII, so `\u00e9x` would be `x`; a line break would begin a command.
    (open_folder / "lot" / "x").write_text("another one")
    for name in ("\u00e9x", "x%0D%0ADELE%20x", "x%09y"):
        refuses(run, tmp_path, gridftp, name)
    assert (open_folder / "lot" / "x").read_text() == "another one"


@needs("globus-gridftp-server", "globus-url-copy", "curl")
def test_small_files_come_from_gridftp_by_few_connections(
    run: Run, gridftp: str, open_folder: Path, tmp_path: Path
) -> None:
    lot = open_folder / "lot"
    lot.mkdir()
    names = [f"{n} it's.txt" for n in range(60)]
    for n, name in enumerate(names):
        (lot / name).write_text(f"{n}\n" * (n % 3))
    calls = tmp_path / "calls"
    wrapper = tmp_path / "bin" / "globus-url-copy"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\necho "$@" >> {calls}\nexec {shutil.which("globus-url-copy")} "$@"\n')
    wrapper.chmod(0o755)
    task = {
        "id": "t",
        "command": "cat *it*.txt | sort -n | uniq -c | wc -l > n",
        "inputs": [f"{gridftp}/{name.replace(' ', '%20')}" for name in names],
        "outputs": {"n": str(tmp_path / "n")},
    }
    write_list(tmp_path / "tasks.jsonl", task)
    env = {"PATH": f"{wrapper.parent}:{os.environ['PATH']}"}
    run("run", "tasks.jsonl", "--dir", "c", cwd=tmp_path, env=env)
    assert (tmp_path / "n").read_text().strip() == "40"
    assert len(calls.read_text().splitlines()) <= 6, calls.read_text()


@needs("globus-gridftp-server", "globus-url-copy", "curl")
def test_what_gridftp_refuses_is_said(run: Run, gridftp: str, open_folder: Path, tmp_path: Path) -> None:
    assert "there is no such object" in run("cat", f"{gridftp}/x", cwd=tmp_path, status=2).stderr
    closed = open_folder / "lot"
    closed.mkdir(mode=0o700)
    denied = run("cat", f"{gridftp}/x", cwd=tmp_path, status=4).stderr
    assert "permission denied" in denied and "no such" not in denied


@needs("chirp_server", "chirp", "chirp_put", "chirp_get")
@pytest.mark.long
def test_chirp_keeps_every_promise(run: Run, lab: Run, chirp: str, open_folder: Path, tmp_path: Path) -> None:
    done = lab("homes", f"{chirp}/base", "--ascii-names", "--name-bytes-max", "300", cwd=tmp_path)
    assert "keeps every promise" in done.stdout
    checked(run, tmp_path, chirp)
    assert no_parts_in(open_folder)


@needs("chirp_server", "chirp", "chirp_put", "chirp_get")
def test_chirp_is_a_home(run: Run, chirp: str, open_folder: Path, tmp_path: Path) -> None:
    a_task_reads_and_writes(run, chirp, ("a b's+%;#?.txt", "out/n"), {}, tmp_path)
    assert (open_folder / "lot" / "out" / "n").read_text().strip() == "2"
    assert no_parts_in(open_folder)
    assert "takes no such name" in run("cat", f"{chirp}/out/n/", cwd=tmp_path, status=None).stderr
    for name in ("\u00e9", "x%0Ay", LONG_NAME):
        refuses(run, tmp_path, chirp, name)


@needs("chirp_server", "chirp", "chirp_put", "chirp_get")
def test_what_chirp_refuses_is_said(run: Run, chirp: str, open_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "words").write_text("one two")
    assert "there is no such object" in run("cat", f"{chirp}/x", cwd=tmp_path, status=2).stderr
    (open_folder / ".__acl").write_text("unix:somebody rwlda\n")
    denied = run("cp", "words", f"{chirp}/x", cwd=tmp_path, status=4).stderr
    assert "permission denied" in denied and "no such" not in denied


@needs("sshd", "ssh")
@pytest.mark.parametrize("scheme", ["sftp", "far"])
def test_links_on_a_host_are_followed_but_not_in_circles(
    scheme: str, run: Run, box: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "eyas.toml").write_text('[home.far]\npreset = "ssh"\n')
    top, other = tmp_path / "top", tmp_path / "other"
    (top / "real").mkdir(parents=True)
    other.mkdir()
    for path in (top / "file", top / "real" / "deep", other / "x"):
        path.write_text("x")
    (top / "linked").symlink_to(other)
    (top / "to-file").symlink_to("../other/x")
    (top / "real" / "back").symlink_to("..")
    (other / "around").symlink_to(top)
    with open(os.fsencode(top) + b"/caf\xe9", "w"):
        pass
    listed = run("ls", f"{scheme}://box{top}", cwd=tmp_path, env=box, status=4)
    found = {line.removeprefix(f"{scheme}://box{top}/") for line in listed.stdout.splitlines()}
    assert found == {"file", "real/deep", "linked/x", "to-file"}
    left_out = [line for line in listed.stderr.splitlines() if line.startswith("left out `")]
    assert len(left_out) == 3, listed
    assert all(any(name in line for line in left_out) for name in ("real/back", "linked/around", "caf"))


@needs("sshd", "ssh")
def test_directories_that_link_to_each_other_on_a_host_are_listed_to_a_bound(
    run: Run, box: dict[str, str], tmp_path: Path
) -> None:
    """Nine of them have a million ways through them. What lies behind no link is listed whole."""
    (tmp_path / "eyas.toml").write_text('[home.far]\npreset = "ssh"\n')
    farm = [tmp_path / "farm" / f"d{i}" for i in range(9)]
    for one in farm:
        one.mkdir(parents=True)
        (one / "file").touch()
    for one in farm:
        for other in farm:
            if one != other:
                (one / f"l{other.name}").symlink_to(other)
    place = f"far://box{tmp_path}/farm"
    listed = run("ls", place, cwd=tmp_path, env=box, status=4)
    found = set(listed.stdout.splitlines())
    assert {f"{place}/d{i}/file" for i in range(9)} <= found
    assert 50_000 <= len(found) < 60_000
    assert "too often for all to be listed again" in listed.stderr


def with_links(top: Path) -> None:
    """A folder with a file, links to a file, to a directory and to nothing, and a link around."""
    lot, other = top / "lot", top / "other"
    for folder in (lot / "real", other):
        folder.mkdir(parents=True)
        if (top / ".__acl").exists():
            shutil.copy(top / ".__acl", folder)
            shutil.copy(top / ".__acl", lot)
    for path in (lot / "file", lot / "real" / "deep", other / "x"):
        path.write_text("x")
    for link, to in [
        ("linked", "../other"),
        ("to-file", "../other/x"),
        ("real/back", ".."),
        ("lost", "nowhere"),
    ]:
        (lot / link).symlink_to(to)
    if os.geteuid() == 0:
        for path in (lot, other, *lot.rglob("*"), *other.rglob("*")):
            os.chown(path, 65534, 65534, follow_symlinks=False)


def links_are_named(
    run: Run, cwd: Path, place: str, followed: set[str], env: dict[str, str] | None = None
) -> None:
    """A listing has the files, and names each link that it does not follow."""
    listed = run("ls", place, cwd=cwd, status=4, env=env)
    found = {line.removeprefix(f"{place}/") for line in listed.stdout.splitlines()}
    assert found == {"file", "real/deep"} | followed
    left_out = [line for line in listed.stderr.splitlines() if line.startswith("left out `")]
    for name in {"linked", "to-file", "real/back", "lost"} - followed:
        assert any(name in line for line in left_out), (name, listed)


@needs("globus-gridftp-server", "globus-url-copy", "curl")
def test_links_on_a_gridftp_server_are_named(
    run: Run, gridftp: str, open_folder: Path, tmp_path: Path
) -> None:
    with_links(open_folder)
    links_are_named(run, tmp_path, gridftp, set())


@needs("chirp_server", "chirp", "chirp_put", "chirp_get")
def test_links_on_a_chirp_server_are_followed_to_files_and_else_named(
    run: Run, chirp: str, open_folder: Path, tmp_path: Path
) -> None:
    with_links(open_folder)
    links_are_named(run, tmp_path, chirp, {"to-file"})


@needs("rclone")
def test_links_that_rclone_does_not_follow_are_named(run: Run, open_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "eyas.toml").write_text('[home.rc]\npreset = "rclone"\n')
    (tmp_path / "rclone.conf").write_text("[disk]\ntype = alias\nremote = /\n")
    with_links(open_folder)
    env = {"RCLONE_CONFIG": str(tmp_path / "rclone.conf")}
    links_are_named(run, tmp_path, f"rc://disk{open_folder}/lot", set(), env)
