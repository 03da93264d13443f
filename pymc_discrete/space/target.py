"""The target of a sampler: a log density over a discrete space, with its local differences."""

from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from pymc_discrete.runtime.jax_settings import is_traced
from pymc_discrete.space.density import Density, GivenInputs
from pymc_discrete.space.interactions import Interactions
from pymc_discrete.space.space import Space


@jax.tree_util.register_pytree_node_class
class Target:
    """A log density of integer vectors, given a context; a pytree whose leaves are the context.

    Attributes
    ----------
    space : Space
        The sites, their supports and their neighbours.
    context : pytree of arrays
        All that the density needs besides x (other variables, data, weights), prepared once.
    """

    def __init__(self, density: Density, context: Any = None):
        self.density, self.context = density, context
        self._point: dict[str, Any] | None = None
        # The inputs from which `ready` prepares the context. None stands for the default inputs of the
        # density, and for a context that was given to the constructor.
        self._inputs: Any = None

    def tree_flatten(self) -> tuple[tuple[Any], Density]:
        return (self.context if self._inputs is None else self.ready(),), self.density

    @classmethod
    def tree_unflatten(cls, density: Density, children: tuple[Any]) -> "Target":
        return cls(density, children[0])

    @property
    def space(self) -> Space:
        return self.density.space

    @property
    def _given(self) -> GivenInputs:
        """The density, as a `GivenInputs`: a density whose context is computed from inputs."""
        return cast(GivenInputs, self.density)

    def ready(self) -> Any:
        """The context; if it is missing, it is first prepared from the inputs that `given` was called with,
        or else from the density's default inputs.
        """
        if self.context is None:
            self.context = self._prepared(self._inputs_of_context())
        return self.context

    def _prepared(self, inputs: Any) -> Any:
        """The context that is prepared from inputs, none of which is a tracer of JAX."""
        # This method may be called while JAX traces a program. The context may outlive that program, so it is
        # computed outside of the trace (`eval_context`): otherwise it would hold the program's tracers.
        with self.density.running(traced=False), jax.core.eval_context():
            return self.density.compiled("prepare")(inputs)

    def _inputs_of_context(self) -> Any:
        return self._given.default_inputs() if self._inputs is None else self._inputs

    def _on_host(self, x: ArrayLike, with_differences: bool = False) -> tuple[Any, Any, Any]:
        """At x the sum of the terms that depend on x, the differences, and the sum of the other terms.

        No prepared context is needed.
        """
        with self.density.running(traced=False):
            function = self.density.compiled("evaluated")
            # x is a NumPy array, since JAX makes a small program for each operation on its own arrays
            x = np.asarray(x)
            logdensity, differences, rest = function(self._inputs_of_context(), x, with_differences)
        return self._within_supports(x, logdensity), differences, rest

    def _within_supports(self, x: Array | np.ndarray, logdensity: Array) -> Array:
        """The log density at x, and -inf beyond the supports, where the density's own value may be wrong."""
        if is_traced((x, logdensity)):
            return jnp.where(self.space.in_supports(x), logdensity, -jnp.inf)
        if self.space.in_supports(np.asarray(x)):
            return logdensity
        with self.density.running(traced=False), jax.core.eval_context():
            return jnp.full_like(logdensity, -jnp.inf)

    def _run(self, name: str, *arguments: Any) -> Any:
        """Call the density's method `name`: compiled, or as it is while JAX traces a program."""
        traced = is_traced(arguments)
        with self.density.running(traced):
            if traced:
                return getattr(self.density, name)(*arguments)
            # JAX refuses a function with compiler options inside a program that it traces. A result that does
            # not depend on that program is therefore computed outside of it.
            with jax.core.eval_context():
                return self.density.compiled(name)(*arguments)

    def _run_at(self, name: str, x: ArrayLike) -> Any:
        """Call the density's method `name` at x, given the values of all other variables (the context)."""
        context = self.ready()
        with self.density.running(is_traced((x, context))):
            return self._run(name, jnp.asarray(x), context)

    def with_inputs(self, inputs: Any) -> "Target":
        """A target of the same density with a context of other inputs; may be called in a traced program."""
        # Where no input is a tracer, the context is prepared outside of any traced program. So is the context
        # of a density without other variables, which has no inputs.
        prepared = self._run("prepare", inputs) if is_traced(inputs) else self._prepared(inputs)
        return Target(self.density, prepared)

    def centred(self, x: ArrayLike) -> "Target":
        """A target whose log density is that of this target, less its log density at x.

        The difference is found as the sum of the changes of the log density's summands: in float32 this keeps
        small differences of large log densities. May be called inside a traced program.
        """
        # Outside of a traced program `Density.centred` runs without being compiled. It computes the summands
        # of the log density at x, which `logdensity` of the result subtracts from the summands at its own
        # argument. If XLA fused the two computations differently, their rounding would differ, and summands
        # that do not change would not cancel exactly.
        context = self.ready()
        with self.density.running(is_traced((x, context))):
            return Target(self.density, self.density.centred(jnp.asarray(x), context))

    def at(self, point: dict[str, Any]) -> tuple[np.ndarray, "Target"]:
        """The sites x at a point of the model, and the target given all other values of the point.

        Parameters
        ----------
        point : {value variable name: array}, as `model.initial_point()`

        Returns
        -------
        x : (d,) int, the block's sites
        target : Target, in the context of the point's other values
        """
        x, inputs, full = self._given.split(point)
        target = self.with_inputs(inputs) if is_traced(inputs) else self.given(inputs)
        target._point = full
        return x, target

    def given(self, inputs: Any) -> "Target":
        """This target in the context of other inputs, none of which is traced; the context is prepared when
        needed.
        """
        target = Target(self.density)
        target._inputs = inputs
        return target

    def point(self, x: ArrayLike) -> dict[str, np.ndarray]:
        """The full point {value variable name: array}, with x in the block and the other values that `at` was
        given.
        """
        return self._given.join(np.asarray(x), self._point)

    def logdensity(self, x: ArrayLike) -> Array:
        """() float, nats: log density at x, without the terms that do not depend on the block.

        The log density is -inf where a site is beyond its support.
        """
        if self.context is None and not is_traced(x):
            return self._on_host(x)[0]
        return self._within_supports(x, self._run_at("logdensity", x))

    def total(self, x: ArrayLike) -> float:
        """The log density at x in nats, with the terms that do not depend on the block; on the host."""
        logdensity, _, rest = self._on_host(x)
        return float(logdensity) + float(rest)

    def differences(self, x: ArrayLike) -> Array:
        """(d, K) float, nats: log density with site i at its k-th neighbour, less that at x.

        The differences are 0 at the current value and -inf outside the support.
        """
        if self.context is None and not is_traced(x):
            return self._on_host(x, with_differences=True)[1]
        return self._run_at("differences", x)

    def logdensity_and_differences(self, x: ArrayLike) -> tuple[Array, Array]:
        """`logdensity(x)` and `differences(x)`, in one pass where a gradient gives both."""
        if self.context is None and not is_traced(x):
            return self._on_host(x, with_differences=True)[:2]
        logdensity, differences = self._run_at("logdensity_and_differences", x)
        return self._within_supports(x, logdensity), differences

    def differences_alone(self, x: ArrayLike) -> Array:
        """(d, K) float, nats: `differences` without the constraints, as if every site could change alone."""
        return self._run_at("differences_alone", x)

    @property
    def local(self) -> bool:
        """Whether a change of one site leaves most differences unchanged, see `update`."""
        return self.density.local

    @property
    def exact(self) -> bool:
        """Whether every difference is exact, and none is a first-order estimate."""
        return self.density.exact

    def update(self, x: Array, differences: Array, sites: Array) -> Array:
        """`differences(x)` after x has changed at some sites; only differences that may change are computed.

        Parameters
        ----------
        x : (d,) int
            The new state.
        differences : (d, K) float
            The differences before the change.
        sites : (L,) int
            The sites that have changed; the number d stands for no site.
        """
        return self.density.update(x, differences, sites, self.ready())

    def touched(self, sites: Array) -> Array:
        """(L, m) int, the sites whose differences `update` computes for each of `sites`, padded with d."""
        return self.density.touched(sites)

    @property
    def interactions(self) -> Interactions:
        """Which sites may be drawn together: by colours, by forests, or one after another."""
        return self.density.interactions

    def joint(self) -> Array:
        """(E, K, K) nats, for each pair in `interactions.pairs` the table of its terms of the log density.

        The rows of a table are for the values of the first site of the pair, the columns for those of the
        second site; elements for values that a site does not have are -inf. Edges of forests (`Forest.edge`)
        are indices of these tables.
        """
        return self._run("joint", self.ready())

    def unaries(self, n: int, x: Array, inside: ArrayLike) -> Array:
        """(size, K) log conditional probabilities of the sites of finite variable n, up to a constant per
        site.

        Tables of pairs of which both sites are `inside` (d,) bool are left out.
        """
        return self.density.unaries(n, x, inside, self.ready())

    def rows(self, n: int, rows: ArrayLike) -> Callable[..., Any]:
        """The differences of some sites as a function of x, which evaluates only the terms of these sites.

        Parameters
        ----------
        n : int
            The number of the variable.
        rows : (r,) int
            Its sites, counted within the variable.

        Returns
        -------
        callable
            (x, candidates=None) -> (r, K) nats. Sites are evaluated at the `candidates` (r, K), if given,
            instead of the neighbours. What does not depend on x is computed when `rows` is called
            and not in each call of the result.
        """
        return self.density.rows(n, rows, self.ready())

    def logits(self, n: int, rows: ArrayLike) -> Callable[..., Any]:
        """The log conditional probabilities of some sites of a finite variable as a function of x.

        The function takes less time than the one that `rows` returns.

        Parameters
        ----------
        n : int
            The number of the variable.
        rows : (r,) int
            Its sites, counted within the variable.

        Returns
        -------
        callable
            (x) -> (r, K), up to a constant for each site, or (r, 1), the log odds of the upper value, where
            every site has two values.
        """
        return self.density.logits(n, rows, self.ready())

    def carried(self, x: Array) -> Any:
        """Tensors in which many sites mix, at x; where sites are drawn one by one, each draw updates them."""
        return self.density.carried(x, self.ready())

    def row(self, n: int, site: Array, x: Array, carried: Any, candidates: Array | None = None) -> Array:
        """(1, K) float, nats: the differences of the site with index `site` () in variable n.

        The site is evaluated at the `candidates` (1, K), if given, instead of the neighbours.
        """
        return self.density.row(n, site, x, carried, self.ready(), candidates)

    def all_rows(self, n: int, x: Array, carried: Any) -> Array:
        """(size, K) float, nats: the differences of all sites of variable n, each when it changes alone."""
        return self.density.all_rows(n, x, carried, self.ready())

    def carried_after(self, n: int, site: Array, value: Array, x: Array, carried: Any) -> Any:
        """What `carried` returns, updated after a site has changed.

        The site with index `site` () in variable n has changed from its value in x to `value` ().
        """
        return self.density.carried_after(n, site, value, x, carried, self.ready())

    def joint_differences(self, n: int, sites: Array, values: Array, x: Array, carried: Any = None) -> Array:
        """(r, C) nats: log density with all sites of each row at a candidate, less that at x.

        The differences are 0 at the current values, and -inf where values are outside the support or break
        the constraint of the variable.

        Parameters
        ----------
        n : int
            The number of a variable whose sites change together.
        sites : (r, m) int
            Sites of one set in each row, counted within the variable; a row may repeat a site, as padding.
        values : (r, C, m) int
            The candidates.
        x : (d,) int
        carried : as `carried(x)` returns it, optional
            Without this argument, terms in which every site interacts with every other are left out.
        """
        return self.density.joint_differences(n, sites, values, x, self.ready(), carried)

    def differences_jointly(self, x: ArrayLike, moves: dict[int, tuple[Any, Any]]) -> dict[int, Any]:
        """{variable number: (r, C) nats}, the change of the log density when several sites move together.

        The changes are computed for the host, with all terms of the log density.

        Parameters
        ----------
        moves : {variable number: (sites (r, m), values (r, C, m))}, in each row the sites that move, and C
            choices of the values that they move to
        """
        with self.density.running(traced=False):
            function = self.density.compiled("evaluated_jointly")
            return function(self._inputs_of_context(), np.asarray(x), moves)

    def describe(self) -> dict[str, dict[str, Any]]:
        """{variable: {"way", "exact", "K", "reason"}}, how the differences are computed."""
        return self.density.describe()
