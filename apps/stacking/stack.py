#!/usr/bin/env python3
"""Put the stacks of single exposures together and measure what is in the middle.

    stack.py --cuts cuts --sky sky --out result [--clip SIGMA] [--band r] [--epoch 3]

Reads the output of every cutout task, adds the weighted sums, and measures the source with a
matched filter: the height of a star profile at the centre, against the scatter of the same filter
at positions away from the centre, where there is only noise. The same is done for disjoint random
subsets of 1, 2, 4, ... tasks, and for single cutouts. If nothing but noise averages out, the
signal-to-noise ratio grows as sqrt(N).

--clip leaves out pixels that are more than SIGMA of their noise off the mean of the others: the track of
a satellite, a star beside one of the targets. --band and --epoch take only the cutouts of that band or
epoch, by what the exposures' headers say (FILTER, EPOCH).

Written below --out:

    stack.fits     weighted mean of all cutouts, with N, SNR and where it comes from in its header
    stack.png      an exposure, one cutout, the stack, and signal-to-noise against N; not for a survey
                   of survey.py, as it shows the field of M13
    summary.json   the numbers in the picture
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from cutout import Image, StackingError, number, read_hdu, write_fits
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FILTER_REACH_SIGMAS = 3.0
CENTRE_FREE_SIGMAS = 6.0  # filter positions nearer to the centre than this see the source
NOISE_POSITIONS_MIN = 50
SUBSETS_MAX = 256
CLIP_ROUNDS_MAX = 10


@dataclass(frozen=True)
class Cutouts:
    """Outputs of all tasks: weighted sums (n, s, s) with weights and counts, and one single each."""

    sums: Floats
    weights: Floats
    counts: NDArray[np.int64]
    singles: Floats
    single_noise: Floats
    names: list[str]


@dataclass(frozen=True)
class Point:
    """Signal-to-noise of stacks of `n` cutouts, mean over `n_subsets` disjoint ones."""

    n: float
    snr: float
    snr_error: float
    n_subsets: int


def pixels_of(image: Image) -> Floats:
    """Pixels as floats, (planes, height, width)."""
    values = np.array(image.pixels, np.float64) * image.bscale + image.bzero
    return values.reshape(image.n_planes, image.height, image.width)


def read_cutouts(folder: Path, band: str | None = None, epoch: int | None = None) -> Cutouts:
    """All cut files of a folder, by name; of one band or epoch, where that is asked for."""
    paths = sorted(folder.glob("*.fits"))
    if not paths:
        raise StackingError(f"there are no cutouts in {folder}")
    images = [read_hdu(str(path)) for path in paths]
    for keyword, wanted in (("FILTER", band), ("EPOCH", epoch)):
        if wanted is not None:
            there = sorted({str(image.header.get(keyword, "without")) for image in images})
            images = [image for image in images if image.header.get(keyword) == wanted]
            if not images:
                raise StackingError(
                    f"no cutout in {folder} has {keyword} {wanted}; there are: {', '.join(there)}"
                )
    shape = (2, images[0].height, images[0].width)
    for image in images:
        if (image.n_planes, image.height, image.width) != shape:
            raise StackingError(f"{image.name} is not as large as {images[0].name}")
    planes = np.array([pixels_of(image) for image in images])
    return Cutouts(
        sums=planes[:, 0],
        weights=np.array([number(image.header, "WSUM", image.name) for image in images]),
        counts=np.array([int(number(image.header, "NSTACK", image.name)) for image in images]),
        singles=planes[:, 1],
        single_noise=np.array([number(image.header, "NOISE2", image.name) for image in images]),
        names=[image.name for image in images],
    )


def clip(cuts: Cutouts, sigmas: float) -> tuple[Cutouts, float]:
    """The cutouts without pixels that are more than `sigmas` of their noise off; returns also the share of these.

    A pixel begins beside the median of its place in all cutouts, and is then compared with the weighted mean of those that are
    left, until nothing changes. What is left out is replaced by that mean, which any sum of these cutouts then has.
    The noise of a pixel of a weighted sum is the root of its weight, or of its mean 1 / sqrt(weight).
    """
    weights = cuts.weights[:, None, None]
    means, limits = cuts.sums / weights, sigmas / np.sqrt(weights)
    centre = np.median(means, 0)
    kept = np.ones(means.shape, np.bool_)
    for _ in range(CLIP_ROUNDS_MAX):
        left = np.abs(means - centre) <= limits
        total = (weights * left).sum(0)
        if np.any(total == 0):
            raise StackingError(f"--clip {sigmas} leaves no cutout at {np.count_nonzero(total == 0)} pixels")
        centre = (cuts.sums * left).sum(0) / total
        if np.array_equal(left, kept):
            break
        kept = left
    share = 1.0 - float(np.count_nonzero(kept)) / kept.size
    return replace(cuts, sums=np.where(kept, cuts.sums, weights * centre)), share


# -------------------------------------------------------------------------------------- measurement


def noise_positions(size: int, psf_sigma: float) -> NDArray[np.bool_]:
    """Which positions of the filter of `measure` in an image of `size` pixels are off the centre: the noise is measured there.

    Raises
    ------
    StackingError : there are too few.
    """
    n_positions = size - 2 * math.ceil(FILTER_REACH_SIGMAS * psf_sigma)
    offset = np.arange(n_positions) - n_positions // 2
    away = np.hypot(offset[:, None], offset) > CENTRE_FREE_SIGMAS * psf_sigma
    if np.count_nonzero(away) < NOISE_POSITIONS_MIN:
        raise StackingError(f"cutouts of {size} pixels leave no room to measure the noise beside the source")
    return away


def measure(images: Floats, psf_sigma: float) -> tuple[Floats, Floats, float]:
    """Height of a star at the centre of each image (n, s, s), and variance of that height.

    The filter is a Gaussian of `psf_sigma` pixels, normalised so that a star of height 1 gives 1.
    Background and variance come from filter positions off the centre; the third result is the number
    of independent ones among them. Neighbours are correlated as exp(-d^2 / 4 sigma^2), so a variance
    has one independent value in each 2 pi sigma^2 pixels.
    """
    size = images.shape[1]
    away = noise_positions(size, psf_sigma)
    reach = math.ceil(FILTER_REACH_SIGMAS * psf_sigma)
    profile = np.exp(-0.5 * (np.arange(-reach, reach + 1) / psf_sigma) ** 2)
    n_positions = len(away)
    shift = np.zeros((n_positions, size))
    for position in range(n_positions):
        shift[position, position : position + 2 * reach + 1] = profile / np.sum(profile**2)
    filtered = shift @ images @ shift.T
    middle = n_positions // 2
    heights = filtered[:, middle, middle] - filtered[:, away].mean(1)
    n_independent = np.count_nonzero(away) / (2 * math.pi * psf_sigma**2)
    return heights, filtered[:, away].var(1), n_independent


def point(images: Floats, n: float, psf_sigma: float) -> Point:
    """Mean signal-to-noise of several stacks of the same depth: mean height over rms noise.

    Its error has two parts: the height is off by one noise, and the noise itself is measured from
    a limited number of independent positions.
    """
    heights, variances, n_independent = measure(images, psf_sigma)
    n_subsets = len(images)
    snr = float(heights.mean()) / math.sqrt(variances.mean())
    error = math.sqrt((1.0 + snr**2 / (2 * n_independent)) / n_subsets)
    return Point(n, snr, error, n_subsets)


def growth(cuts: Cutouts, psf_sigma: float, seed: int) -> list[Point]:
    """Signal-to-noise for one cutout, then for 1, 2, 4, ... tasks and for all of them."""
    points = [point(cuts.singles, 1, psf_sigma)]
    order = np.random.default_rng(seed).permutation(len(cuts.weights))
    depths = [2**power for power in range(len(order).bit_length())]
    for depth in [*(d for d in depths if 2 * d <= len(order)), len(order)]:
        n_subsets = min(len(order) // depth, SUBSETS_MAX)
        subsets = order[: n_subsets * depth].reshape(n_subsets, depth)
        stacks = cuts.sums[subsets].sum(1) / cuts.weights[subsets].sum(1)[:, None, None]
        points.append(point(stacks, float(cuts.counts[subsets].sum(1).mean()), psf_sigma))
    return points


def fitted_exponent(points: list[Point]) -> tuple[float, float]:
    """Exponent b of snr ~ N^b with its standard error, by weighted least squares in the logarithms.

    Points whose own error is more than a third of them carry no logarithm worth fitting. All points
    come from the same cutouts; their errors are taken as independent nevertheless.
    """
    good = [p for p in points if p.snr > 3 * p.snr_error]
    if len(good) < 2:
        return math.nan, math.nan
    x = np.log([p.n for p in good])
    y = np.log([p.snr for p in good])
    weight = np.array([(p.snr / p.snr_error) ** 2 for p in good])
    centred = x - np.average(x, weights=weight)
    spread = np.sum(weight * centred**2)
    return float(np.sum(weight * centred * y) / spread), float(1.0 / math.sqrt(spread))


def expected_snr_one(peak: float, weight: float, n: int, psf_sigma: float) -> float:
    """Signal-to-noise of one source of height `peak` in one exposure, for white noise.

    `weight` is the sum of 1 / noise^2 over `n` cutouts. Matched filter: the sum of the squared
    profile is pi sigma^2.
    """
    return peak * math.sqrt(math.pi * weight / n) * psf_sigma


def main() -> int:
    parser = argparse.ArgumentParser(description="Combine cutouts and measure the source in the middle.")
    parser.add_argument("--cuts", type=Path, required=True, help="folder with the tasks' outputs")
    parser.add_argument("--sky", type=Path, required=True, help="folder that make_sky.py wrote")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument(
        "--clip", type=float, metavar="SIGMA", help="leave out pixels that are more than this off the others"
    )
    parser.add_argument("--band", help="only cutouts of this band (FILTER)")
    parser.add_argument("--epoch", type=int, help="only cutouts of this epoch (EPOCH)")
    args = parser.parse_args()
    if args.clip is not None and not args.clip > 0:
        parser.error("--clip is a number of sigmas above 0")
    try:
        run(args.cuts, args.sky, args.out, args.clip, args.band, args.epoch)
    except StackingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def truth_of(sky: Path) -> tuple[dict[str, object], bool]:
    """What went into a sky, and whether it is one of make_sky.py, with M13 in its middle, or else a survey of survey.py."""
    path = sky / "survey.json"
    is_m13 = not path.exists()
    if is_m13:
        path = sky / "sky.json"
    try:
        truth: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StackingError(f"{path} cannot be read: {error}") from None
    return truth, is_m13


def run(
    cuts_folder: Path,
    sky: Path,
    out: Path,
    clip_sigmas: float | None = None,
    band: str | None = None,
    epoch: int | None = None,
) -> dict[str, object]:
    """Do all of it; returns what summary.json holds."""
    truth, is_m13 = truth_of(sky)
    psf_sigma, seed = float(str(truth["psf_sigma_pixels"])), int(str(truth["seed"]))
    cuts = read_cutouts(cuts_folder, band, epoch)
    peaks = truth.get("peaks")
    mean_peak = float(str(peaks[band] if isinstance(peaks, dict) and band in peaks else truth["mean_peak"]))
    clipped = 0.0
    if clip_sigmas is not None:
        cuts, clipped = clip(cuts, clip_sigmas)
    n_cutouts, weight = int(cuts.counts.sum()), float(cuts.weights.sum())
    stacked = cuts.sums.sum(0) / weight
    heights, variances, _ = measure(stacked[None], psf_sigma)
    height, noise = float(heights[0]), math.sqrt(float(variances[0]))
    points = growth(cuts, psf_sigma, seed)
    snr, snr_error = points[-1].snr, points[-1].snr_error  # of all cutouts
    exponent, exponent_error = fitted_exponent(points)
    snr_one = expected_snr_one(mean_peak, weight, n_cutouts, psf_sigma)
    summary: dict[str, object] = {
        "n_cutouts": n_cutouts,
        "n_tasks": len(cuts.names),
        "snr": round(snr, 2),
        "snr_error": round(snr_error, 2),
        "snr_expected": round(snr_one * math.sqrt(n_cutouts), 2),
        "snr_one_expected": round(snr_one, 4),
        "exponent": round(exponent, 4),
        "exponent_error": round(exponent_error, 4),
        "source_height": round(height, 3),
        "source_height_error": round(noise, 3),
        "source_height_injected": round(mean_peak, 3),
        **({} if clip_sigmas is None else {"clip": clip_sigmas, "clipped": round(clipped, 6)}),
        **({} if band is None else {"band": band}),
        **({} if epoch is None else {"epoch": epoch}),
        "seed": seed,
        "growth": [asdict(p) for p in points],
    }
    out.mkdir(parents=True, exist_ok=True)
    write_fits(
        str(out / "stack.fits"),
        [stacked.tolist()],
        [
            ("N", n_cutouts, "cutouts in the mean"),
            ("SNR", round(snr, 3), "matched filter, at the centre"),
            ("NEXP", int(str(truth["n_exposures"])), "exposures"),
            ("NTASK", len(cuts.names), "cutout tasks"),
            ("WSUM", weight, "sum of weights, 1 / noise^2"),
            ("SEED", seed, "of the generator"),
            ("ORIGIN", "eyas apps/stacking/stack.py", ""),
            ("SKYIMAGE", "astropy m13.fits + simulated sources" if is_m13 else "simulated", ""),
        ],
    )
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    if is_m13:
        from picture import draw  # needs Pillow; the numbers above do not

        # The single cutout shown is the one of median noise: neither a lucky nor an unlucky one.
        shown = int(np.argsort(cuts.single_noise)[len(cuts.names) // 2])
        draw(out / "stack.png", sky, cuts.singles[shown], stacked, points, summary)
    print(
        f"  N = {n_cutouts:,}: signal-to-noise {snr:.1f} +- {snr_error:.1f}, "
        f"expected {snr_one * math.sqrt(n_cutouts):.1f}; it grows as N^{exponent:.2f} +- {exponent_error:.2f}"
    )
    return summary


if __name__ == "__main__":
    sys.exit(main())
