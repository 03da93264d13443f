"""One change of one number, in each kind of place that a model can hold one, makes another model."""

import json
import threading
import types

import numpy as np
import pymc as pm
import pytest
from pytensor.misc.frozendict import frozendict

from pymc_discrete.engine.program import recorded
from pymc_discrete.engine.storage import CheckpointError
from pymc_discrete.model.identity import NotComparable, key_of_object, lasting_key
from pymc_discrete.model.structure_of_model import structure_of
from pymc_discrete.sampling.fingerprint import fingerprint, starts_fingerprint
from tests.model.places import PLACES, Blackbox, potential
from tests.tools.processes import run_python


def fingerprint_of(model: pm.Model) -> str:
    return fingerprint(model, recorded(model, None))


@pytest.mark.parametrize("place", PLACES)
def test_a_number_that_changes(place):
    build = PLACES[place]
    first, again, other = build(0.5), build(0.5), build(0.9)
    assert fingerprint_of(first) == fingerprint_of(again)
    assert fingerprint_of(first) != fingerprint_of(other)
    # a program is used again where the key is equal, and is given the numbers
    one, same, two = structure_of(first), structure_of(first), structure_of(other)
    assert one.key == same.key
    assert one.key != two.key or any(
        not np.array_equal(one.numbers[name], two.numbers[name], equal_nan=True) for name in one.numbers
    )


# of the models, those that are fast to make
IN_ANOTHER_PROCESS = [place for n, place in enumerate(PLACES) if n % 4 == 0 and "sum" not in place]


@pytest.mark.slow
def test_in_another_process():
    """Fingerprints are the same in a process that hashes strings in another way."""
    code = f"""
import json
from tests.model.places import PLACES
from tests.model.test_identity import fingerprint_of
print(json.dumps({{place: fingerprint_of(PLACES[place](0.5)) for place in {IN_ANOTHER_PROCESS}}}))
"""
    there = json.loads(run_python(code, PYTHONHASHSEED="7").splitlines()[-1])
    assert there == {place: fingerprint_of(PLACES[place](0.5)) for place in IN_ANOTHER_PROCESS}


def test_what_cannot_be_seen(tmp_path):
    """A lock, or a function that reads a file: refused for a checkpoint, and equal to itself only."""
    file = tmp_path / "w.txt"
    file.write_text("0.5")
    reads = eval("lambda self: float(open(path).read())", {"path": str(file)})
    kind = type("Reads", (Blackbox,), {"number": reads})
    for op, what in (
        (Blackbox(w=threading.Lock()), "a _thread.lock"),
        (kind(), r"<lambda> of .* calls 'open'"),
    ):
        model = potential(lambda w, x, op=op: op(x).sum())(0.5)
        with pytest.raises(
            CheckpointError, match=rf"cannot look into all of the model: {what}.* Leave checkpoint="
        ):
            fingerprint_of(model)
        assert structure_of(model).key == structure_of(model).key
        assert key_of_object(op) != key_of_object(type(op)(w=threading.Lock()))


def test_what_a_function_reads_later():
    """A function that is the same object is another one as soon as what it reads has changed."""
    scope = {"W": 0.5}
    function = eval("lambda v: v * W", scope)
    before = key_of_object(function), lasting_key(function)
    scope["W"] = 0.9
    assert before[0] != key_of_object(function)
    assert before[1] != lasting_key(function)
    scope["W"] = 0.5
    assert before == (key_of_object(function), lasting_key(function))
    # a copy is equal in a file, and not where programs are kept
    again = eval("lambda v: v * W", dict(scope))
    assert lasting_key(again) == before[1]
    assert key_of_object(again) != before[0]


def test_modules_of_the_user():
    settings = types.ModuleType("settings")
    settings.weight, settings.not_read = 0.5, threading.Lock()
    function = eval("lambda v: v * settings.weight", {"settings": settings})
    before = lasting_key(function)  # the lock is not read
    settings.weight = 0.9
    assert lasting_key(function) != before
    with pytest.raises(NotComparable, match="imports 'no_such_module'"):
        lasting_key(imports_nothing)


def imports_nothing(v):
    import no_such_module

    return no_such_module.weight * v


def test_things_that_hold_themselves():
    def looped(w):
        thing = {"w": w}
        thing["self"] = [thing]
        return thing

    assert lasting_key(looped(0.5)) == lasting_key(looped(0.5)) != lasting_key(looped(0.9))


def test_order_of_sets():
    names = [f"name {n}" for n in range(100)]
    assert lasting_key(set(names)) == lasting_key(set(names[::-1]))
    assert lasting_key({1: 2, 3: 4}) != lasting_key({3: 4, 1: 2})  # a function may go through it in order


@pytest.mark.parametrize(
    "start", [lambda w: [w, 1.0], lambda w: np.array([w, 1.0]), lambda w: pm.math.exp([w, 1.0])]
)
def test_starting_values(start):
    with pm.Model() as model:
        pm.Normal("x", shape=2)
    first, again, other = (starts_fingerprint(model, {"x": start(w)}) for w in (0.5, 0.5, 0.9))
    assert first == again != other
    for w, expected in ((0.5, True), (0.9, False)):
        model.set_initval(model["x"], start(w))
        given = starts_fingerprint(model, None)
        model.set_initval(model["x"], start(0.5))
        assert (given == starts_fingerprint(model, None)) is expected


def test_what_pytensor_notes_when_it_hashes_is_no_part_of_a_key():
    """Ops have such dictionaries, which keep their hash."""
    pattern = frozendict({0: 1})
    before = key_of_object(pattern), lasting_key(pattern)
    hash(pattern)
    assert (key_of_object(pattern), lasting_key(pattern)) == before
    assert lasting_key(frozendict({0: 2})) != before[1]
