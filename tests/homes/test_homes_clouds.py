"""Homes at Google's and at Azure's storage: each against a real server, and what happens when that fails."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from buckets import Answer, moto, weather
from clouds import KEY, Azure, Google, azurite, fake_gcs, program
from harness import Run
from lists import write_list

# Without an account or a token of the machine on which tests run.
NOBODY = dict.fromkeys(
    (
        "AZURE_STORAGE_CONNECTION_STRING",
        "AZURE_STORAGE_ACCOUNT",
        "AZURE_STORAGE_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "STORAGE_EMULATOR_HOST",
        "CLOUDSDK_AUTH_ACCESS_TOKEN",
    ),
    "",
)


def needs(name: str) -> pytest.MarkDecorator:
    """Skips where a server is missing."""
    return pytest.mark.skipif(program(name) is None, reason=f"needs {name}")


@pytest.fixture(scope="module")
def az(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azure]:
    with azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture(scope="module")
def gs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Google]:
    with fake_gcs(tmp_path_factory.mktemp("gcs")) as server:
        yield server


def a_map_over_all(run: Run, place: str, env: dict[str, str], cwd: Path) -> None:
    """Unmodified programs read from there, and what they write goes there."""
    names = ["a b.txt", "c+d%é.txt", "e.txt"]
    for n, name in enumerate(names):
        (cwd / name).write_text("word " * (n + 1))
    run("cp", *names, f"{place}/in/", cwd=cwd, env=env)
    tasks = [
        {
            "id": f"t{n}",
            "command": f"wc -w < '{name}' > n",
            "inputs": [f"{place}/in/{name.replace('%', '%25')}"],
            "outputs": {"n": f"{place}/out/{n}.n"},
        }
        for n, name in enumerate(names)
    ]
    write_list(cwd / "tasks.jsonl", *tasks)
    done = run("run", "tasks.jsonl", "--dir", "c", cwd=cwd, env=env)
    assert "3 done" in done.stdout + done.stderr
    listed = run("ls", f"{place}/out/*.n", env=env).stdout.split()
    assert listed == [f"{place}/out/{n}.n" for n in range(3)]
    assert [run("cat", name, env=env).stdout.strip() for name in listed] == ["1", "2", "3"]


@needs("azurite-blob")
def test_azure_keeps_every_promise_of_a_home(run: Run, lab: Run, az: Azure, tmp_path: Path) -> None:
    place = f"az://{az.new_container('promises')}"
    env = NOBODY | az.env()
    assert "keeps every promise" in lab("homes", f"{place}/base", env=env).stdout
    a_map_over_all(run, place, env, tmp_path)
    key = KEY.encode()
    for path in (tmp_path / "c").rglob("*"):
        assert not path.is_file() or key not in path.read_bytes(), path


def times_are_kept(run: Run, place: str, env: dict[str, str], cwd: Path) -> None:
    """Of an output, and of copies with one request and with many."""
    at = 1_500_000_000.25
    task = {
        "id": "t",
        "command": f"echo x > x; touch -d @{at} x",
        "outputs": {"x": f"{place}/x"},
    }
    write_list(cwd / "times.jsonl", task)
    run("run", "times.jsonl", cwd=cwd, env=env)
    assert (
        run("map", f"{place}/x", "--print", "--", "stat", "-c", "%.2Y", "{in}", env=env).stdout == f"{at}\n"
    )
    for size in (5, 20 << 20):
        (cwd / "old").write_bytes(b"x" * size)
        os.utime(cwd / "old", (at, at))
        run("cp", "old", f"{place}/old", cwd=cwd, env=env)
        run("cp", f"{place}/old", "back", cwd=cwd, env=env)
        assert (cwd / "back").stat().st_mtime == at


@needs("azurite-blob")
def test_azure_keeps_the_times_of_files(run: Run, az: Azure, tmp_path: Path) -> None:
    times_are_kept(run, f"az://{az.new_container('times')}", NOBODY | az.env(), tmp_path)


def test_s3_keeps_the_times_of_files(run: Run, tmp_path: Path) -> None:
    (tmp_path / "moto").mkdir()
    with moto(tmp_path / "moto") as server:
        times_are_kept(run, f"s3://{server.new_bucket()}", server.env(), tmp_path)


@needs("azurite-blob")
def test_what_is_wrong_at_azure_is_said(run: Run, az: Azure) -> None:
    container = az.new_container("wrongs")
    env = NOBODY | az.env()
    assert "there is no such object" in run("cat", f"az://{container}/x", env=env, status=2).stderr
    missing = run("cat", "az://nocontainer/x", env=env, status=2).stderr
    assert "has no container `nocontainer`" in missing
    wrong = "d3Jvbmcga2V5"
    refused = run("cat", f"az://{container}/x", env=NOBODY | az.env(key=wrong), status=4).stderr
    assert "are not those of the storage account" in refused
    assert wrong not in refused
    nameless = run("cat", f"az://{container}/x", env=NOBODY, status=4).stderr
    assert "set AZURE_STORAGE_ACCOUNT" in nameless
    nobody = NOBODY | {"AZURE_STORAGE_ACCOUNT": "acct", "PATH": os.environ["PATH"]}
    assert (
        "no credentials for the storage account `acct`"
        in run("cat", f"az://{container}/x", env=nobody, status=4).stderr
    )


@needs("azurite-blob")
def test_an_upload_to_azure_that_is_cut_shows_nothing(run: Run, az: Azure, tmp_path: Path) -> None:
    container = az.new_container("cuts")
    (tmp_path / "big").write_bytes(os.urandom(20 << 20))
    always, n_cut = True, 0

    def cut(method: str, path: str) -> Answer:
        nonlocal n_cut
        if method == "PUT" and "comp=block&" in path and (always or n_cut == 0):
            n_cut += 1
            return "cut"
        return None

    with weather(az, cut) as endpoint:
        env = NOBODY | az.env(port=int(endpoint.rsplit(":", 1)[1]))
        said = run("cp", "big", f"az://{container}/big", env=env, cwd=tmp_path, status=4).stderr
        assert "cannot write" in said and "tries: 5" in said
        assert run("ls", f"az://{container}/", env=env).stdout == ""
        always, n_cut = False, 0
        run("cp", "big", f"az://{container}/big", env=env, cwd=tmp_path)
        assert n_cut == 1
        run("cp", f"az://{container}/big", "back", env=env, cwd=tmp_path)
    assert (tmp_path / "back").read_bytes() == (tmp_path / "big").read_bytes()


@needs("fake-gcs-server")
def test_google_keeps_every_promise_of_a_home(run: Run, lab: Run, gs: Google, tmp_path: Path) -> None:
    place = f"gs://{gs.new_bucket('promises')}"
    env = NOBODY | gs.env()
    assert "keeps every promise" in lab("homes", f"{place}/base", env=env).stdout
    a_map_over_all(run, place, env, tmp_path)


@needs("fake-gcs-server")
def test_what_is_wrong_at_google_is_said(run: Run, gs: Google, tmp_path: Path) -> None:
    bucket = gs.new_bucket("wrongs")
    env = NOBODY | gs.env()
    assert "there is no such object" in run("cat", f"gs://{bucket}/x", env=env, status=2).stderr
    assert "there is no bucket `nobucket`" in run("ls", "gs://nobucket/", env=env, status=2).stderr
    nobody = run("cat", f"gs://{bucket}/x", env=NOBODY, status=4).stderr
    assert "no credentials for Google Cloud Storage" in nobody
    absent = NOBODY | {"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "absent.json")}
    said = run("cat", f"gs://{bucket}/x", env=absent, status=2).stderr
    assert "absent.json" in said and "GOOGLE_APPLICATION_CREDENTIALS" in said


@needs("fake-gcs-server")
def test_an_upload_to_google_that_is_cut_shows_nothing(run: Run, gs: Google, tmp_path: Path) -> None:
    bucket = gs.new_bucket("cuts")
    (tmp_path / "big").write_bytes(os.urandom(20 << 20))
    always, n_put = True, 0

    def cut(method: str, path: str) -> Answer:
        nonlocal n_put
        if method == "PUT":
            n_put += 1
            # The first piece comes, the second one does not, once or at all.
            return "cut" if (n_put > 1 and always) or n_put == 2 else None
        return None

    with weather(gs, cut) as endpoint:
        env = NOBODY | gs.env(port=int(endpoint.rsplit(":", 1)[1]))
        said = run("cp", "big", f"gs://{bucket}/big", env=env, cwd=tmp_path, status=4).stderr
        assert "cannot write" in said and "tries: 5" in said
        assert run("ls", f"gs://{bucket}/", env=env).stdout == ""
        always, n_put = False, 0
        run("cp", "big", f"gs://{bucket}/big", env=env, cwd=tmp_path)
        run("cp", f"gs://{bucket}/big", "back", env=env, cwd=tmp_path)
    assert (tmp_path / "back").read_bytes() == (tmp_path / "big").read_bytes()
