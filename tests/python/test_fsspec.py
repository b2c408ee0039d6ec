"""`eyas.fsspec`: fsspec's tests for all file systems, and what is beside them."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import fsspec
import pytest
from buckets import moto
from eyas.fsspec import _list
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)
from harness import ROOT, Start

# Which file system fsspec's tests are run on: ours on paths or in a bucket, or fsspec's own for paths.
SYSTEM = os.environ.get("FSSPEC_SYSTEM", "paths")


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A bucket of an S3 server."""
    with moto(tmp_path_factory.mktemp("moto")) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.env().items():
            patch.setenv(name, value)
        yield f"s3://{server.new_bucket()}"


@pytest.fixture
def files() -> AbstractFileSystem:
    return fsspec.filesystem("eyas", skip_instance_cache=True)


class Fixtures(AbstractFixtures):  # type: ignore[misc]
    """What fsspec's tests are run on."""

    @pytest.fixture
    def fs(self, files: AbstractFileSystem) -> AbstractFileSystem:
        return LocalFileSystem(auto_mkdir=True) if SYSTEM == "local" else files

    @pytest.fixture
    def fs_path(self, request: pytest.FixtureRequest, tmp_path: Path) -> str:
        place = request.getfixturevalue("bucket") if SYSTEM == "buckets" else str(tmp_path)
        return f"{place}/{tmp_path.name}"

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return SYSTEM != "buckets"


class TestCopy(Fixtures, AbstractCopyTests):  # type: ignore[misc]
    pass


class TestGet(Fixtures, AbstractGetTests):  # type: ignore[misc]
    pass


class TestPut(Fixtures, AbstractPutTests):  # type: ignore[misc]
    pass


class TestOpen(Fixtures, AbstractOpenTests):  # type: ignore[misc]
    pass


class TestPipe(Fixtures, AbstractPipeTests):  # type: ignore[misc]
    pass


