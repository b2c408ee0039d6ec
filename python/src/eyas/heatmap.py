"""A picture of a matrix that `eyas pairs` wrote: `python -m eyas.heatmap M.csv --out M.png [--clustered]`.

In: the CSV file or the `.npy` file of `eyas pairs --out`. Out: a heat map as PNG (or SVG, PDF: by the ending of `--out`). Cells without a
value are grey. `--clustered` orders the rows and columns of a square matrix so that items that are alike are neighbours: by average
linkage of the rows, the tree drawn without crossing branches. `--distance` says that small values mean alike.

Needs numpy and matplotlib, which are no dependencies of eyas otherwise: `pip install numpy matplotlib`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eyas.matrix import Matrix, MatrixError

if TYPE_CHECKING:
    import numpy as np

    Values = np.ndarray[Any, np.dtype[np.float64]]

# Names are drawn for at most so many rows, and columns.
NAMED_MAX = 60
# Average linkage keeps all distances in memory, and takes the square of the number of items.
CLUSTERED_MAX = 4000


class PictureError(Exception):
    """The picture cannot be drawn; its text is one sentence for the user."""


def cluster(values: Values) -> list[int]:
    """An order of the items of a square matrix of distances in which close items are neighbours.

    Parameters
    ----------
    values : (n, n) distances, at least 0. An empty cell counts as the largest distance.

    Returns
    -------
    The items in the order of the leaves of the tree of average linkage (UPGMA). Of the two ways to join two branches the one is taken
    that puts the closer ends together.
    """
    import numpy as np

    n = len(values)
    if n > CLUSTERED_MAX:
        raise PictureError(f"{n} items are too many to be clustered; at most {CLUSTERED_MAX} can be")
    largest = float(np.nanmax(values)) if np.isfinite(values).any() else 0.0
    between = np.where(np.isfinite(values), values, largest).astype(float)
    between = (between + between.T) / 2
    original = between.copy()
    np.fill_diagonal(between, np.inf)
    orders: dict[int, list[int]] = {i: [i] for i in range(n)}
    # A chain of nearest neighbours: its last two join once each is the other's nearest.
    chain: list[int] = []
    while len(orders) > 1:
        if not chain:
            chain.append(min(orders))
        last = chain[-1]
        nearest = int(np.argmin(between[last]))
        if len(chain) > 1 and between[last, chain[-2]] <= between[last, nearest]:
            nearest = chain[-2]
        if len(chain) < 2 or nearest != chain[-2]:
            chain.append(nearest)
            continue
        one, other = sorted((last, nearest))
        del chain[-2:]
        left, right = orders.pop(one), orders.pop(other)
        n_left, n_right = len(left), len(right)
        ways = [(left, right), (left, right[::-1]), (left[::-1], right), (left[::-1], right[::-1])]
        orders[one] = min(
            (first + second for first, second in ways),
            key=lambda order: original[order[n_left - 1], order[n_left]],
        )
        joined = (between[one] * n_left + between[other] * n_right) / (n_left + n_right)
        between[one], between[:, one] = joined, joined
        between[one, one] = np.inf
        between[other], between[:, other] = np.inf, np.inf
    return next(iter(orders.values()), [])


def draw(rows: list[str], columns: list[str], values: Values, out: Path, title: str = "") -> None:
    """Draws a heat map of `values` into the file `out`, whose ending says in which format."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    def side(n: int) -> float:
        return 2.5 + 0.25 * min(n, NAMED_MAX)

    figure, axes = plt.subplots(figsize=(side(len(columns)) + 1.5, side(len(rows))), layout="constrained")
    colours = matplotlib.colormaps["viridis"].with_extremes(bad="#b0b0b0")
    image = axes.imshow(values, cmap=colours, aspect="auto", interpolation="nearest")
    if len(rows) <= NAMED_MAX:
        axes.set_yticks(range(len(rows)), rows)
    if len(columns) <= NAMED_MAX:
        axes.set_xticks(range(len(columns)), columns, rotation=90)
    figure.colorbar(image, ax=axes)
    axes.set_title(title)
    try:
        figure.savefig(out)
    except (OSError, ValueError) as error:
        raise PictureError(f"the picture {out} cannot be written: {error}") from None
    finally:
        plt.close(figure)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m eyas.heatmap", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "matrix", type=Path, metavar="MATRIX", help="the .csv or .npy file of `eyas pairs --out`"
    )
    parser.add_argument("--out", type=Path, required=True, help="the picture, such as M.png")
    parser.add_argument("--clustered", action="store_true", help="items that are alike become neighbours")
    parser.add_argument(
        "--distance", action="store_true", help="small values mean alike [default: large ones]"
    )
    args = parser.parse_args(arguments)
    try:
        matrix = Matrix.read(args.matrix)
        rows, columns, values = matrix.rows, matrix.columns, matrix.values
        if args.clustered:
            if len(rows) != len(columns):
                raise PictureError(
                    f"--clustered needs a square matrix, and {args.matrix} is {len(rows)} by {len(columns)}"
                )
            import numpy as np

            largest = np.nanmax(values) if np.isfinite(values).any() else 0.0
            order = cluster(values if args.distance else largest - values)
            rows, columns = [rows[i] for i in order], [columns[i] for i in order]
            values = values[np.ix_(order, order)]
        draw(rows, columns, values, args.out, args.matrix.name)
    except (MatrixError, PictureError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except ImportError as error:
        print(f"error: {error}\nhint: pip install numpy matplotlib", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
