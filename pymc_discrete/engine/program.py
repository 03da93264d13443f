"""The compiled program: one transition of a whole model, repeated for many draws of many chains."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
from pymc.util import get_default_varnames
from pytensor.graph.basic import Variable

from pymc_discrete.engine.block import Block
from pymc_discrete.engine.counts import CountsOfValues
from pymc_discrete.engine.ladder import Ladder
from pymc_discrete.engine.points import Points
from pymc_discrete.engine.recorder import Recorder
from pymc_discrete.kernels.random import key_of, key_of_words
from pymc_discrete.model.identity import NotComparable, lasting_name
from pymc_discrete.runtime import programs_on_disk
from pymc_discrete.runtime.checked_files import read_checked
from pymc_discrete.runtime.compile_cache import PROGRAM, usable_folder
from pymc_discrete.runtime.compiling import announced
from pymc_discrete.runtime.devices import CHAINS, Layout, side_by_side
from pymc_discrete.runtime.jax_settings import REPEATED, SELDOM, jitted, lower, settings_now
from pymc_discrete.runtime.model_settings import model_settings
from pymc_discrete.runtime.programs_on_disk import under_name
from pymc_discrete.runtime.reuse import PROGRAMS, Kept, collection_paused

# {compiled function of a program: the words for it in messages}
WORK = {
    "run": "the chains",
    "settle": "the moves of chains that are stuck",
    "pool": "the pooling of the chains' adaptation",
}


class ChainState(NamedTuple):
    """The point of a chain, and the adaptation states of its blocks.

    Attributes
    ----------
    point : {value variable or vector: array}, see `Points`
    blocks : one state per block
    counts : {variable: counts of its values}, see `CountsOfValues`
    replicas : `Replicas` if the chain is tempered; the point and the states of the blocks are then copies of
        the point and states of the replica at the posterior
    """

    point: dict[str, Any]
    blocks: tuple[Any, ...]
    counts: dict[str, Any]
    replicas: Any = ()


class Identity(NamedTuple):
    """The numbers that distinguish the random numbers of a chain.

    Attributes
    ----------
    chain : () uint32, its index
    seed : (2,) uint32, the words of the key made from the seed of the run
    """

    chain: Any
    seed: Any

    def key(self):
        """The key of the chain.

        Numbers are folded into the key: 2 n for the n-th move of a block, counted over all blocks and
        transitions, and 2 n + 1 for moving a stuck chain by the block's method `settled`.
        """
        return jax.random.fold_in(key_of_words(self.seed), self.chain)


class Program:
    """The compiled chains of a model.

    Parameters
    ----------
    model : pm.Model
    blocks : the blocks in the order in which they move
    points : which of its discrete variables a chain keeps together in one vector
    outputs : the variables to record, such as the result of `recorded`
    devices : the devices over which the chains are spread, as in `Layout`
    counts : counts of the values of variables of very many elements, kept in place of their draws
    ladder : the replicas of each chain of a tempered model; None if the model is not tempered

    Programs with equal blocks, for models with equal keys, share their compiled functions.
    """

    def __init__(
        self,
        model: pm.Model,
        blocks: Sequence[Block],
        points: Points,
        outputs: Sequence[Variable],
        devices: Any,
        counts: CountsOfValues | None = None,
        ladder: Ladder | None = None,
    ):
        self.blocks, self.points, self.counts = tuple(blocks), points, counts or CountsOfValues()
        self.ladder = ladder
        self.statistics = {name: statistic for b in blocks for name, statistic in b.stats.items()}
        self.layout = Layout(devices)
        self.outputs = outputs
        dtypes = {name: dtype for b in self.blocks for name, dtype in b.dtypes.items()}
        self.recorder, numbers = Recorder.of(model, [str(v.name) for v in self.outputs], points, dtypes)
        # the data and constants of the model and the settings of the run, which are arguments of the program
        self.numbers = in_one(
            [
                *(b.numbers | dict(b.settings) for b in self.blocks),
                self.counts.settings,
                numbers,
                ladder.numbers if ladder else {},
            ]
        )
        self.together = side_by_side(self.layout.devices[0, 0])
        # a key that is equal for programs that compute the same
        self.key = (
            self.recorder,
            tuple(b.key for b in self.blocks),
            self.layout.key,
            self.together,
            settings_now(),
            self.counts.key,
            ladder and ladder.key,
        )
        self._compiled = _kept.get(self.key, lambda: Compiled(self, self._name()))

    def _name(self) -> str | None:
        """The result of `lasting_name`, which takes long to find, from this or an earlier process."""
        if usable_folder() is None:
            return None
        recorder, blocks, _, together, settings, counts, ladder = self.key
        shape = self.layout.devices.shape  # the devices themselves are objects of this process
        key = (recorder, blocks, shape, together, *map(str, settings), counts, ladder)
        with suppress(NotComparable):
            return _names.get(key, self._certain_name)
        return None

    def _certain_name(self) -> str:
        """The result of `lasting_name`.

        Raises
        ------
        NotComparable
            If there is no such name, as with a function of the user in a step. Nothing is then kept under the
            program's key, which holds that function.
        """
        name = self.lasting_name()
        if name is None:
            raise NotComparable("the program has no name")
        return name

    def lasting_name(self) -> str | None:
        """A name that no other program has, and that this program has in every process.

        The shapes of the arguments of its functions are no part of the name. The result is None if a part of
        the program, such as an open file, cannot be compared with a part of another process, or if the
        devices are not a CPU of this process.
        """
        if self.together or jax.process_count() > 1:
            return None
        recorder, blocks, *_, counts, ladder = self.key
        options = [[b.described(), b.options(), b.space, [*b.stats], list(b.numbers)] for b in self.blocks]
        return lasting_name(
            recorder, blocks, options, self.layout.devices.shape, self.points.vectors, counts, ladder
        )

    def begin(self, function: str, *args: Any, **static: Any) -> Future[Callable]:
        """Begin to compile "run", "settle" or "pool" for arguments of the given shapes, in a thread.

        The result of the future is the compiled function.
        """
        return self._compiled.begin(function, args, static)

    def compiled(self, function: str, *args: Any, **static: Any) -> Callable:
        """The function "run", "settle" or "pool", compiled for arguments of the given shapes.

        It may be called from any thread.
        """
        return self.begin(function, *args, **static).result()

    def begun(self, function: str) -> bool:
        """Whether a function has been compiled, for arguments of any shapes."""
        return self._compiled.begun(function)

    @collection_paused()
    def start(self, points: list[dict[str, np.ndarray]], exact: bool = True) -> ChainState:
        """The states (chains, ...) of all chains before the first draw, on the host.

        Parameters
        ----------
        exact : False if only the shapes of the states are needed, so that nothing is computed
        """
        states = []
        for p in points:
            packed, blocks = self.points.packed(p), tuple(b.start(p) for b in self.blocks)
            if exact:
                blocks = tuple(b.moved_to(p, state) for b, state in zip(self.blocks, blocks, strict=True))
            replicas = self.ladder.start(packed, blocks, len(points)) if self.ladder else ()
            states.append(ChainState(packed, blocks, self.counts.start(), replicas))
        return jax.tree.map(lambda *a: np.stack(a), *states)

    def divides_chains(self, point: dict[str, np.ndarray]) -> bool:
        """Whether an array of the model is so long that several devices share it, see `Layout`."""
        arrays = [*self.points.packed(point).values(), *self.numbers.values()]
        return any(self.layout.shared_axis(np.shape(a)) is not None for a in arrays)

    @property
    def pooled(self) -> bool:
        """Whether the chains pool adapted parameters."""
        return any(b.pooled for b in self.blocks)

    @property
    def shared_ends(self) -> set[int]:
        """The tuning draws that end an adaptation window of a block whose parameters are pooled."""
        return {t for b in self.blocks for t in b.shared_ends}

    def identities(self, seed: int, chains: np.ndarray) -> Identity:
        """The identities of chains (n,), whose random numbers are generated from a seed."""
        words = np.asarray(jax.random.key_data(key_of(seed)))
        return Identity(np.asarray(chains, np.uint32), np.broadcast_to(words, (len(chains), *words.shape)))

    def transition(self, key, t, state: ChainState, numbers) -> tuple[ChainState, dict[str, Any]]:
        """The state of one chain after transition t, a move of every block, and {statistic: value}."""
        if self.ladder:
            zeros = self.no_statistics()
            replicas, stats = self.ladder.transition(self.move, zeros, key, t, state.replicas, numbers)
            point, blocks = self.ladder.at_posterior(replicas)
            point = {**state.point, **point}
        else:
            replicas = state.replicas
            point, blocks, stats = self.move(key, t, state.point | numbers, state.blocks)
        counts = self.counts.after(t, point | numbers, state.counts)
        return ChainState({name: point[name] for name in state.point}, blocks, counts, replicas), stats

    def move(self, key, t, point: dict[str, Any], states: tuple[Any, ...]):
        """The point with `numbers`, the blocks' states and {statistic: value}, after a move of all blocks."""
        blocks, stats = [], []
        for n, (block, adapted) in enumerate(zip(self.blocks, states, strict=True)):
            key_draw = jax.random.fold_in(key, 2 * (t * len(self.blocks) + n))
            point, adapted, values = block.draw(key_draw, t, point, adapted)
            blocks.append(adapted)
            stats.append({name: jnp.asarray(values[name], s.type) for name, s in block.stats.items()})
        return point, tuple(blocks), all_statistics(stats)

    def no_statistics(self) -> dict[str, Any]:
        """{statistic: 0}, the form of the statistics of a move.

        The zeros are made from the declared types, because JAX would have to trace a move again to find the
        shapes.
        """
        return all_statistics(
            [{name: jnp.zeros((), s.type) for name, s in b.stats.items()} for b in self.blocks]
        )

    def recorded(self, point: dict[str, Any]) -> dict[str, Any]:
        """{name: array}, the recorded variables at a point with `numbers`."""
        return self.recorder(point) | self.counts.totals(point)

    def on_host(self, draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """{variable, or number of elements that have each of its values: (chains, draws, ...)}, from the
        recorded arrays.
        """
        totals = {v.totals: draws[v.totals] for v in self.counts.variables}
        rest = {name: a for name, a in draws.items() if name not in totals}
        return self.recorder.on_host(rest) | totals

    def run(self, identities: Identity, states: ChainState, numbers, first, count, thin, size: int):
        """Draw and record `count` times.

        Parameters
        ----------
        identities : (chains,)
        states : (chains, ...)
        numbers : {name: array}, data and constants of the model, and settings of the run
        first : () int, index of the first transition
        count : () int, number of records, at most `size`
        thin : () int, transitions per record
        size : int, length of the arrays of records, fixed when the program is compiled

        Returns
        -------
        states : (chains, ...), after the last transition
        draws, statistics : {name: (chains, size, ...)}, of which only the first `count` records are set
        """

        start, count, thin = (jax.lax.convert_element_type(a, int) for a in (first, count, thin))

        def chain(identity: Identity, state: ChainState, numbers):
            def draw(k, carried):
                state, stats = carried
                # The key is computed in every transition: if it is a constant of the loop, XLA runs the
                # generator again wherever a random number is read, which was measured to take 3 times as
                # long.
                state, now = self.transition(identity.key(), k, state, numbers)
                reductions = {name: self.statistics[name].reduction for name in now}
                return state, {name: reductions[name].add(stats[name], a) for name, a in now.items()}

            zeros = self.no_statistics()
            kept = (jax.eval_shape(self.recorded, state.point | numbers), zeros)
            kept = jax.tree.map(lambda a: jnp.zeros((size, *a.shape), a.dtype), kept)

            def record(n, carried):
                state, kept = carried
                begin = start + n * thin
                state, stats = jax.lax.fori_loop(begin, begin + thin, draw, (state, zeros))
                stats = {name: self.statistics[name].reduction.finish(a, thin) for name, a in stats.items()}
                put = lambda kept, one: jax.lax.dynamic_update_index_in_dim(kept, one, n, 0)
                return state, jax.tree.map(put, kept, (self.recorded(state.point | numbers), stats))

            return jax.lax.fori_loop(0, count, record, (state, kept))

        states, (draws, stats) = self._over_chains(chain, identities, states, numbers)
        return self.layout.as_before(states), draws, stats

    def settle(self, identities: Identity, states: ChainState, numbers, t) -> tuple[ChainState]:
        """The states (chains, ...), in which chains that do not move are at points of higher probability."""

        def chain(identity: Identity, state: ChainState, numbers):
            key, point = identity.key(), state.point | numbers
            for n, (block, adapted) in enumerate(zip(self.blocks, state.blocks, strict=True)):
                key_block = jax.random.fold_in(key, 2 * (t * len(self.blocks) + n) + 1)
                point = block.settled(key_block, point, adapted)
            return state._replace(point={name: point[name] for name in state.point})

        return (self.layout.as_before(self._over_chains(chain, identities, states, numbers)),)

    def pool(self, states: ChainState, ends: bool) -> ChainState:
        """The states (chains, ...) with pooled parameters.

        The argument `ends` says whether an adaptation window ends at the last draw.
        """
        pairs = zip(self.blocks, states.blocks, strict=True)
        return self.layout.as_before(
            states._replace(blocks=tuple(b.shared(state, ends) for b, state in pairs))
        )

    def _over_chains(self, chain: Callable, identities: Identity, states: ChainState, numbers):
        shared = self.layout.shared

        def of_chain(identity, state: ChainState, numbers):
            return chain(identity, state._replace(point=shared(state.point)), numbers)

        def on_one_group(identities, states, numbers):
            numbers = shared(numbers)
            return (
                jax.vmap(of_chain, (0, 0, None))(identities, states, numbers)
                if self.together
                else jax.lax.map(lambda a: of_chain(*a, numbers), (identities, states))
            )

        spec = jax.sharding.PartitionSpec
        specs = {"in_specs": (spec(CHAINS), spec(CHAINS), spec()), "out_specs": spec(CHAINS)}
        spread = jax.shard_map(
            on_one_group, mesh=self.layout.mesh, axis_names=self.layout.axes, check_vma=False, **specs
        )
        return spread(identities, states, numbers)


class Compiled:
    """The compiled functions of a program, each compiled once for each shape of its arguments.

    Parameters
    ----------
    program : the program, or an equal one
    name : the result of `Program.lasting_name`; None if nothing is kept on disk
    """

    def __init__(self, program: Program, name: str | None):
        self._name, self._layout = name, program.layout
        self._blocks = "; ".join(b.named() for b in program.blocks)
        self._functions = {
            "run": jitted(under_name(program.run, name), static_argnames="size"),
            "settle": jitted(under_name(program.settle, name), SELDOM),
            "pool": jitted(under_name(program.pool, name), SELDOM, static_argnames="ends"),
        }
        self._executables: dict[Any, Future[Callable]] = {}
        self._lock = threading.Lock()

    def begun(self, function: str) -> bool:
        """Whether a function has been compiled, for arguments of any shapes."""
        return any(key[0] == function for key in [*self._executables])

    def begin(self, function: str, args: tuple[Any, ...], static: dict[str, Any]) -> Future[Callable]:
        """Begin to compile a function for arguments of the given shapes, unless this was begun before.

        The function is traced now, in Python, and compiled in a thread, since XLA compiles without blocking
        Python. A function whose program is on disk is not traced.
        """
        leaves, tree = jax.tree.flatten(args)
        key = (function, *static.items(), tree, *((np.shape(a), a.dtype) for a in leaves))
        with self._lock:
            if key in self._executables:
                return self._executables[key]
            what = f"{WORK[function]}: {self._blocks}"
            of_key = f"{function} {static} {tree} {key[-len(leaves) :]}"
            name = self._name and programs_on_disk.name_of(self._name, of_key)
            on_disk = name and read_checked(name, PROGRAM)

            def traced() -> Any:
                with announced(what) as logged, collection_paused():
                    level = REPEATED if function == "run" else SELDOM
                    return *lower(self._functions[function], level, args, static, self._layout), logged

            now = None if on_disk else traced()
            future: Future[Callable] = Future()
            self._executables[key] = future

        def compile_it():
            try:
                with model_settings():
                    program = on_disk and programs_on_disk.load(name, on_disk, [*self._layout.devices.flat])
                    found = bool(program)
                    if not found:
                        to_compile, arrays, logged = now or traced()
                        with announced(what, logged):
                            program, anew = programs_on_disk.compiled(to_compile)
                        program = partial(program, arrays) if arrays else program
                    future.set_result(program)
                    if name and not found and not arrays:
                        programs_on_disk.write(name, to_compile, program, anew)
            except BaseException as error:
                del self._executables[key]
                future.set_exception(error)

        threading.Thread(target=copy_context().run, args=(compile_it,), name="compile").start()
        return future


_kept: Kept[Compiled] = Kept(PROGRAMS)
_names: Kept[str] = Kept(PROGRAMS, "names of programs")


def in_one(numbers: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The numbers of several blocks in one dictionary.

    Raises
    ------
    RuntimeError
        If two numbers have the same name and differ, since a block would compute with the number of another
        block.
    """
    joined: dict[str, np.ndarray] = {}
    for of_block in numbers:
        for name, value in of_block.items():
            if name in joined and not np.array_equal(joined[name], value, equal_nan=True):
                raise RuntimeError(f"Two parts of the model have different data named {name!r}: a bug.")
            joined[name] = value
    return joined


def recorded(model: pm.Model, var_names: Sequence[str] | None) -> list[Variable]:
    """The variables that `pm.sample` records, as functions of the value variables of the model."""
    wanted = [v for v in model.unobserved_value_vars if var_names is None or v.name in var_names]
    return list(get_default_varnames(wanted, include_transformed=False))


def all_statistics(stats: list[dict[str, Any]]) -> dict[str, Any]:
    """The statistics of all blocks in one dictionary.

    Values of several blocks with the same name are stacked, as in `pm.sample`, except for `lp`: the value of
    the last block is the log density of the draw.
    """
    names = dict.fromkeys(name for of_block in stats for name in of_block)
    values = {name: [of_block[name] for of_block in stats if name in of_block] for name in names}
    return {name: v[-1] if name == "lp" or len(v) == 1 else jnp.stack(v) for name, v in values.items()}
