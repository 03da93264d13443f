"""One draw of a whole model, many draws of many chains, as one compiled program."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
from pymc.util import get_default_varnames
from pytensor.graph.basic import Variable

from pymc_discrete.kernels.random import key_of
from pymc_discrete.sampling.block import Block
from pymc_discrete.sampling.discrete import DiscreteBlock
from pymc_discrete.sampling.nuts import NutsBlock
from pymc_discrete.sampling.points import Points
from pymc_discrete.sampling.recorder import Recorder
from pymc_discrete.steps.compiling import announced

CHAINS = jax.sharding.PartitionSpec("chains")

# what is compiled, as messages call it
WORK = {"run": "the chains", "settle": "the way out of a bad start", "pool": "what the chains share"}


class ChainState(NamedTuple):
    """Where a chain is, and what its blocks have learned.

    Attributes
    ----------
    point : {value variable or vector: array}, see `Points`
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
    points : how a chain holds its values
    var_names : what to record; by default all that `pm.sample` records
    seed : of all random numbers, together with the number of the chain and of the draw
    devices : over which the chains are spread
    """

    def __init__(
        self,
        model: pm.Model,
        blocks: Sequence[Block],
        points: Points,
        var_names: Sequence[str] | None,
        seed: int,
        devices: Sequence[jax.Device],
    ):
        self.blocks, self.points, self.seed = tuple(blocks), points, seed
        self._mesh = jax.sharding.Mesh(np.asarray(devices), ("chains",))
        self.outputs = recorded(model, var_names)
        self.recorder = Recorder(model, self.outputs, points, narrow_dtypes(self.blocks))
        # side by side on an accelerator; on a CPU one after another, where conditions stay conditions
        self.together = devices[0].platform != "cpu"
        spread = jax.sharding.NamedSharding(self._mesh, CHAINS)
        self._functions = {
            "run": jax.jit(self._run, static_argnames="size"),
            "settle": jax.jit(self._settle),
            "pool": jax.jit(self._pool, static_argnames="ends", out_shardings=spread),
        }
        self._executables: dict[Any, Any] = {}

    def compiled(self, what: str, *args: Any, **static: Any) -> Callable:
        """ "run", "settle" or "pool" compiled for arguments like these, which it may then be called with from
        any thread.
        """
        key = (what, *static.items())
        if key not in self._executables:
            with announced(f"{WORK[what]}: {'; '.join(b.named() for b in self.blocks)}"):
                self._executables[key] = self._functions[what].lower(*args, **static).compile()
        return self._executables[key]

    def start(self, points: list[dict[str, np.ndarray]]) -> ChainState:
        """The states of all chains before the first draw, leading axis the chain, on the host."""
        states = [ChainState(self.points.packed(p), tuple(b.start() for b in self.blocks)) for p in points]
        return jax.tree.map(lambda *a: np.stack(a), *states)

    def placed(self, states: Any) -> Any:
        """Arrays (chains, ...) on the devices; of several processes each gives the whole and keeps its own
        part.
        """
        sharding = jax.sharding.NamedSharding(self._mesh, CHAINS)

        def place(a):
            a = np.asarray(a, jax.dtypes.canonicalize_dtype(a.dtype))
            return jax.make_array_from_callback(a.shape, sharding, lambda index: a[index])

        return jax.tree.map(place, states)

    @property
    def pooled(self) -> bool:
        """Whether the chains share what they have learned."""
        return any(isinstance(b, NutsBlock) and b.pooled for b in self.blocks)

    @property
    def shared_ends(self) -> set[int]:
        """Tuning draws after which they share a mass matrix."""
        return {t for b in self.blocks if isinstance(b, NutsBlock) for t in b.shared_ends}

    def bytes_per_draw(self, states: ChainState) -> int:
        """Of these chains, as recorded."""
        shapes = jax.eval_shape(jax.vmap(lambda s: self.recorder(s.point)), states)
        return sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(shapes))

    def _key(self, chain):
        """Of a chain; the n-th move of a block folds in 2 n, and what settles the chain after it 2 n + 1."""
        return jax.random.fold_in(key_of(self.seed), chain)

    def _draw(self, key, t, state: ChainState):
        point, blocks, stats = state.point, [], []
        for n, (block, own) in enumerate(zip(self.blocks, state.blocks, strict=True)):
            point, own, told = block.draw(
                jax.random.fold_in(key, 2 * (t * len(self.blocks) + n)), t, point, own
            )
            blocks.append(own)
            stats.append({name: jnp.asarray(told[name], kind) for name, kind in block.stats.items()})
        return ChainState(point, tuple(blocks)), joined(stats)

    def _run(self, numbers, states: ChainState, first, count, thin, size: int):
        """(states, draws, statistics) after `count` records, each after `thin` draws, the first of which is
        number `first`.

        Draws and statistics are {name: (chains, size, ...)}; what follows the first `count` means nothing.
        `numbers` (chains,) int are those of the chains.
        """

        start, count, thin = (jax.lax.convert_element_type(a, int) for a in (first, count, thin))

        def chain(number, state: ChainState):
            def draw(k, carried):
                state, told = carried
                # the key made anew: of a key that stays, XLA runs the generator again wherever a number is
                # read (3x on one chain of F)
                state, now = self._draw(self._key(number), k, state)
                return state, together(told, now)

            # declared, since asking JAX for the shapes would trace the whole draw again
            nothing = joined(
                [{name: jnp.zeros((), kind) for name, kind in b.stats.items()} for b in self.blocks]
            )
            kept = (jax.eval_shape(self.recorder, state.point), nothing)
            kept = jax.tree.map(lambda a: jnp.zeros((size, *a.shape), a.dtype), kept)

            def record(n, carried):
                state, kept = carried
                begin = start + n * thin
                state, told = jax.lax.fori_loop(begin, begin + thin, draw, (state, nothing))
                return state, jax.tree.map(
                    lambda all_, one: all_.at[n].set(one),
                    kept,
                    (self.recorder(state.point), averaged(told, thin)),
                )

            return jax.lax.fori_loop(0, count, record, (state, kept))

        states, (draws, stats) = self._over_chains(chain, numbers, states)
        return states, draws, stats

    def _settle(self, numbers, states: ChainState, t) -> tuple[ChainState]:
        """The chains, those that stand still nearer to the bulk."""

        def chain(number, state: ChainState):
            key, point = self._key(number), state.point
            for n, (block, own) in enumerate(zip(self.blocks, state.blocks, strict=True)):
                if isinstance(block, DiscreteBlock):
                    point = block.settled(
                        jax.random.fold_in(key, 2 * (t * len(self.blocks) + n) + 1), point, own
                    )
            return state._replace(point=point)

        return (self._over_chains(chain, numbers, states),)

    def _pool(self, states: ChainState, ends: bool) -> ChainState:
        """The chains, sharing a step size and, where a window of tuning ends, a mass matrix."""
        pairs = zip(self.blocks, states.blocks, strict=True)
        return states._replace(
            blocks=tuple(b.shared(s, ends) if isinstance(b, NutsBlock) and b.pooled else s for b, s in pairs)
        )

    def _over_chains(self, chain: Callable, numbers, states: ChainState):
        def on_one_device(numbers, states):
            return (
                jax.vmap(chain)(numbers, states)
                if self.together
                else jax.lax.map(lambda a: chain(*a), (numbers, states))
            )

        spread = jax.shard_map(
            on_one_device, mesh=self._mesh, in_specs=CHAINS, out_specs=CHAINS, check_vma=False
        )
        return spread(numbers, states)


def recorded(model: pm.Model, var_names: Sequence[str] | None) -> list[Variable]:
    """What `pm.sample` records of a model, by its value variables."""
    wanted = [v for v in model.unobserved_value_vars if var_names is None or v.name in var_names]
    return list(get_default_varnames(wanted, include_transformed=False))


# statistics of the draws between two records: these are averaged, these added up; what is bool is true if it
# ever was; else the last
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
    """The statistics of all blocks; where several share a name they are stacked, as `pm.sample` does, but the
    last `lp` is the draw's.
    """
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
        for v in space.variables:
            if v.size and v.finite:
                low, high = v.lower.min(), v.upper.max()
                fits = (
                    t
                    for t in (np.int8, np.int16, np.int32, np.int64)
                    if np.iinfo(t).min <= low and high <= np.iinfo(t).max
                )
                found[v.name] = next(fits)
    return found
