"""Homes beyond folders and web servers: each against a real server or real commands, and what happens when those fail."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest
from buckets import KEY, SECRET, Answer, Server, answers_at, free_port, moto, weather
from harness import Eyas, Run, Start, lacking, log_text, wait_until
from lists import write_list
from weather import Cluster, kill_now

RCLONE = shutil.which("rclone")
SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


def test_s3_keeps_every_promise_of_a_home(lab: Run, s3: Server) -> None:
    # The server's routes do not know a line break in a name.
    place = f"s3://{s3.new_bucket()}/base"
    done = lab("homes", place, "--no-line-breaks", env=s3.env())
    assert "keeps every promise" in done.stdout
    assert b"<Upload>" not in s3.uploads(place.split("/")[2])


def test_an_unmodified_program_reads_from_s3_and_writes_to_s3(run: Run, s3: Server, tmp_path: Path) -> None:
    bucket = s3.new_bucket()
    names = ["a.txt", "b c+d%.txt", "é.txt"]
    for n, name in enumerate(names):
        (tmp_path / name).write_text("word " * (n + 1))
    env = s3.env()
    run("cp", *names, f"s3://{bucket}/in/", cwd=tmp_path, env=env)
    tasks = [
        {
            "id": f"t{n}",
            "command": f"wc -w < {shlex.quote(name)} > n",
            "inputs": [f"s3://{bucket}/in/{name.replace('%', '%25')}"],
            "outputs": {"n": f"s3://{bucket}/out/{n}.n"},
        }
        for n, name in enumerate(names)
    ]
    whole = {
        "id": "all",
        "command": "cat n/* | sort > sum",
        "inputs": {"n": f"s3://{bucket}/out/*.n"},
        "outputs": {"sum": f"s3://{bucket}/sum"},
    }
    write_list(tmp_path / "tasks.jsonl", *tasks)
    done = run("run", "tasks.jsonl", "--dir", "c", cwd=tmp_path, env=env)
    assert "3 done" in done.stdout + done.stderr
    write_list(tmp_path / "whole.jsonl", whole)
    run("run", "whole.jsonl", "--dir", "d", cwd=tmp_path, env=env)
    assert run("cat", f"s3://{bucket}/sum", env=env).stdout.split() == ["1", "2", "3"]
    # No credentials in what the run leaves.
    for folder in ("c", "d"):
        assert SECRET not in log_text(tmp_path / folder / "dispatcher" / "events.jsonl")
        for path in (tmp_path / folder).rglob("*"):
            assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


def test_a_map_is_over_the_objects_that_match(run: Run, s3: Server, tmp_path: Path) -> None:
    bucket = s3.new_bucket()
    for name in ("x/1.fa", "x/2.fa", "x/3.fb", "x/y/4.fa"):
        s3.ask("PUT", f"/{bucket}/{name}", name.encode())
    env = s3.env()
    out = f"s3://{bucket}/out/{{stem}}.n"
    done = run(
        "map",
        f"s3://{bucket}/x/*.fa",
        "--out",
        out,
        "--shell",
        "--",
        "wc -c < {in} > {out}",
        env=env,
        cwd=tmp_path,
    )
    assert "2 done" in done.stdout + done.stderr
    listed = run("ls", f"s3://{bucket}/", env=env).stdout.split()
    assert [name for name in listed if "/out/" in name] == [f"s3://{bucket}/out/{n}.n" for n in (1, 2)]
    assert run("ls", f"s3://{bucket}/**/*.fa", env=env).stdout.count("\n") == 3
    nothing = run("map", f"s3://{bucket}/z/*.fa", "--", "true", env=env, cwd=tmp_path, status=2)
    assert "no file matches" in nothing.stderr


def test_what_is_wrong_is_said_and_no_secret_with_it(run: Run, s3: Server, tmp_path: Path) -> None:
    bucket = s3.new_bucket()
    env = s3.env()
    assert "there is no such object" in run("cat", f"s3://{bucket}/x", env=env, status=2).stderr
    no_bucket = run("cat", "s3://nobucketofthatname/x", env=env, status=2).stderr
    assert "there is no bucket `nobucketofthatname`" in no_bucket
    without = {
        name: value for name, value in env.items() if not name.endswith("_KEY") and "KEY_ID" not in name
    }
    without |= {"HOME": str(tmp_path), "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    missing = run("cat", f"s3://{bucket}/x", env=without, status=4).stderr
    assert "no credentials for S3 were found" in missing
    assert "no such" not in missing
    secret = run("cat", f"s3://KEY:{SECRET}@{bucket}/x", env=env, status=2).stderr
    assert "credentials in it" in secret
    assert SECRET not in secret
    # A profile has them, too, and where the server is.
    (tmp_path / ".aws").mkdir()
    profile = f"[me]\naws_access_key_id = K\naws_secret_access_key = {SECRET}\n"
    (tmp_path / ".aws" / "credentials").write_text(profile)
    (tmp_path / ".aws" / "config").write_text(f"[profile me]\nendpoint_url = {s3.endpoint}\n")
    s3.ask("PUT", f"/{bucket}/x", b"hello")
    by_profile = without | {"AWS_PROFILE": "me", "AWS_ENDPOINT_URL": ""}
    assert run("cat", f"s3://{bucket}/x", env=by_profile).stdout == "hello"


# Names below the copied directory that lead elsewhere, or that no file can have.
ODD_NAMES = [
    "x/../../../.profile",
    "../../beside",
    "..",
    "/etc/absolute",
    "./dot",
    "s/./dot",
    "s//double",
    "n" * 300,
    "both/below",
    "link/through",
    "leaf",
]
GOOD_NAMES = ["ok", "s/deep", "both", "a\nb", "..c", "back\\slash"]


def listed_at_s3(names: list[str]) -> Callable[[str, str], Answer]:
    def decide(_method: str, path: str) -> Answer:
        if urlsplit(path).path.strip("/") != "b":
            return 200, b"theirs"
        prefix = parse_qs(urlsplit(path).query)["prefix"][0]
        keys = [prefix + name for name in names]
        contents = "".join(f"<Contents><Key>{escape(k)}</Key><Size>6</Size></Contents>" for k in sorted(keys))
        head = "<ListBucketResult><IsTruncated>false</IsTruncated>"
        return 200, f"{head}{contents}</ListBucketResult>".encode()

    return decide


def listed_by_webdav(method: str, path: str) -> Answer:
    """What names lead elsewhere, in the spellings that a server has for them."""
    if method != "PROPFIND":
        return (404, b"") if "gone" in path else (200, b"theirs")
    collection = "<D:resourcetype><D:collection/></D:resourcetype>"
    hrefs = {
        "/d/": [
            "/d/",
            "/d/ok",
            "http://elsewhere.example/d/s/",
            "/d/..%2F..%2Fbeside",
            "/d/%2e%2e/%2e%2e/.profile",
            "/etc/passwd",
            "http://elsewhere.example/etc/absolute",
            "/d/../",
            "/d/link%2Fthrough",
            "/d/%00",
            "/d/gone",
        ],
        "/d/s/": ["/d/s/", "/d/s/deep", "/d/s/../", "/d/"],
    }
    # Whoever goes up is led on for ever.
    found = hrefs.get(unquote(path), ["/", "/up", "/../"])
    xml = "".join(
        f"<D:response><D:href>{href}</D:href><D:propstat><D:prop>{collection if href.endswith('/') else ''}"
        "<D:getcontentlength>6</D:getcontentlength></D:prop></D:propstat></D:response>"
        for href in found
    )
    return 207, f'<D:multistatus xmlns:D="DAV:">{xml}</D:multistatus>'.encode()


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", ["s3", "webdav", "commands"])
def test_a_copy_stays_in_its_target_whatever_names_a_home_lists(
    kind: str, run: Run, s3: Server, tmp_path: Path
) -> None:
    """A name that leads elsewhere is left out and named, links in the target are not followed, and the others come."""
    work, outside = tmp_path / "home" / "work", tmp_path / "outside"
    (work / "got").mkdir(parents=True)
    outside.mkdir()
    (outside / "leaf").write_text("mine")
    (work / "got" / "link").symlink_to(outside)
    (work / "got" / "leaf").symlink_to(outside / "leaf")
    (tmp_path / "home" / ".profile").write_text("mine")
    before = files_below(tmp_path / "home")
    env = s3.env()
    decide = listed_by_webdav if kind == "webdav" else listed_at_s3(ODD_NAMES + GOOD_NAMES)
    with weather(s3, decide) as endpoint:
        source, good = "s3://b/d/", GOOD_NAMES
        if kind == "webdav":
            source, good = endpoint.replace("http", "dav") + "/d/", ["ok", "s/deep"]
        if kind == "commands":
            source, good = "mine://x/d/", [name for name in GOOD_NAMES if "\n" not in name]
            (work / "names").write_text("".join(f"{name}\n" for name in ODD_NAMES + good))
            lines = {
                "get": "echo {path} > /dev/null; printf theirs",
                "stat": "echo {path} > /dev/null; echo 6 1",
                "list": "echo {path} > /dev/null; cat names",
                "put": "false {path} {file}",
                "remove": "false {path}",
            }
            text = "".join(f"{name} = {json.dumps(line)}\n" for name, line in lines.items())
            (work / "eyas.toml").write_text(f"[home.mine]\n{text}")
            before |= {"work/names", "work/eyas.toml"}
        done = run("cp", "-r", source, "got/", cwd=work, env=env | {"AWS_ENDPOINT_URL": endpoint}, status=4)
    assert files_below(tmp_path / "home") - before == {f"work/got/{name}" for name in good}
    assert all((work / "got" / name).read_text() == "theirs" for name in good)
    assert (tmp_path / "home" / ".profile").read_text() == "mine"
    assert files_below(outside) == {"leaf"}
    assert (outside / "leaf").read_text() == "mine"
    assert not (tmp_path / "beside").exists()
    left_out = [line for line in done.stderr.splitlines() if line.startswith("left out ")]
    n_odd = len(ODD_NAMES) if kind != "webdav" else len(left_out)
    assert len(left_out) == n_odd >= 8, done
    assert f"{n_odd} of {n_odd + len(good)} objects were left out" in done.stderr
    assert "leads out with `..`" in done.stderr
    assert "is absolute" in done.stderr


KEY_A = "<Contents><Key>d/a</Key><Size>1</Size></Contents>"


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("", "breaks off"),
        (f"<ListBucketResult>{KEY_A}<Contents><Key>d/", "breaks off"),
        ("<html><body>Please sign in</body></html>", "answered with `html`"),
        ("<Error><Code>InternalError</Code></Error>", "answered with `Error`"),
        (
            f"<ListBucketResult><IsTruncated>true</IsTruncated>{KEY_A}</ListBucketResult>",
            "not how to ask for it",
        ),
    ],
)
def test_a_part_of_a_listing_is_not_taken_for_all_of_it(
    page: str, words: str, run: Run, s3: Server, tmp_path: Path
) -> None:
    first = (
        "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
        f"{KEY_A}</ListBucketResult>"
    )

    def decide(_method: str, path: str) -> tuple[int, bytes] | None:
        if "list-type" not in path:
            return 200, b"x"
        return 200, (page if "continuation-token" in path else first).encode()

    with weather(s3, decide) as endpoint:
        env = s3.env(endpoint)
        assert words in run("cp", "-r", "s3://b/d/", tmp_path / "got/", env=env, status=None).stderr
        mapped = ["--out", str(tmp_path / "out/{name}"), "--", "cp", "{in}", "{out}"]
        assert words in run("map", "s3://b/d/*", *mapped, env=env, status=None).stderr
    assert not files_below(tmp_path / "got") and not files_below(tmp_path / "out")


def test_results_that_cannot_be_shown_are_no_success(eyas_path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for words in (["ls"], ["ls", "-l"], ["stat"], ["ls", "--help"], ["--version"]):
        with open("/dev/full", "w") as full:
            command = [str(eyas_path), *words, str(tmp_path / "file")]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 4 and "standard output took only a part" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["explain"],
        ["data", "where"],
        ["cat"],
        ["map", "--range", "0..1", "--nodes"],
        ["map", "--", "true", "{in}"],
        ["no-such-verb"],
    ],
)
def test_no_message_repeats_the_password_of_a_url(run: Run, words: list[str]) -> None:
    at = words.index("--") if "--" in words else len(words)
    done = run(*words[:at], "https://me:5ec2e7@h.invalid/x?k=5ec2e7", *words[at:], status=None)
    assert done.status in (2, 3) and "5ec2e7" not in done.stdout + done.stderr, done.stderr


@pytest.mark.parametrize(
    ("query", "signature"),
    [
        ("X-Amz-Credential=AK%2F1&X-Amz-Signature=", "5ec2e75ec2e7f00d"),
        ("page=2&k=", "zQ7-x1"),
    ],
    ids=["signed", "short"],
)
def test_the_query_of_a_url_is_neither_said_nor_written(
    eyas: Eyas, run: Run, s3: Server, tmp_path: Path, query: str, signature: str
) -> None:
    """It may open the object for whoever has it. Nodes get it, and so does the next process of a dispatcher that was killed."""

    def decide(_method: str, path: str) -> Answer:
        if f"{query}{signature}" not in path:
            return 403, b""
        return (404, b"") if "gone" in path else (200, b"theirs")

    with weather(s3, decide) as endpoint:

        def url(name: str) -> str:
            return f"{endpoint}/d/{name}?{query}{signature}"

        said = [
            run("cat", url("a")),
            run("cp", url("a"), url("b"), "got/"),
            run("cat", url("gone"), status=2),
            run("ls", url("a")),
            run("ls", url("gone"), status=2),
            run("cp", "-r", url("a"), "got/", status=2),
            run("cat", url("a").replace("http://", "http://me:word@"), status=2),
            run("cat", url("a").replace("127.0.0.1:", "127.0.0.1:9"), status=2),
            run("cat", url("a").replace("http://", "gopher://"), status=2),
            run("data", "put", url("a"), status=2),
            run("map", url("a"), "--out", "../{name}/..", "--", "cat", "{in}", status=2),
            run("map", url("a"), url("b"), "--out", "one", "--", "cat", "{in}", status=2),
            run("map", url(""), "--", "cat", "{in}", status=2),
            run("map", "--range", "0..2", "--with", url(""), "--", "true", status=2),
        ]
        assert said[0].stdout == "theirs"
        assert files_below(tmp_path / "got") == {"a", "b"}

        cluster = Cluster(eyas, tmp_path / "cluster", tmp_path / "home")
        dispatcher = cluster.dispatcher()
        cluster.submit([cluster.task("good", inputs=[url("a")]), cluster.task("bad", inputs=[url("gone")])])
        kill_now(dispatcher)
        cluster.dispatcher()
        cluster.executor("N1")
        said.append(cluster.wait(status=1))
        # A node that is there when another one is named.
        cluster.submit([cluster.task("later", inputs=[url("c")])])
        said.append(cluster.wait())
        cluster.expect(good=b"theirs", later=b"theirs")
        said += [cluster.run("explain", task) for task in ("good", "bad")]
        said += [cluster.run("status", "--json"), cluster.run("logs", "bad")]
        said.append(run("report", "--dir", cluster.dir, "--out", tmp_path / "page.html"))
        tasks = write_list(
            tmp_path / "tasks.jsonl", *[cluster.task(f"t{n}", inputs=[url("d")]) for n in range(4)]
        )
        said.append(run("run", tasks, "--nodes", "2", "--dispatchers", "2", "--dir", tmp_path / "C"))
        said.append(run("map", url("e"), "--out", "mapped/{name}", "--shell", "--", "cat {in} > {out}"))
        assert (tmp_path / "mapped" / "e").read_text() == "theirs"
        # A list is for another process to run.
        listed = str(tmp_path / "tasks-of-map.jsonl")
        mapped = ["--to-list", listed, "--out", "listed/{name}", "--shell", "--", "cat {in} > {out}"]
        said.append(run("map", url("f"), *mapped))
        said.append(run("run", listed))
        assert (tmp_path / "listed" / "f").read_text() == "theirs"
    assert "hidden=" in said[2].stderr
    assert not [done for done in said if signature in done.stdout + done.stderr]
    written = [path for path in tmp_path.rglob("*") if path.is_file() and not path.name.startswith("tasks")]
    assert not [path for path in written if signature.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("AccessDenied", 403, "access is denied"),
        ("SignatureDoesNotMatch", 403, "does not accept the credentials"),
        ("ExpiredToken", 400, "the credentials have expired"),
        ("RequestTimeTooSkewed", 403, "the clocks"),
    ],
)
def test_a_refusal_is_explained(run: Run, s3: Server, code: str, status: int, expected: str) -> None:
    answer = (status, f"<Error><Code>{code}</Code><Message>no {SECRET}</Message></Error>".encode())
    with weather(s3, lambda _method, _path: answer) as endpoint:
        said = run("cat", "s3://bucket1/x", env=s3.env(endpoint), status=4).stderr
    assert expected in said
    assert SECRET not in said


def test_a_server_that_asks_for_fewer_requests_gets_them(run: Run, s3: Server, tmp_path: Path) -> None:
    bucket = s3.new_bucket()
    s3.ask("PUT", f"/{bucket}/x", b"hello")
    seen: list[str] = []

    def slow(method: str, path: str) -> Answer:
        seen.append(method)
        return (503, SLOW_DOWN) if len(seen) <= 2 else None

    with weather(s3, slow) as endpoint:
        assert run("cat", f"s3://{bucket}/x", env=s3.env(endpoint)).stdout == "hello"
    assert len(seen) >= 3
    with weather(s3, lambda _method, _path: (503, SLOW_DOWN)) as endpoint:
        said = run("cat", f"s3://{bucket}/x", env=s3.env(endpoint), status=4).stderr
    assert "asks for fewer requests" in said
    assert "tries: 5" in said


def test_an_upload_that_is_cut_leaves_nothing(run: Run, s3: Server, tmp_path: Path) -> None:
    bucket = s3.new_bucket()
    (tmp_path / "big").write_bytes(os.urandom(20 << 20))
    n_cut = 0

    def cut(method: str, path: str) -> Answer:
        nonlocal n_cut
        if method == "PUT" and "partNumber=2" in path:
            n_cut += 1
            return "cut"
        return None

    with weather(s3, cut) as endpoint:
        said = run("cp", "big", f"s3://{bucket}/big", env=s3.env(endpoint), cwd=tmp_path, status=4).stderr
    assert n_cut == 5, said
    assert "cannot write" in said
    assert b"<Upload>" not in s3.uploads(bucket)
    assert run("ls", f"s3://{bucket}/", env=s3.env()).stdout == ""
    # A cut that passes is not noticed.
    n_cut = 0

    def cut_once(method: str, path: str) -> Answer:
        nonlocal n_cut
        if method == "PUT" and "partNumber=2" in path and n_cut == 0:
            n_cut += 1
            return "cut"
        return None

    with weather(s3, cut_once) as endpoint:
        run("cp", "big", f"s3://{bucket}/big", env=s3.env(endpoint), cwd=tmp_path)
    run("cp", f"s3://{bucket}/big", "back", env=s3.env(), cwd=tmp_path)
    assert (tmp_path / "back").read_bytes() == (tmp_path / "big").read_bytes()


LARGE_BYTES = 5_000_000_000
PART_BYTES = 8 << 20


@pytest.mark.long
def test_an_object_of_hundreds_of_parts_is_what_was_written(eyas: Eyas, run: Run, tmp_path: Path) -> None:
    """5 GB in parts of 8 MiB, by a server that keeps them on a disk; the source, its parts and the object take 15 GB there."""
    program = shutil.which("versitygw")
    if program is None:
        lacking("needs versitygw, an S3 server: go install github.com/versity/versitygw/cmd/versitygw@latest")
    assert program is not None
    free_bytes = shutil.disk_usage(tmp_path).free
    # A disk with less room takes a smaller one, of more than 200 parts.
    size_bytes = LARGE_BYTES if free_bytes > 4 * LARGE_BYTES else 2_000_000_000
    port, store = free_port(), tmp_path / "store"
    store.mkdir()
    env = {**os.environ, "ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
    with open(tmp_path / "versitygw.log", "wb") as log:
        command = [program, "--port", f"127.0.0.1:{port}", "posix", str(store)]
        process = subprocess.Popen(
            command, env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd="/"
        )
    try:
        wait_until(lambda: answers_at(port), "versitygw")
        (store / "bucket1").mkdir()
        server = Server(port)
        block, digest = random.Random(15).randbytes(1 << 20), hashlib.sha256()
        with open(tmp_path / "large", "wb") as file:
            # No two blocks are equal, so parts in a wrong order are noticed.
            for n in range(size_bytes // len(block) + 1):
                piece = (n.to_bytes(8, "big") + block[8:])[: size_bytes - file.tell()]
                digest.update(piece)
                file.write(piece)
        run("cp", "large", "s3://bucket1/in/large", env=server.env(), cwd=tmp_path, timeout=600)
        (tmp_path / "large").unlink()
        # A server's version of an object in parts ends with their number.
        version = os.getxattr(store / "bucket1" / "in" / "large", "user.etag").decode().strip('"')
        assert version.rpartition("-")[2] == str(-(-size_bytes // PART_BYTES)), version
        command = [str(eyas.path), "cat", "s3://bucket1/in/large"]
        found, peak_bytes = hashlib.sha256(), 0
        with subprocess.Popen(command, env={**eyas.env, **server.env()}, stdout=subprocess.PIPE) as reading:
            assert reading.stdout is not None
            while piece := reading.stdout.read(1 << 24):
                found.update(piece)
                # Its memory when it has ended is not to be seen.
                with suppress(OSError, IndexError):
                    status = Path(f"/proc/{reading.pid}/status").read_text()
                    peak_bytes = max(peak_bytes, int(status.partition("VmHWM:")[2].split()[0]) << 10)
        assert reading.returncode == 0
        assert found.digest() == digest.digest()
        assert 0 < peak_bytes < 200 << 20, peak_bytes
        # A task reads it into a cache, where its digest is taken once more.
        task = {
            "id": "t",
            "command": "sha256sum < large > sum",
            "inputs": ["s3://bucket1/in/large"],
            "outputs": {"sum": "s3://bucket1/sum"},
        }
        write_list(tmp_path / "tasks.jsonl", task)
        run("run", "tasks.jsonl", "--dir", "c", cwd=tmp_path, env=server.env(), timeout=600)
        assert run("cat", "s3://bucket1/sum", env=server.env()).stdout.split()[0] == digest.hexdigest()
    finally:
        process.terminate()
        process.wait(30)


def test_home_check_tries_everything(run: Run, s3: Server, tmp_path: Path) -> None:
    bucket = s3.new_bucket()
    for place, env in ((f"s3://{bucket}/here", s3.env()), (str(tmp_path), {})):
        checked = json.loads(run("home", "check", place, "--size", "1", "--json", env=env).stdout)
        works = {row["what"]: row["works"] for row in checked["rows"]}
        wanted = (
            "write",
            "stat",
            "read",
            "read a range",
            "list",
            "remove",
            "read, bandwidth",
            "write, bandwidth",
        )
        assert all(works[what] for what in wanted), checked
    assert run("ls", f"s3://{bucket}/", env=s3.env()).stdout == ""
    table = run("home", "check", f"s3://{bucket}/here", "--size", "0", env=s3.env()).stdout
    assert "`s3` home at" in table


@pytest.mark.parametrize("scheme", ["http", "https", "dav", "webhdfs", "sftp", "s3"])
def test_home_check_says_that_nobody_answers(run: Run, scheme: str) -> None:
    """A server that takes connections and says nothing, as behind a wrong port or a broken proxy."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        at = f"127.0.0.1:{silent.getsockname()[1]}"
        env = {"AWS_ENDPOINT_URL": f"http://{at}", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        place = "s3://bucket/x/" if scheme == "s3" else f"{scheme}://{at}/x/"
        done = run("home", "check", place, "--wait", "1s", env=env, status=1, timeout=30)
        assert "answers" in done.stdout and "nothing came within 1.0 s" in done.stdout, done


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "AWS_CA_BUNDLE"])
def test_a_file_without_certificates_is_said_where_they_are_needed(
    run: Run, tmp_path: Path, variable: str
) -> None:
    """Nodes, and homes that need no certificates of others, do not look at it."""
    (tmp_path / "a.txt").write_text("a\n")
    (tmp_path / "empty.pem").touch()
    place = "https://127.0.0.1:1/x" if variable == "SSL_CERT_FILE" else "s3://bucket/x"
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    for file, why in [
        ("empty.pem", "it holds no certificate in PEM form"),
        ("none.pem", "it cannot be read: No such file"),
    ]:
        env = {variable: file, **keys}
        assert run("map", "a.txt", "--print", "--", "cat", "{in}", env=env).stdout == "a\n"
        refused = run("cp", place, "x", env=env, status=4).stderr
        assert f"{variable} names `{file}` as the authorities to trust, and {why}" in refused


