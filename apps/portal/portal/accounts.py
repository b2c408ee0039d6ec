"""Passwords, names, and how often somebody may try."""

from __future__ import annotations

import re
import threading
import time
from collections import deque

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,31}")
PASSWORD_MIN = 10
# A longer one would only keep the hash busy.
PASSWORD_MAX = 200
DIFFERENT_MIN = 5
KEYS_MAX = 100_000

_hasher = PasswordHasher()
# What a name that nobody has is compared with, so that the answer takes as long.
_NOBODY = _hasher.hash("nobody has this password")


def trouble_of_name(name: str) -> str | None:
    if not NAME.fullmatch(name):
        return "a name has 2 to 32 letters of the Latin alphabet, digits and . _ -, and begins with a letter or digit"
    return None


def trouble_of_password(password: str, name: str) -> str | None:
    """What is wrong with a new password; None: nothing."""
    if len(password) < PASSWORD_MIN:
        return f"the password has {len(password)} characters, and needs at least {PASSWORD_MIN}"
    if len(password) > PASSWORD_MAX:
        return f"the password has more than {PASSWORD_MAX} characters"
    if len(set(password)) < DIFFERENT_MIN:
        return f"the password has fewer than {DIFFERENT_MIN} different characters"
    if name and name.lower() in password.lower():
        return "the password contains the name"
    if "password" in password.lower() or password.lower().startswith(("1234567890", "qwertyuiop")):
        return "the password is one of those that are tried first"
    return None


def hash_of(password: str) -> str:
    return _hasher.hash(password)


def is_password(stored: str | None, given: str) -> bool:
    """Whether it is the password of that hash; takes the same time where there is none, which is None or an empty text."""
    try:
        _hasher.verify(stored or _NOBODY, given[: PASSWORD_MAX + 1])
    except (VerificationError, InvalidHashError):
        return False
    return bool(stored)


class Limit:
    """At most `n_max` events of one key in `seconds`. Of this process: several portals count by themselves."""

    def __init__(self, n_max: int, seconds: float) -> None:
        self.n_max, self.seconds = n_max, seconds
        self._seen: dict[str, deque[float]] = {}
        self._lock = threading.Lock()

    def wait_s(self, key: str, now: float | None = None) -> float:
        """Count one event; 0 where it is allowed, else the seconds until one is, and it does not count."""
        now = time.monotonic() if now is None else now
        with self._lock:
            if len(self._seen) > KEYS_MAX:
                self._seen = {
                    of: seen for of, seen in self._seen.items() if seen and seen[-1] > now - self.seconds
                }
            seen = self._seen.setdefault(key, deque())
            while seen and seen[0] <= now - self.seconds:
                seen.popleft()
            if len(seen) >= self.n_max:
                return seen[0] + self.seconds - now
            seen.append(now)
            return 0.0

    def give_back(self, key: str) -> None:
        """The last event of the key does not count."""
        with self._lock:
            if self._seen.get(key):
                self._seen[key].pop()

    def forget(self, key: str) -> None:
        with self._lock:
            self._seen.pop(key, None)
