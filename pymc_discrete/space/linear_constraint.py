"""Sites of which integer linear combinations are known, A x = y: they change along vectors v with A v = 0."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.sparse import coo_matrix, csr_matrix, hstack, identity
from scipy.sparse.csgraph import connected_components

from pymc_discrete.runtime.names import shown
from pymc_discrete.space.constraints import Constraint, ListedMoves
from pymc_discrete.space.lattice import basis_of, short_vectors

UNLIMITED = 2**31 - 1  # a bound of at least this size means that there is no bound
LONGEST_SEARCH = 60.0  # seconds that the solver may look for integers that meet all equations
# the largest number of passes over the equations; each pass tightens bounds by the bounds found before
TIGHTENINGS = 50
# A random x with A x = y is found as the one that minimises a linear objective, whose random coefficients are
# at most STEEPEST in size. Each element of x stays within REACH of its value in a known solution, or within
# three times the size of that value.
REACH, STEEPEST = 8, 9
LISTED_EQUATIONS = 4  # the largest number of equations that a message lists
# largest |t| of moves x + t v: FARTHEST_RANDOM_MOVE along random directions v, FARTHEST_MOVE where all moves
# are listed
FARTHEST_RANDOM_MOVE, FARTHEST_MOVE = 64, 8


class Lines(NamedTuple):
    """Directions v of lines x + t v, along which the sites of a set change together.

    Attributes
    ----------
    sites : (R, M, m) int
        The m sites of each of the M directions of each of R sets, counted within the variable. Padding
        repeats the first site.
    steps : (R, M, m) int
        The element of v for each site.
    number : (R,) int
        The number of directions of each set; further directions are padding.
    """

    sites: np.ndarray
    steps: np.ndarray
    number: np.ndarray

    def of(self, sets: np.ndarray) -> "Lines":
        """The directions of some sets."""
        return Lines(self.sites[sets], self.steps[sets], self.number[sets])

    def set_of(self, n: int) -> np.ndarray:
        """(n,) int, for each of the variable's n sites the set whose directions move it, -1 for none."""
        sets = np.full(n, -1)
        for r, (sites, number) in enumerate(zip(self.sites, self.number, strict=True)):
            sets[sites[:number]] = r
        return sets

    @property
    def turns(self) -> int:
        """How many draws a sweep makes of the set that it draws most often.

        A set is drawn once for each of its sites, but at most once along each of its directions.
        """
        sites = np.bincount((of_each := self.set_of(self.sites.max(initial=-1) + 1))[of_each >= 0])
        return int(np.minimum(self.number[: len(sites)], sites).max(initial=0))


