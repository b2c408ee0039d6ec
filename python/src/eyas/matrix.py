"""A matrix that `eyas pairs` wrote, in other formats: `python -m eyas.matrix M.csv --out M.parquet`.

In: the CSV file or the `.npy` file of `eyas pairs --out`. Out, by the ending of `--out`: Parquet (`.parquet`: a column for each column of
the matrix after one with the names of rows), Zarr (`.zarr`: one array, with the names as attributes `rows` and `columns`). `--missing`
prints the cells without a value instead, one on a line: row and column with a tab between them.

A `.npy` file is read block by block, so a matrix may be larger than the memory. It has no names: numbers from 0 on stand for them. A CSV
file is read as a whole.

Needs numpy, and pyarrow for Parquet or zarr for Zarr, which are no dependencies of eyas.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Values = np.ndarray[Any, np.dtype[np.float64]]

# A cell without a value in a `.npy` file is this not-a-number (`crates/lists/pairs/src/matrix.rs`). A value that a program printed as `nan`
# has other bits.
MISSING_BITS = 0x7FF8_0000_0000_0E1A
# So many cells are written at once.
BLOCK_CELLS = 4_000_000


class MatrixError(Exception):
    """The matrix cannot be read or written; its text is one sentence for the user."""


class Matrix:
    """Names and values of a matrix.

    Attributes
    ----------
    rows, columns : names.
    values : (rows, columns) array, mapped into memory where the file is a `.npy` file.
    """

    def __init__(self, rows: list[str], columns: list[str], values: Values) -> None:
        self.rows = rows
        self.columns = columns
        self.values = values

    @classmethod
    def read(cls, path: Path) -> Matrix:
        """Raises MatrixError if `path` cannot be read or is no matrix of `eyas pairs`."""
        import numpy as np

        try:
            if path.suffix == ".npy":
                values = np.load(path, mmap_mode="r")
                if values.ndim != 2 or values.dtype != np.dtype("<f8"):
                    raise MatrixError(f"{path} is no matrix of 64-bit numbers as `eyas pairs` writes it")
                rows, columns = ([str(n) for n in range(side)] for side in values.shape)
                return cls(rows, columns, values)
            missing = np.array([MISSING_BITS], dtype="<u8").view("<f8")[0]
            with path.open(newline="", encoding="utf-8") as file:
                head, *table = csv.reader(file)
            cells = np.empty((len(table), len(head) - 1), dtype="<f8")
            for n, row in enumerate(table):
                cells[n] = [float(cell) if cell else missing for cell in row[1:]]
            return cls([row[0] for row in table], head[1:], cells)
        except OSError as error:
            raise MatrixError(f"{path} cannot be read: {error.strerror}") from None
        except (ValueError, IndexError) as error:
            raise MatrixError(f"{path} is no matrix: {error}") from None

    def blocks(self) -> Iterator[tuple[int, Values]]:
        """Blocks of whole rows in their order, each with the number of its first row."""
        n = max(1, BLOCK_CELLS // max(1, len(self.columns)))
        for first in range(0, len(self.rows), n):
            yield first, self.values[first : first + n]

    def missing(self) -> Iterator[tuple[str, str]]:
        """The names of row and column of each cell without a value, row by row."""
        import numpy as np

        for first, block in self.blocks():
            bits = np.ascontiguousarray(block).view("<u8")
            for row, column in zip(*np.nonzero(bits == MISSING_BITS)):
                yield self.rows[first + int(row)], self.columns[int(column)]

    def write_parquet(self, path: Path) -> None:
        """Writes a column `row` with the names of rows, and a column for each column; a cell without a value is null."""
        import numpy as np

        # These packages are optional, so they have no types where they are not installed.
        pa: Any = importlib.import_module("pyarrow")
        pq: Any = importlib.import_module("pyarrow.parquet")

        fields = [pa.field("row", pa.string()), *(pa.field(name, pa.float64()) for name in self.columns)]
        schema = pa.schema(fields)
        with pq.ParquetWriter(path, schema) as writer:
            for first, block in self.blocks():
                block = np.ascontiguousarray(block)
                is_missing = block.view("<u8") == MISSING_BITS
                names = pa.array(self.rows[first : first + len(block)])
                cells = [pa.array(block[:, n], mask=is_missing[:, n]) for n in range(block.shape[1])]
                writer.write_table(pa.Table.from_arrays([names, *cells], schema=schema))

    def write_zarr(self, path: Path) -> None:
        """Writes one array with the names as attributes; a cell without a value is not-a-number."""
        zarr: Any = importlib.import_module("zarr")

        side = max(1, min(1000, *self.values.shape))
        array = zarr.open_array(
            str(path), mode="w", shape=self.values.shape, chunks=(side, side), dtype="<f8"
        )
        for first, block in self.blocks():
            array[first : first + len(block)] = block
        array.attrs["rows"] = self.rows
        array.attrs["columns"] = self.columns


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m eyas.matrix", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "matrix", type=Path, metavar="MATRIX", help="the .csv or .npy file of `eyas pairs --out`"
    )
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--out", type=Path, metavar="FILE", help="a name that ends in .parquet or .zarr")
    wanted.add_argument("--missing", action="store_true", help="print the cells without a value")
    args = parser.parse_args(arguments)
    try:
        if args.out and args.out.suffix not in (".parquet", ".zarr"):
            raise MatrixError(f"--out {args.out} ends neither in .parquet nor in .zarr")
        matrix = Matrix.read(args.matrix)
        if args.missing:
            for row, column in matrix.missing():
                print(row, column, sep="\t")
        elif args.out.suffix == ".parquet":
            matrix.write_parquet(args.out)
        else:
            matrix.write_zarr(args.out)
    except MatrixError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {args.out} cannot be written: {error}", file=sys.stderr)
        return 2
    except ImportError as error:
        print(f"error: {error}\nhint: pip install {error.name or 'numpy'}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
