"""How clusters, runs and calls are shown in notebooks, and the live progress of a run there and elsewhere."""

from __future__ import annotations

import sys
import threading
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cluster import Client
    from .functions import CallFuture
    from .runs import Run

# The bar of a run, as HTML alone.
_BAR = (
    '<div style="width:20em;height:.8em;background:#ddd"><div style="width:{done:.1f}%;height:100%;float:left;'
    'background:#3a7d44"></div><div style="width:{failed:.1f}%;height:100%;float:left;background:#b3392f"></div></div>'
)

# The same for a widget, whose state changes.
_ESM = """
function render({ model, el }) {
  const bar = document.createElement("progress");
  const line = document.createElement("span");
  el.append(bar, " ", line);
  const show = () => {
    const state = model.get("state");
    bar.max = Math.max(1, state.n_tasks);
    bar.value = state.n_ended;
    line.textContent = state.line;
  };
  model.on("change:state", show);
  show();
}
export default { render };
"""


def _bytes(n: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024 or unit == "GiB":
            break
        n /= 1024
    return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"


def _table(head: list[str], rows: list[list[object]]) -> str:
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    lines = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{titles}</tr>{lines}</table>"


def line_of(status: dict[str, Any]) -> str:
    """The state of a run (a run of `eyas status --json`) in a line, such as `3 of 10 tasks done, 2 running, 1 failed`."""
    counts = [("running", "n_running"), ("failed", "n_failed"), ("cancelled", "n_cancelled")]
    more = "".join(f", {status[key]} {word}" for word, key in counts if status[key])
    return f"{status['n_done']} of {status['n_tasks']} tasks done{more}"


def html_of_run(run: Run) -> str:
    """A run: its bar, its line, where its bytes came from, and the latest failures."""
    try:
        status = run.status()
    except Exception as error:  # the cluster is gone: a notebook shows what is known
        return f"<b>run {run.number}</b>: {run.n_tasks} tasks; {escape(str(error))}"
    n_tasks = max(1, status["n_tasks"])
    ended = 100 * status["n_done"] / n_tasks
    failed = 100 * (status["n_failed"] + status["n_cancelled"]) / n_tasks
    read = [("own caches", "local_bytes"), ("other nodes", "peer_bytes"), ("home", "home_bytes")]
    bytes_read = ", ".join(f"{_bytes(status[key])} from {word}" for word, key in read)
    parts = [
        f"<b>run {run.number}</b> {escape(status['name'])}",
        _BAR.format(done=ended, failed=failed),
        f"{line_of(status)}<br>inputs: {bytes_read}",
    ]
    if status.get("failures"):
        parts.append(_table(["task", "failed because"], [list(failure) for failure in status["failures"]]))
    return "".join(parts)


def html_of_cluster(client: Client) -> str:
    """A cluster: its placement, its nodes, and the runs that go on."""
    try:
        status = client.status()
    except Exception as error:
        return f"<b>eyas cluster</b>: {escape(str(error))}"
    nodes: list[list[object]] = [
        [
            node["name"],
            node["state"],
            node["slots"],
            len((node.get("status") or {}).get("running", [])),
            f"{_bytes((node.get('status') or {}).get('cache_used_bytes', 0))} of {_bytes(node['cache_bytes'])}",
        ]
        for node in status["executors"]
    ]
    runs: list[list[object]] = [
        [run["run"], run["name"], line_of(run)] for run in status["runs"] if run.get("ended") is None
    ]
    parts = [f"<b>eyas cluster</b>, placement {escape(status['placement'])}"]
    parts.append(_table(["node", "state", "slots", "running", "cache"], nodes))
    if runs:
        parts.append(_table(["run", "name", "state"], runs))
    return "".join(parts)


def html_of_call(call: CallFuture) -> str:
    """A call: its task, and how it ended."""
    if not call.done():
        state = "runs or waits"
    elif call.cancelled():
        state = "was cancelled"
    elif call.exception() is not None:
        error = call.exception()
        state = f"raised {type(error).__name__}: {error}"
    else:
        state = f"returned a value of the type {type(call.result()).__name__}"
    return f"<b>call</b> <code>{escape(call.task or '')}</code> {escape(state)}"


class Progress:
    """The live progress of a run: in a notebook a bar, or without anywidget a text; elsewhere a line on standard error."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._line = ""
        self._lock = threading.Lock()
        self._is_over = False
        self._view = _view_in_notebook() or _Terminal()
        self._put(run.status(), False)
        threading.Thread(target=self._follow, name="eyas-progress", daemon=True).start()

    def __repr__(self) -> str:
        return self._line

    def _follow(self) -> None:
        try:
            self._run.wait(check=False, progress=lambda status: self._put(status, False))
            self.finish()
        except Exception:
            # Who waits for the run hears of it.
            with self._lock:
                self._is_over = True

    def finish(self) -> None:
        """Show how the run ended. `Run.wait` calls this when it has ended."""
        self._put(self._run.status(), True)

    def _put(self, status: dict[str, Any], is_over: bool) -> None:
        with self._lock:
            if not self._is_over:
                self._is_over = is_over
                self._line = line_of(status)
                n_ended = sum(status[key] for key in ("n_done", "n_failed", "n_cancelled"))
                self._view.show(self._line, n_ended, status["n_tasks"], is_over)


class _Terminal:
    """A line that is written over the one before. Where standard error is no terminal, only the last one is written."""

    def __init__(self) -> None:
        self._width = 0

    def show(self, line: str, n_ended: int, n_tasks: int, is_over: bool) -> None:
        if sys.stderr is None:
            return
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{line.ljust(self._width)}{chr(10) if is_over else ''}")
            sys.stderr.flush()
            self._width = len(line)
        elif is_over:
            sys.stderr.write(f"{line}\n")


class _Text:
    """A text in a notebook, which is replaced."""

    def __init__(self, display: Any) -> None:
        self._display = display
        self._handle: Any = None

    def show(self, line: str, n_ended: int, n_tasks: int, is_over: bool) -> None:
        if self._handle is None:
            self._handle = self._display({"text/plain": line}, raw=True, display_id=True)
        else:
            self._handle.update({"text/plain": line}, raw=True)


class _Bar:
    """A widget in a notebook."""

    def __init__(self, display: Any) -> None:
        import anywidget
        import traitlets

        class Bar(anywidget.AnyWidget):  # type: ignore[misc,unused-ignore]
            """The bar of a run."""

            _esm = _ESM
            state = traitlets.Dict({"n_tasks": 1, "n_ended": 0, "line": ""}).tag(sync=True)

        self._bar = Bar()
        display(self._bar)

    def show(self, line: str, n_ended: int, n_tasks: int, is_over: bool) -> None:
        self._bar.state = {"n_tasks": n_tasks, "n_ended": n_ended, "line": line}


def _view_in_notebook() -> _Bar | _Text | None:
    """What shows the progress in the notebook that this program is; `None`: it is none."""
    shell = sys.modules.get("IPython")
    if shell is None or getattr(shell.get_ipython(), "kernel", None) is None:
        return None
    from IPython.display import display

    try:
        return _Bar(display)
    except ImportError:
        return _Text(display)
