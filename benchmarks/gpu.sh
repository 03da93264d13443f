#!/usr/bin/env bash
# What is measured on an accelerator, in steps of at most ten minutes each on an NVIDIA H100 or faster.
#   benchmarks/gpu.sh STEP...             on a machine with a GPU; without a name all steps, one after another
#     chains      many chains of a 20x20 lattice, float64 and float32, beside THRML, and the share of the memory's
#                 bandwidth that sweeps use: results/many-chains-gpu.{jsonl,md}
#     ising       200x200 lattices in a field at path lengths of 1, 3 and 10: results/experiments/ising_path_length-gpu
#     energies    deep energies of 28x28 digits, 5,000 iterations: results/experiments/learn_digits-gpu
#     learned     a 25x25 lattice learned from draws: results/experiments/learn_ising-gpu
#   SHORT=1 benchmarks/gpu.sh STEP...     small sizes, for a CPU, with results in a temporary folder
# PYTHON names the interpreter. What follows -- goes to the module of each step: gpu.sh chains -- --models I --resume
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python} short=${SHORT:-}
steps=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case $1 in
    chains | ising | energies | learned) steps+=("$1") ;;
    *) echo "no step $1: chains, ising, energies or learned" >&2 && exit 2 ;;
    esac
    shift
done
[ $# -eq 0 ] || shift
[ ${#steps[@]} -gt 0 ] || steps=(chains ising energies learned)

chains() { # rows of 16,384 chains compile for about a minute
    if [ -n "$short" ]; then
        "$python" -m benchmarks.many_chains --models B C --chains 4 16 --samplers sample sample-32 thrml \
            --seconds 0.5 --draws 25 --tune 50 --bandwidth 64 --out "$(mktemp -d)/many-chains" "$@"
    else
        "$python" -m benchmarks.many_chains --models C --chains 1 1024 16384 --samplers sample sample-32 thrml \
            --seconds 5 --limit 150 --bandwidth 2048 --out benchmarks/results/many-chains-gpu "$@"
    fi
}

ising() { # a short form has 50x50 sites
    local options=(--only 200x200 --chains 64 --seconds 30)
    [ -z "$short" ] || options=(--short)
    "$python" -m benchmarks.experiments.ising_path_length "${options[@]}" \
        --samplers GWG-1 GWG-3 GWG-10 PAFS-1 PAFS-3 PAFS-10 "$@"
}

energies() {
    local options=(--iterations 5000)
    [ -z "$short" ] || options=(--iterations 10 --short)
    "$python" -m benchmarks.experiments.learn_digits --only 28x28 "${options[@]}" "$@"
}

learned() { # a short form has 4x4 sites
    local options=(--only "25x25 theta=0.25" --seconds 30 --transitions 5)
    [ -z "$short" ] || options=(--short)
    "$python" -m benchmarks.experiments.learn_ising "${options[@]}" "$@"
}

"$python" -c 'import jax; print("device:", jax.devices()[0].device_kind)'
for step in "${steps[@]}"; do
    echo "step: $step"
    "$step" "$@"
done
