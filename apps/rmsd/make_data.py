#!/usr/bin/env python3
"""Trajectories to post-process: those of a small protein, grown to a given size.

    make_data.py --out data [--trajectories 4] [--megabytes 350] [--seed 6]

The source is adk_dims.dcd with adk.psf of the package MDAnalysisTests: 98 frames of adenylate kinase (3,341 atoms) on its way from
closed to open. A trajectory repeats these frames. Each repetition is turned and moved as a whole at random, and each of its atoms is
moved by a normal distribution of 0.3 angstrom, so no two frames and no two trajectories are equal. Equal options give equal bytes.

Written below --out:

    adk-000/traj.dcd    a trajectory of about --megabytes (millions of bytes; 40,172 bytes a frame)
    adk-000/adk.psf     the atoms and their names; its title has the trajectory's number and the seed
    data.json           options and counts; written last, so it marks the end
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path

import numpy as np

SPREAD_ANGSTROM = 0.3
SHIFT_ANGSTROM = 10.0


class DataError(Exception):
    """The data cannot be made; its text is one sentence for the user."""


def random_rotation(random: np.random.Generator) -> np.ndarray:
    """A rotation matrix, uniform over all rotations (from a random unit quaternion)."""
    w, x, y, z = (q := random.normal(size=4)) / np.linalg.norm(q)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def perturbed(frame: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """A frame, (n_atoms, 3) in angstrom, turned, moved, and with each atom moved a little."""
    centre = frame.mean(axis=0)
    shift = random.uniform(-SHIFT_ANGSTROM, SHIFT_ANGSTROM, size=3)
    noise = random.normal(scale=SPREAD_ANGSTROM, size=frame.shape)
    turned: np.ndarray = (frame - centre) @ random_rotation(random).T + centre
    return (turned + shift + noise).astype(np.float32)


def titled(psf: str, seed: int, number: int) -> str:
    """A PSF file with one more line of title, which says what trajectory it goes with."""
    lines = psf.split("\n")
    place = next(i for i, line in enumerate(lines) if "!NTITLE" in line)
    n_titles = int(lines[place].split()[0])
    lines[place] = f"{n_titles + 1:8d} !NTITLE"
    lines.insert(place + 1 + n_titles, f" REMARKS eyas trajectory {number}, grown with the seed {seed}")
    return "\n".join(lines)


def make(args: argparse.Namespace) -> dict[str, int]:
    try:
        import MDAnalysis as mda  # type: ignore[import-untyped]
        from MDAnalysisTests.datafiles import DCD, PSF  # type: ignore[import-untyped]
    except ImportError as error:
        raise DataError(
            f"{error.name} cannot be imported\nhint: pip install MDAnalysis MDAnalysisTests"
        ) from None
    # About unit cells, which the source has not got, and about a reader that will change.
    warnings.filterwarnings("ignore", module="MDAnalysis")
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "data.json").unlink(missing_ok=True)
    universe = mda.Universe(PSF, DCD)
    source = np.array([frame.positions for frame in universe.trajectory])
    n_atoms = source.shape[1]
    # Each record has its length before and behind it; the first is the unit cell.
    frame_bytes = 56 + 3 * (4 * n_atoms + 8)
    n_frames = args.megabytes * 1_000_000 // frame_bytes
    if n_frames < 2:
        raise DataError(f"--megabytes {args.megabytes} is less than two frames of {frame_bytes} bytes")
    for number in range(args.trajectories):
        folder: Path = args.out / f"adk-{number:03d}"
        folder.mkdir(exist_ok=True)
        (folder / "adk.psf").write_text(titled(Path(PSF).read_text(encoding="ascii"), args.seed, number))
        random = np.random.default_rng([args.seed, number])
        with mda.Writer(str(folder / "traj.dcd"), n_atoms) as out:
            for i in range(n_frames):
                universe.atoms.positions = perturbed(source[i % len(source)], random)
                out.write(universe.atoms)
    return {"trajectories": args.trajectories, "frames": n_frames, "atoms": n_atoms}


def main() -> int:
    parser = argparse.ArgumentParser(description="Grow trajectories of adenylate kinase to a given size.")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--trajectories", type=int, default=4)
    parser.add_argument("--megabytes", type=int, default=350, help="of each trajectory")
    parser.add_argument("--seed", type=int, default=6)
    args = parser.parse_args()
    if args.trajectories < 1 or args.megabytes < 1:
        parser.error("at least one trajectory of one megabyte")
    try:
        made = make(args)
        options = {name: getattr(args, name) for name in ("megabytes", "seed")}
        (args.out / "data.json").write_text(json.dumps({**options, **made}) + "\n", encoding="utf-8")
    except (OSError, DataError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"  {made['trajectories']} trajectories of {made['frames']:,} frames in {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
