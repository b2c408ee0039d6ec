"""Users of a cluster from Python: the same as `eyas user`."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import eyas
import pytest
from eyas import _ffi


def test_users_come_change_and_go(tmp_path: Path) -> None:
    with eyas.Cluster(nodes=1, slots=1) as cluster:
        key = cluster.add_user("ada", tmp_path / "ada.json", weight=3)
        assert key == tmp_path / "ada.json" and key.stat().st_mode & 0o777 == 0o600
        owner, ada = cluster.users()
        assert owner.is_owner and owner.rights == ("submit", "see", "cancel", "operate")
        assert (ada.name, ada.rights, ada.weight, ada.is_owner) == ("ada", ("submit",), 3, False)
        with eyas.connect(key) as client:
            run = client.run([{"id": "a", "command": "true"}])
            run.wait()
            assert [of.name for of in client.users()] == ["ada"], "others are not theirs to see"
            for refused in (lambda: client.set_user("ada", weight=9), lambda: client.remove_user("ada")):
                with pytest.raises(eyas.EyasError, match="may not change users: the right `operate`"):
                    refused()
            with pytest.raises(eyas.EyasError, match="is the join file of user `ada`"):
                client.add_user("bo", tmp_path / "bo.json")
            assert not (tmp_path / "bo.json").exists()
            changed = cluster.set_user("ada", rights=["submit", "see"])
            assert (changed.rights, changed.weight) == (("submit", "see"), 3), "what is not named stays"
            assert cluster.set_user("ada", rights=[]).rights == ()
            assert cluster.users()[1].used_slot_s >= 0
            cluster.remove_user("ada")
            with pytest.raises(eyas.EyasError):
                client.status()
        assert [user.name for user in cluster.users()] == [""]


def test_what_is_wrong_with_a_user_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with eyas.Cluster(nodes=1, slots=1) as cluster:
        assert cluster.add_user("ada") == tmp_path / "ada.json"
        kept = (tmp_path / "ada.json").read_bytes()
        with pytest.raises(eyas.EyasError, match=r"`.*/ada.json` is there already"):
            cluster.add_user("bo", "ada.json")
        assert (tmp_path / "ada.json").read_bytes() == kept, "nobody's key is replaced"
        with pytest.raises(eyas.EyasError, match="there is a user `ada` already"):
            cluster.add_user("ada", "again.json")
        for name, said in (("-x", "cannot be the name of a user"), ("a b", "cannot be the name of a user")):
            with pytest.raises(eyas.EyasError, match=said):
                cluster.add_user(name, "x.json")
        with pytest.raises(eyas.EyasError, match="`rule` is no right"):
            cluster.add_user("bo", "bo.json", rights="rule")
        for weight in (0, -1, 2**40):
            with pytest.raises(eyas.EyasError, match="a weight is a whole number from 1 to"):
                cluster.set_user("ada", weight=weight)
        with pytest.raises(eyas.EyasError, match="nothing is named"):
            cluster.set_user("ada")
        with pytest.raises(eyas.EyasError, match="there is no user `cy`"):
            cluster.set_user("cy", weight=2)
        with pytest.raises(eyas.EyasError, match="there is no user `cy`"):
            cluster.remove_user("cy")
        with pytest.raises(eyas.EyasError, match="cannot write"):
            cluster.add_user("bo", "no/such/folder/bo.json")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["ada.json"], "nothing is left of failures"
        assert [user.name for user in cluster.users()] == ["", "ada"]


def test_users_who_are_added_at_once_have_keys_of_their_own(tmp_path: Path) -> None:
    names = [f"u{number}" for number in range(8)]
    with eyas.Cluster(nodes=1, slots=1) as cluster:
        with ThreadPoolExecutor(8) as threads:
            keys = list(threads.map(lambda name: cluster.add_user(name, tmp_path / f"{name}.json"), names))
        assert len({key.read_bytes() for key in keys}) == 8
        for name, key in zip(names, keys):
            with eyas.connect(key) as client:
                assert [user.name for user in client.users()] == [name]


def test_nobody_else_hears_of_what_a_user_calls(tmp_path: Path) -> None:
    """Whoever listens under the number of another user's client hears nothing."""
    with eyas.Cluster(nodes=1, slots=1) as cluster:
        keys = [cluster.add_user(name, tmp_path / f"{name}.json") for name in ("ada", "bo")]
        with eyas.connect(keys[0]) as ada:
            assert ada.submit(sum, [1, 2]).result() == 3
            assert ada._calls is not None
            theirs = _ffi.Ends(keys[1], ada._calls._listener)
            heard: list[object] = []
            thread = threading.Thread(target=lambda: heard.append(theirs.next(None)))
            thread.start()
            assert ada.submit(sum, [3, 4]).result() == 7
            theirs.stop()
            thread.join()
            assert heard == [None]
