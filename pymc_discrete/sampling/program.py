"""One draw of a whole model, many draws of many chains, as one compiled program."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
from pymc.util import get_default_varnames
from pytensor.graph.basic import Variable

from pymc_discrete.kernels.keys import key_of
from pymc_discrete.sampling.block import Block
from pymc_discrete.sampling.discrete import DiscreteBlock
from pymc_discrete.sampling.nuts import NutsBlock
from pymc_discrete.sampling.recorder import Recorder

CHAINS = jax.sharding.PartitionSpec("chains")


class ChainState(NamedTuple):
    """Where a chain is, and what its blocks have learned.

    Attributes
    ----------
    point : {value variable name: array}
    blocks : one state per block
    """

    point: dict[str, Any]
    blocks: tuple[Any, ...]


class Program:
    """The compiled chains of a model.

    Parameters
    ----------
    model : pm.Model
    blocks : they move in this order
    var_names : what to record; by default all that `pm.sample` records
    seed : of all random numbers, together with the number of the chain and of the draw
    devices : over which the chains are spread
    """

    def __init__(
        self,
        model: pm.Model,
        blocks: Sequence[Block],
        var_names: Sequence[str] | None,
        seed: int,
        devices: Sequence[jax.Device],
    ):
        self.blocks, self.seed = tuple(blocks), seed
        self._mesh = jax.sharding.Mesh(np.asarray(devices), ("chains",))
        self.outputs = recorded(model, var_names)
        self._values = [v.name for v in model.value_vars]
        self.recorder = Recorder(model, self.outputs)
        self._narrow = narrow_dtypes(self.blocks)
        # side by side on an accelerator; on a CPU one after another, where conditions stay conditions
        self.together = devices[0].platform != "cpu"
        self.run = jax.jit(self._run, static_argnames="size")
        self.settle = jax.jit(self._settle)
        self.pool = jax.jit(self._pool, static_argnames="ends")

    def start(self, points: list[dict[str, np.ndarray]]) -> ChainState:
        """The states of all chains before the first draw, leading axis the chain."""
        states = [ChainState(p, tuple(b.start() for b in self.blocks)) for p in points]
        return self.placed(jax.tree.map(lambda *a: np.stack(a), *states))

    def placed(self, states: Any) -> Any:
        """Arrays (chains, ...) on the devices; of several processes each gives the whole and keeps its own part."""
        sharding = jax.sharding.NamedSharding(self._mesh, CHAINS)

        def place(a):
            a = np.asarray(a, jax.dtypes.canonicalize_dtype(a.dtype))
            return jax.make_array_from_callback(a.shape, sharding, lambda index: a[index])

        return jax.tree.map(place, states)

    @property
    def shared_ends(self) -> set[int]:
        """Tuning draws after which the chains share what they have learned."""
        return {t for b in self.blocks if isinstance(b, NutsBlock) for t in b.shared_ends}

    def bytes_per_draw(self, states: ChainState) -> int:
        """Of all chains, as recorded."""
        shapes = jax.eval_shape(jax.vmap(lambda s: self._record(s.point)), states)
        return sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(shapes))

    def _key(self, chain):
        """Of a chain; the n-th move of a block folds in 2 n, and what settles the chain after it 2 n + 1."""
        return jax.random.fold_in(key_of(self.seed), chain)

    def _draw(self, key, t, state: ChainState):
        point, blocks, stats = state.point, [], []
        for n, (block, own) in enumerate(zip(self.blocks, state.blocks, strict=True)):
            point, own, told = block.draw(jax.random.fold_in(key, 2 * (t * len(self.blocks) + n)), t, point, own)
            blocks.append(own)
            stats.append({name: jnp.asarray(told[name], kind) for name, kind in block.stats.items()})
        return ChainState(point, tuple(blocks)), joined(stats)

    def _record(self, point: dict[str, Any]) -> dict[str, Any]:
        values = self.recorder(*(point[name] for name in self._values))
        return {v.name: jnp.asarray(a, self._narrow.get(v.name)) for v, a in zip(self.outputs, values, strict=True)}

    def _run(self, states: ChainState, first, count, thin, size: int):
        """(states, draws, statistics) after `count` records, each after `thin` draws, the first of which is number `first`.

        Draws and statistics are {name: (chains, size, ...)}; what follows the first `count` means nothing.
        """

        start, count, thin = (jax.lax.convert_element_type(a, int) for a in (first, count, thin))

        def chain(number, state: ChainState):
            def draw(k, carried):
                state, told = carried
                # the key made anew: of a key that stays, XLA runs the generator again wherever a number is read (3x on one chain of F)
                state, now = self._draw(self._key(number), k, state)
                return state, together(told, now)

            # declared, since asking JAX for the shapes would trace the whole draw again
            nothing = joined([{name: jnp.zeros((), kind) for name, kind in b.stats.items()} for b in self.blocks])
            kept = (jax.eval_shape(self._record, state.point), nothing)
            kept = jax.tree.map(lambda a: jnp.zeros((size, *a.shape), a.dtype), kept)

            def record(n, carried):
                state, kept = carried
                begin = start + n * thin
                state, told = jax.lax.fori_loop(begin, begin + thin, draw, (state, nothing))
                return state, jax.tree.map(lambda all_, one: all_.at[n].set(one), kept, (self._record(state.point), averaged(told, thin)))

            return jax.lax.fori_loop(0, count, record, (state, kept))

        states, (draws, stats) = self._over_chains(chain, states)
        return states, draws, stats

    def _settle(self, states: ChainState, t) -> ChainState:
        """The chains, those that stand still nearer to the bulk."""

        def chain(number, state: ChainState):
            key, point = self._key(number), state.point
            for n, (block, own) in enumerate(zip(self.blocks, state.blocks, strict=True)):
                if isinstance(block, DiscreteBlock):
                    point = block.settled(jax.random.fold_in(key, 2 * (t * len(self.blocks) + n) + 1), point, own)
            return state._replace(point=point)

        return self._over_chains(chain, states)

    def _pool(self, states: ChainState, ends: bool) -> ChainState:
        """The chains, sharing a step size and, where a window of tuning ends, a mass matrix."""
        pairs = zip(self.blocks, states.blocks, strict=True)
        return states._replace(blocks=tuple(b.shared(s, ends) if isinstance(b, NutsBlock) and b.pooled else s for b, s in pairs))

    def _over_chains(self, chain: Callable, states: ChainState):
        def on_one_device(numbers, states):
            return jax.vmap(chain)(numbers, states) if self.together else jax.lax.map(lambda a: chain(*a), (numbers, states))

        spread = jax.shard_map(on_one_device, mesh=self._mesh, in_specs=CHAINS, out_specs=CHAINS, check_vma=False)
        return spread(jnp.arange(jax.tree.leaves(states)[0].shape[0]), states)


def recorded(model: pm.Model, var_names: Sequence[str] | None) -> list[Variable]:
    """What `pm.sample` records of a model, by its value variables."""
    wanted = [v for v in model.unobserved_value_vars if var_names is None or v.name in var_names]
    return list(get_default_varnames(wanted, include_transformed=False))


# statistics of the draws between two records: these are averaged, these added up; what is bool is true if it ever was; else the last
AVERAGED = ("acceptance_rate", "accept", "accepted", "slice_expansions", "slice_shrinkages", "slice_stayed")
ADDED = ("n_steps",)


def together(told: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """The statistics of some draws and of one more."""
    found = {}
    for name, a in now.items():
        if a.dtype == bool:
            found[name] = told[name] | a
        else:
            found[name] = told[name] + a if name in AVERAGED + ADDED else a
    return found


def averaged(told: dict[str, Any], count) -> dict[str, Any]:
    return {name: (a / count).astype(a.dtype) if name in AVERAGED else a for name, a in told.items()}


def joined(stats: list[dict[str, Any]]) -> dict[str, Any]:
    """The statistics of all blocks; where several share a name they are stacked, as `pm.sample` does, but the last `lp` is the draw's."""
    names = dict.fromkeys(name for told in stats for name in told)
    found = {name: [told[name] for told in stats if name in told] for name in names}
    return {name: of[-1] if name == "lp" or len(of) == 1 else jnp.stack(of) for name, of in found.items()}


def narrow_dtypes(blocks: Sequence[Block]) -> dict[str, Any]:
    """{name: the smallest signed integer type that holds the support} of finite discrete variables."""
    found = {}
    for block in blocks:
        if not isinstance(block, DiscreteBlock):
            continue
        space = block.target.space
        for start, v in space.blocks:
            if v.finite and v.size:
                low, high = space.lower[start : start + v.size].min(), space.upper[start : start + v.size].max()
                fits = (t for t in (np.int8, np.int16, np.int32, np.int64) if np.iinfo(t).min <= low and high <= np.iinfo(t).max)
                found[v.name] = next(fits)
    return found
