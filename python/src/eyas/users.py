"""Who shares a cluster with its owner."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class User:
    """A user of a cluster: what they may do, and what they have of it at the moment of the question.

    name : `""` for the cluster's owner.
    rights : some of `"submit"`, `"see"`, `"cancel"`, `"operate"`.
    weight : their part of the cluster while others want it, too.
    n_runs : runs that go on.
    n_ready, n_slots : tasks that could start, and slots that their tasks have.
    used_slot_s : for how many seconds they had a slot, of which half counts after an hour.
    """

    name: str
    rights: tuple[str, ...]
    weight: int
    n_runs: int
    n_ready: int
    n_slots: int
    used_slot_s: float

    @property
    def is_owner(self) -> bool:
        """Whether this is the owner of the cluster."""
        return not self.name


def users_of(text: str) -> list[User]:
    """The users in what `eyas user list --json` prints."""
    return [
        User(
            name=one["name"],
            rights=tuple(one["rights"]),
            weight=one["weight"],
            n_runs=one["runs"],
            n_ready=one["ready"],
            n_slots=one["slots"],
            used_slot_s=one["used_slot_s"],
        )
        for one in json.loads(text)
    ]


def rights_in_words(rights: str | Iterable[str] | None) -> str | None:
    """Rights as the command line takes them; none at all are a word, too."""
    if rights is None or isinstance(rights, str):
        return rights
    return ",".join(rights) or "none"


def within_weights(weight: int | None) -> int | None:
    """A weight that is none as the one below all weights, which the cluster refuses with a sentence."""
    return weight if weight is None or 0 <= weight < 2**32 else 0
