"""Keeps what was made for the structure of a model, to use it again for models with other numbers."""

from collections.abc import Callable, Hashable

import numpy as np
import pymc as pm

from pymc_discrete.model.structure_of_model import Structure, structure_of
from pymc_discrete.runtime.model_settings import width_of_models
from pymc_discrete.runtime.reuse import MODELS, Kept
from pymc_discrete.structure.numbers import NeedsValues

# A density that was made for a model may hold for some data only, such as those in which no count is 0. For
# models of the same structure, whose data differ in such a way, up to this number of densities are kept.
VARIANTS = 8


class KeptForModels[T, U]:
    """What was made for the latest structures of models."""

    def __init__(self) -> None:
        self._kept: Kept[T] = Kept(MODELS)
        # {key of a model whose numbers are all inputs: names of the numbers that must be constants}
        self._fixed: Kept[set[str]] = Kept(MODELS)

    def get(
        self,
        model: pm.Model,
        asked: Hashable,
        make: Callable[[Structure], T],
        use: Callable[[T, dict[str, np.ndarray]], U | None],
        with_numbers: bool = True,
    ) -> U:
        """What was made for a model of the same structure, with the numbers of this one.

        Parameters
        ----------
        asked : a further part of the key
        make : makes it for a structure; `NeedsValues` names numbers that must be a part of the key
        use : gives it the numbers of a model; None where it cannot be used with these, and another is made
        with_numbers : whether the model may have numbers, rather than constants
        """
        wide = width_of_models()
        free = with_numbers and wide  # with 32 bits constants are checked one by one, and stay constants
        whole = structure_of(model, () if free else None)
        fixed = self._fixed.get((whole.key, asked, wide), set)
        variant = 0
        while True:
            structure = structure_of(model, fixed) if free else whole
            made: list[T] = []

            def make_now(structure: Structure = structure, made: list[T] = made) -> T:
                made.append(make(structure))
                return made[0]

            try:
                kept = self._kept.get((structure.key, asked, wide, variant), make_now)
            except NeedsValues as needed:
                fixed |= (needed.names & set(structure.numbers)) or set(structure.numbers)
                continue
            except Exception:  # some log densities can be written, or differentiated, with constants only
                if not structure.numbers:
                    raise
                fixed |= set(structure.numbers)
                continue
            used = use(kept, structure.numbers)
            if used is not None:
                return used
            if made or variant == VARIANTS:
                fixed, variant = fixed | set(structure.numbers), 0  # for this model only
            else:
                variant += 1
