"""Random models, each sampled in two fresh processes: the second reads what the first has kept on disk.

    python -m tests.tools.drawn_twice --models 1000 [--first 0] [--kit FOLDER]

prints the models whose draws differ, and how many models the second process had to look at again. The models
are those of `random_models`, or of the module `random_models` in a folder, whose `random_model` takes a seed.
"""

import argparse
import importlib.util
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from pymc_discrete.runtime.compile_cache import SETTING
from tests.tools.processes import run_python
from tests.tools.random_models import random_model

TOGETHER = 25  # models of one process
# Prints for each model a digest of its draws, or the name of an error, and the names of the dictionaries of
# `runtime/reuse.py` for which something was made.
CODE = """
import hashlib, json, logging
import pymc_discrete as pmd
from pymc_discrete.runtime import reuse
from tests.tools.drawn_twice import source

logging.disable(logging.WARNING)
made, model_of = [], source({kit!r})

class Noted(reuse.Used):
    def __init__(self):
        super().__init__()
        self.made = Names()

class Names(set):
    def add(self, name_and_key):
        super().add(name_and_key)
        made.append(name_and_key[0])

reuse.Used = Noted
for seed in range({first}, {first} + {models}):
    made.clear()
    reuse.forget()
    try:
        tree = pmd.sample(20, tune=20, chains=2, random_seed=seed, model=model_of(seed), progressbar=False,
                          compute_convergence_checks=False)
        arrays = [tree["posterior"][name].values for name in sorted(tree["posterior"].data_vars)]
        found = hashlib.sha256(b"".join(a.tobytes() for a in arrays)).hexdigest()[:16]
    except Exception as error:
        found = f"{{type(error).__name__}}: {{str(error)[:60]}}"
    print(json.dumps([seed, found, [*made]]), flush=True)
"""


def source(kit: str | None) -> Callable:
    """The function seed -> model."""
    if kit is None:
        return lambda seed: random_model(seed).model
    spec = importlib.util.spec_from_file_location("models_of_kit", Path(kit) / "random_models.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def model_of(seed: int):
        found = module.random_model(seed)
        return found[0] if isinstance(found, tuple) else found

    return model_of


def drawn_twice(first: int, models: int, kit: str | None = None) -> list[tuple[int, str, str, list[str]]]:
    """[(seed, what the first process found, what the second found, what the second made)] of some models.

    What is found is a digest of the draws, or an error.
    """
    code = CODE.format(first=first, models=models, kit=kit)
    with tempfile.TemporaryDirectory() as folder:
        environment = {SETTING: folder, "JAX_COMPILATION_CACHE_DIR": str(Path(folder) / "jax")}
        outputs = [run_python(code, 3000, **environment, PYTHONHASHSEED=seed) for seed in ("1", "2")]
    runs = [[json.loads(line) for line in output.splitlines()] for output in outputs]
    return [(seed, a, b, made) for (seed, a, _), (_, b, made) in zip(*runs, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--kit")
    args = parser.parse_args()
    same = sampled = read = 0
    for first in range(args.first, args.first + args.models, TOGETHER):
        models = min(TOGETHER, args.first + args.models - first)
        for seed, a, b, made in drawn_twice(first, models, args.kit):
            same, sampled, read = same + (a == b), sampled + (":" not in a), read + (not made)
            if a != b or made:
                print(f"model {seed}: {a} | {b} | made again: {made}", flush=True)
        done = first + models - args.first
        print(
            f"{done} models: {sampled} sampled, {same} the same twice, {read} not looked at again", flush=True
        )


if __name__ == "__main__":
    main()
