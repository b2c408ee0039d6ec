#!/bin/sh
# The workflow without eyas: the same program, one task after the other in one folder. plain.sh DATA WORK
set -eu
here=$(cd -- "$(dirname -- "$0")" && pwd)
data=$(cd -- "$1" && pwd)
mkdir -p "$2/sub" "$2/seis" "$2/peak"
cd -- "$2"
shake() { "${PYTHON:-python3}" "$here/shake.py" "$@"; }
for rupture in "$data"/ruptures/*.json; do
    name=$(basename "$rupture" .json)
    shake extract "$data/sgt_x.bin" "$data/sgt_y.bin" "$rupture" "sub/$name.sub"
    n=$(grep -o '"name"' "$rupture" | wc -l)
    v=0
    while [ "$v" -lt "$n" ]; do
        event=$(printf '%s-v%03d' "$name" "$v")
        shake synthesize "sub/$name.sub" "$rupture" "$v" "seis/$event.seis"
        shake peak "seis/$event.seis" "peak/$event.peak"
        v=$((v + 1))
    done
done
shake zip seismograms.zip seis/*.seis
shake curve curve.csv peak/*.peak
