#!/usr/bin/env bash
# run.sh [OPTIONS of `peers compare`]: this library and its peers in turn, in one run. Set them up with setup.sh first.
#   run.sh                        2 ranks, all sizes; text, JSON and a picture in .beds/peers/results
#   run.sh --ranks 4 --sizes 8,64K,1M
# Fails if a demand is not met, a peer is absent or a result is wrong.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
results=.beds/peers/results
mkdir -p "$results"
ranks=2
for ((i = 1; i < $#; i++)); do
    next=$((i + 1))
    [[ ${!i} != --ranks ]] || ranks=${!next}
done
cargo build --release --quiet -p ccl-benches --bin peers
"${CARGO_TARGET_DIR:-target}/release/peers" compare --gate --json "$results/$ranks-ranks.json" \
    --plot "$results/$ranks-ranks.svg" "$@" | tee "$results/$ranks-ranks.txt"
