"""Passwords, limits of tries, and requests that come at the same time."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from portal import accounts, store


@pytest.mark.parametrize(
    "password",
    [
        "",
        "short",
        "aaaaaaaaaaaa",
        "abababababab",
        "ada-lovelace-1",
        "my password 1",
        "1234567890abc",
        "x" * 201,
    ],
)
def test_weak_passwords_are_refused(password: str) -> None:
    assert accounts.trouble_of_password(password, "Ada")


def test_a_good_password_is_kept_as_argon2_alone() -> None:
    assert accounts.trouble_of_password("correct horse battery", "ada") is None
    kept = accounts.hash_of("correct horse battery")
    assert kept.startswith("$argon2id$") and "horse" not in kept
    assert accounts.is_password(kept, "correct horse battery")
    assert not accounts.is_password(kept, "correct horse batterx")
    assert not accounts.is_password(None, "nobody has this password"), "nobody has no password"
    assert not accounts.is_password("not a hash", "x")


@pytest.mark.parametrize("name", ["a", "-ada", "../ada", "ada/x", "ada b", "ädä", "a" * 33, "<b>ada"])
def test_names_that_would_be_paths_or_markup_are_refused(name: str) -> None:
    assert accounts.trouble_of_name(name)


def test_a_limit_allows_again_when_its_time_is_over() -> None:
    limit = accounts.Limit(2, 10.0)
    assert [limit.wait_s("a", 0.0), limit.wait_s("a", 1.0), limit.wait_s("b", 1.0)] == [0, 0, 0]
    assert limit.wait_s("a", 4.0) == 6.0
    assert limit.wait_s("a", 10.5) == 0, "the try that was refused did not count"
    limit.give_back("a")
    assert limit.wait_s("a", 10.6) == 0 and limit.wait_s("a", 10.7) > 0
    limit.forget("a")
    assert limit.wait_s("a", 10.8) == 0


def kept_in(folder: Path) -> store.Store:
    return store.Store(store.connect(f"sqlite:///{folder}/p.db"))


def test_one_press_at_the_same_time_is_one_request(tmp_path: Path) -> None:
    kept = kept_in(tmp_path)
    assert kept.add_user("ada", "x") and not kept.add_user("ada", "y")
    ada = kept.user("ada")
    assert ada is not None
    with ThreadPoolExecutor(8) as threads:
        made = list(
            threads.map(lambda _: kept.add_request(ada, "press", 41, [[1, 1.0, 1.0, "r"]]), range(24))
        )
    assert len({number for number, _ in made}) == 1
    assert sum(is_new for _, is_new in made) == 1


def test_limits_hold_for_requests_at_the_same_time(tmp_path: Path) -> None:
    kept = kept_in(tmp_path)
    kept.add_user("ada", "x")
    kept.set_user("ada", requests_at_once=3, objects_per_day=8)
    ada = kept.user("ada")
    assert ada is not None

    def ask(number: int) -> str:
        try:
            return kept.add_request(ada, f"press {number}", 41, [[1, 1.0, 1.0, "r"]] * 2)[0]
        except store.TooMuch as error:
            return str(error)

    with ThreadPoolExecutor(8) as threads:
        said = list(threads.map(ask, range(16)))
    assert sum("as many as you may have" in text for text in said) == 13
    for number in kept.going():
        kept.set_request(number, state="done")
    assert not kept.set_request(said[0], state="failed"), "an end is an end"
    assert "you" not in ask(100).split(), "six objects and two are eight"
    assert "you asked for 8 objects within a day, and may ask for 8" in ask(101)


def test_a_session_ends_with_its_time_and_with_a_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = kept_in(tmp_path)
    kept.add_user("ada", "x")
    ada = kept.user("ada")
    assert ada is not None
    secret = kept.open_session(ada["id"])
    assert kept.session(secret) is not None and kept.session(secret + "x") is None
    assert secret.encode() not in (tmp_path / "p.db").read_bytes() + (tmp_path / "p.db-wal").read_bytes()
    later = time.time() + store.SESSION_IDLE_S + 1
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: later)
        assert kept.session(secret) is None
    assert kept.session(secret) is not None
    kept.set_user("ada", is_blocked=True)
    assert kept.session(secret) is None
