"""A model whose discrete variables are summed out in every transition and drawn again after it.

A site with many values, or without a bound, is summed over a stretch: some of its values, laid at random
about the current value, which is one of them (`stretches.py`).

Where all sites together are too many to sum out, each transition sums out a part of the sites given all
others. The part is chosen without looking at the state, so that, with sites z and other variables theta, the
transition leaves p(theta, z_part | z_rest) invariant, and with it p(theta, z). The sites of the part are
drawn before anything else moves, since theta was moved without looking at their old values. Then all sites
are drawn once more given theta, one after another.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, toposort

from pymc_discrete.collapse.elements import Sparse
from pymc_discrete.collapse.marginal_op import SummedOut
from pymc_discrete.collapse.marginalize import (
    density_to_sum,
    unbounded,
    without,
    without_transforms,
)
from pymc_discrete.collapse.repeats import components_of
from pymc_discrete.collapse.stretches import FarOut, Stretches
from pymc_discrete.collapse.sums import Sums, SumTooLarge
from pymc_discrete.collapse.sums_in_windows import SumsInWindows
from pymc_discrete.collapse.sums_of_parts import SumsOfParts
from pymc_discrete.differences.sum_of_parts import ContextOfModel
from pymc_discrete.kernels.block_gibbs import visits_of
from pymc_discrete.model.identity import key_of_graph
from pymc_discrete.model.initial import point_of
from pymc_discrete.model.structure_of_model import MadeModel, key_of_model
from pymc_discrete.model.support import deviations
from pymc_discrete.runtime.jax_settings import jitted
from pymc_discrete.runtime.model_settings import model_settings
from pymc_discrete.runtime.names import shown
from pymc_discrete.runtime.reuse import MODELS, Kept
from pymc_discrete.runtime.waiting import watched
from pymc_discrete.space.space import UNBOUNDED
from pymc_discrete.space.target import Target
from pymc_discrete.structure.jaxify import jaxify
from pymc_discrete.structure.numbers import NUMBER, NeedsValues, Number

# Names in the collapsed model: of the potential that is the logarithm of the sum, and of the variable of
# integers that holds the values of each site that are summed.
COLLAPSED_POTENTIAL, STRETCH_VARIABLE = "~summed out", "~stretches"
SUMMED_WHOLE = 64  # a site with at most this many values is summed over all of them
# A site of more than SUMMED_WHOLE values is also summed over all of them if the tables of all sums together
# have at most this many entries.
AFFORDABLE = 2**14
# A site that is not summed over all of its values is summed over a stretch: random values about the current
# value. The number of these values is at least SHORTEST_STRETCH, at most LONGEST_STRETCH, and else about
# DEVIATIONS standard deviations of the prior.
SHORTEST_STRETCH, LONGEST_STRETCH = 24, 192
DEVIATIONS = 4
# Sites may be summed over windows (`sums_in_windows.py`) in place of stretches, if that takes at most 1 /
# LESS of the operations. A window is a fixed range of values. It ends where the sum of the terms that depend
# on one site alone is FAR_BELOW nats below its largest value. With probability AGAIN, a draw is followed by a
# draw over stretches, so that sites can leave their windows.
LESS, FAR_BELOW, AGAIN = 2, 15.0, 1 / 8
# A warning is given if a site's value is among the outermost values that its stretches reach, or beyond, in
# more than a fraction FAR_SHARE of the draws, or in more than FAR_RUN draws in a row: the tails of the site
# then mix slowly.
FAR_SHARE, FAR_RUN = 0.005, 50

_kept: Kept["Collapsed"] = Kept(MODELS, "models with variables summed out")
_sums: Kept[Sums] = Kept(MODELS, "sums")


class Collapsed:
    """A model with discrete variables summed out over stretches, and exact draws of these variables.

    Parameters
    ----------
    model : pm.Model
    names : names of the discrete variables
    length : the number of values of each stretch; by default it follows from the standard deviations of the
        variables' priors at the starting point
    with_numbers : whether constants and data are inputs of the programs, so that models with other data use
        the same programs

    Two objects are equal if their models differ in constants and data only, and their stretches have the same
    lengths: they share programs.

    Attributes
    ----------
    density : ModelDensity of the discrete variables, a function of the untransformed values of the other
        variables
    stretched : (d,) bool, the sites that are summed over a stretch
    far : (d,) bool, the sites that are drawn once more after the sum: a stretch may not contain all of their
        probable values, or only some of the sites were summed out
    sums : Sums; SumsOfParts where all sites together are too many; SumsInWindows where windows take less work
    windows : `sums` if it is a SumsInWindows, else None
    in_stretches : the Sums over stretches, by which sites leave their windows and come back; the same as
        `sums` if there are no windows
    stretches : Stretches, an object that draws the values that are summed
    model : pm.Model, of the other variables and of a vector of integers, the values of each site that are
        summed

    Raises
    ------
    NotImplementedError
        If a term joins too many sites.
    ValueError
        If the sum would be too large.
    """

    @watched("Finding how to sum variables out")
    def __init__(
        self, model: pm.Model, names: Sequence[str], length: int | None = None, with_numbers: bool = False
    ):
        plain = MadeModel.of(without_transforms(model), f"{NUMBER}in sums: ")
        self.density = density_to_sum(plain, list(names), None, with_numbers, totals=True)
        space = self.density.space
        counts = np.concatenate([np.full(v.size, v.counts.max(initial=1)) for v in space.variables])
        wanted = self._wanted_lengths(plain)
        times = 2 ** np.ceil(np.log2(np.clip(wanted, SHORTEST_STRETCH, LONGEST_STRETCH) / SHORTEST_STRETCH))
        lengths = np.full(space.d, length) if length else (SHORTEST_STRETCH * times).astype(int)
        with model_settings():
            self.stretched = unbounded(space)
            wide = ~self.stretched & (counts > (length or SUMMED_WHOLE))
            sums = None if length and wide.any() else self._sums(lengths, counts)
            if sums is None or (wide.any() and sums.entries > AFFORDABLE):
                self.stretched = self.stretched | wide
                sums = self._whole_or_parts(np.where(self.stretched, lengths, counts))
            self.stretches = Stretches(sums.counts, self.stretched, space.lower, space.upper)
            # sites of which a stretch may lack some probable values are drawn once more, each from its exact
            # conditional
            self.far = (self.stretched & (wanted > LONGEST_STRETCH)) | isinstance(sums, SumsOfParts)
            windows = None
            if length is None and not isinstance(sums, SumsOfParts):
                windows = self._windows_for(plain, counts, lengths)
            self.windows = windows if windows is not None and LESS * windows.work <= sums.work else None
            self.in_stretches, self.sums = sums, self.windows or sums
            self.sums.check_numbers()
            left = without(model, self.density, self.sums, COLLAPSED_POTENTIAL, STRETCH_VARIABLE)
            self.model = MadeModel.of(left, f"{NUMBER}beside sums: ")
            nodes = toposort([self.model[COLLAPSED_POTENTIAL]])
            node = next(node for node in nodes if isinstance(node.op, SummedOut))
            others = self.density.graph.others
            read = [i for i, v in zip(node.inputs, others, strict=False) if not isinstance(v, Number)]
            self._values = [v for v in self.model.value_vars if v.name != STRETCH_VARIABLE]
            read = self.model.replace_rvs_by_values(read)
            self._graphs_read, self._read = read, jaxify(self._values, read)
            self._key = (
                self.sums,
                self.in_stretches,
                self.stretched.tobytes(),
                self.far.tobytes(),
                key_of_graph(read),
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Collapsed) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def identity(self) -> list[Any]:
        """A key of everything that the object computes, by which a compiled program is found on disk."""
        sums = [[type(s), s.counts, s.shared, s.places] for s in (self.sums, self.in_stretches)]
        read = [self._values, self._graphs_read]
        return [self.density, sums, self.windows and self.windows.first, self.stretched, self.far, read]

    @classmethod
    def of(cls, model: pm.Model, names: Sequence[str], length: int | None = None) -> "Collapsed":
        """The `Collapsed` of a model: the same object for models with the same log density, an equal object
        for models that differ in constants or data only.
        """

        def make() -> "Collapsed":
            try:
                return cls(model, names, length, with_numbers=True)
            except (NeedsValues, NotImplementedError, ValueError):
                # A sum that is impossible while data and constants are inputs of the program may be possible
                # once they are constants of the program. If it is not, this second error is the one that the
                # user sees.
                return cls(model, names, length)

        return _kept.get((key_of_model(model), tuple(names), length), make)

    def _kept_sums(self, counts: np.ndarray, kind: type[Sums] = Sums) -> Sums:
        options = {"shared": True} if kind is Sums else {}
        return _sums.get(
            (self.density, counts.tobytes(), kind), lambda: kind(self.density, counts, **options)
        )

    def _whole_or_parts(self, counts: np.ndarray) -> Sums:
        try:
            return self._kept_sums(counts)
        except SumTooLarge:
            return self._kept_sums(counts, SumsOfParts)

    def _sums(self, lengths: np.ndarray, counts: np.ndarray) -> Sums | None:
        """The sums over the whole support of each site with bounds and over a stretch of each other site;
        None if such sums have too many table entries or a term joins too many sites.
        """
        try:
            return self._kept_sums(np.where(self.stretched, lengths, counts))
        except (ValueError, NotImplementedError):
            return None

    def _wanted_lengths(self, plain: pm.Model) -> np.ndarray:
        """(d,) float, the number of values that hold almost all of each site's prior; inf where it is
        unknown.
        """
        space = self.density.space
        names = {m.name for m in space.members if m.size}
        scale = deviations(plain, names, point_of(plain))
        for name, parts in self.density.totals.items():
            scale[name] = float(np.hypot.reduce([scale.get(part, np.inf) for part in parts]))
        of_members = [DEVIATIONS * scale.get(m.name, np.inf) for m in space.members]
        return np.repeat(of_members, [m.size for m in space.members])

    def _windows_for(self, plain: pm.Model, counts: np.ndarray, lengths: np.ndarray) -> SumsInWindows | None:
        """The sums over windows, for sites that would be summed over stretches; None where there are no such
        sums.

        A window begins at the lower bound. It ends where the terms of the site alone, at the starting point,
        are far below their largest value, and is at least as long as a stretch. Sites that interact, directly
        or by way of others, have windows of the same length.
        """
        space, stretched = self.density.space, self.stretched
        if not stretched.any() or self.density.plan.dense or (space.lower[stretched] <= -UNBOUNDED).any():
            return None
        widest = np.where(stretched, LONGEST_STRETCH, counts)
        elements = Sparse(self.density, widest, space.lower, shared=True)
        joined = [g for g in elements.groups if len(g.widths) > 1 and stretched[g.sites].any()]
        reach = self._reach(plain, elements) if joined else None
        if reach is None:
            return None
        needed = np.where(stretched, np.maximum(reach, lengths), 0)
        components = components_of(elements)
        longest = np.zeros(components.max() + 1, int)
        np.maximum.at(longest, components, needed)
        lengths = SHORTEST_STRETCH * 2 ** np.ceil(
            np.log2(np.maximum(longest, SHORTEST_STRETCH) / SHORTEST_STRETCH)
        ).astype(int)
        if lengths.max() > LONGEST_STRETCH:
            return None
        counts = np.where(stretched, lengths[components], counts)
        key = (self.density, counts.tobytes(), SumsInWindows)
        try:
            found = _sums.get(key, lambda: SumsInWindows(self.density, counts, space.lower))
        except SumTooLarge:
            return None
        assert isinstance(found, SumsInWindows)
        return found

    def _reach(self, plain: pm.Model, elements: Sparse) -> np.ndarray | None:
        """(d,) int, how many values from the lower bound on are probable, by the terms of each site alone.

        The terms that depend on a site alone are evaluated at the starting point. The values of a site are
        probable up to the last one at which the sum of these terms is within FAR_BELOW nats of its maximum;
        the number is 0 for a site without such terms. The result is None where values beyond the evaluated
        ones may be probable.
        """
        alone = elements.alone()
        total = np.zeros((len(elements.counts), elements.counts.max(initial=1)))
        point = point_of(plain)
        inputs = [
            self.density.numbers[name] if name in self.density.numbers else point[name]
            for name in (str(v.name) for v in self.density.graph.others)
        ]
        tables = jitted(lambda inputs: alone.tables(self.density.without_parts(inputs), None))(inputs)
        for group, table in zip(alone.groups, tables, strict=True):
            np.add.at(total[:, : group.widths[0]], group.sites[:, 0], np.asarray(table)[group.tables])
        likely = total > total.max(1, keepdims=True) - FAR_BELOW
        last = total.shape[1] - 1 - likely[:, ::-1].argmax(1)
        said = np.zeros(len(total), bool)
        for group in alone.groups:
            said[group.sites[:, 0]] = True
        open_ended = said & self.stretched & (likely[:, -1] | ~likely.any(axis=1))
        return None if open_ended.any() else np.where(said, last + 1, 0)

    def behind(self, variables: Sequence[Variable]) -> list[str]:
        """The names of the model's value variables from which `variables`, which the density of the discrete
        variables reads, are computed.
        """
        others = [v for v in self.density.graph.others if not isinstance(v, Number)]
        pairs, needed = zip(others, self._graphs_read, strict=True), set(variables)
        above = set(ancestors([read for v, read in pairs if v in needed]))
        return [str(v.name) for v in self._values if v in above]

    @property
    def whole(self) -> bool:
        """Whether all sites are summed out at once, each over all of its values."""
        return not (self.stretched.any() or self.windows is not None or isinstance(self.sums, SumsOfParts))

    def parts(self) -> str | None:
        """A line for the log about the parts that are summed out in turn; None where all sites are summed out
        at once.
        """
        if not isinstance(self.sums, SumsOfParts):
            return None
        sizes, names = self.sums.parts.sum(1), shown(self.density.names)
        several = f"{sizes.min()} to {sizes.max()}" if sizes.min() < sizes.max() else str(sizes[0])
        return (
            f"All {len(self.stretched)} sites of {names} together are too many to sum out: each draw sums "
            f"out one of {len(sizes)} parts, chosen at random, of {several} sites, in tables of up to "
            f"{self.sums.widest} sites, given the other sites, and then draws every site given the rest."
        )

    def middle(self, x: np.ndarray) -> np.ndarray:
        """(..., n) int, the vector that tells the sums over which values of each site they go, for stretches
        centred at x; where one part of the sites is summed out at a time, the first part.

        Parameters
        ----------
        x : (..., d) int, the values of the sites
        """
        if not self.sums.places:
            return np.zeros((*x.shape[:-1], 0), int)
        return self._packed(*self.stretches.intervals(x, np), x, 0, np)

    def _packed(self, values, doublings, x, part, xp: Any = jnp):
        """(..., n) int, stretches and the index of a part, in one vector that the methods of `sums` take;
        where sums are over windows, this vector is x.
        """
        found, lead = [], x.shape[:-1]
        if self.windows is not None:
            return x
        if isinstance(self.sums, SumsOfParts):
            within = xp.asarray(self.sums.parts)[part]
            values = xp.where(within[:, None], values, x[..., None])
            found = [x, xp.broadcast_to(part, (*lead, 1))]
        if self.sums.elements.longest:
            found = [*(a.reshape(*lead, -1) for a in (values, doublings)), *found]
        return xp.concatenate([xp.zeros((*lead, 0), int), *found], axis=-1)

    # ------------------------------------------------------------ pure JAX functions
    def context(self, point: Mapping[str, Any]):
        """The context of the density, given {name: value} of the numbers and of the value variables that are
        not summed out.
        """
        return self.density.without_parts(self.inputs(point))

    def inputs(self, point: Mapping[str, Any]) -> list[Any]:
        """The values of all variables that the density reads and that are not summed out, from which its
        context is computed.

        Parameters
        ----------
        point : {name: value} of the numbers and of the value variables that are not summed out
        """
        read = iter(self._read(*(point[str(v.name)] for v in self._values)))
        others = self.density.graph.others
        return [point[str(v.name)] if isinstance(v, Number) else next(read) for v in others]

    def total_and_draw(self, key, context: ContextOfModel, stretches, usual):
        """The logarithm of the sum over the sites, and (d,) int, a draw of the sites given the other
        variables.

        Parameters
        ----------
        context : the context of the density, from the values of the other variables
        stretches : (n,) int, over which values of each site, and over which part of the sites, the sum goes
        usual : (d,) float, values about which stretches are laid; they must not depend on x
        """
        key_draw, key_again = jax.random.split(key)
        total, x = self.sums.total_and_draw(key_draw, context, stretches)
        return total, self._drawn_again(key_again, context, x, usual)

    def total_draw_and_probabilities(self, key, context: ContextOfModel, stretches, usual):
        """The logarithm of the sum over the sites; (d,) int, a draw of the sites; and (d, K), the probability
        of each value that a site is summed over; the last two given the other variables.

        The mean of these probabilities over draws estimates p(z_i = k), with less variance than the share of
        draws with z_i = k.
        """
        key_draw, key_again = jax.random.split(key)
        total, x, probabilities = self.sums.total_draw_and_probabilities(key_draw, context, stretches)
        return total, self._drawn_again(key_again, context, x, usual), probabilities

    def _drawn_again(self, key, context: ContextOfModel, x, usual):
        """The sites x after some of them are drawn again, given the other variables.

        Where sums are over windows, all sites are drawn together over stretches in some of the draws. After
        this, sites of which a stretch may lack some probable values are drawn one after another.
        """
        if self.windows is not None:
            key, key_coin, key_stretches, key_sites = jax.random.split(key, 4)

            def over_stretches(x):
                stretches = self.stretches.drawn(key_stretches, x, usual)
                values = jnp.concatenate([a.reshape(-1) for a in stretches])
                total, new = self.in_stretches.total_and_draw(key_sites, context, values)
                return jnp.where(total > -jnp.inf, new, x)

            again = jax.random.bernoulli(key_coin, AGAIN)
            x = jax.lax.cond(again, over_stretches, lambda x: x, x)
        if self.far.any():
            target = Target(self.density, self.density.with_parts(context))
            for n, visit in enumerate(visits_of(target, without=~self.far)):
                x = visit(jax.random.fold_in(key, n), x, False)
        return x

    def drawn_stretches(self, key, x, usual, first: Any = False):
        """(n,) int, the values of each site that are summed and the index of a part, in the form that `sums`
        takes.

        Parameters
        ----------
        x : (d,) int, the current values of the sites
        usual : (d,) float, values about which stretches are laid; they must not depend on x; it is not read
            if no site has a stretch
        first : () bool, whether the chain is at its start
        """
        if self.whole:
            return jnp.zeros(0, int)
        key_stretches, key_part = jax.random.split(key)
        part = None
        if isinstance(self.sums, SumsOfParts):
            part = jax.random.randint(key_part, (), 0, len(self.sums.parts))
        return self._packed(*self.stretches.drawn(key_stretches, x, usual, first), x, part)

    def too_short(self, far_out: FarOut, draws: int) -> str | None:
        """A warning if values of sites are often among the outermost that their stretches reach; else None.

        Few stretches contain values still further out. A chain gets there seldom, and then stays for long,
        which an effective sample size that is estimated from the draws does not show.

        Parameters
        ----------
        far_out : counts of draws that are so far out: `draws` is the sum over all chains, and `longest` the
            largest number of such draws in a row in any chain
        draws : number of draws of all chains
        """
        share, longest = far_out.draws / max(draws, 1), far_out.longest
        warned = np.flatnonzero((share > FAR_SHARE) | (longest > FAR_RUN))
        if not len(warned):
            return None
        names, worst = self.density.space.names_at(warned), warned[share[warned].argmax()]
        return (
            f"{shown(names)} {'comes' if len(names) == 1 else 'come'} to the far end of the stretch of "
            f"{self.sums.counts[worst]} values that is summed for each site, in up to "
            f"{share[warned].max():.2%} of the draws, and in up to {longest[warned].max()} draws in a row: "
            "the posterior is wider than the prior at the start made it seem. The tail beyond "
            "mixes more slowly than R-hat and ESS say. Draw many more, sum over a fixed range (truncate= of "
            "pmd.marginalize), or compare with draws that sum nothing out (collapse=False, or "
            "pmd.BlockGibbs() in pm.sample)."
        )

    def far_out(self, x: Any, usual: Any, xp: Any = jnp):
        """(..., d) bool, the sites whose value in x is outside their window, or, where sums are over
        stretches, among the outermost values that stretches about `usual` reach, or beyond.
        """
        if self.windows is not None:
            return self.windows.outside(x, xp)
        if not self.stretched.any():
            return xp.zeros(x.shape, bool)
        return self.stretches.far_out(x, usual, xp)

    # ------------------------------------------------------------ mean probabilities
    @property
    def gives_probabilities(self) -> bool:
        """Whether the probabilities of the values of the variables can be found with the sums.

        They cannot where the space has totals in place of some variables, or where finding them takes too
        many operations.
        """
        return self.density.space.totals is None and self.sums.gives_probabilities

    @cached_property
    def _windows(self) -> list[tuple[slice, int, bool]]:
        """For each variable of the space, the range of values whose probabilities are added up over draws.

        Each range is (the variable's sites, the number of values of a site, whether these values lie about
        its usual value). The values lie about the usual value where sites have stretches; else they begin at
        the lower bound of the site.
        """
        found = []
        for start, v in self.density.space.blocks:
            here = slice(start, start + v.size)
            stretched = bool(self.stretched[here].any())
            found.append((here, int(self.sums.counts[here].max(initial=0)) * (1 + stretched), stretched))
        return found

    def no_probabilities(self) -> list[np.ndarray]:
        """The sums of probabilities before the first draw: zeros (size, K) for each variable of the space."""
        if not self.gives_probabilities:
            return []
        return [np.zeros((here.stop - here.start, width)) for here, width, _ in self._windows]

    def window(self, usual: Any, xp: Any = jnp):
        """(..., d) int, the first of the values of each site whose probabilities are added up over draws.

        Parameters
        ----------
        usual : (..., d) float, values about which stretches are laid; where there are no stretches, only its
            leading axes are read
        """
        half, lower = self.sums.counts // 2, self.sums.elements.first
        if not self.stretched.any():
            return xp.broadcast_to(lower, (*usual.shape[:-1], len(lower)))
        usual = xp.round(usual).astype(int)
        return xp.where(self.stretched, xp.maximum(xp.maximum(usual - half, lower) - half, lower), lower)

    def with_probabilities(self, sums: list[Any], probabilities, stretches, first) -> list[Any]:
        """Sums of probabilities over draws, after one more draw; values outside the range of a sum add
        nothing.

        Parameters
        ----------
        sums : [(size, K)], for each variable of the space the sums of the earlier draws
        probabilities : (d, K), the probability of each value that a site is summed over in this draw
        stretches : (n,) int, over which values of each site the sum of this draw went
        first : (d,) int, the values at which the columns of `sums` begin
        """
        found, (values, _) = [], self.sums.summed_values(stretches)
        for total, (here, width, stretched) in zip(sums, self._windows, strict=True):
            p = probabilities[here]
            if stretched:
                column = values[here] - first[here, None]
                column = jnp.where((column >= 0) & (p > 0), column, width)
                found.append(jnp.asarray(total).at[np.arange(len(p))[:, None], column].add(p, mode="drop"))
            else:
                found.append(total + p[:, :width])
        return found
