"""Errors of eyas. Each says what was tried, on what, and what to do where that is known."""

from __future__ import annotations

from typing import NoReturn

from . import _ffi

# Exit statuses of the command line (docs/reference/cli.md): the cluster cannot be reached, or went away.
_CLUSTER = 3


class EyasError(Exception):
    """Something that eyas cannot do. `hint` says what to do about it, where that is known."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"


class ClusterLost(EyasError):
    """The cluster cannot be reached, refused, or went away."""


class TaskFailed(EyasError):
    """A task failed, or was cancelled.

    `task` is its id, `run` the number of its run, `reason` why it failed in a sentence, `stderr` the end of what it printed to
    standard error.
    """

    def __init__(self, task: str, run: int, reason: str, stderr: str = "", n_more: int = 0) -> None:
        more = f" ({n_more} more failed)" if n_more else ""
        said = f"\n{stderr.rstrip()}" if stderr.strip() else ""
        super().__init__(f"task {task} of run {run} failed: {reason}{more}{said}")
        self.task = task
        self.run = run
        self.reason = reason
        self.stderr = stderr
        self.n_more = n_more

    def __reduce__(self) -> tuple[type[TaskFailed], tuple[str, int, str, str, int]]:
        return type(self), (self.task, self.run, self.reason, self.stderr, self.n_more)


class WorkerLost(TaskFailed):
    """The process that ran a function ended before the function did: it was killed, or called `os._exit`."""


def raise_ours(error: _ffi.FfiError) -> NoReturn:
    """Raises an error of the module below as one of ours."""
    message, hint, status = error.args
    kind = ClusterLost if status == _CLUSTER else EyasError
    raise kind(message, hint) from None
