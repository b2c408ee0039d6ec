#!/bin/sh
# The mosaic without eyas: the same programs, one after the other in one folder.
#
#     plain.sh DATA WORK [mProjectPP]
#
# DATA has raw/ and what plan.py put beside it (region.hdr, images.lst); WORK gets proj/, corr/, the tables,
# mosaic.fits and mosaic.png. Pairs come from mOverlaps, planes and corrections from Montage's own executives
# (mDiffExec, mFitExec, mBgExec): nothing of the workflow is used here, so it can be held against this.
set -eu
data=$(cd -- "$1" && pwd)
mkdir -p "$2/proj" "$2/diff" "$2/corr"
cd -- "$2"
project=${3:-mProject}
for tile in "$data"/raw/*.fits; do
    "$project" "$tile" "proj/$(basename "$tile")" "$data/region.hdr" > /dev/null
done
mImgtbl -t "$data/images.lst" proj images.tbl
mOverlaps images.tbl diffs.tbl
mDiffExec -p proj diffs.tbl "$data/region.hdr" diff
mFitExec diffs.tbl fits.tbl diff
mBgModel images.tbl fits.tbl corrections.tbl
mBgExec -p proj images.tbl corrections.tbl corr
mAdd -p corr images.tbl "$data/region.hdr" mosaic.fits
mViewer -gray mosaic.fits 1% 99.7% gaussian-log -out mosaic.png
