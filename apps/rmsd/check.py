#!/usr/bin/env python3
"""Check clusters of trajectories: they are what a plain double loop finds in the files that were never in a catalog.

    check.py --results found --data data

found/adk-000.npz, ... are what rmsd.py wrote for data/adk-000, ... The loop superposes each two frames by Kabsch's method (a singular
value decomposition), which is not what rmsd.py uses, so RMSDs are compared to 0.0005 angstrom. Clusters are made again by a plain
reading of their definition. Numbers are printed as JSON; the exit status is 1 when something differs.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path

import MDAnalysis as mda  # type: ignore[import-untyped]
import numpy as np

TOLERANCE_ANGSTROM = 5e-4


class CheckError(Exception):
    """The results are not what they should be; its text is one sentence for the user."""


def plain_frames(folder: Path) -> list[np.ndarray]:
    """C-alpha atoms of each frame, (n_atoms, 3) in angstrom."""
    universe = mda.Universe(str(folder / "adk.psf"), str(folder / "traj.dcd"))
    atoms = universe.select_atoms("name CA")
    return [np.array(atoms.positions, dtype=np.float64) for _ in universe.trajectory]


def plain_rmsd(a: np.ndarray, b: np.ndarray) -> float:
    """RMSD of two frames after the best superposition, by Kabsch's method."""
    a, b = a - a.mean(axis=0), b - b.mean(axis=0)
    u, stretch, v = np.linalg.svd(a.T @ b)
    stretch[-1] *= np.sign(np.linalg.det(u @ v))
    square = (a * a).sum() + (b * b).sum() - 2 * stretch.sum()
    return float(np.sqrt(max(square, 0) / len(a)))


def plain_middles(matrix: np.ndarray, cutoff: float) -> list[int]:
    left = list(range(len(matrix)))
    middles = []
    while left:
        neighbours = {i: [j for j in left if matrix[i][j] <= cutoff] for i in left}
        middle = max(left, key=lambda i: (len(neighbours[i]), -i))
        middles.append(middle)
        left = [i for i in left if i not in neighbours[middle]]
    return middles


def compare(name: str, result: Path, folder: Path) -> dict[str, int]:
    found = np.load(result)
    frames = plain_frames(folder)
    numbers = [int(number) for number in found["frames"]]
    every = numbers[1] - numbers[0] if len(numbers) > 1 else len(frames)
    if numbers != list(range(0, len(frames), every)):
        raise CheckError(f"{name}: the sampled frames are not every {every}th of {len(frames)}")
    for row, i in enumerate(numbers):
        for column, j in enumerate(numbers):
            expected, said = plain_rmsd(frames[i], frames[j]), found["matrix"][row, column]
            if abs(said - expected) > TOLERANCE_ANGSTROM:
                raise CheckError(f"{name}: frames {i} and {j} have {said:.4f}, the loop finds {expected:.4f}")
    middles = [numbers[row] for row in plain_middles(found["matrix"], float(found["cutoff"]))]
    if middles != list(found["middles"]):
        raise CheckError(f"{name}: the middles are {list(found['middles'])}, the loop finds {middles}")
    of_all = len(found["cluster_of"]) == len(frames)
    assigned = list(range(len(frames))) if of_all else numbers
    if len(found["cluster_of"]) != len(assigned) or len(found["distance"]) != len(assigned):
        raise CheckError(f"{name}: {len(found['cluster_of'])} frames have a cluster, not {len(assigned)}")
    for k, i in enumerate(assigned):
        distances = [plain_rmsd(frames[i], frames[middle]) for middle in middles]
        said = found["distance"][k]
        is_nearest = distances[found["cluster_of"][k]] <= min(distances) + TOLERANCE_ANGSTROM
        if not is_nearest or abs(said - min(distances)) > TOLERANCE_ANGSTROM:
            raise CheckError(
                f"{name}: frame {i} is {said:.4f} from its middle, the loop finds {min(distances):.4f}"
            )
    return {"pairs_equal": len(numbers) ** 2, "frames_equal": len(assigned), "clusters": len(middles)}


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Check clusters of trajectories against a plain double loop."
    )
    parser.add_argument("--results", type=Path, required=True, help="folder of adk-000.npz, ...")
    parser.add_argument("--data", type=Path, required=True, help="folder that make_data.py wrote")
    args = parser.parse_args()
    # About a reader that will change.
    warnings.filterwarnings("ignore", module="MDAnalysis")
    names = sorted(path.name for path in args.data.glob("adk-*"))
    try:
        if not names:
            raise CheckError(f"there are no trajectories in {args.data}")
        each = [compare(name, args.results / f"{name}.npz", args.data / name) for name in names]
    except (OSError, KeyError, ValueError, CheckError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    total = {key: sum(one[key] for one in each) for key in each[0]}
    print(json.dumps({"trajectories": len(each), **total}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