needs_rclone = pytest.mark.skipif(RCLONE is None and not os.environ.get("CI"), reason="needs rclone")


@dataclass
class Dav:
    url: str
    folder: Path
    command: list[str]
    port: int
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self.folder.with_name("dav.log"), "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        wait_until(lambda: answers_at(self.port), "rclone serve webdav")

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)


@pytest.fixture
def dav(tmp_path: Path) -> Iterator[Dav]:
    """A WebDAV server that wants a password, and the folder that it shows."""
    folder, port = tmp_path / "shared", free_port()
    folder.mkdir()
    address = f"127.0.0.1:{port}"
    command = [
        RCLONE or "rclone",
        "serve",
        "webdav",
        str(folder),
        "--addr",
        address,
        "--user",
        "me",
        "--pass",
        SECRET,
        # Tests put files into its folder behind its back.
        "--dir-cache-time",
        "0s",
    ]
    server = Dav(f"dav://{address}", folder, command, port)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@needs_rclone
def test_webdav_keeps_every_promise_of_a_home(run: Run, lab: Run, dav: Dav, tmp_path: Path) -> None:
    url, folder = dav.url, dav.folder
    (tmp_path / "netrc").write_text(f"machine 127.0.0.1\nlogin me\npassword {SECRET}\n")
    env = {"NETRC": str(tmp_path / "netrc")}
    done = lab("homes", f"{url}/base", "--no-line-breaks", env=env)
    assert "keeps every promise" in done.stdout
    assert not [path for path in folder.rglob("*") if path.name.startswith(".eyas-part-")]
    (folder / "bare" / "a b" / "c").mkdir(parents=True)
    (folder / "bare" / "file").write_text("x")
    run("cp", "-r", f"{url}/bare", "got", cwd=tmp_path, env=env)
    assert {str(path.relative_to(tmp_path / "got")) for path in (tmp_path / "got").rglob("*")} == {
        "a b",
        "a b/c",
        "file",
    }
    refused = run("ls", f"{url}/base", env={"NETRC": "/dev/null"}, status=4).stderr
    assert "a name and a password" in refused
    (folder / "in.txt").write_text("one two three")
    write_list(
        tmp_path / "tasks.jsonl",
        {
            "id": "t",
            "command": "wc -w < in.txt > n",
            "inputs": [f"{url}/in.txt"],
            "outputs": {"n": f"{url}/out/n"},
        },
    )
    run("run", "tasks.jsonl", "--dir", "c", cwd=tmp_path, env=env)
    assert (folder / "out" / "n").read_text().strip() == "3"
    assert SECRET not in log_text(tmp_path / "c" / "dispatcher" / "events.jsonl")