@dataclass(frozen=True, eq=False)
class LinearConstraint(Constraint):
    """Integer values x (n,) of the sites of one variable that are known to have A x = y.

    A change of one site alone breaks an equation. Sites change together to x + t v, where t is an integer
    and v an integer vector with A v = 0; all such vectors are a lattice. Sites that an equation joins,
    directly or by way of others, are a set, which changes independently of the other sets.

    Attributes
    ----------
    matrix : (m, n) int
        A.
    totals : (m,) int
        y.
    labels : tuple of m str
        The name of each equation, for messages.
    lower, upper : (n,) int
        Bounds of the sites, as tight as single equations make them; -/+ UNLIMITED where there is none.
    somewhere : (n,) int
        Values between the bounds that have A x = y.
    """

    matrix: np.ndarray
    totals: np.ndarray
    labels: tuple[str, ...]
    lower: np.ndarray
    upper: np.ndarray
    somewhere: np.ndarray
    in_pairs: ClassVar[bool] = False
    stands_still: ClassVar[str] = "no counts can change along a short vector that keeps the known sums"

    @classmethod
    def build(
        cls,
        name: str,
        matrix: Any,
        totals: Any,
        lower: np.ndarray,
        upper: np.ndarray,
        labels: Sequence[str] | None = None,
    ) -> "LinearConstraint":
        """The constraint of the sites of a variable.

        Parameters
        ----------
        name : of the variable, for messages
        matrix : (m, n) int, A of the equations A x = y
        totals : (m,) int, y of the equations A x = y
        lower, upper : (n,) int, bounds of the sites; -/+ UNLIMITED where there is none
        labels : the name of each equation, by default its number

        Raises
        ------
        ValueError
            For arrays of a wrong shape or without integers, and for equations that no values between the
            bounds meet.
        """
        matrix, totals = integers(name, "coefficients", matrix), integers(name, "totals", totals)
        if matrix.ndim != 2 or totals.shape != matrix.shape[:1] or matrix.shape[1] != len(lower):
            raise ValueError(
                f"The equations A x = y of {shown([name])} need A of shape (m, {len(lower)}) and y of shape "
                f"(m,), got {matrix.shape} and {totals.shape}."
            )
        if labels is None:
            labels = [f"equation {row} of {shown([name])}" for row in range(len(totals))]
        names = tuple(labels)
        lower, upper = tightened(matrix, totals, names, lower, upper)
        found = solution(matrix, totals, lower, upper, np.zeros(len(lower)))
        if isinstance(found, str):
            listed = ", ".join(names[:LISTED_EQUATIONS]) + (", ..." if len(names) > LISTED_EQUATIONS else "")
            raise ValueError(
                f"No values of {shown([name])} that are integers between its bounds meet all equations at "
                f"once ({listed}): {found}. Mend what was seen, or the bounds of support=."
            )
        return cls(matrix, totals, names, lower, upper, found)

    # ------------------------------------------------------------ sets of sites, and how they change
    @cached_property
    def _free(self) -> np.ndarray:
        """(n,) bool, the sites that have more than one value."""
        return self.lower < self.upper

    @cached_property
    def set_of(self) -> np.ndarray:
        """(n,) int, the set that each site belongs to; a site with one value is a set of its own."""
        m, n = self.matrix.shape
        row, column = np.nonzero(self.matrix * self._free)
        links = coo_matrix((np.ones(len(row)), (column, n + row)), shape=(n + m, n + m))
        _, component = connected_components(links, directed=False)
        return np.unique(component[:n], return_inverse=True)[1].reshape(-1)

    @cached_property
    def sites(self) -> list[np.ndarray]:
        """The sites of each set, counted within the variable."""
        order = np.argsort(self.set_of, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.set_of))[:-1])

    @cached_property
    def bases(self) -> list[np.ndarray]:
        """For each set a basis (k, c) of the lattice of its directions; k = 0 for a set with one possible
        value.
        """
        return [basis for basis, _ in self._directions]

    @cached_property
    def moving(self) -> np.ndarray:
        """(k,) int, the sets that have more than one possible value."""
        return np.array([s for s, basis in enumerate(self.bases) if len(basis)], int)

    @cached_property
    def changing(self) -> np.ndarray:
        changing = np.zeros(len(self.set_of), bool)
        for sites, basis in zip(self.sites, self.bases, strict=True):
            changing[sites] = (basis != 0).any(axis=0)
        return changing

    @cached_property
    def _directions(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each set a basis (k, c) of the lattice of its directions, and short vectors (M, c) of this
        lattice.
        """
        # Sets with equal equations share one computation of their basis and of their short vectors.
        known: dict[Any, tuple[np.ndarray, np.ndarray]] = {}
        directions = []
        for sites in self.sites:
            part = self.matrix[:, sites]
            part = part[(part != 0).any(axis=1)]
            key = (part.shape, part.tobytes())
            if key not in known and len(sites) == 1 and not self._free[sites[0]]:
                directions.append((np.zeros((0, 1), np.int64), np.zeros((0, 1), np.int64)))
                continue
            if key not in known:
                basis = basis_of(part)
                known[key] = basis.astype(np.int64), short_vectors(basis, np.random.default_rng(0))
            directions.append(known[key])
        return directions

    def lines(self, sets: np.ndarray) -> Lines:
        """Short directions of some sets; those of each set include a basis of its lattice."""
        vectors = [self._directions[s][1] for s in sets]
        widest = max((np.count_nonzero(v, axis=1).max(initial=1) for v in vectors), default=1)
        count = np.array([len(v) for v in vectors], int)
        shape = (len(sets), count.max(initial=1), widest)
        lines = Lines(np.zeros(shape, np.int64), np.zeros(shape, np.int64), count)
        for r, s in enumerate(sets):
            for k, vector in enumerate(vectors[r]):
                moving = np.flatnonzero(vector)
                moving = np.pad(moving, (0, widest - len(moving)), constant_values=moving[0])
                lines.sites[r, k], lines.steps[r, k] = self.sites[s][moving], vector[moving]
        return lines

    def lattices(self, sets: np.ndarray) -> Lines:
        """For each of some sets the basis of the lattice of its directions.

        Each direction lists all sites of its set; elements of v that are padding are 0.
        """
        widest = max((len(self.sites[s]) for s in sets), default=1)
        count = np.array([len(self.bases[s]) for s in sets])
        shape = (len(sets), count.max(initial=1), widest)
        lines = Lines(np.zeros(shape, np.int64), np.zeros(shape, np.int64), count)
        for r, s in enumerate(sets):
            every = np.pad(np.arange(len(self.sites[s])), (0, widest - len(self.sites[s])))
            lines.sites[r], lines.steps[r, : count[r]] = self.sites[s][every], self.bases[s][:, every]
        return lines

    # ------------------------------------------------------------ the constraint itself
    def tightened(self, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The bounds (n,) that the constraint found when it was built, whatever the arguments are."""
        return self.lower, self.upper

    @cached_property
    def _entries(self) -> tuple[np.ndarray, np.ndarray]:
        """(m, w) int twice: for each row of A the columns of its nonzero elements, and these elements;
        padding is 0.
        """
        width = int(np.count_nonzero(self.matrix, axis=1).max(initial=0))
        columns = np.argsort(self.matrix == 0, axis=1, kind="stable")[:, :width]
        return columns, np.take_along_axis(self.matrix, columns, axis=1)

    def sums(self, values: Any) -> Any:
        """(m,) int, A x for values x (n,)."""
        columns, entries = self._entries
        return (values[columns] * entries).sum(axis=1)

    def met(self, values: Any) -> Any:
        return self.sums(values) == self.totals

    def kept(self, values: Any, now: Any) -> Any:
        return True  # a move along a line leaves A x unchanged

    def refusal(self, name: str, shape: tuple[int, ...], values: np.ndarray) -> str | None:
        for row in np.flatnonzero(~self.met(values))[:1]:
            return (
                f"{self.labels[row]} is {self.sums(values)[row]} at the start, and must be "
                f"{self.totals[row]}. Leave {shown([name])} out of initvals: a start is found."
            )
        return None

    # ------------------------------------------------------------ values on the host
    def nearest(self, values: np.ndarray) -> np.ndarray:
        """(n,) int, the x between the bounds with A x = y for which the sum of |x - values| is least.

        Where the solver finds no such x, the result is the solution that is known (`somewhere`).
        """
        if self.met(values).all() and ((self.lower <= values) & (values <= self.upper)).all():
            return values
        found = solution(self.matrix, self.totals, self.lower, self.upper, np.zeros(len(values)), values)
        return self.somewhere if isinstance(found, str) else found

    def random(self, lower: np.ndarray, upper: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(n,) int, random values between bounds (n,) with A x = y.

        The solution that minimises a random linear objective is a corner of the feasible set; from there x
        moves at random along short directions.
        """
        reach = np.maximum(REACH, 3 * np.abs(self.somewhere))
        lower, upper = np.maximum(lower, self.somewhere - reach), np.minimum(upper, self.somewhere + reach)
        objective = rng.integers(-STEEPEST, STEEPEST + 1, len(lower))
        found = solution(self.matrix, self.totals, lower, upper, objective)
        x = self.somewhere.copy() if isinstance(found, str) else found
        for sites, (basis, vectors) in zip(self.sites, self._directions, strict=True):
            for v in rng.permutation(vectors)[: 2 * len(basis)]:
                least, most = range_along(x[sites], v, lower[sites], upper[sites])
                x[sites] += rng.integers(least, most + 1) * v
        return x

    def random_moves(
        self, values: np.ndarray, lower: np.ndarray, upper: np.ndarray, number: int, rng: np.random.Generator
    ) -> ListedMoves | None:
        if not len(self.moving):
            return None
        lines = self.lines(rng.choice(self.moving, number))
        which = np.arange(number), rng.integers(lines.number)
        sites, steps = lines.sites[which], lines.steps[which]
        ends = [range_along(values[i], v, lower[i], upper[i]) for i, v in zip(sites, steps, strict=True)]
        t = [
            rng.integers(max(least, -FARTHEST_RANDOM_MOVE), min(most, FARTHEST_RANDOM_MOVE) + 1)
            for least, most in ends
        ]
        return sites, (values[sites] + np.array(t)[:, None] * steps)[:, None]

    def all_moves(self, values: np.ndarray, alone: np.ndarray, among: int, most: int) -> ListedMoves | None:
        lines = self.lines(self.moving)
        real = np.arange(lines.sites.shape[1]) < lines.number[:, None]
        sites, steps = lines.sites[real], lines.steps[real]
        t = np.arange(-FARTHEST_MOVE, FARTHEST_MOVE + 1)
        if not 0 < len(sites) * len(t) <= most:
            return None
        return sites, values[sites][:, None] + t[:, None] * steps[:, None]


def longest(lines: Lines, lower: np.ndarray, upper: np.ndarray) -> int:
    """The largest number of values along one of the lines, between bounds (n,) of the sites."""
    span = (upper - lower)[lines.sites] // np.maximum(np.abs(lines.steps), 1)
    span = np.where(lines.steps == 0, UNLIMITED, span).min(axis=-1)
    return 1 + int(np.max(span, where=(lines.steps != 0).any(axis=-1), initial=0))


def range_along(x: np.ndarray, v: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> tuple[int, int]:
    """The smallest and the largest integer t for which x + t v is between the bounds; v is not 0."""
    up = np.where(v > 0, upper - x, x - lower)[v != 0] // np.abs(v[v != 0])
    down = np.where(v > 0, x - lower, upper - x)[v != 0] // np.abs(v[v != 0])
    return -int(down.min()), int(up.min())


def integers(name: str, what: str, values: Any) -> np.ndarray:
    """An array as integers; an error that names the variable where an element is no integer.

    Raises
    ------
    ValueError
    """
    array = np.asarray(values)
    if array.dtype.kind not in "iufb" or not (np.isfinite(array) & (array == np.floor(array))).all():
        raise ValueError(f"The {what} of the equations of {shown([name])} must be integers, got {array!r}.")
    return array.astype(np.int64)


def tightened(
    matrix: np.ndarray, totals: np.ndarray, labels: Sequence[str], lower: np.ndarray, upper: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds (n,) of each site that follow from each equation and the bounds of the other sites.

    Raises
    ------
    ValueError
        For the first equation that cannot hold; the message says what the bounds allow.
    """
    low, high = in_floats(lower, upper)
    positive, used = matrix > 0, matrix != 0
    for _ in range(TIGHTENINGS):
        with np.errstate(invalid="ignore"):
            least = np.where(used, matrix * np.where(positive, low, high), 0.0)
            most = np.where(used, matrix * np.where(positive, high, low), 0.0)
        for row in np.flatnonzero((totals < least.sum(axis=1)) | (totals > most.sum(axis=1)))[:1]:
            ends = (least[row].sum(), most[row].sum())
            span = " to ".join(f"{end:.0f}" if np.isfinite(end) else f"{end:g}" for end in ends)
            raise ValueError(
                f"{labels[row]} cannot be {totals[row]}: the bounds of its counts allow {span}. Mend what "
                "was seen, or the bounds of support=."
            )
        # For each term of an equation: what is left of the total for this term, if all other terms are at
        # their least, and if all other terms are at their most.
        room_above = totals[:, None] - without_own(least)
        room_below = totals[:, None] - without_own(most)
        with np.errstate(divide="ignore", invalid="ignore"):
            top = np.floor(np.where(positive, room_above, room_below) / matrix)
            bottom = np.ceil(np.where(positive, room_below, room_above) / matrix)
        new_high = np.minimum(high, np.where(used, top, np.inf).min(axis=0, initial=np.inf))
        new_low = np.maximum(low, np.where(used, bottom, -np.inf).max(axis=0, initial=-np.inf))
        for row in np.flatnonzero((used & (new_low > new_high)).any(axis=1))[:1]:
            raise ValueError(
                f"{labels[row]} cannot be {totals[row]} together with the other equations of its counts. "
                "Mend what was seen, or the bounds of support=."
            )
        if (new_low == low).all() and (new_high == high).all():
            break
        low, high = new_low, new_high
    return (
        np.where(np.isinf(low), lower, low).astype(np.int64),
        np.where(np.isinf(high), upper, high).astype(np.int64),
    )


def in_floats(lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds as floats, infinite where there is no bound."""
    return np.where(lower <= -UNLIMITED, -np.inf, lower), np.where(upper >= UNLIMITED, np.inf, upper)


def without_own(terms: np.ndarray) -> np.ndarray:
    """(m, n), for each element of `terms` the sum of the other elements of its row.

    The sum is infinite where one of the other elements is. All infinite elements of `terms` have one sign.
    """
    infinite = np.isinf(terms)
    finite = np.where(infinite, 0.0, terms)
    others = finite.sum(axis=1, keepdims=True) - finite
    sign = np.where(terms.min(initial=0.0) == -np.inf, -np.inf, np.inf)
    return np.where(infinite.sum(axis=1, keepdims=True) > infinite, sign, others)


def solution(
    matrix: np.ndarray,
    totals: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    objective: np.ndarray,
    near: np.ndarray | None = None,
) -> np.ndarray | str:
    """(n,) int, the x between the bounds with A x = y and the smallest objective; a str with the reason if
    none.

    Parameters
    ----------
    objective : (n,) float, the coefficients of a linear function that is minimised
    near : (n,) int, values; the sum of the distances of x to them is added to the objective
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # slow to import, and needed by few models

    n, equations = len(lower), csr_matrix(matrix.astype(float))
    low, high = in_floats(lower, upper)
    rows = [LinearConstraint(equations, totals, totals)]
    if near is not None:  # n more unknowns d, the distances from `near`: x - d <= near and x + d >= near
        one = identity(n, format="csr")
        rows = [LinearConstraint(hstack([equations, csr_matrix(equations.shape)]), totals, totals)]
        rows.append(LinearConstraint(hstack([one, -one]), -np.inf, near))
        rows.append(LinearConstraint(hstack([one, one]), near, np.inf))
        objective = np.concatenate([objective, np.ones(n)])
        low, high = np.concatenate([low, np.zeros(n)]), np.concatenate([high, np.full(n, np.inf)])
    result = milp(
        objective,
        integrality=np.ones(len(objective)),
        bounds=Bounds(low, high),
        constraints=rows,
        options={"time_limit": LONGEST_SEARCH},
    )
    if result.x is None:
        searched = f"none was found within {LONGEST_SEARCH:.0f} seconds"
        return "there are none" if result.status == 2 else searched
    x = np.rint(result.x[:n]).astype(np.int64)
    exact = (matrix @ x == totals).all() and ((x >= lower) & (x <= upper)).all()
    return x if exact else "their numbers are too large for floating point"
