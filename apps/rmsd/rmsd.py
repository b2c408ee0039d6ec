#!/usr/bin/env python3
"""Cluster the frames of a trajectory by their RMSD: the post-processing of Wozniak06, section IV-B.

    rmsd.py adk.psf traj.dcd --out rmsd.npz [--every 40] [--cutoff 2.0] [--sampled-only]

The RMSD of two frames is the root of the mean square distance of their C-alpha atoms, in angstrom, after one frame was laid over the
other as well as possible (MDAnalysis' qcprot). Every --every-th frame is compared with every other one of these; the matrix is clustered
as Daura et al. do (Angew. Chem. Int. Ed. 38, 1999): the frame with the most neighbours within --cutoff is the middle of a cluster, it
leaves with its neighbours, and so on. Then each frame of the whole trajectory goes to the middle that is nearest to it, so all of
the file is read, once and in order. --sampled-only leaves that out: the program then jumps from one sampled frame to the next.

Written to --out, a file of numpy.load:

    frames      (n,) the sampled frames' numbers
    matrix      (n, n) RMSD of each two of them
    middles     numbers of the frames that are middles, the largest cluster first
    cluster_of  (n_frames,) for each frame the index of its middle in `middles`; (n,) with --sampled-only
    distance    the same shape: its RMSD from there
    cutoff      --cutoff
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np


class TrajectoryError(Exception):
    """The trajectory cannot be clustered; its text is one sentence for the user."""


def read_frames(topology: str, trajectory: str, step: int) -> np.ndarray:
    """C-alpha atoms of every step-th frame, (n, n_atoms, 3) in angstrom, each frame with its centre at zero."""
    import MDAnalysis as mda  # type: ignore[import-untyped]

    # About a reader that will change, and a topology without masses.
    warnings.filterwarnings("ignore", module="MDAnalysis")
    universe = mda.Universe(topology, trajectory)
    atoms = universe.select_atoms("name CA")
    if not len(atoms):
        raise TrajectoryError(f"{topology} has no atoms with the name CA")
    frames = np.array([atoms.positions for _ in universe.trajectory[::step]], dtype=np.float64)
    centred: np.ndarray = frames - frames.mean(axis=1, keepdims=True)
    return centred


def rmsd(a: np.ndarray, b: np.ndarray) -> float:
    """RMSD of two frames with their centres at zero, in angstrom."""
    from MDAnalysis.lib.qcprot import CalcRMSDRotationalMatrix  # type: ignore[import-untyped]

    return float(CalcRMSDRotationalMatrix(a, b, len(a), None, None))


def matrix_of(frames: np.ndarray) -> np.ndarray:
    n = len(frames)
    matrix = np.zeros((n, n))
    for i in range(n):
        for j in range(i):
            matrix[i, j] = matrix[j, i] = rmsd(frames[i], frames[j])
    return matrix


def middles_of(matrix: np.ndarray, cutoff: float) -> list[int]:
    """Rows of `matrix` that are middles of clusters, the largest cluster first; of equal ones the earlier frame."""
    is_left = np.ones(len(matrix), dtype=bool)
    middles = []
    while is_left.any():
        n_neighbours = np.where(is_left, ((matrix <= cutoff) & is_left).sum(axis=1), -1)
        middle = int(n_neighbours.argmax())
        middles.append(middle)
        is_left &= matrix[middle] > cutoff
    return middles


def main() -> int:
    parser = argparse.ArgumentParser(description="Cluster the frames of a trajectory by their RMSD.")
    parser.add_argument("topology", help="a file of MDAnalysis with the atoms' names")
    parser.add_argument("trajectory")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--every", type=int, default=40, help="the frames that are compared with each other")
    parser.add_argument("--cutoff", type=float, default=2.0, help="angstrom")
    parser.add_argument("--sampled-only", action="store_true", help="leave the other frames unread")
    args = parser.parse_args()
    if args.every < 1 or args.cutoff <= 0:
        parser.error("--every is at least 1, and --cutoff more than 0")
    try:
        frames = read_frames(args.topology, args.trajectory, args.every if args.sampled_only else 1)
        sampled = frames if args.sampled_only else frames[:: args.every]
        matrix = matrix_of(sampled)
        rows = middles_of(matrix, args.cutoff)
        to_middles = np.array([[rmsd(frame, sampled[row]) for row in rows] for frame in frames])
    except (OSError, ValueError, TrajectoryError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    with args.out.open("wb") as out:
        np.savez(
            out,
            frames=np.arange(len(sampled)) * args.every,
            matrix=matrix,
            middles=np.array(rows) * args.every,
            cluster_of=to_middles.argmin(axis=1),
            distance=to_middles.min(axis=1),
            cutoff=args.cutoff,
        )
    print(f"{len(frames)} frames, {len(rows)} clusters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