@needs_rclone
def test_an_output_waits_for_a_home_that_is_away(eyas: Eyas, dav: Dav, tmp_path: Path) -> None:
    """A server is restarted while a program runs: its output comes home later, and the program does not run again."""
    (tmp_path / "netrc").write_text(f"machine 127.0.0.1\nlogin me\npassword {SECRET}\n")
    (dav.folder / "in.txt").write_text("one two three")
    gate, ran = tmp_path / "gate", tmp_path / "ran"
    task = {
        "id": "t",
        "command": f"echo >> {ran}; while [ ! -e {gate} ]; do sleep 0.05; done; wc -w < in.txt > n",
        "inputs": [f"{dav.url}/in.txt"],
        "outputs": {"n": f"{dav.url}/out/n"},
    }
    write_list(tmp_path / "tasks.jsonl", task)
    env = {"NETRC": str(tmp_path / "netrc")}
    running = eyas.start("run", "tasks.jsonl", "--dir", "c", cwd=tmp_path, env=env)
    wait_until(ran.exists, "the program", alive=running)
    dav.stop()
    gate.touch()
    time.sleep(20)
    assert running.is_alive(), running.finished()
    assert f"warning: nodes wait for `{dav.url}`, which does not answer" in running.stderr, running.stderr
    dav.start()
    running.wait(60)
    assert (dav.folder / "out" / "n").read_text().strip() == "3"
    assert ran.read_text() == "\n", "the program ran once"
    assert not [path for path in dav.folder.rglob("*") if path.name.startswith(".eyas-part-")]


