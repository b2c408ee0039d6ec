"""Blocks of nodes from batch systems and clouds, through the providers of Parsl.

The program `eyas provider` starts `python -m eyas.provision` and speaks with it over two pipes (see `__main__`). What it may
ask for are four calls of a `Pool`: submit a block, list all blocks, cancel a block, describe what would be submitted.

A block is one job of a batch system, or one machine of a cloud. Its name begins with the name that eyas gave it. A listing
finds blocks by that name, so nothing has to be remembered about them; `listings.KINDS_BY_ID` are the exceptions.

Not here: how many blocks there should be, when they are submitted, and what they run. The Rust side decides that.
"""

from __future__ import annotations

from .kinds import KINDS, Settings
from .pool import Listed, Pool, Refused

__all__ = ["KINDS", "Listed", "Pool", "Refused", "Settings"]
