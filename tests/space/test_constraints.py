"""What is asked of every constraint, against all states of small spaces."""

import itertools

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

import pymc_discrete as pmd
from pymc_discrete.space.constraints import FixedSums, PairConstraint, Permutations
from pymc_discrete.space.linear_constraint import LinearConstraint

# {id: (shape, bounds, what is known, as `Space.build` takes it, the same as a function of one state)}
CASES = {
    "sums": ((2, 3), (0, 3), {"sums": {"x": [2, 4]}}, lambda x: (x.sum(1) == [2, 4]).all()),
    "single counts": ((2, 1), (0, 3), {"sums": {"x": [2, 1]}}, lambda x: (x.sum(1) == [2, 1]).all()),
    "permutations": ((2, 3), (0, 2), {"permutations": ["x"]}, lambda x: (np.sort(x) == [0, 1, 2]).all()),
}


def equations(matrix, totals, bounds):
    A = np.array(matrix)
    return A.shape[1:], bounds, {"equations": {("x",): (A, totals)}}, lambda x: (A @ x == totals).all()


# a table of two rows and two columns, of which four counts change at once, and a count that is known
CASES["table"] = equations(
    [[1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [1, 0, 1, 0, 0], [0, 0, 0, 0, 1]], [3, 2, 2, 1], (0, 3)
)
CASES["three counts"] = equations([[2, -1, 0], [0, 1, -3]], [1, 2], (-4, 6))
CASES["one value"] = equations([[1, 1], [1, -1]], [5, 1], (0, 5))


def connected(links):
    return connected_components(links)[0] == 1


def check(case):
    shape, bounds, is_known, meets = CASES[case]
    space = pmd.Space.build({"x": bounds}, {"x": shape}, **is_known)
    v, rng = space.variables[0], np.random.default_rng(0)
    c = v.constraint
    box = np.array(list(itertools.product(range(bounds[0], bounds[1] + 1), repeat=v.size)))
    possible = np.array([meets(x.reshape(shape)) for x in box])
    states = box[possible]
    differ = (states[:, None] != states).sum(axis=-1)

    # sites: which sets they make, which of them change, and how
    sets = [np.unique(states[:, c.set_of == s], axis=0) for s in np.unique(c.set_of)]
    assert np.prod([len(each) for each in sets]) == len(states)
    assert c.changing.tolist() == (states.min(axis=0) < states.max(axis=0)).tolist()
    if len(states) > 1:
        assert c.in_pairs == connected(differ <= 2)
    twos = np.argwhere(differ == 2)
    same_values = (np.sort(states[twos], axis=-1)[:, 0] == np.sort(states[twos], axis=-1)[:, 1]).all()
    assert c.swaps == bool(len(twos) and same_values)
    assert len(space.tied) == (0 if c.in_pairs else v.size)
    assert len(space.swapped) == (v.size if c.swaps else 0)

    # values, and starts: equations move them, and others are refused
    for x, right in zip(box, possible, strict=True):
        assert c.met(x).all() == right
        assert (c.refusal("x", shape, x) is None) == right
    for x in [*states[:3], *box[~possible][:3]]:
        there = c.nearest(x)
        assert meets(there.reshape(shape)) if isinstance(c, LinearConstraint) else (there == x).all()
        assert not meets(x.reshape(shape)) or (there == x).all()
    assert all(meets(c.random(v.lower, v.upper, rng).reshape(shape)) for _ in range(20))

    # moves
    def after(x, moves):
        """The numbers of the states between the bounds that moves from x lead to."""
        sites, values = moves
        ends = np.repeat(x[None], values.shape[0] * values.shape[1], axis=0)
        ends[np.arange(len(ends))[:, None], np.repeat(sites, values.shape[1], axis=0)] = values.reshape(
            len(ends), -1
        )
        ends = ends[((ends >= v.lower) & (ends <= v.upper)).all(axis=1)]
        found = (ends[:, None] == states).all(axis=-1)
        assert found.any(axis=1).all()
        return len(ends), np.unique(found.argmax(axis=1))

    reached = np.zeros((len(states), len(states)), bool)
    for number, x in enumerate(states):
        moves = c.all_moves(x, v.lower[:, None] + np.arange(v.K), 3, 10**6)
        some = c.random_moves(x, v.lower, v.upper, 30, rng)
        assert (moves is None) == (some is None) == (len(states) == 1)
        if moves is None:
            continue
        _, ends = after(x, moves)
        reached[number, ends] = True
        inside, random_ends = after(x, some)
        assert inside == 30
        assert len(random_ends) > 1
        assert set(random_ends) <= set(ends)
        count = len(moves[0]) * (3 if c.in_pairs else moves[1].shape[1])
        assert c.all_moves(x, v.lower[:, None] + np.arange(v.K), 3, count) is not None
        assert c.all_moves(x, v.lower[:, None] + np.arange(v.K), 3, count - 1) is None
    if len(states) > 1:
        assert connected(reached)
        assert not c.in_pairs or (reached == (differ <= 2)).all()


@pytest.mark.parametrize("case", CASES)
def test_answers_are_those_of_all_states(case):
    check(case)


def further(moves):
    """Moves that end one further than they should."""
    return lambda self, *args: (found := moves(self, *args)) and (found[0], found[1] + 1)


WRONG = [
    ("sums", FixedSums, "in_pairs", False),
    ("sums", FixedSums, "swaps", True),
    ("sums", FixedSums, "nearest", lambda self, values: values + 1),
    ("sums", PairConstraint, "refusal", lambda *_: None),
    ("sums", PairConstraint, "set_of", np.arange(6)),
    ("sums", PairConstraint, "random_moves", further(PairConstraint.random_moves)),
    ("sums", PairConstraint, "all_moves", further(PairConstraint.all_moves)),
    ("single counts", PairConstraint, "changing", np.ones(2, bool)),
    ("permutations", Permutations, "swaps", False),
    ("permutations", Permutations, "random_values", lambda self, now, *_: now),
    ("table", LinearConstraint, "in_pairs", True),
    ("table", LinearConstraint, "changing", np.ones(5, bool)),
    ("table", LinearConstraint, "nearest", lambda self, values: values),
    ("table", LinearConstraint, "refusal", lambda *_: None),
    ("three counts", LinearConstraint, "random_moves", further(LinearConstraint.random_moves)),
    ("three counts", LinearConstraint, "all_moves", further(LinearConstraint.all_moves)),
]


@pytest.mark.parametrize(("case", "kind", "question", "answer"), WRONG)
def test_wrong_answers_are_seen(case, kind, question, answer, monkeypatch):
    monkeypatch.setattr(kind, question, answer)
    with pytest.raises(AssertionError):
        check(case)