@needs_rclone
def test_a_password_that_is_renewed_is_used_and_waited_for(run: Run, dav: Dav, tmp_path: Path) -> None:
    def renew(password: str) -> None:
        (tmp_path / "new").write_text(f"machine 127.0.0.1\nlogin me\npassword {password}\n")
        os.replace(tmp_path / "new", tmp_path / "netrc")

    def change(password: str) -> None:
        """At the server, which is started anew for that."""
        dav.stop()
        dav.command[dav.command.index("--pass") + 1] = password
        dav.start()

    for name in "123":
        (dav.folder / name).write_text("v")
    renew(SECRET)
    env = {"NETRC": str(tmp_path / "netrc")}
    run("up", "--dir", "C", "--nodes", "1", env=env)
    try:
        env["EYAS_JOIN"] = str(tmp_path / "C/dispatcher/join.json")
        read = ["--print", "--", "cat", "{in}"]
        assert run("map", f"{dav.url}/1", *read, env=env).stdout == "v"
        renew("another")
        change("another")
        assert run("map", f"{dav.url}/2", *read, env=env).stdout == "v"
        change("third")
        task = {
            "id": "a",
            "command": "cat x > y",
            "inputs": {"x": f"{dav.url}/3"},
            "outputs": {"y": f"{dav.url}/out/y"},
        }
        write_list(tmp_path / "t.jsonl", task)
        run("submit", "t.jsonl", env=env)
        why = "the server wants a name and a password"
        wait_until(lambda: why in run("status", env=env).stdout, "the reason in the status", 60)
        assert dav.url in run("status", env=env).stdout
        renew("third")
        run("wait", env=env)
        assert (dav.folder / "out" / "y").read_text() == "v"
    finally:
        run("down", "--join", tmp_path / "C/dispatcher/join.json", status=None)


