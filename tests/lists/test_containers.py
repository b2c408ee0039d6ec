"""Tasks whose programs have the root file system of an image: packed root file systems, and images as other tools save them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Run, need_path, need_program
from lists import failures, nothing_is_left, write_list
from weather import Cluster

APPLETS = "sh cat echo env false head id kill ls mkdir rm sleep setsid tail test touch true wc".split()
MARK = "etc/made-of"
# What an image calls this machine.
OWN = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
# How a file of Apptainer's begins.
SIF = b"#!/usr/bin/env run-singularity\n" + b"\0" * 100
OTHER = "arm64" if OWN != "arm64" else "amd64"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that programs in containers see as well, and that others may enter."""
    path = Path(tempfile.mkdtemp(prefix="eyas-containers-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def busybox() -> bytes:
    need_program("bwrap", "bubblewrap")
    return need_path("/bin/busybox", "busybox-static").read_bytes()


def tar_of(files: dict[str, bytes | str | None]) -> bytes:
    """An archive: bytes are a program, a text is what a symbolic link leads to, and `None` is a directory."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.mode = 0o755
            if content is None:
                entry.type = tarfile.DIRTYPE
                archive.addfile(entry)
            elif isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                archive.addfile(entry)
            else:
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def root(mark: str = "a packed root") -> dict[str, bytes | str | None]:
    programs: dict[str, bytes | str | None] = {"bin/busybox": busybox()}
    links = {f"bin/{name}": "busybox" for name in APPLETS}
    # In many images these are links.
    return {**programs, **links, MARK: f"{mark}\n".encode(), "etc/resolv.conf": "../run/resolv.conf"}


def oci(
    path: Path, layers: list[bytes], form: str, machine: str = OWN, damage: bytes = b"", **config: Any
) -> Path:
    """An image: `form` is what `docker save` wrote for long, what it writes now, or what `skopeo copy` does."""
    blobs: dict[str, bytes | str | None] = {}

    def blob(content: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"digest": f"sha256:{digest}", "size": len(content), "mediaType": "x"}

    described = [blob(layer) for layer in layers]
    # A layer's digest in the configuration is that of its plain bytes.
    plain = [gzip.decompress(layer) if layer.startswith(b"\x1f\x8b") else layer for layer in layers]
    digests = [f"sha256:{hashlib.sha256(layer + damage).hexdigest()}" for layer in plain]
    described_as = {"type": "layers", "diff_ids": digests}
    text = json.dumps(
        {"architecture": machine, "os": "linux", "config": config, "rootfs": described_as}
    ).encode()
    manifest = {"schemaVersion": 2, "config": blob(text), "layers": described}
    files: dict[str, bytes | str | None] = {}
    if form != "docker":
        platform_of = {"architecture": machine, "os": "linux"}
        elsewhere = {"digest": "sha256:0", "platform": {"architecture": "unknown", "os": "unknown"}}
        inner = blob(
            json.dumps(
                {"manifests": [elsewhere, {**blob(json.dumps(manifest).encode()), "platform": platform_of}]}
            ).encode()
        )
        files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [inner]}).encode()
        files["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
    if form != "oci":
        names = [f"blobs/sha256/{layer['digest'][7:]}" for layer in described]
        if form == "docker":
            # A layer in a folder of its own, and a link to one that two images share.
            files["one/layer.tar"] = blobs.pop(names[0])
            files["two/layer.tar"] = "../one/layer.tar"
            names[0] = "two/layer.tar"
        config_name = f"blobs/sha256/{manifest['config']['digest'][7:]}"  # type: ignore[index]
        files["manifest.json"] = json.dumps([{"Config": config_name, "Layers": names}]).encode()
    path.write_bytes(tar_of({**files, **blobs}))
    return path


def test_a_packed_root_is_that_of_the_programs(run: Run, tmp_path: Path) -> None:
    files = root()
    plain = tar_of(files)
    (tmp_path / "i.tar").write_bytes(plain)
    (tmp_path / "i.tar.gz").write_bytes(gzip.compress(plain, 1))
    with zipfile.ZipFile(tmp_path / "i.zip", "w") as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            entry.create_system = 3
            entry.external_attr = (0o120777 if isinstance(content, str) else 0o100755) << 16
            archive.writestr(entry, content or b"")
    (tmp_path / "x").write_text("an input\n")
    look = f"cat /{MARK} x; pwd > where; test -e /etc/os-release && echo the node; echo $MINE $HOME; touch /bin/x 2> /dev/null || echo no"
    for image in ("i.tar", "i.tar.gz", "i.zip"):
        tasks = [
            {
                "command": look,
                "inputs": ["x"],
                "outputs": {"where": f"out/where{i}"},
                "stdout": f"out/{i}",
                "env": {"MINE": "set", "HOME": "here"},
                "container": image,
            }
            for i in range(4)
        ]
        write_list(tmp_path / "l.jsonl", *tasks)
        run("run", "l.jsonl", "--nodes", "2", "--slots", "2")
        for i in range(4):
            assert (tmp_path / f"out/{i}").read_text() == "a packed root\nan input\nset here\nno\n"
            # The sandbox, at its own place.
            assert "/sandbox/" in (tmp_path / f"out/where{i}").read_text()
        shutil.rmtree(tmp_path / "out")
    nothing_is_left(tmp_path)


@pytest.mark.parametrize("form", ["docker", "both", "oci"])
def test_the_layers_of_an_image_are_applied(run: Run, tmp_path: Path, form: str) -> None:
    lower = tar_of(
        {
            **root("the lower layer"),
            "gone": b"",
            "d/old": b"",
            "d/sub/old": b"",
            "kept/old": b"",
            "way": b"",
            "link": "kept",
        }
    )
    upper = tar_of(
        {
            MARK: b"the upper layer\n",
            ".wh.gone": b"",
            "d/new": b"",
            # All that lower layers have there, and nothing of this one.
            "d/.wh..wh..opq": b"",
            "kept/new": b"",
            # A directory in place of a file, and of a link.
            "way/in": b"",
            "link": None,
        }
    )
    config: dict[str, Any] = {
        "Env": ["PATH=/opt:/bin", "OF_IMAGE=1", "MINE=image"],
        "WorkingDir": "/d",
        "Entrypoint": ["false"],
    }
    oci(tmp_path / "i.tar", [lower, gzip.compress(upper)], form, **config)
    look = f'cat /{MARK}; echo /gone* /d/* /d/sub/* /kept/* /way/* /link/*; echo "$PATH $OF_IMAGE $MINE"'
    task = {"command": look, "container": "i.tar", "stdout": "out", "env": {"MINE": "task"}}
    write_list(tmp_path / "l.jsonl", task)
    run("run", "l.jsonl")
    seen = (tmp_path / "out").read_text().splitlines()
    # What is not there stays as the shell was given it.
    there = "/gone* /d/new /d/sub/* /kept/new /kept/old /way/in /link/*"
    assert seen == ["the upper layer", there, "/opt:/bin 1 task"]


def test_all_that_holds_for_programs_holds_in_containers(run: Run, tmp_path: Path, folder: Path) -> None:
    (tmp_path / "i.tar").write_bytes(tar_of(root()))
    with tarfile.open(tmp_path / "t.tar", "w") as archive:
        archive.add(tmp_path / "i.tar", "shared")
    tasks: dict[str, dict[str, Any]] = {
        "status": {"command": "echo the last words >&2; exit 3"},
        "signal": {"command": "kill -SEGV $$"},
        "walltime": {
            "command": f"trap 'echo caught > {folder}/caught; exit 0' TERM; sleep 100 & wait",
            "walltime": "500ms",
        },
        # One that heeds no signal, with another one that has left its session.
        "deaf": {"command": "trap '' TERM; setsid sleep 100 & sleep 100; sleep 100", "walltime": "500ms"},
        "memory": {
            "command": "head -c 200000000 /dev/zero | tail -c 200000000 | wc -c; sleep 100",
            "memory": "50MB",
        },
        "missing": {"command": "true", "outputs": ["out/missing"]},
    }
    good: dict[str, dict[str, Any]] = {
        "leaves": {"command": "setsid sleep 100 & sleep 100 & true"},
        "shares": {
            "command": "test -s t/shared && ! touch t/more 2> /dev/null",
            "inputs": [{"from": "t.tar", "unpack": "tar"}],
        },
        "own": {"command": ["./own"], "inputs": {"own": "own.sh"}},
        "node": {
            "command": "test $(ls -d /proc/[0-9]* | wc -l) -gt 3 && echo x > /dev/null && test -s /etc/hosts"
        },
        # Root mounts nothing anew, and does not see the node through another process.
        "rights": {"command": "grep -q '^CapEff:.0*$' /proc/self/status && ! ls /proc/1/root/ 2> /dev/null"},
        "slot": {"command": 'test "$EYAS_TASK" = slot && test -d "$EYAS_SANDBOX" && test "$TMPDIR" = "$PWD"'},
    }
    (tmp_path / "own.sh").write_text("#!/bin/sh\ntest -e /bin/busybox\n")
    write_list(
        tmp_path / "l.jsonl",
        *({"id": name, "container": "i.tar", **task} for name, task in {**tasks, **good}.items()),
    )
    failed = failures(run("run", "l.jsonl", "--slots", "4", status=1))
    assert sorted(failed) == sorted(tasks), failed
    assert "ended with status 3; its last words: the last words" in failed["status"]
    assert "ended by signal 11 (SIGSEGV)" in failed["signal"]
    for name in ("walltime", "deaf"):
        assert "ran longer than its walltime" in failed[name]
    assert (folder / "caught").read_text() == "caught\n"
    assert "more than its limit of 47.7 MiB" in failed["memory"]
    assert "its declared output `missing`" in failed["missing"]
    nothing_is_left(tmp_path)


def test_what_is_no_container_is_said_in_one_sentence(run: Run, tmp_path: Path) -> None:
    whole = tar_of({**root(), "bin/tool": b"#!/usr/bin/absent\n", "bin/text": b"text\n"})
    (tmp_path / "i.tar").write_bytes(whole)
    (tmp_path / "text.tar").write_text("no archive")
    (tmp_path / "junk.tar").write_bytes(tar_of({"rootfs/bin/sh": b"", "note": b""}))
    (tmp_path / "apptainer.tar").write_bytes(SIF)
    layer = tar_of(root())
    oci(tmp_path / "other.tar", [layer], "docker", OTHER)
    oci(tmp_path / "others.tar", [layer], "oci", OTHER)
    outside = tar_of({**root(), "up": "../../..", "up/evil": b""})
    oci(tmp_path / "evil.tar", [outside], "oci")
    oci(tmp_path / "flipped.tar", [layer], "docker", damage=b"x")
    for n, gone in enumerate((".wh.", "bin/.wh..", ".wh...")):
        oci(tmp_path / f"gone{n}.tar", [layer, tar_of({gone: b""})], "oci")
    tasks = {
        "text": ("text.tar", "true", "text.tar` cannot be made a container: "),
        "junk": (
            "junk.tar",
            "true",
            "neither an image nor a root file system: at its top there is `note`, `rootfs`",
        ),
        "apptainer": ("apptainer.tar", "true", "it is a SIF image, and its name does not end in .sif"),
        "other": ("other.tar", "true", f"the image is for {OTHER}, and this node is {OWN}"),
        "others": ("others.tar", "true", f"the image is for {OTHER}, and this node is {OWN}"),
        "evil": ("evil.tar", "true", "leads out of it"),
        "flipped": ("flipped.tar", "true", "has other bytes than its digest says"),
        **{f"gone{n}": (f"gone{n}.tar", "true", "takes away no file") for n in range(3)},
        "absent": ("i.tar", ["nothing", "x"], "command not found in the container `"),
        "path": ("i.tar", ["/usr/bin/python3"], "there is no file `/usr/bin/python3`"),
        "loader": ("i.tar", ["tool"], "needs `/usr/bin/absent`, which is not in the container"),
        "format": ("i.tar", ["text"], "neither a program nor a script"),
    }
    write_list(
        tmp_path / "l.jsonl",
        *(
            {"id": name, "command": command, "container": image}
            for name, (image, command, _) in tasks.items()
        ),
    )
    failed = failures(run("run", "l.jsonl", status=1))
    assert sorted(failed) == sorted(tasks), failed
    for name, (_, _, said) in tasks.items():
        assert said in failed[name], (name, failed[name])
    assert not (tmp_path / "evil").exists() and not Path("/evil").exists()


def test_a_node_that_makes_no_containers_says_what_it_lacks(run: Run, tmp_path: Path) -> None:
    (tmp_path / "i.tar").write_bytes(tar_of(root()))
    (tmp_path / "i.sif").write_bytes(SIF)
    images = ("i.tar", "i.sif")
    write_list(
        tmp_path / "l.jsonl", *({"id": image, "command": "true", "container": image} for image in images)
    )
    failed = failures(run("run", "l.jsonl", env={**os.environ, "PATH": str(tmp_path)}, status=1))
    assert "this node has no program bwrap" in failed["i.tar"]
    assert "apt install bubblewrap" in failed["i.tar"]
    assert "this node has neither apptainer nor singularity" in failed["i.sif"]
    for message in failed.values():
        assert "(the node is `node1`)" in message, message


@pytest.mark.skipif(os.geteuid() != 0, reason="it takes a capability of root's away")
def test_a_node_that_may_not_make_containers_says_so(run: Run, tmp_path: Path) -> None:
    """As root in a container of another kind, which has taken the capability away."""
    (tmp_path / "i.tar").write_bytes(tar_of(root()))
    write_list(tmp_path / "l.jsonl", {"id": "t", "command": "true", "container": "i.tar"})
    (tmp_path / "weak").mkdir()
    weak = tmp_path / "weak" / "bwrap"
    weak.write_text(f'#!/bin/sh\nexec setpriv --bounding-set=-sys_admin {shutil.which("bwrap")} "$@"\n')
    weak.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}/weak:{os.environ['PATH']}"}
    message = failures(run("run", "l.jsonl", env=env, status=1))["t"]
    assert "does not let bwrap make the container" in message and "Operation not permitted" in message


def test_a_named_resource_finds_the_nodes_that_make_containers(eyas: Any, tmp_path: Path) -> None:
    image = tmp_path / "i.tar"
    image.write_bytes(tar_of(root()))
    cluster = Cluster(eyas, tmp_path / "cluster", tmp_path / "home")
    cluster.dispatcher()
    cluster.executor("lacks", "--container-command", "not-there {image}")
    cluster.executor("has", "--resource", "containers=1")
    task = {"command": f"cat /{MARK}", "container": str(image), "resources": {"containers": 1}}
    cluster.submit([{"id": f"t{i}", **task, "stdout": f"{tmp_path}/out/{i}"} for i in range(4)])
    cluster.wait()
    assert {(tmp_path / f"out/{i}").read_text() for i in range(4)} == {"a packed root\n"}


def test_a_container_for_all_tasks_of_a_run(run: Run, tmp_path: Path) -> None:
    (tmp_path / "i.tar").write_bytes(tar_of(root()))
    (tmp_path / "other.tar").write_bytes(tar_of(root("another one")))
    (tmp_path / "x").write_text("")
    options = ("--container", "i.tar")
    write_list(
        tmp_path / "l.jsonl",
        {"command": f"cat /{MARK} > o", "outputs": {"o": "out/1"}},
        {"command": f"cat /{MARK} > o", "outputs": {"o": "out/2"}, "container": "other.tar"},
    )
    run("run", "l.jsonl", *options)
    (tmp_path / "l.txt").write_text(f"cat /{MARK}\n")
    assert run("run", "l.txt", *options).stdout == "a packed root\n"
    run("map", "x", *options, "--out", "out/{name}", "--shell", "--", f"cat /{MARK} > {{out}}")
    run("map", "--range", "3..5", *options, "--out", "out/{index}", "--shell", "--", f"cat /{MARK} > {{out}}")
    same = ("map", "x", *options, "--out", "out/{name}", "--resume", "--dry-run", "--shell", "--")
    assert "all 1 task are up to date" in run(*same, f"cat /{MARK} > {{out}}").stdout
    made = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    own = dict.fromkeys(("1", "3", "4", "x"), "a packed root\n")
    assert made == {**own, "2": "another one\n"}
    # It may be written as a list, and read again.
    run("map", "x", *options, "--to-list", "again.jsonl", "--", "cat", "x")
    assert json.loads((tmp_path / "again.jsonl").read_text())["container"] == str(tmp_path / "i.tar")


def test_a_command_of_the_nodes_runs_containers(run: Run, tmp_path: Path) -> None:
    (tmp_path / "i.tar").write_bytes(tar_of(root()))
    task = {
        "command": f"cat /{MARK} && echo $AS > o",
        "container": "i.tar",
        "outputs": ["o"],
        "stdout": "out",
    }
    write_list(tmp_path / "l.jsonl", task)
    # The same program by another way, as a stand-in for any other one.
    command = "bwrap --ro-bind {image} / --dev-bind /dev /dev --bind {node} {node} --chdir {sandbox} --setenv AS template"
    (tmp_path / "eyas.toml").write_text(f'[profile.p]\ncontainer-command = "{command}"\n')
    run("run", "l.jsonl", "--profile", "p")
    assert (tmp_path / "out").read_text() == "a packed root\n"
    assert (tmp_path / "o").read_text() == "template\n"
    for wrong, said in [
        ("podman run", "does not say {image}"),
        ("x {image} {sandbx}", "`{sandbx}` stands for nothing"),
    ]:
        assert said in run("run", "l.jsonl", "--container-command", wrong, status=2).stderr


def test_variables_of_images_and_tasks_are_those_of_programs_in_containers_alone(
    run: Run, tmp_path: Path, folder: Path
) -> None:
    """What makes a container is a program of the node's, for which a variable can be a library of the image."""
    layer = tar_of(root())
    oci(tmp_path / "i.tar", [layer], "docker", Env=["PATH=/bin", "LD_PRELOAD=/evil.so", "OF_IMAGE=1"])
    (tmp_path / "i.sif").write_bytes(SIF)
    helpers = tmp_path / "helpers"
    helpers.mkdir()
    in_root = f"exec {shutil.which('bwrap')} --ro-bind $image / --bind $node $node --chdir $box $*"
    bodies = {
        "bwrap": f'exec {shutil.which("bwrap")} "$@"',
        "apptainer": "echo ran",
        "own": f"image=$1 node=$2 box=$3; shift 3; {in_root}",
    }
    for name, body in bodies.items():
        helper = helpers / name
        helper.write_text(
            f"#!/bin/sh\n/usr/bin/env > {folder}/{name}.env\n/usr/bin/tr '\\0' ' ' < /proc/$$/cmdline > {folder}/{name}.words\n{body}\n"
        )
        helper.chmod(0o755)
    hostile = {
        "LD_LIBRARY_PATH": "/evil",
        "BASH_ENV": "/evil",
        "GLIBC_TUNABLES": "evil",
        "MINE": "it's\nmine",
    }
    (tmp_path / "show.sh").write_text(
        '#!/bin/sh\necho "$LD_PRELOAD $OF_IMAGE $LD_LIBRARY_PATH $BASH_ENV $GLIBC_TUNABLES $MINE $EYAS_TASK"; test ! -e .eyas-start && ls\n'
    )
    # A program of this name in the sandbox is none of the node's.
    (tmp_path / "evil").write_text(f"#!/bin/sh\necho evil > {folder}/evil\n")
    env = {**os.environ, "OF_NODE": "1", "PATH": f":.:{helpers}:{os.environ['PATH']}"}
    command = f"{helpers}/own {{image}} {{node}} {{sandbox}}"
    for image, options, name, own in [
        ("i.tar", (), "bwrap", "/evil.so 1"),
        ("i.sif", (), "apptainer", None),
        ("i.tar", ("--container-command", command), "own", " "),
    ]:
        inputs = {"show.sh": "show.sh", "bwrap": "evil", "apptainer": "evil"}
        task = {"id": "t", "command": ["./show.sh"], "inputs": inputs, "stdout": "out", "env": hostile}
        write_list(tmp_path / "l.jsonl", {**task, "container": image})
        run("run", "l.jsonl", *options, env=env)
        seen = (folder / f"{name}.env").read_text()
        assert not any(
            line.startswith((*(f"{variable}=" for variable in hostile), "LD_PRELOAD=", "OF_IMAGE="))
            for line in seen.splitlines()
        ), seen
        assert ("OF_NODE=1" in seen) == (name != "bwrap")
        assert "mine" not in (folder / f"{name}.words").read_text()
        shown = (tmp_path / "out").read_text()
        if own is None:
            assert shown == "ran\n" and "APPTAINERENV_MINE=it's\nmine\n" in seen
        else:
            assert shown == f"{own} /evil /evil evil it's\nmine t\napptainer\nbwrap\nshow.sh\n"
    assert not (folder / "evil").exists()
    said = failures(run("run", "l.jsonl", "--container-command", "./own {image}", status=1))["t"]
    assert "name it by its whole path" in said


def test_the_folder_of_a_node_may_be_anywhere(run: Run, tmp_path: Path) -> None:
    """The place of the sandbox need not be in the image."""
    (tmp_path / "i.tar").write_bytes(tar_of(root()))
    write_list(tmp_path / "l.jsonl", {"command": "pwd", "container": "i.tar", "stdout": "out"})
    with tempfile.TemporaryDirectory(prefix="eyas containers-", dir="/var/tmp") as other:
        run("run", "l.jsonl", "--dir", f"{other}/run")
        assert (tmp_path / "out").read_text().startswith(other)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may run programs as others")
def test_the_system_user_of_a_program_is_kept(run: Run, folder: Path) -> None:
    image = folder / "i.tar"
    image.write_bytes(tar_of(root()))
    image.chmod(0o644)
    (folder / "home").mkdir(mode=0o777)
    (folder / "home").chmod(0o777)
    write_list(
        folder / "l.jsonl",
        {
            "command": f"id -u && cat /{MARK} && cat /{MARK} > o",
            "container": "i.tar",
            "stdout": "home/out",
            "outputs": {"o": "home/o"},
        },
    )
    run("run", "l.jsonl", "--system-users", "82000-82009", "--dir", f"{folder}/run", cwd=folder)
    user, mark = (folder / "home/out").read_text().splitlines()
    assert 82000 <= int(user) <= 82009 and mark == "a packed root"
    assert (folder / "home/o").read_text() == "a packed root\n"


@pytest.mark.parametrize("user", [0, 65534])
def test_su_is_refused_in_one_sentence_and_a_file_with_its_bits_runs(
    eyas: Any, folder: Path, user: int
) -> None:
    """The bits for another user or group are no reason to refuse an image: its programs run, as the user that all of it has."""
    bits = io.BytesIO()
    with tarfile.open(fileobj=bits, mode="w") as archive:
        for name, content in {**root(), "bin/su": busybox(), "etc/groups": b"of a group"}.items():
            entry = tarfile.TarInfo(name)
            entry.mode = {"bin/su": 0o6755, "etc/groups": 0o2640}.get(name, 0o755)
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
            entry.size = len(content) if isinstance(content, bytes) else 0
            archive.addfile(entry, io.BytesIO(content) if isinstance(content, bytes) else None)
        entry = tarfile.TarInfo("etc/passwd")
        names = b"root::0:0::/:/bin/sh\nbob::1000:1000::/:/bin/sh\n"
        entry.size = len(names)
        archive.addfile(entry, io.BytesIO(names))
    (folder / "i.tar").write_bytes(bits.getvalue())
    write_list(
        folder / "l.jsonl",
        {
            "id": "runs",
            "command": "cat /etc/groups; /bin/su --help > help 2>&1; test -s help",
            "container": "i.tar",
        },
        {"id": "bob", "command": "su bob -c true", "container": "i.tar"},
        {"id": "root", "command": "su -c true", "container": "i.tar"},
    )
    folder.chmod(0o777)
    home = folder / "home"
    home.mkdir(mode=0o777)
    home.chmod(0o777)
    words = [str(eyas.path), "run", "l.jsonl", "--dir", str(home / "c")]
    if user and os.geteuid() == 0:
        words = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *words]
    env = {
        **eyas.env,
        **{name: str(home) for name in ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "TMPDIR")},
    }
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "1 done, 2 failed" in done.stderr, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("failed: ")]
    assert len(said) == 2 and all("has one user for all that it does" in line for line in said), said


def test_the_image_is_made_once_on_a_node(run: Run, tmp_path: Path) -> None:
    """All tasks see one inode: the tree is shared, and not copied for each of them."""
    (tmp_path / "i.tar").write_bytes(tar_of(root()))
    tasks = [
        {"command": f"ls -i /{MARK}", "container": "i.tar", "stdout": f"out/{i}", "label": str(i)}
        for i in range(6)
    ]
    write_list(tmp_path / "l.jsonl", *tasks)
    run("run", "l.jsonl", "--nodes", "1", "--slots", "3")
    assert len({(tmp_path / f"out/{i}").read_text() for i in range(6)}) == 1
