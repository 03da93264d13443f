"""`FactorGraph`, with conversions to and from PyMC models."""

from typing import Any

import jax

from pymc_discrete.factor_graphs.as_model import potential, to_target
from pymc_discrete.factor_graphs.from_model import from_model
from pymc_discrete.factor_graphs.graph import SumOfFactors
from pymc_discrete.space.target import Target


@jax.tree_util.register_pytree_node_class
class FactorGraph(SumOfFactors):
    r"""A log density over discrete sites as a sum of unary terms and of factors.

    .. math:: \log p(x) = \sum_i \theta_i[x_i] + \sum_f \log\phi_f(x_f) - \log Z

    It is a pytree whose leaves are the log potentials.

    Parameters
    ----------
    space : Space
        The sites, of finite supports: `pmd.Space.build({"x": (0, 1)}, shapes={"x": (25, 25)})`.
        `space.numbers("x")` are the site numbers of x.
    factors : sequence of factors
        `Pairwise`, `Table`, `Quadratic`, `Bipartite`, `LogicalOr`, `LogicalAnd`, `Cardinality`, of
        `pmd.factor_graphs`.
    unary : {name: (\*shape, K)}, nats
        Log potentials of single sites, by value; 0 where left out, -inf where impossible.

    Raises
    ------
    ValueError
        For wrong shapes, nan, unknown sites or variables, unbounded supports.
    """

    @classmethod
    def from_model(
        cls,
        model: Any = None,
        vars: Any = None,
        *,
        support: dict[str, tuple[Any, Any]] | None = None,
        point: dict[str, Any] | None = None,
    ) -> "FactorGraph":
        """The factor graph of discrete variables of a PyMC model, given its other variables.

        Parameters
        ----------
        model : pm.Model, optional
            The default is the model of the `with` block.
        vars : RV, name or value variable, or a list of them
            By default every discrete free variable that is no constrained vector.
        support : {name: (lower, upper)}, optional
            Inclusive bounds of variables whose distribution does not determine them.
        point : {value variable name: array}, optional
            Values of the other variables; by default `model.initial_point()`.

        Raises
        ------
        ValueError
            If the log density is no sum of tables over few sites and of quadratic forms; the error names the
            term.
        """
        graph = from_model(model, vars, support, point)
        return cls._of(graph.wiring, graph.unary, graph.parameters)

    def to_target(self, differences: str = "auto") -> Target:
        """The target of this graph, for all kernels of `pmd.kernels`.

        The log potentials are its context, and may be traced.

        Parameters
        ----------
        differences : {"auto", "exact", "gradient"}
            How differences are found, as in `pmd.target_from_model`. For a graph of quadratic forms and pairs
            of two-valued sites only, "gradient" is exact, and many times faster.

        Returns
        -------
        Target
        """
        return to_target(self, differences)

    def potential(self, values: dict[str, Any]) -> Any:
        """The log density as a PyTensor expression.

        Inside a model: `pm.Potential("graph", graph.potential({"x": x}))`.

        Parameters
        ----------
        values : {name: tensor of the variable's shape}, for every variable of the graph

        Returns
        -------
        scalar tensor, nats, up to the constant log Z
        """
        return potential(self, values)