@needs_rclone
def test_a_home_of_commands_keeps_every_promise(run: Run, lab: Run, tmp_path: Path) -> None:
    (tmp_path / "eyas.toml").write_text('[home.rc]\npreset = "rclone"\n')
    (tmp_path / "rclone.conf").write_text("[disk]\ntype = alias\nremote = /\n")
    env = {"RCLONE_CONFIG": str(tmp_path / "rclone.conf")}
    place = f"rc://disk{tmp_path}"
    done = lab("homes", f"{place}/base", "--no-line-breaks", cwd=tmp_path, env=env)
    assert "keeps every promise" in done.stdout
    (tmp_path / "a b.txt").write_text("one two")
    task = {
        "id": "t",
        "command": "wc -w < 'a b.txt' > n",
        "inputs": [f"{place}/a b.txt"],
        "outputs": {"n": f"{place}/n"},
    }
    write_list(tmp_path / "tasks.jsonl", task)
    run("run", "tasks.jsonl", "--dir", "c", cwd=tmp_path, env=env)
    assert (tmp_path / "n").read_text().strip() == "2"
    (tmp_path / "eyas.toml").write_text('[home.rc]\nget = "x"\n')
    assert "it has no `put`" in run("ls", f"{place}/", cwd=tmp_path, status=2).stderr


