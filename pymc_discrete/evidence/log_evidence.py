"""The evidence of a PyMC model, by annealed importance sampling from its prior."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import jax
import numpy as np
import pymc as pm
from pymc.exceptions import SamplingError
from xarray import DataTree

from pymc_discrete.engine.assembly import blocks_of
from pymc_discrete.engine.nuts_options import nuts_options
from pymc_discrete.engine.precision import check_precision, precision
from pymc_discrete.engine.program import ChainState, Program, recorded
from pymc_discrete.evidence.estimate import LogZ, backward_estimate, estimated_shares, forward_estimate
from pymc_discrete.evidence.population import Population
from pymc_discrete.evidence.prior import ModelPrior
from pymc_discrete.model.blocks import model_of
from pymc_discrete.model.initial import point_of
from pymc_discrete.model.without_jax import all_in_jax
from pymc_discrete.runtime.checks import check_count, check_result, check_switch, is_word
from pymc_discrete.runtime.devices import cores, side_by_side
from pymc_discrete.runtime.fork import refuse_after_fork
from pymc_discrete.runtime.names import shown
from pymc_discrete.runtime.progress import Progress, check_bar
from pymc_discrete.runtime.seeds import new_seed, seed_of
from pymc_discrete.sampling.division import steps_of
from pymc_discrete.tempering.tempered import BETA, LIKELIHOOD, tempered

# Pilot chains go from the prior to the posterior in rungs, inverse temperatures at which they tune the
# kernels.
PILOTS = 16  # the number of pilot chains
PILOT_TUNE = 100  # the number of transitions of the pilot chains at each rung
PRIOR_DRAWS = 400  # the number of draws of the prior from which the first rung is chosen
# The next rung is the inverse temperature to which the draws of a rung can be weighted with an effective
# sample size of LEAST_ESS per draw.
LEAST_ESS = 0.5
MOST_RUNGS = 1000
TRIES = 100  # the largest number of draws of the prior for each draw that has a positive likelihood
# Chains that go back from the posterior begin at draws of the pilot chains that are PILOT_THINNING
# transitions apart.
PILOT_THINNING = 20
# The number of temperatures is FINENESS times the square of the length of the path, and at least
# FEWEST_TEMPERATURES. The variance of the log weights is 1 / FINENESS if chains mix in one transition.
FINENESS, FEWEST_TEMPERATURES = 16, 200
CROWDING = 4  # up to the first rung, the inverse temperatures grow with this power of their index


def log_evidence(
    model: pm.Model | None = None,
    *,
    chains: int = 200,
    temperatures: int | str = "auto",
    step: Callable[[], Any] | None = None,
    draws: Any = None,
    exact: bool = False,
    random_seed: Any = None,
    progressbar: bool = True,
) -> LogZ:
    r"""The log evidence of a model, log p(y), by annealed importance sampling from the prior.

    .. math:: p(y) = \sum_z \int p(z, \theta) \, p(y \mid z, \theta) \, d\theta

    Chains start at draws of the prior and go through the densities prior x likelihood^beta; discrete unknowns
    move by the steps of `pymc_discrete`, continuous ones by NUTS, in one compiled program. Pilot chains go
    first: they choose the temperatures and tune the kernels, which are then frozen. Other chains go back from
    draws of the posterior.

    Parameters
    ----------
    model : pm.Model, optional
        The default is the model of the `with` block. Its likelihood is the product of the densities of its
        observed variables and of its potentials.
    chains : int
        Chains in each direction.
    temperatures : "auto" or int
        The number of temperatures of the path. "auto" takes 16 for each square of the length of the path, and
        200 at least. The length is the standard deviation of the log likelihood, integrated over the inverse
        temperature.
    step : callable, optional
        Makes the steps, as `lambda: pmd.PathAuxiliary(["z"])`; it is called in the context of the tempered
        model. By default `AutoStep` and NUTS.
    draws : DataTree or {name: (n, ...)}, optional
        Draws of the posterior to go back from, of which as many as `chains` are taken at equal distances, or
        each is taken several times; by default draws of the pilot chains. Chains that go back from the same
        draw count as independent in the error, which is then too small.
    exact : bool
        Whether `draws` are exact: from an enumeration, or the parameters from which the data were simulated.
    random_seed : int or what `pm.sample` takes, optional
    progressbar : bool

    Returns
    -------
    LogZ
        The forward estimate is unbiased for p(y), so that its logarithm is below log p(y) in expectation. The
        logarithm of the backward estimate is above log p(y) in expectation if the draws are exact, and else
        only a check.

    Raises
    ------
    TypeError, ValueError
        For invalid options, a model without likelihood, and a prior that cannot be drawn from.
    NotImplementedError
        If the model has an Op without a JAX implementation.
    pymc.exceptions.SamplingError
        If the likelihood of nearly all prior draws is 0.

    Notes
    -----
    Draws of the prior at which the likelihood is 0 are replaced by others. The prior restricted to a positive
    likelihood has a normalising constant, estimated by the share of draws that are kept, which is a factor of
    the estimates of p(y).

    Where PyMC does not normalise a density, log p(y) is off by the missing constant: with a potential that is
    part of the prior, or a prior under an ordered transform.

    References
    ----------
    Neal 2001, Annealed importance sampling. Gelman and Meng 1998, Simulating normalizing constants, on the
    length of the path. Grosse, Ghahramani and Adams 2015, Sandwiching the marginal likelihood using
    bidirectional Monte Carlo.

    Examples
    --------
    >>> with pm.Model():
    ...     z = pm.Bernoulli("z", 0.3)
    ...     pm.Normal("y", z, 1.0, observed=0.5)
    ...     found = pmd.log_evidence()  # doctest: +SKIP
    """
    check_count("chains", chains, 2)
    check_bar(progressbar)
    if not is_word(temperatures, "auto"):
        check_count("temperatures", temperatures, 2)
    check_switch("exact", exact)
    if step is not None and not callable(step):
        raise TypeError(
            "step must be a function that makes the steps for the tempered model, such as lambda: "
            f"pmd.PathAuxiliary(), got {step!r}."
        )
    if exact and draws is None:
        raise ValueError("exact=True says that draws= are exact draws of the posterior: pass them.")
    check_precision("float64")
    model = model_of(model)
    refuse_after_fork()
    seed = seed_of(random_seed)
    seeds = Seeds(new_seed() if seed is None else seed)
    with precision("float64"), all_in_jax("pmd.log_evidence"):
        annealed = tempered(model)
        given = None if draws is None else points_of(draws, [str(rv.name) for rv in model.free_RVs])
        shown_here = bool(progressbar) and jax.process_index() == 0
        with Progress(3, chains, shown_here, work="stages") as bar:
            return Annealing(annealed, step, chains, seeds, bar).estimates(temperatures, given, exact)


class Seeds:
    """A function that returns another seed at each call."""

    def __init__(self, seed: int):
        self._rng = np.random.default_rng(seed)

    def __call__(self) -> int:
        return int(self._rng.integers(2**31))


class Starts(NamedTuple):
    """Draws of the prior at which the likelihood is not 0.

    Attributes
    ----------
    points : [{value variable: value}]
    likelihoods : (n,) float, nats
    tries : int, the number of draws that were made until there were enough
    """

    points: list[dict[str, np.ndarray]]
    likelihoods: np.ndarray
    tries: int


class Rung(NamedTuple):
    """An inverse temperature at which the pilot chains tuned their kernels.

    Attributes
    ----------
    beta : float
    length : float, the length of the path from the prior to this rung, see `next_rung`
    blocks : the states of the program's blocks in all pilot chains, arrays (pilots, ...)
    """

    beta: float
    length: float
    blocks: Any


class Annealing:
    """The chains that estimate the evidence of one model.

    Parameters
    ----------
    model : pm.Model, tempered
    step : makes the steps; None for `AutoStep` and NUTS
    chains : number of chains in each direction
    seeds : returns another seed at each call
    bar : Progress, in three parts: pilot, forward and backward
    """

    def __init__(
        self, model: pm.Model, step: Callable[[], Any] | None, chains: int, seeds: Seeds, bar: Progress
    ):
        self.model, self.chains, self.seeds, self.bar = model, chains, seeds, bar
        self.prior = ModelPrior(model, (BETA,), seeds())
        point = point_of(model)
        with model if step else nullcontext():
            steps, _ = steps_of(model, step and step(), point, fixed=(BETA,))
        nuts = nuts_options({"pooled": True})
        blocks, packing = blocks_of(model, steps, point, PILOT_TUNE, 0.8, nuts, fixed=(BETA,))
        device = jax.devices()[0]
        self.program = Program(model, blocks, packing, recorded(model, [LIKELIHOOD]), [device])
        # An accelerator computes all chains in one call. The pilot chains too are computed by a call for this
        # many chains, since another number would need another program.
        on_cpu = not side_by_side(device)
        threads = cores() if on_cpu else 1
        self.population = Population(self.program, -(-PILOTS // threads) if on_cpu else chains, threads)

    def estimates(self, temperatures: int | str, draws: Any, exact: bool) -> LogZ:
        """The forward and the backward estimate of the log evidence.

        Parameters
        ----------
        temperatures : the number of temperatures of the path, or "auto"
        draws : draws of the posterior to go back from; None for draws of the pilot chains
        exact : whether the draws are exact
        """
        with self.population:
            first = self.starts(PRIOR_DRAWS)
            for block in self.program.blocks:
                block.check_starts(first.points[:1])
            rungs, states = self.pilot(first)
            path = path_of(rungs, temperatures)
            starts = self.starts(self.chains)
            up = self.walk(self.program.start(starts.points), rungs, path, "forward", 1)
            if draws is None:
                back = self.posterior(states, self.chains)
            else:
                chosen = np.linspace(0, len(draws) - 1, self.chains).round().astype(int)
                back = self.program.start([self.prior.convert(draws[k]) for k in chosen])
            down = self.walk(back, rungs, path[::-1], "backward", 2)
            if not np.isfinite(down).all():
                raise ValueError("The likelihood of some of the draws is 0. Pass draws of the posterior.")
        share, share_back, variance = estimated_shares(self.chains, starts.tries)
        result = LogZ(
            forward_estimate(up, share, variance), backward_estimate(down, share_back, variance), exact, path
        )
        result.complain()
        return result

    def starts(self, n: int) -> Starts:
        """n draws of the prior at which the likelihood is not 0.

        Raises
        ------
        pymc.exceptions.SamplingError
            If draws with a positive likelihood are rare.
        """
        points: list[dict[str, np.ndarray]] = []
        likelihoods: list[float] = []
        for tries in range(0, TRIES * n, PRIOR_DRAWS):
            drawn = [self.prior.draw() for _ in range(PRIOR_DRAWS)]
            found = self.population.likelihoods(drawn)
            for k in np.flatnonzero(found > -np.inf):
                points.append(drawn[k])
                likelihoods.append(found[k])
                if len(points) == n:
                    return Starts(points, np.array(likelihoods), tries + int(k) + 1)
        raise SamplingError(
            f"The likelihood is 0 at all but {len(points)} of {tries + PRIOR_DRAWS} draws of the prior of "
            f"{shown(self.prior.names)}, so that no chain can start there. Write a hard constraint into the "
            "prior, such as a count as what was observed plus what was missed; or sum discrete unknowns out "
            "first, pmd.log_evidence(pmd.marginalize(model)). If no unknowns allow the data, model.debug() "
            "says which are outside of their support."
        )

    def pilot(self, first: Starts) -> tuple[list[Rung], ChainState]:
        """The rungs of the path, and the states of the pilot chains at the last one, the posterior."""
        program, likelihoods = self.program, first.likelihoods
        states = fresh = program.start(first.points[:PILOTS])
        rungs: list[Rung] = []
        beta = length = 0.0
        while beta < 1:
            beta, more = next_rung(likelihoods, beta)
            length += more
            # NUTS starts at a rung with the values that it adapted at the rung before. Blocks whose adapted
            # parameters are not pooled over chains begin anew.
            pairs = zip(program.blocks, states.blocks, fresh.blocks, strict=True)
            blocks = tuple(old if rungs and b.pooled else new for b, old, new in pairs)
            states, likelihoods = self.tuned(states._replace(blocks=blocks), beta)
            rungs.append(Rung(beta, length, states.blocks))
            self.bar.reach(max(0.0, 1 + np.log10(beta) / 6), f"finding the path, beta = {beta:.2g}")
            if len(rungs) == MOST_RUNGS:
                raise SamplingError(
                    f"After {MOST_RUNGS} rungs the path has come to beta = {beta:.2g} only, where the log "
                    f"likelihood varies by {np.std(likelihoods):.2g} nats. Standardise the data, or take "
                    "priors that are less wide."
                )
        return rungs, states

    def tuned(self, states: ChainState, beta: float) -> tuple[ChainState, np.ndarray]:
        """The pilot chains after tuning at an inverse temperature, and their log likelihoods in the second
        half of the tuning.
        """
        seed, t, seen = self.seeds(), 0, []
        for end in sorted({*self.program.shared_ends, PILOT_TUNE}):
            walked = self.population.walk(seed, states, t, np.full(end - t + 1, beta))
            states, t = walked.states, end
            seen.append(walked.likelihoods)
            if self.program.pooled:
                states = self.population.pool(states, end in self.program.shared_ends)
        return states, np.concatenate(seen, axis=1)[:, PILOT_TUNE // 2 :].reshape(-1)

    def posterior(self, states: ChainState, n: int) -> ChainState:
        """n draws of the posterior by the pilot chains, PILOT_THINNING transitions apart."""
        seed, kept = self.seeds(), []
        for k in range(-(-n // PILOTS)):
            states = self.population.walk(
                seed, states, PILOT_TUNE + k * PILOT_THINNING, np.ones(PILOT_THINNING + 1)
            ).states
            kept.append(states)
        return jax.tree.map(lambda *a: np.concatenate(a)[:n], *kept)

    def walk(
        self, states: ChainState, rungs: list[Rung], path: np.ndarray, direction: str, part: int
    ) -> np.ndarray:
        """(n,) float, nats, the log weights of chains that walk along a path.

        At each temperature the chains move with the kernels that were tuned at the next rung, of a higher or
        the same inverse temperature.
        """
        n, seed, t = len(states.point[BETA]), self.seeds(), PILOT_TUNE
        own = np.arange(n) % PILOTS  # Each chain has the tuned kernels of one pilot chain.
        # The last temperature of the path is left out, since a move at it would not change the weights.
        at = np.searchsorted([rung.beta for rung in rungs], path[1:-1])
        ends = [*(np.flatnonzero(np.diff(at)) + 1), len(at)]
        weights, j, likelihoods = np.zeros(n), 0, None
        for end in ends:
            blocks = jax.tree.map(lambda a: np.asarray(a)[own], rungs[at[j]].blocks)
            walked = self.population.walk(seed, states._replace(blocks=blocks), t + j, path[j : end + 1])
            states, j = walked.states, end
            weights += walked.log_weights
            likelihoods = walked.likelihoods[:, -1]
            self.bar.reach(part + end / len(at), direction)
        return weights + (path[-1] - path[-2]) * likelihoods


def next_rung(likelihoods: np.ndarray, beta: float) -> tuple[float, float]:
    """The next inverse temperature, and the length of the path up to it.

    Parameters
    ----------
    likelihoods : (n,) float, nats, the log likelihoods of draws at the inverse temperature `beta`

    Notes
    -----
    The length is the standard deviation of the log likelihood integrated over the inverse temperature. For a
    Gaussian log likelihood of standard deviation s, weights for beta + d have an ESS of exp(-d^2 s^2) of
    their number.
    """

    def ess(d: float) -> float:
        w = np.exp(d * (likelihoods - likelihoods.max()))
        return float(w.sum() ** 2 / (w**2).sum() / len(w))

    low, high = 0.0, 1.0 - beta
    if ess(high) >= LEAST_ESS:
        return 1.0, float(np.sqrt(-np.log(min(ess(high), 1.0))))
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if ess(middle) > LEAST_ESS else (low, middle)
    return beta + high, float(np.sqrt(-np.log(LEAST_ESS)))


def path_of(rungs: list[Rung], temperatures: int | str) -> np.ndarray:
    """(T + 1,) float, inverse temperatures from 0 to 1. Between the rungs they divide the path into pieces of
    equal length; up to the first rung, they lie closer together the nearer they are to 0.
    """
    ends, betas = (np.array([getattr(rung, name) for rung in rungs]) for name in ("length", "beta"))
    T = (
        max(FEWEST_TEMPERATURES, int(np.ceil(FINENESS * ends[-1] ** 2)))
        if temperatures == "auto"
        else int(temperatures)
    )
    if ends[-1] == 0:  # The likelihood is the same at all draws.
        return np.linspace(0.0, 1.0, T + 1)
    lengths = np.linspace(0, ends[-1], T + 1)
    # A draw from far out in the prior may have any log likelihood, however low. At the first temperatures
    # above 0 chains leave such places, so the first temperatures lie close together (Friel and Pettitt 2008).
    path = np.exp(np.interp(lengths, ends, np.log(betas))) * np.minimum(lengths / ends[0], 1.0) ** CROWDING
    path[-1] = 1.0
    return path


def points_of(draws: Any, names: list[str]) -> list[dict[str, Any]]:
    """[{free variable: value}], a dictionary for each draw that a user gives.

    Raises
    ------
    TypeError, ValueError
        If a variable is missing, or the numbers of draws differ.
    """
    if isinstance(draws, DataTree):
        check_result(draws, "pmd.log_evidence(draws=idata)")
        stacked = {
            name: a.values.reshape(-1, *a.shape[2:]) for name, a in draws["posterior"].data_vars.items()
        }
    elif isinstance(draws, dict):
        stacked = {name: np.asarray(a) for name, a in draws.items()}
    else:
        raise TypeError(f"draws must be a DataTree or a dictionary {{name: (n, ...)}}, got {draws!r}.")
    missing = [name for name in names if name not in stacked]
    if missing:
        raise ValueError(f"draws lacks {shown(missing)}. It must have every free variable of the model.")
    lengths = {name: len(stacked[name]) if stacked[name].ndim else 0 for name in names}
    n = min(lengths.values())
    if len(set(lengths.values())) > 1 or n < 1:
        raise ValueError(f"draws must have as many draws of every variable, and at least one; got {lengths}.")
    return [{name: stacked[name][k] for name in names} for k in range(n)]
