"""Homes of commands by the presets of eyas: each with its tool and a real server of its own."""

from __future__ import annotations

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
    run("cp", "words", f"{place}/{first}", cwd=cwd, env=env)
    task = {
        "id": "t",
        "command": f"wc -w < {shlex.quote(first)} > n",
        "inputs": [f"{place}/{first}"],
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
