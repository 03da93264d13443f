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
        self.statistics = {name: statistic for b in blocks for name, statistic in b.stats.items()}
        self._mesh = jax.sharding.Mesh(np.asarray(devices), ("chains",))
        self.outputs = recorded(model, var_names)
        dtypes = {name: dtype for b in self.blocks for name, dtype in b.dtypes.items()}
        self.recorder = Recorder(model, self.outputs, points, dtypes)
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
        return any(b.pooled for b in self.blocks)

    @property
    def shared_ends(self) -> set[int]:
        """Tuning draws after which they share what a window of tuning has taught."""
        return {t for b in self.blocks for t in b.shared_ends}

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
            key_draw = jax.random.fold_in(key, 2 * (t * len(self.blocks) + n))
            point, own, values = block.draw(key_draw, t, point, own)
            blocks.append(own)
            stats.append({name: jnp.asarray(values[name], s.type) for name, s in block.stats.items()})
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
                state, stats = carried
                # the key made anew: of a key that stays, XLA runs the generator again wherever a number is
                # read (3x on one chain of F)
                state, now = self._draw(self._key(number), k, state)
                over = {name: self.statistics[name].over for name in now}
                return state, {name: over[name].add(stats[name], a) for name, a in now.items()}

            # declared, since asking JAX for the shapes would trace the whole draw again
            none = [{name: jnp.zeros((), s.type) for name, s in b.stats.items()} for b in self.blocks]
            nothing = joined(none)
            kept = (jax.eval_shape(self.recorder, state.point), nothing)
            kept = jax.tree.map(lambda a: jnp.zeros((size, *a.shape), a.dtype), kept)

            def record(n, carried):
                state, kept = carried
                begin = start + n * thin
                state, stats = jax.lax.fori_loop(begin, begin + thin, draw, (state, nothing))
                stats = {name: self.statistics[name].over.end(a, thin) for name, a in stats.items()}
                put = lambda kept, one: kept.at[n].set(one)
                return state, jax.tree.map(put, kept, (self.recorder(state.point), stats))

            return jax.lax.fori_loop(0, count, record, (state, kept))

        states, (draws, stats) = self._over_chains(chain, numbers, states)
        return states, draws, stats

    def _settle(self, numbers, states: ChainState, t) -> tuple[ChainState]:
        """The chains, those that stand still nearer to the bulk."""

        def chain(number, state: ChainState):
            key, point = self._key(number), state.point
            for n, (block, own) in enumerate(zip(self.blocks, state.blocks, strict=True)):
                key_block = jax.random.fold_in(key, 2 * (t * len(self.blocks) + n) + 1)
                point = block.settled(key_block, point, own)
            return state._replace(point=point)

        return (self._over_chains(chain, numbers, states),)

    def _pool(self, states: ChainState, ends: bool) -> ChainState:
        """The chains, sharing what their blocks share; `ends`: where a window of tuning ends."""
        pairs = zip(self.blocks, states.blocks, strict=True)
        return states._replace(blocks=tuple(b.shared(own, ends) for b, own in pairs))

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


def joined(stats: list[dict[str, Any]]) -> dict[str, Any]:
    """The statistics of all blocks; where several share a name they are stacked, as `pm.sample` does, but the
    last `lp` is the draw's.
    """
    names = dict.fromkeys(name for own in stats for name in own)
    values = {name: [own[name] for own in stats if name in own] for name in names}
    return {name: v[-1] if name == "lp" or len(v) == 1 else jnp.stack(v) for name, v in values.items()}