@pytest.mark.parametrize("cure", ["write", "clean"])
def test_an_upload_of_a_writer_that_was_killed_is_ended(
    cure: str, run: Run, start: Start, s3: Server, tmp_path: Path
) -> None:
    """Its parts would stay at the server, and be paid for."""
    bucket = s3.new_bucket()
    with open(tmp_path / "large", "wb") as file:
        file.truncate(40 << 20)
    parts: list[str] = []

    def decide(method: str, path: str) -> Answer:
        if method == "PUT" and "partNumber=" in path and len(parts) < 3:
            parts.append(path)
            if len(parts) == 3:
                kill_now(writer)
                return "cut"
        return None

    with weather(s3, decide) as endpoint:
        writer = start("cp", "large", f"s3://{bucket}/large", cwd=tmp_path, env=s3.env(endpoint))
        writer.wait(60, status=None)
    assert len(parts) == 3
    assert b"<Upload>" in s3.uploads(bucket)
    env = s3.env()
    if cure == "write":
        run("cp", "large", f"s3://{bucket}/large", cwd=tmp_path, env=env)
    else:
        run("home", "check", f"s3://{bucket}/", "--clean", cwd=tmp_path, env=env)
    assert b"<Upload>" not in s3.uploads(bucket)


@pytest.mark.parametrize("who", ["cp", "run", "node"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_commands_of_a_home_end_with_eyas(who: str, number: int, eyas: Eyas, tmp_path: Path) -> None:
    """With all that they have started, also where nobody is left to end them."""
    lines = {
        "get": "echo {path} > /dev/null; sleep 4711 | (sleep 4711; cat)",
        "stat": "echo {path} > /dev/null; echo 6 1",
        "list": "false {path}",
        "put": "false {path} {file}",
        "remove": "false {path}",
    }
    text = "".join(f"{name} = {json.dumps(line)}\n" for name, line in lines.items())
    (tmp_path / "eyas.toml").write_text(f"[home.hangs]\n{text}")
    args = ["cp", "hangs://x/d", "got"]
    if who != "cp":
        write_list(tmp_path / "l.jsonl", {"id": "a", "command": "cat d", "inputs": ["hangs://x/d"]})
        args = ["run", "l.jsonl", "--nodes", "1", "--dir", "c"]
    started = eyas.start(*args)

    def sleeps() -> list[int]:
        return [pid for pid, command in eyas.left_behind() if command.startswith("sleep 4711")]

    wait_until(lambda: len(sleeps()) == 2, "the command of the home", alive=started)
    if who == "node":
        nodes = [pid for pid, command in eyas.left_behind() if " executor " in f" {command} "]
        assert len(nodes) == 1
        before = sleeps()
        os.kill(nodes[0], number)
        wait_until(lambda: not set(before) & set(sleeps()), "the end of the command")
        started.stop()
    else:
        started.signal(number)
        started.wait(status=None)
    wait_until(lambda: not sleeps(), "the end of the commands")
