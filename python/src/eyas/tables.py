"""Tables of pandas, Polars and PyArrow as tasks, and what is known of runs as tables of PyArrow.

Nothing of these is imported before a table is there, or is asked for. `python -m eyas.tables --out FILE DIR...` writes events as Parquet
(`eyas report --format parquet`).
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .errors import EyasError

if TYPE_CHECKING:
    import pyarrow
    from typing_extensions import TypeIs

    from .runs import Task


class Table(Protocol):
    """A table of pandas, Polars, PyArrow, or of others that have Arrow's interface."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


# Rows of an Arrow table that are looked at together.
BATCH_ROWS = 10_000


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise EyasError("pyarrow is not installed", "pip install 'eyas[tables]'") from None
    return pyarrow


def is_table(value: object) -> TypeIs[Table]:
    """Whether it is a table with named columns: of pandas, Polars, PyArrow, or what others give through Arrow's interface."""
    return hasattr(value, "__arrow_c_stream__") or all(
        hasattr(value, name) for name in ("itertuples", "columns")
    )


def _columns_and_rows(table: Any) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
    """The names of the columns, and the rows as values of Python."""
    if hasattr(table, "iter_rows"):  # Polars
        names, rows = list(table.columns), table.iter_rows()
    elif hasattr(table, "itertuples"):  # pandas
        names, rows = list(table.columns), table.itertuples(index=False, name=None)
    else:
        arrow = table if hasattr(table, "column_names") else _pyarrow().table(table)
        names, rows = list(arrow.column_names), _arrow_rows(arrow)
    wrong = next((name for name in names if not isinstance(name, str)), None)
    if wrong is not None:
        raise EyasError(f"the table has a column {wrong!r}", "name all columns by texts")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise EyasError(f"two columns of the table have the name {twice!r}", "give each another name")
    return names, rows


def _arrow_rows(arrow: Any) -> Iterator[tuple[Any, ...]]:
    for start in range(0, arrow.num_rows, BATCH_ROWS):
        part = arrow.slice(start, BATCH_ROWS)
        yield from zip(*(column.to_pylist() for column in part.columns))


def _is_nothing(value: object) -> bool:
    """Whether a cell has no value: `None`, a not-a-number, or what pandas has for these."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    return type(value).__name__ in ("NAType", "NaTType")


def _text(value: object) -> str:
    if _is_nothing(value):
        return ""
    if isinstance(value, (list, tuple, dict, bytes)):
        raise EyasError(
            f"a cell of the table is {value!r}, and has to be one value",
            "give the table to run, whose columns are fields of tasks, or make a column of texts",
        )
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


@contextmanager
def as_csv(table: Any) -> Iterator[Path]:
    """A file with the table as `eyas map --csv` reads it, as long as the block lasts. A cell without a value is an empty text."""
    names, rows = _columns_and_rows(table)
    with tempfile.TemporaryDirectory(prefix="eyas-") as folder:
        path = Path(folder) / "table.csv"
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(names)
            writer.writerows([_text(value) for value in row] for row in rows)
        yield path


def as_tasks(table: Any) -> Iterator[dict[str, object]]:
    """The rows as tasks of a task list: columns are its fields, and a cell without a value is a field that is left out."""
    names, rows = _columns_and_rows(table)
    for row in rows:
        yield {name: _native(value) for name, value in zip(names, row) if not _is_nothing(value)}


def _native(value: Any) -> object:
    """Numbers and arrays of numpy as Python has them. A map of Arrow is a list of pairs, and a struct has all names of its column."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {name: _native(of) for name, of in value.items() if not _is_nothing(of)}
    if isinstance(value, list) and value and all(isinstance(one, tuple) and len(one) == 2 for one in value):
        return {name: _native(of) for name, of in value}
    return [_native(one) for one in value] if isinstance(value, (list, tuple)) else value


