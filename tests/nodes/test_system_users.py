"""Programs of different users run as different system users, and reach nothing of each other's on a node."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Eyas, Finished, lacking, wait_until

ONE_LANE = "a node that takes a range of ids ends whatever else runs with them"

Task = dict[str, Any]

FIRST, LAST = 81_000, 81_019
IDS = f"{FIRST}-{LAST}"
LOCKS = Path("/run/eyas/system-users")

# Tries each path that it is given, and prints those that can be read, listed or written to.
SPY = """
import json, os, sys
got = []
for path in json.load(open(sys.argv[1])):
    for flags in (os.O_RDONLY, os.O_WRONLY | os.O_APPEND):
        try:
            fd = os.open(path, flags)
            got.append([path, flags])
            if os.path.isdir(path):
                os.listdir(path)
            else:
                os.read(fd, 1)
        except OSError:
            pass
for path in sys.argv[2:]:
    try:
        os.kill(int(path), 0)
        got.append(["signal", path])
    except OSError:
        pass
print(json.dumps(got))
"""


class Node:
    """A cluster of one node that has system users, in a folder that everybody may enter, and its users' files."""

    def __init__(self, eyas: Eyas, folder: Path) -> None:
        self.run = eyas.run
        self.folder = folder
        self.dir = folder / "cluster"
        self.owner = self.dir / "dispatcher" / "join.json"
        self.home = folder / "home"
        # Programs put notes there for the test.
        self.notes = folder / "notes"
        for made, mode in ((self.home, 0o755), (self.notes, 0o1777)):
            made.mkdir()
            made.chmod(mode)
        self.n_lists = 0

    def up(self, *options: str | Path, env: dict[str, str] | None = None) -> None:
        given = ("--system-users", IDS, *options)
        self.run("up", "--dir", self.dir, "--nodes", "1", "--slots", "2", *given, env=env)

    def add(self, name: str) -> Path:
        out = self.folder / f"{name}.json"
        self.run("user", "add", name, "--out", out, "--join", self.owner)
        return out

    def submit(self, join: Path, *tasks: Task) -> None:
        self.n_lists += 1
        path = self.folder / f"tasks{self.n_lists}.jsonl"
        path.write_text("".join(json.dumps({"id": f"t{i}"} | task) + "\n" for i, task in enumerate(tasks)))
        self.run("submit", "--join", join, path, cwd=self.folder)

    def wait(self, join: Path, status: int = 0) -> Finished:
        return self.run("wait", "--join", join, status=status)

    def do(self, join: Path, *tasks: Task, status: int = 0) -> Finished:
        self.submit(join, *tasks)
        return self.wait(join, status)

    def printed(self, join: Path, command: str, **more: Any) -> str:
        """What one program prints."""
        self.do(join, {"command": command} | more)
        return self.run("logs", "--join", join, "t0").stdout

    def id_of(self, join: Path) -> int:
        return int(self.printed(join, "id -u").strip())

    def home_of(self, name: str, owner: int) -> Path:
        """A folder at home that only its owner may enter."""
        folder = self.home / name
        folder.mkdir()
        folder.chmod(0o700)
        os.chown(folder, owner, owner)
        return folder

    def file(self, folder: Path, name: str, text: str, owner: int) -> Path:
        path = folder / name
        path.write_text(text)
        path.chmod(0o600)
        os.chown(path, owner, owner)
        return path

    def note(self, name: str) -> str:
        path = self.notes / name
        wait_until(path.exists, name)
        return path.read_text()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody may enter: those of pytest are its user's alone."""
    if os.geteuid() != 0:
        lacking("system users of their own are for executors of root")
    path = Path(tempfile.mkdtemp(prefix="eyas-system-users-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)
    for lock in range(FIRST, LAST + 1):
        (LOCKS / str(lock)).unlink(missing_ok=True)


@pytest.fixture
def node(eyas: Eyas, folder: Path) -> Iterator[Node]:
    node = Node(eyas, folder)
    yield node
    eyas.run("down", "--join", node.owner, status=None)


def test_each_user_has_an_id_and_no_rights_beside(node: Node) -> None:
    node.up(env={"MY_TOKEN": "secret", "OMP_NUM_THREADS": "3"})
    ada, bo = node.add("ada"), node.add("bo")
    look = "id -u; id -g; id -G; umask; grep -E '^(CapEff|CapPrm|CapInh|CapAmb|NoNewPrivs)' /proc/self/status"
    seen = {name: node.printed(join, look).split() for name, join in (("ada", ada), ("bo", bo))}
    seen["owner"] = node.printed(node.owner, look).split()
    ids = [int(seen[name][0]) for name in ("ada", "bo", "owner")]
    assert len(set(ids)) == 3 and all(FIRST <= one <= LAST for one in ids)
    for words in seen.values():
        assert words[0] == words[1] == words[2], "one group, which is the user's own"
        caps = dict(zip(words[4::2], words[5::2], strict=True))
        assert caps.pop("NoNewPrivs:") == "1" and set(caps.values()) == {"0" * 16}, caps
    # What shells and programs take for granted.
    text = node.printed(
        ada,
        'set -e; echo to stderr > /dev/stderr; echo to stdout > /dev/stdout; mktemp; test "$HOME" = "$PWD"; echo $USER;'
        " echo ${MY_TOKEN:-none} $OMP_NUM_THREADS; touch a; mkdir b; mv a b; (sleep 0 &); kill -0 $$",
    )
    assert {"to stdout", "ada", "none 3"} <= set(text.splitlines()), text
    assert node.id_of(ada) == ids[0], "a user's id stays"
    # The kernel's keys, which whoever inherits a keyring may use.
    keyctl = 250 if platform.machine() == "x86_64" else 219
    look = f"import ctypes; print(ctypes.CDLL(None).syscall({keyctl}, 0, -3, 0))"
    own = subprocess.run(["python3", "-c", look], capture_output=True, text=True, check=True).stdout.strip()
    keyring = f"python3 -c '{look}'"
    rings = [node.printed(join, keyring).strip() for join in (ada, bo)]
    assert own == "-1" or len({own, *rings}) == 3, (own, rings)


def test_nobody_reads_another_users_files(node: Node) -> None:
    node.up()
    ada, bo = node.add("ada"), node.add("bo")
    ids = node.id_of(ada), node.id_of(bo)
    private = node.file(node.home_of("ada", ids[0]), "in", "of ada", ids[0])
    both = node.home / "both"
    both.write_text("of both")
    both.chmod(0o644)
    say = f"echo $$ > {node.notes}/pid.part; mv {node.notes}/pid.part {node.notes}/pid"
    waits = f"until [ -e {node.notes}/go ]; do sleep 0.02; done"
    node.submit(
        ada,
        {
            "command": f"echo of ada > own; pwd > {node.notes}/pwd; {say}; {waits}; cat own in both > out",
            "inputs": {"in": str(private), "both": str(both)},
            "outputs": {"out": str(node.home / "ada" / "out")},
            "env": {"HIDDEN": "of ada"},
        },
    )
    pid, sandbox = node.note("pid").strip(), Path(node.note("pwd").strip())
    # Root sees that all of this is there.
    assert (sandbox / "own").read_text() == "of ada\n" and b"HIDDEN" in Path(
        f"/proc/{pid}/environ"
    ).read_bytes()
    state = [path for path in node.dir.rglob("*") if not path.is_symlink() and not path.is_socket()]
    spied = [str(path) for path in state] + [
        str(sandbox),
        str(sandbox / "in"),
        str(private),
        *(f"/proc/{pid}/{name}" for name in ("environ", "mem", "cwd", "fd", "root", "exe")),
        str(node.owner),
        *map(str, node.folder.glob("*.json")),
    ]
    assert any("journal" in path for path in spied) and any("objects" in path for path in spied)
    (node.folder / "spied").write_text(json.dumps(spied))
    (node.folder / "spy.py").write_text(SPY)
    own = "cat both; echo mine > mine; cat mine"
    text = node.printed(
        bo,
        f"python3 {node.folder}/spy.py {node.folder}/spied {pid}; {own}",
        inputs={"both": str(both)},
    ).splitlines()
    got = {path for path, _ in json.loads(text[0])}
    # Names of what is in the cluster's own folder are no secret; what is in these is.
    assert got <= {str(node.dir)}, got
    assert text[1:] == ["of bothmine"], text
    # Bo names what is Ada's, which is in the node's cache, and what is root's.
    secret = node.file(node.home, "secret", "of root", 0)
    for path in (private, secret, node.owner):
        refused = node.do(bo, {"command": "cat in", "inputs": {"in": str(path)}}, status=1)
        ways = (
            f"the user `bo` may not read `{path}` on this node",
            f"cannot read `{path}`: permission denied",
        )
        assert any(way in refused.stderr for way in ways) and "system user `bo`" in refused.stderr, refused
    refused = node.do(bo, {"command": "echo x > x", "outputs": {"x": str(node.home / "ada" / "x")}}, status=1)
    assert "ermission denied" in refused.stderr, refused
    assert not (node.home / "ada" / "x").exists()
    (node.notes / "go").touch()
    node.wait(ada)
    out = node.home / "ada" / "out"
    assert out.read_text() == "of ada\nof adaof both" and out.stat().st_uid == ids[0]


def test_inputs_stay_whole_and_nothing_stays_behind(node: Node) -> None:
    node.up()
    ada = node.add("ada")
    shared = node.home / "in"
    shared.write_text("whole")
    break_it = (
        "(echo x >> in) || echo no; chmod 777 in || echo no; touch -d 2001-01-01 in || echo no;"
        " setsid sh -c 'trap \"\" HUP TERM; sleep 600' & setsid sleep 601 & rm -f in; echo own > in; cat in"
    )
    text = node.printed(ada, break_it, inputs={"in": str(shared)})
    assert text.split().count("no") >= 3 and "own" in text, text
    left = subprocess.run(["pgrep", "-u", str(node.id_of(ada))], capture_output=True, text=True).stdout
    assert left == "", "the program's daemons live on"
    assert node.printed(ada, "cat in; ls -l in", inputs={"in": str(shared)}).startswith("whole")
    objects = [p for p in (node.dir / "node1" / "cache" / "objects").rglob("*") if p.is_file()]
    assert objects and all((p.stat().st_uid, p.stat().st_mode & 0o022) == (0, 0) for p in objects)


def test_outputs_are_what_their_user_may_read(node: Node) -> None:
    node.up()
    ada = node.add("ada")
    uid = node.id_of(ada)
    home = node.home_of("ada", uid)
    secret = node.file(node.folder, "root.json", "of root", 0)
    made = (
        "printf 123 > plain; mkdir -p sub/d; printf 456 > sub/d/x; ln -s x sub/d/y; cat in > copy; mv in moved;"
        " head -c 300000 /dev/zero > big"
    )
    names = ("plain", "sub/", "moved", "big", "copy")
    node.do(
        ada,
        {
            "command": made,
            "inputs": {"in": str(node.file(home, "in", "of ada", uid))},
            "outputs": {name: f"{home}/out/{name}" for name in names},
        },
        # What one task makes, another one reads; files that stay on the nodes, too.
        {
            "command": "cat plain d/d/x > both; echo kept > kept",
            "inputs": {"plain": f"{home}/out/plain", "d": f"{home}/out/sub/"},
            "outputs": {"both": f"{home}/both", "kept": "run:kept"},
        },
        {"command": "cat kept > kept2", "inputs": {"kept": "run:kept"}, "outputs": {"kept2": f"{home}/kept"}},
    )
    assert (home / "both").read_text() == "123456" and (home / "kept").read_text() == "kept\n"
    assert (home / "out" / "big").read_bytes() == bytes(300_000)
    assert (home / "out" / "moved").read_text() == (home / "out" / "copy").read_text() == "of ada"
    assert (home / "out" / "sub" / "d" / "y").readlink() == Path("x")
    assert all(path.lstat().st_uid == uid for path in (home / "out").rglob("*"))
    for what in (
        f"ln -s {secret} x",
        f"ln {secret} x; ls x",
        f"mkdir d; ln -s {node.folder} d/e; ln -s d/e/root.json x",
    ):
        node.do(ada, {"command": what, "outputs": {"x": f"{home}/x"}}, status=1)
        assert not (home / "x").exists()


def test_another_program_of_the_user_cannot_lead_root_astray(node: Node) -> None:
    """One program puts links to root's files in place of another one's outputs, while root takes these."""
    node.up()
    ada = node.add("ada")
    home = node.home_of("ada", node.id_of(ada))
    secret = node.file(node.folder, "root.json", "of root", 0)
    swap = (
        f"ln -s {node.folder} {node.notes}/link; touch {node.notes}/begun;"
        f" while [ ! -e {node.notes}/go ]; do for d in $(cat {node.notes}/pwd* 2>/dev/null); do"
        f" mv $d/sub/x $d/sub/y && cp -P {node.notes}/link $d/sub/x; rm $d/sub/x; mv $d/sub/y $d/sub/x;"
        " done; done 2>/dev/null; exit 0"
    )
    n = 25
    makes = f"mkdir -p sub/x; printf mine > sub/x/{secret.name}; pwd > {node.notes}/pwd$EYAS_TASK; sleep 0.01"
    node.submit(ada, {"command": swap})
    node.note("begun")
    tasks = [
        {"command": makes, "outputs": {f"sub/x/{secret.name}": f"{home}/{i}"}, "retries": 0} for i in range(n)
    ]
    node.submit(ada, *tasks)
    owned = node.run("wait", "--join", ada, "--run", "3", status=None)
    (node.notes / "go").touch()
    node.run("wait", "--join", ada, "--run", "2")
    texts = [path.read_text() for path in home.iterdir()]
    assert set(texts) <= {"mine"}, owned
    objects = (node.dir / "node1" / "cache" / "objects").rglob("*")
    assert all(b"of root" not in path.read_bytes() for path in objects if path.is_file())


def test_names_below_proc_lead_nowhere(node: Node) -> None:
    """They would lead past the rights on the way to a file: to what root's processes have open, and to where they stand."""
    node.up()
    ada = node.add("ada")
    closed = node.folder / "closed"
    inside = closed / "inside"
    inside.mkdir(parents=True)
    (inside / "f").write_text("of root")
    (inside / "f").chmod(0o644)
    inside.chmod(0o777)
    closed.chmod(0o700)
    link = node.home / "link"
    with subprocess.Popen(["sleep", "300"], cwd=inside) as standing, (inside / "f").open():
        there = f"/proc/{standing.pid}/cwd"
        link.symlink_to(there)
        names = [
            f"{there}/f",
            f"{there}/../inside/f",
            str(link / "f"),
            "/proc/self/exe",
            "/proc/thread-self/fd/0",
        ]
        names += [f"/proc/self/fd/{n}" for n in range(12)] + ["/dev/fd/2", f"/proc/{standing.pid}/exe"]
        tasks: list[Task] = [{"command": "cat x", "inputs": {"x": name}} for name in names]
        tasks += [
            {"command": "echo planted > o", "outputs": {"o": f"{where}/planted-{n}"}}
            for n, where in enumerate((there, link))
        ]
        tasks = [task | {"id": f"p{i}"} for i, task in enumerate(tasks)]
        done = node.do(ada, *tasks, {"id": "good", "command": "true"}, status=1)
        standing.kill()
    assert f"1 done, {len(tasks)} failed" in done.stderr + done.stdout, done
    assert sorted(path.name for path in inside.iterdir()) == ["f"]


def test_packed_inputs_are_made_for_those_who_may_read_them(node: Node) -> None:
    node.up()
    ada, bo = node.add("ada"), node.add("bo")
    ids = node.id_of(ada), node.id_of(bo)
    (node.folder / "x").write_text("in the archive")
    packed = node.home / "packed.tar"
    with tarfile.open(packed, "w") as archive:
        archive.add(node.folder / "x", "x")
    packed.chmod(0o600)
    os.chown(packed, ids[0], ids[0])
    task: Task = {"inputs": {"t": {"from": str(packed), "unpack": "tar"}}}
    text = node.printed(ada, f"cat t/x; readlink -f t > {node.notes}/tree", **task)
    assert text.startswith("in the archive")
    tree = node.note("tree").strip()
    assert node.printed(bo, f"ls {tree} {tree}/x 2>&1 || cat {tree}/x || echo no").splitlines()[-1] == "no"
    refused = node.do(bo, {"command": "true"} | task, status=1)
    assert "may not read" in refused.stderr, refused
    packed.chmod(0o644)
    assert node.printed(bo, "cat t/x; rm -f t/x; echo x > t/y || echo no", **task).startswith(
        "in the archive"
    )
    assert not (Path(tree) / "y").exists()
    # A transform would run as root.
    transform = {"from": str(packed), "make": ["sh", "-c", 'id -u > "$2"', "-", "{in}", "{out}"]}
    refused = node.do(ada, {"command": "true", "inputs": {"t": transform}}, status=1)
    assert "only tasks of the cluster's owner may have it" in refused.stderr, refused
    node.do(node.owner, {"command": "cat t", "inputs": {"t": transform}})


def test_a_restart_goes_on_as_the_same_system_user(node: Node) -> None:
    node.up()
    ada = node.add("ada")
    uid = node.id_of(ada)
    home = node.home_of("ada", uid)
    waits = f"until [ -e {node.notes}/go ]; do sleep 0.02; done"
    tasks: list[Task] = [
        {"command": f"touch {node.notes}/{i}; {waits}; id -u > out", "outputs": {"out": f"{home}/{i}"}}
        for i in range(5)
    ]
    node.submit(ada, *tasks)
    node.note("0")
    lock = node.dir / "dispatcher" / "journal" / "lock"
    subprocess.run(["kill", "-9", lock.read_text().strip()], check=True)
    executor = int((node.dir / "node1" / "cache" / "lock").read_text())
    subprocess.run(["kill", "-9", str(executor)], check=True)
    node.up()
    (node.notes / "go").touch()
    node.wait(ada)
    assert {(home / str(i)).read_text() for i in range(5)} == {f"{uid}\n"}


def test_files_that_are_read_in_place_and_folders(node: Node) -> None:
    node.up("--home-local", node.home)
    ada, bo = node.add("ada"), node.add("bo")
    ids = node.id_of(ada), node.id_of(bo)
    home = node.home_of("ada", ids[0])
    for name in ("x", "d/y"):
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_text(name)
    for path in (home / "x", home / "d", home / "d" / "y"):
        path.chmod(0o700)
        os.chown(path, ids[0], ids[0])
    task: Task = {
        "command": "cat x d/y; echo mine > d/y",
        "inputs": {"x": f"{home}/x", "d": f"{home}/d/"},
    }
    assert node.printed(ada, **task) == "xd/y"
    assert (home / "d" / "y").read_text() == "d/y"
    home.chmod(0o755)
    for path in (home / "x", home / "d"):
        path.chmod(0o755)
    # One file in the folder is still Ada's alone.
    refused = node.do(bo, task, status=1)
    assert "may not read" in refused.stderr, refused
    (home / "d" / "y").chmod(0o644)
    assert node.printed(bo, **task) == "xd/y"


def test_tasks_that_add_tasks_do_not_run(node: Node) -> None:
    node.up()
    refused = node.do(node.owner, {"command": "cat $EYAS_JOIN", "dynamic": True, "retries": 0}, status=1)
    assert "needs the cluster's key, and no program gets that" in refused.stderr, refused


def test_an_account_of_the_machine(node: Node) -> None:
    """A user with an account has its ids and its files."""
    import pwd

    account = next((one for one in pwd.getpwall() if one.pw_name == "games" and one.pw_uid), None)
    if account is None:
        lacking("this machine has no account `games`")
        return
    node.up("--system-users", "ada=games")
    ada = node.add("ada")
    text = node.printed(ada, "id -u; id -g; echo $HOME $USER").split()
    assert text == [str(account.pw_uid), str(account.pw_gid), account.pw_dir, "games"]
    home = node.home_of("ada", account.pw_uid)
    node.do(ada, {"command": "echo x > x", "outputs": {"x": f"{home}/x"}})
    assert (home / "x").stat().st_uid == account.pw_uid


def test_what_cannot_be_done_is_said_at_the_start(eyas: Eyas, folder: Path, tmp_path: Path) -> None:
    up = ("up", "--dir", folder / "cluster", "--nodes", "1")
    cases = (
        (("--system-users", "70000"), "write a range of ids, such as 70000-70099, or USER=ACCOUNT"),
        (("--system-users", "0-100"), "is not within 1000-"),
        (("--system-users", "65000-65600"), "has the id 65534 in it"),
        (("--system-users", "ada=games"), "needs a range of ids, too"),
        (("--system-users", IDS, "--system-users", IDS), "is the second one for the same users"),
        (
            ("--system-users", IDS, "--system-users", "ada=no-such-account"),
            "this machine has no such account",
        ),
        (("--system-users", IDS, "--system-users", "ada=root"), "programs of a user are not run as root"),
    )
    for options, words in cases:
        refused = eyas.run(*up, *options, status=2)
        assert words in " ".join(refused.stderr.split()), refused
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    refused = eyas.run("up", "--dir", closed / "cluster", "--system-users", IDS, status=2)
    assert "may be entered by its owner alone" in refused.stderr, refused
    program = folder / "eyas"
    shutil.copy(eyas.path, program)

    def up_with(*rights: str) -> subprocess.CompletedProcess[str]:
        """`eyas up` with fewer rights than root has."""
        command = [
            "setpriv",
            *rights,
            str(program),
            "up",
            "--dir",
            str(folder / "mine"),
            "--system-users",
            IDS,
        ]
        env = {"PATH": os.environ["PATH"], "HOME": str(folder)}
        return subprocess.run(command, capture_output=True, text=True, env=env, cwd=folder)

    not_root = up_with("--reuid", "1234", "--regid", "1234", "--clear-groups")
    assert not_root.returncode == 2 and "needs an executor that runs as root" in not_root.stderr
    no_right = up_with("--bounding-set", "-setuid", "--inh-caps", "-setuid")
    assert no_right.returncode == 2 and "needs the capability CAP_SETUID" in no_right.stderr, no_right


def test_data_sets_are_refused_before_they_are_looked_for(node: Node) -> None:
    catalog = {"EYAS_DATA": f"sqlite:{node.folder}/catalog.db"}
    node.run("data", "init", "--dir", node.folder / "site", env=catalog)
    (node.folder / "x").write_text("x")
    node.run("data", "put", node.folder / "x", "--label", "there", env=catalog)
    node.up(env=catalog)
    ada = node.add("ada")

    def refused(label: str) -> list[str]:
        task: Task = {"command": "true", "inputs": {"x": f"data:{label}/x"}}
        lines = node.do(ada, task, status=1).stderr.splitlines()
        return [line.replace(label, "LABEL") for line in lines if "may use it" in line]

    said = refused("there")
    assert said and said == refused("none"), said
    node.do(node.owner, {"command": "cat x", "inputs": {"x": "data:there/x"}})