@pytest.fixture(params=["paths", "buckets"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder without files, on paths and in a bucket."""
    above = request.getfixturevalue("bucket") if request.param == "buckets" else str(tmp_path)
    return f"{above}/{tmp_path.name}"


def test_files_are_written_listed_moved_and_removed(files: AbstractFileSystem, place: str) -> None:
    url = f"eyas://{place}"
    with fsspec.open(f"{url}/a/one.txt", "wt") as file:
        file.write("first line\nsecond line\n")
    files.pipe(f"{place}/a/b/two.bin", bytes(range(256)))
    assert files.find(url) == [f"{place}/a/b/two.bin", f"{place}/a/one.txt"]
    assert files.ls(f"{place}/a", detail=False) == [f"{place}/a/b", f"{place}/a/one.txt"]
    assert [(one["type"], one["size"]) for one in files.ls(f"{place}/a")] == [("directory", 0), ("file", 23)]
    assert files.glob(f"{url}/**/*.bin") == [f"{place}/a/b/two.bin"]
    assert files.isdir(f"{place}/a") and files.isfile(f"{place}/a/one.txt") and not files.exists(f"{place}/b")
    assert files.cat_file(f"{place}/a/b/two.bin", 3, -250) == bytes([3, 4, 5])
    assert files.cat_file(f"{place}/a/b/two.bin", 300) == b""
    with files.open(f"{place}/a/b/two.bin") as file:
        file.seek(-2, 2)
        assert file.read() == bytes([254, 255])
    version = files.ukey(f"{place}/a/one.txt")
    with files.open(f"{place}/a/one.txt", "ab") as file:
        file.write(b"third line\n")
    assert files.ukey(f"{place}/a/one.txt") != version
    files.mv(f"{place}/a/one.txt", f"{place}/c.txt")
    assert files.read_text(f"{url}/c.txt").splitlines()[2] == "third line"
    assert files.modified(f"{place}/c.txt").year > 2000
    assert pickle.loads(pickle.dumps(files)).find(url) == [f"{place}/a/b/two.bin", f"{place}/c.txt"]
    files.rm(f"{place}/a", recursive=True)
    assert files.find(url) == [f"{place}/c.txt"]


def test_a_block_that_fails_writes_nothing(files: AbstractFileSystem, place: str) -> None:
    files.pipe(f"{place}/kept", b"as it was")
    with pytest.raises(ZeroDivisionError), files.open(f"{place}/kept", "wb") as file:
        file.write(b"half of it")
        raise ZeroDivisionError
    assert files.cat(f"{place}/kept") == b"as it was"
    with files.transaction:
        with files.open(f"{place}/kept", "wb") as file:
            file.write(b"something else")
        assert files.cat(f"{place}/kept") == b"as it was"
    assert files.cat(f"{place}/kept") == b"something else"


@pytest.mark.parametrize(("name", "mode"), [("kept", "wb"), ("kept", "w"), ("kept.gz", "wt")])
def test_a_block_of_fsspec_itself_that_fails_writes_nothing(
    files: AbstractFileSystem, place: str, name: str, mode: str
) -> None:
    url, half = f"eyas://{place}/{name}", b"half of it" if "b" in mode else "half of it"
    compression = "gzip" if name.endswith(".gz") else None
    with pytest.raises(ZeroDivisionError), fsspec.open(url, mode, compression=compression) as file:
        file.write(half)
        raise ZeroDivisionError
    assert not files.exists(f"{place}/{name}")
    with pytest.raises(ZeroDivisionError), fsspec.open_files([url, f"{url}2"], mode, expand=False) as both:
        for one in both:
            one.write(half)
        raise ZeroDivisionError
    assert not files.exists(f"{place}/{name}") and not files.exists(f"{place}/{name}2")
    # A block inside the handler of another exception, and one that is left in order, write.
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        with fsspec.open(url, mode, compression=compression) as file:
            file.write(half)
    with fsspec.open(url, "r" if mode != "wb" else "rb", compression=compression) as file:
        assert file.read() == half
    # Who closes a file by hand says that it is whole.
    try:
        file = fsspec.open(f"eyas://{place}/by-hand", mode).open()
        file.write(half)
        raise ZeroDivisionError
    except ZeroDivisionError:
        file.close()
    assert files.cat(f"{place}/by-hand") == b"half of it"


def test_a_block_of_text_that_fails_writes_nothing(files: AbstractFileSystem, place: str) -> None:
    with pytest.raises(ZeroDivisionError), files.open(f"{place}/kept", "w", encoding="utf-8") as file:
        file.write("half of it")
        raise ZeroDivisionError
    assert not files.exists(f"{place}/kept")
    with files.open(f"{place}/kept", "w", newline="") as file:
        file.write("all\r\nof it")
    with files.open(f"{place}/kept", "r", newline="") as file:
        assert file.read() == "all\r\nof it"


def test_what_is_moved_to_its_own_name_or_below_itself_stays(
    files: AbstractFileSystem, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{place}/d/f", f"{place}/d/sub/g"]
    for name in names:
        files.pipe(name, name.encode())
    above = place.rpartition("/")[0]
    for source, target in (
        (f"{place}/d/f", f"eyas://{place}/d/f"),
        (f"{place}/d/f", f"{place}/d/"),
        (f"{place}/d/*", f"{place}/d/"),
        ([f"{place}/d/f"], f"{place}/d/"),
        ([f"{place}/d/f"], [f"{place}/d/f"]),
        (f"{place}/d", f"{place}/"),
        (f"{place}/d/", f"{place}/d"),
    ):
        files.mv(source, target, recursive=isinstance(source, str) and not source.endswith(("f", "*")))
        assert files.find(place) == names, (source, target)
    for target in (f"{place}/d/new", f"{place}/d/sub"):
        with pytest.raises(ValueError, match="cannot be moved below itself"):
            files.mv(f"{place}/d", target, recursive=True)
    with pytest.raises(IsADirectoryError, match="recursive=True"):
        files.mv(f"{place}/d", f"{place}/e")
    with pytest.raises(FileNotFoundError):
        files.mv(f"{place}/nothing", f"{place}/e")
    assert [files.cat(name) for name in names] == [name.encode() for name in names]
    monkeypatch.chdir(tmp_path)
    Path("one").write_bytes(b"here")
    files.mv("one", "./one")
    os.link("one", "two")
    files.mv("one", "two")
    assert not Path("one").exists() and Path("two").read_bytes() == b"here", "of two links one is left"
    files.mv("two", f"{above}/three")
    assert files.cat(f"{above}/three") == b"here" and not Path("two").exists()
    files.mv(f"{place}/d", f"{place}/e", recursive=True)
    assert files.find(place) == [f"{place}/e/f", f"{place}/e/sub/g"] and not files.exists(f"{place}/d")
    files.pipe(f"{place}/h", b"h")
    files.mv(f"{place}/h", f"{place}/e/f")
    assert files.cat(f"{place}/e/f") == b"h", "a file replaces one of its own home"


def test_the_parts_of_a_file_that_is_read_are_of_one_file(files: AbstractFileSystem, place: str) -> None:
    name = f"{place}/parts"
    files.pipe(name, b"a" * 100_000)
    # A version that is young says less.
    time.sleep(2.1)
    for written in (b"b" * 100_000, b"c" * 200_000):
        with files.open(name, block_size=1000, cache_type="readahead") as file:
            assert len(file.read(10)) == 10
            files.pipe(name, written)
            with pytest.raises(OSError, match="has changed since it was opened"):
                file.read(90_000)
    assert files.cat_file(name, 10, 12) == b"cc"


def test_what_cannot_be_looked_at_is_not_taken_for_absent(
    files: AbstractFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / "log").write_bytes(b"first line\n")
    lines = {
        "get": f"cat {store}/{{path}}",
        "put": f"cat > {store}/{{path}}",
        "stat": "echo the server is away >&2; exit 7",
        "list": f"ls {store}",
        "remove": f"rm {store}/{{path}}",
    }
    toml = "".join(f"{verb} = '''{line}'''\n" for verb, line in lines.items())
    (tmp_path / "eyas.toml").write_text(f"[home.away]\n{toml}")
    program = """
import fsspec
files = fsspec.filesystem("eyas")
def append():
    with files.open("away://x/log", "ab") as file:
        file.write(b"second line")
for call in (append, lambda: files.exists("away://x/log"), lambda: files.pipe_file("away://x/log", b"", mode="create"),
             lambda: files.open("away://x/log", "xb")):
    try:
        print("no error:", call())
    except FileNotFoundError as error:
        print("absent:", error)
    except OSError as error:
        print("away" if "the server is away" in str(error) else error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["away"] * 4, done.stdout + done.stderr
    assert (store / "log").read_bytes() == b"first line\n"


class Web(SimpleHTTPRequestHandler):
    """Files of a folder."""

    def log_message(self, *_: object) -> None:
        pass


def test_files_at_web_servers_have_versions(files: AbstractFileSystem, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one")
    os.utime(tmp_path / "a.txt", (10**9, 10**9))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Web, directory=str(tmp_path)))
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        first = files.info(f"{url}/a.txt")
        assert first["size"] == 3 and first["is_strong"] and first == files.info(f"{url}/a.txt")
        os.utime(tmp_path / "a.txt", (10**9 + 5, 10**9 + 5))
        assert files.ukey(f"{url}/a.txt") != first["version"]
        # Somebody may write it once more within this second.
        os.utime(tmp_path / "a.txt")
        assert not files.info(f"{url}/a.txt")["is_strong"]
        # A web server lists nothing, and what is not there is not there.
        assert files.exists(f"{url}/a.txt") and not files.exists(f"{url}/gone")
        with pytest.raises(FileNotFoundError, match="404"):
            files.info(f"{url}/gone")
        with pytest.raises(NotImplementedError):
            files.ls(f"{url}/")
    finally:
        server.shutdown()
        server.server_close()


def test_what_cannot_be_had_is_left_out_with_a_warning(files: AbstractFileSystem, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / os.fsdecode(b"b\xff")).write_bytes(b"")
    (tmp_path / "link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    with pytest.warns(UserWarning, match="left out") as said:
        assert files.ls(str(tmp_path), detail=False) == [f"{tmp_path}/a"]
    reasons = ["its name is not UTF-8", "leads nowhere", "it is not a regular file"]
    assert all(reason in str(one.message) for reason, one in zip(reasons, said)) and len(said) == 3, [
        str(one.message) for one in said
    ]


def test_what_is_wrong_is_said(files: AbstractFileSystem, place: str, tmp_path: Path) -> None:
    for call in (files.cat, files.info, files.ls, files.rm_file, files.open):
        with pytest.raises(FileNotFoundError, match="nothing-here"):
            call(f"{place}/nothing-here")
    files.pipe(f"{place}/a/b", b"")
    with pytest.raises(IsADirectoryError, match="recursive=True"):
        files.rm(f"{place}/a")
    with pytest.raises(IsADirectoryError):
        files.open(f"{place}/a")
    with pytest.raises(OSError, match="not empty"):
        files.rmdir(f"{place}/a")
    with pytest.raises(FileExistsError):
        files.mkdir(f"{place}/a")
    with pytest.raises(ValueError, match="the scheme `nope` is unknown"):
        files.info("nope://x/y")
    for whole in ("/", "s3://bucket"):
        with pytest.raises((ValueError, OSError)):
            files.rm(whole, recursive=True)
    assert files.exists(f"{place}/a/b")


def test_other_libraries_read_and_write(place: str) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"n": [1, 2, 3]})
    table.to_parquet(f"eyas://{place}/table.parquet")
    assert pandas.read_parquet(f"eyas://{place}/table.parquet").n.sum() == 6


def test_files_of_data_sets_are_read_and_written(
    files: AbstractFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eyas_path: Path
) -> None:
    monkeypatch.setenv("EYAS_DATA", f"sqlite:{tmp_path / 'catalog.db'}")
    init: list[str | Path] = [eyas_path, "data", "init", "--dir", tmp_path / "site"]
    subprocess.run(init, check=True, capture_output=True)
    files.pipe("data:survey/a/notes.txt", b"seen twice")
    assert files.cat("data:survey/a/notes.txt") == b"seen twice"
    assert files.cat_file("eyas://data:survey/a/notes.txt", 5) == b"twice"
    assert files.find("data:survey/") == ["data://survey/a/notes.txt"]
    assert files.ls("data:survey/", detail=False) == ["data://survey/a"]
    with pytest.raises(NotImplementedError, match="cannot remove"):
        files.rm_file("data:survey/a/notes.txt")


def test_any_file_system_of_fsspec_is_a_home_of_commands(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "pack.zip", "w") as pack:
        for n in range(3):
            pack.writestr(f"n/{n}.txt", "x\n" * n)
    lines = {
        verb: f"{sys.executable} -m eyas.fsspec {verb} zip://{{path}}::{tmp_path}/{{host}}.zip"
        for verb in ("get", "put", "stat", "list", "remove")
    }
    toml = "".join(f"{verb} = '''{line}'''\n" for verb, line in lines.items())
    (tmp_path / "eyas.toml").write_text(f"[home.packed]\n{toml}")
    monkeypatch.chdir(tmp_path)
    start(
        "map",
        "--nodes",
        "1",
        "--shell",
        "--out",
        "out/{name}",
        "packed://pack/n/*",
        "--",
        "wc -l < {in} > {out}",
    ).wait()
    assert [(tmp_path / "out" / f"{n}.txt").read_text() for n in range(3)] == ["0\n", "1\n", "2\n"]
    done = start("cat", "packed://pack/n/7.txt").wait(status=2)
    assert "there is no such object" in done.stderr


class Half(LocalFileSystem):  # type: ignore[misc]
    """A file system of which a directory cannot be listed."""

    protocol = "half"

    def ls(self, path: str, detail: bool = False, **options: object) -> object:
        if path.endswith("/closed"):
            raise PermissionError(f"{path} is closed")
        return super().ls(path, detail=detail, **options)


def test_a_listing_leaves_nothing_out_without_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fsspec.register_implementation("half", Half, clobber=True)
    for name in (b"a", b"b\nc", b"d\xff"):
        (tmp_path / os.fsdecode(name)).write_bytes(b"")
    out = io.BytesIO()
    _list(f"half://{tmp_path}", out)
    assert out.getvalue() == b"a\n"
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "left out: 'b\\nc': its name has a line break",
        "left out: 'd\\udcff': its name is not UTF-8",
    ]
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "e").write_bytes(b"")
    with pytest.raises(PermissionError, match="closed is closed"):
        _list(f"half://{tmp_path}", out)


def test_a_missing_fsspec_is_said_in_a_sentence() -> None:
    program = "import sys; sys.modules['fsspec'] = None; import eyas.fsspec"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "ImportError: fsspec is not installed: pip install 'eyas[fsspec]'" in done.stderr


@pytest.mark.long
def test_fsspecs_own_tests_pass_at_s3_too() -> None:
    command: list[str | Path] = [sys.executable, ROOT / "scripts" / "suites.py", "fsspec"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