def of_tasks(tasks: Iterable[Task]) -> pyarrow.Table:
    """Tasks as a table: a column for each field of `eyas.Task`."""
    arrow = _pyarrow()
    schema = arrow.schema(
        [
            ("id", arrow.string()),
            ("state", arrow.string()),
            ("reason", arrow.string()),
            ("n_attempts", arrow.int64()),
            ("stdout", arrow.binary()),
            ("stderr", arrow.binary()),
        ]
    )
    return arrow.Table.from_pylist([vars(task) for task in tasks], schema=schema)


def events_of(dispatcher_dir: Path, run: int | None) -> pyarrow.Table:
    """The events and actions of a run from the log of its dispatcher (docs/reference/event-log.md), one in each row; `None`: of all runs.

    Columns: `t` (UTC), `direction` (`in`, `out`, or `lost` where the log lacks lines), `name`, `executor`, `task` (their
    numbers, where it is about one), and `fields`, all that the line says, as JSON. Lines that are about no run, such as those of nodes and caches, are left out.
    """
    arrow = _pyarrow()
    schema = arrow.schema(
        [
            ("t", arrow.timestamp("ns", tz="UTC")),
            ("direction", arrow.string()),
            ("name", arrow.string()),
            ("executor", arrow.int64()),
            ("task", arrow.int64()),
            ("fields", arrow.string()),
        ]
    )
    batches: list[Any] = []
    rows: list[dict[str, object]] = []
    for row in _event_rows(dispatcher_dir / "events.jsonl", run):
        rows.append(row)
        if len(rows) == BATCH_ROWS:
            batches.append(arrow.RecordBatch.from_pylist(rows, schema=schema))
            rows = []
    batches.append(arrow.RecordBatch.from_pylist(rows, schema=schema))
    return arrow.Table.from_batches(batches, schema=schema)


def _event_rows(log: Path, run: int | None) -> Iterator[dict[str, object]]:
    n_tasks = 0
    own: list[range] = []
    with open(log, encoding="utf-8") as lines:
        for line in lines:
            # A process that was killed may leave its last line cut off, before the header of the next one.
            at = line.find('{"eyas_event_log"', 1)
            line = line[at:] if at > 0 else line
            try:
                parsed = json.loads(line)
            except json.JSONDecodeError:
                continue
            if "eyas_event_log" in parsed:
                # Each life of the dispatcher numbers its arrays again, in the same order.
                n_tasks, own = 0, []
                continue
            if "lost" in parsed:
                lost = parsed["lost"]
                warnings.warn(
                    f"the event log lacks {lost['lines']} lines, which its disk did not take", stacklevel=4
                )
                fields = json.dumps(lost, separators=(",", ":"))
                yield {"t": parsed["t"], "direction": "lost", "name": "lost", "fields": fields}
                continue
            direction = "in" if "in" in parsed else "out"
            said = parsed[direction]
            if isinstance(said, str):
                continue
            ((name, fields),) = said.items()
            if name == "tasks_numbered":
                n_tasks = fields["n_tasks"]
            elif name == "array_added":
                if run is None or fields["run"] == run:
                    own.append(range(n_tasks, n_tasks + fields["array"]["n_tasks"]))
                n_tasks += fields["array"]["n_tasks"]
            inner: dict[str, Any] = fields.get("report") or fields.get("assignment") or {}
            task = fields.get("task", inner.get("task"))
            of_run = fields.get("run", inner.get("run"))
            if (of_run == run if run is not None else of_run is not None) or (
                of_run is None and isinstance(task, int) and any(task in one for one in own)
            ):
                yield {
                    "t": parsed["t"],
                    "direction": direction,
                    "name": name,
                    "executor": fields.get("executor"),
                    "task": task if isinstance(task, int) else None,
                    "fields": json.dumps(fields, separators=(",", ":")),
                }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m eyas.tables", description="Write events of runs as Parquet."
    )
    parser.add_argument("dirs", type=Path, nargs="+", metavar="DIR", help="the folder of each dispatcher")
    parser.add_argument("--run", type=int, help="of this run alone")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    args = parser.parse_args(arguments)
    try:
        arrow = _pyarrow()
        from pyarrow import parquet

        parquet.write_table(arrow.concat_tables([events_of(of, args.run) for of in args.dirs]), args.out)
    except EyasError as error:
        print(f"error: {error.args[0]}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
