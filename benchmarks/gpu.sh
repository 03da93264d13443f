#!/usr/bin/env bash
# Many chains on an accelerator, in float64 and float32, and the share of its memory bandwidth that sweeps use.
#   benchmarks/gpu.sh                     on a machine with a GPU: results/many-chains-gpu.{jsonl,md}. Rows of
#                                         16,384 chains compile for about a minute
#   SHORT=1 benchmarks/gpu.sh             small sizes, for a CPU: results/many-chains-gpu-short.{jsonl,md}
# PYTHON names the interpreter; further arguments go to benchmarks.many_chains (--models C --resume).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python}

"$python" -c 'import jax; print("device:", jax.devices()[0].device_kind)'
if [ -n "${SHORT:-}" ]; then
    "$python" -m benchmarks.many_chains --models B C --chains 4 16 --samplers sample sample-32 thrml \
        --seconds 0.5 --draws 25 --tune 50 --bandwidth 64 --out benchmarks/results/many-chains-gpu-short "$@"
else
    "$python" -m benchmarks.many_chains --chains 1024 16384 --samplers sample sample-32 thrml \
        --seconds 5 --bandwidth 2048 --out benchmarks/results/many-chains-gpu "$@"
fi
