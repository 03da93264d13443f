"""Densities and programs that are kept by the structure of a model, and used again for other numbers."""

from collections.abc import Callable, Hashable

import numpy as np
import pymc as pm

from pymc_discrete.model.structure_of_model import Structure, structure_of
from pymc_discrete.runtime.model_settings import width_of_models
from pymc_discrete.runtime.reuse import MODELS, Kept
from pymc_discrete.structure.numbers import NeedsValues

# A density that was made for a model may hold for some data only, for example data in which no count is 0.
# For models of the same structure whose data differ in this respect, up to VARIANTS further densities are
# kept.
VARIANTS = 8


class KeptForModels[T, U]:
    """Objects that were made for the latest structures of models, such as densities.

    Parameters
    ----------
    name : what the objects are, by which they are found in the files of `analyses_on_disk`
    """

    def __init__(self, name: str):
        self._kept: Kept[T] = Kept(MODELS, name)
        # {key of a model whose numbers are all inputs: names of the numbers that must be constants}
        self._fixed: Kept[set[str]] = Kept(MODELS, f"constants of {name}")

    def get(
        self,
        model: pm.Model,
        asked: Hashable,
        make: Callable[[Structure], T],
        use: Callable[[T, dict[str, np.ndarray]], U | None],
        with_numbers: bool = True,
    ) -> U:
        """The object that was made for a model of the same structure, with the numbers of the given model.

        Parameters
        ----------
        asked : a further part of the key
        make : a function that makes the object for a structure; the error `NeedsValues` names numbers that
            must be a part of the key
        use : a function that gives the object the numbers of a model; None where the object does not hold for
            these numbers, so that another object is made
        with_numbers : whether data and constants of the model may become numbers, which are inputs
        """
        wide = width_of_models()
        # With 32-bit numbers the constants are checked one by one, so they stay constants.
        free = with_numbers and wide
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
            # some log densities can be written, or differentiated, only if all numbers are constants
            except Exception:
                if not structure.numbers:
                    raise
                fixed |= set(structure.numbers)
                continue
            used = use(kept, structure.numbers)
            if used is not None:
                return used
            if made or variant == VARIANTS:
                # The object does not hold for the numbers that it was made for, or there are too many
                # variants. An object with all numbers as constants is then made, for this model only.
                fixed, variant = fixed | set(structure.numbers), 0
            else:
                variant += 1
