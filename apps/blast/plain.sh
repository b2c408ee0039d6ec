#!/bin/sh
# The search without eyas and without splitting: plain.sh DATA WORK [MAX_TARGETS]
#
# One database, one blastp for each query file, one after the other. WORK gets q000.tsv, ...
set -eu
data=$(cd -- "$1" && pwd)
mkdir -p "$2"
cd -- "$2"
makeblastdb -in "$data/proteins.faa" -dbtype prot -blastdb_version 4 -out whole > makeblastdb.log
for query in "$data"/queries/*.faa; do
    blastp -db whole -query "$query" -evalue 10 -outfmt "6 std score" -max_target_seqs "${3:-500}" \
        -out "$(basename "$query" .faa).tsv"
done
