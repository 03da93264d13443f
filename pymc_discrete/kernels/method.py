"""What a method for discrete sites is: its options, what it asks of a model, and the kernel that it makes.

A method is a class in a file of its own. From it `steps/methods.py` makes the step of the same name, for
`pm.sample` and `pmd.sample`, and `kernel_function` makes a function that needs only JAX.
"""

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from pymc_discrete.kernels.kernel import Kernel
from pymc_discrete.runtime.docstrings import sections, written


@dataclass(frozen=True)
class Method(ABC):
    """A method for discrete sites, with its options.

    A subclass is a frozen dataclass of the name of the public step. Its fields are the options, of which
    `__post_init__` refuses wrong ones and the docstring says what they are, under "Parameters".

    Attributes
    ----------
    reported : {name of a sampler statistic: name of the kernel's parameter that it shows}
    constrained : whether the method moves vectors whose elements cannot change alone
    equations : whether the method moves variables that linear equations tie, along vectors that keep the
        equations
    one_by_one : whether the method draws each site from its conditional, given all other sites
    with_numbers : whether data and constants of the model may be inputs of the density
    """

    reported: ClassVar[dict[str, str]] = {}
    constrained: ClassVar[bool] = False
    equations: ClassVar[bool] = False
    one_by_one: ClassVar[bool] = False
    with_numbers: ClassVar[bool] = True

    @abstractmethod
    def kernel(self) -> tuple[Kernel, dict[str, Any]]:
        """The kernel, and the parameters of the kernel before tuning."""

    def options(self) -> dict[str, Any]:
        """{name: value} of the options that decide how the method moves."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def check(self, target: Any) -> None:  # noqa: B027 an empty method that a subclass need not override
        """Refuse a target that the method cannot sample; log which variables of the target have one possible
        value.

        Raises
        ------
        ValueError
            With the variable, the reason and the remedy.
        """

    def options_of_step(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options of the step (`differences`, `transitions`, ...) with the values that the method needs.

        Raises
        ------
        ValueError
            For an option that does not go with the method.
        """
        return options

    @property
    def bias(self) -> str | None:
        """A warning that says why the draws are biased and names the remedy; None where the draws are
        unbiased.
        """
        return None

    # ------------------------------------------------------------ the cost of a draw
    @property
    def moves_one_site(self) -> bool:
        """Whether a transition changes one site only."""
        return False

    def expected_moves(self, space: Any, params: dict[str, Any]) -> float:
        """Mean number of moves in a proposal, as expected before the first draw."""
        return 1.0

    def operations(self, target: Any) -> float:
        """Number of operations of a transition, as counted from the graph of the log density."""
        return target.density.cost(self.moves_one_site)

    def computations(self, target: Any) -> int:
        """Number of computations in a transition that run one after another."""
        return 1

    def joint_moves(self, target: Any) -> dict[str, int]:
        """{variable: how many moves of several of its sites a transition makes}, for variables with more than
        one such move.
        """
        return {}

    # ------------------------------------------------------------ parameters chosen when tuning ends
    def chosen(self, target: Any) -> Callable[[Any, Any], dict[str, Any]] | None:
        """The function that chooses parameters of the kernel when tuning ends; None where nothing is chosen.

        The function takes the means over the second half of tuning of `Info.measured`, what the method's own
        tuning looks at, and the array module, NumPy or jax.numpy. It returns
        {name of a parameter: its value}.
        """
        return None

    def remark(self, target: Any, measured: Any, variables: str) -> str | None:
        """A line for the log about the parameters chosen at the end of tuning; None where there is nothing to
        say.

        Parameters
        ----------
        measured : means over the second half of tuning of `Info.measured`, what the method's own tuning looks
            at
        variables : the names of the variables, as messages have them
        """
        return None

    # ------------------------------------------------------------ properties of the draws
    def joint(self, target: Any) -> bool:
        """Whether all sites are drawn from their joint conditional, given the variables outside the block."""
        return False

    def complaint(self, accept: float, variables: str) -> str | None:
        """A warning about the acceptance in the second half of tuning, in place of the warnings common to all
        steps.

        Returns
        -------
        the warning; "" where there is nothing to warn of; None for the warnings common to all steps

        Parameters
        ----------
        variables : the names of the variables, as messages have them
        """
        return None


def kernel_function(method: type[Method]) -> Callable[..., tuple[Kernel, dict[str, Any]]]:
    """A function of a method's options that returns the kernel, and the kernel's parameters before tuning."""

    def function(*args: Any, **options: Any) -> tuple[Kernel, dict[str, Any]]:
        return method(*args, **options).kernel()

    parts = sections(method)
    parts["Returns"] = (
        "kernel : Kernel\nparams : dict\n    Its parameters before tuning; tuned ones are learned from draws."
    )
    function.__name__ = function.__qualname__ = snake_case(method.__name__)
    function.__module__, function.__doc__ = method.__module__, written(parts)
    signature = inspect.signature(method)
    function.__dict__["__signature__"] = signature.replace(return_annotation=tuple[Kernel, dict[str, Any]])
    return function


def snake_case(name: str) -> str:
    """The name of a class in snake case, as modules and functions are named."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
