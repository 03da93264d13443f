"""What is kept on disk about models: found by the same model and by no other one, whole or not at all."""

import errno
import os

import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.differences.density import ModelDensity
from pymc_discrete.model import analyses_on_disk
from pymc_discrete.model.analyses_on_disk import analyses_kept, name_of_analyses
from pymc_discrete.model.identity import Walk, digest
from pymc_discrete.runtime import compiled
from pymc_discrete.runtime.checked_files import HEADER
from pymc_discrete.runtime.compile_cache import ANALYSES, SETTING, folder
from pymc_discrete.runtime.jax_settings import jitted
from pymc_discrete.runtime.reuse import Kept, forget
from tests.tools.drawn_twice import drawn_twice
from tests.tools.running import QUIET

Y = np.array([1.0, 2.5, 0.5, 3.0])


def a_model(y=Y, sd=2.0, p=0.3, upper=4, effect=pt.exp, counts=pm.Poisson, read=1.0, name="k"):
    with pm.Model() as model:
        b = pm.Normal("b", 0.3, sd)
        z = pm.Bernoulli("z", p, shape=4)
        k = pm.DiscreteUniform(name, 0, upper)
        N = counts("N", 2.0)
        pm.Normal("y", effect(0.3 * b) * z + k, 1.0, observed=y)
        pm.Normal("of counts", read * N, 1.0, observed=2.0)
    return model


CHANGES = {
    "data": {"y": Y + 0.25},
    "shape of data": {"y": np.stack([Y, Y])},
    "number": {"sd": 3.0},
    "parameter of a prior": {"p": 0.4},
    "number in place of several": {"p": np.array([0.3, 0.3, 0.3, 0.4])},
    "support": {"upper": 5},
    "function": {"effect": pt.sin},
    "distribution": {"counts": lambda name, mu: pm.NegativeBinomial(name, mu, 1.0)},
    "name": {"name": "j"},
    "coefficient": {"read": -1.0},
}


@pytest.fixture
def on_disk(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SETTING, str(tmp_path))
        patch.setattr(compiled, "jitted", jitted)  # tests/conftest.py interprets some, which have no programs
        forget()
        yield
    forget()


@pytest.fixture
def made(monkeypatch):
    """The blocks of the densities that are made."""
    found = []
    make = ModelDensity.__init__

    def noted(self, block, *args, **options):
        found.append(block)
        make(self, block, *args, **options)

    monkeypatch.setattr(ModelDensity, "__init__", noted)
    return found


def looked_at(model):
    """Make the density of the model's discrete variables, or find it in this process or on disk."""
    with analyses_kept(model):
        return pmd.target_from_model(model)


def only_file():
    (file,) = folder().glob(f"*{ANALYSES}")
    return file


def drawn(model):
    tree = pmd.sample(5, tune=5, chains=1, model=model, random_seed=1, **QUIET)
    return {name: tree["posterior"][name].values.tobytes() for name in tree["posterior"].data_vars}


# ---------------------------------------------------------------- the same model, and others
def test_what_is_on_disk_is_not_made_again(on_disk, made):
    first = looked_at(a_model())
    assert len(made) == 1
    forget()
    again = looked_at(a_model())
    assert len(made) == 1
    assert again.density is not first.density
    x = np.array([1, 0, 1, 1, 2, 3])
    assert float(first.logdensity(x)) == float(again.logdensity(x))
    forget()
    looked_at(a_model(y=Y + 1))  # a target has its data as constants
    assert len(made) == 2


def others_are_told_apart(change):
    """Whether a model draws the same after another one was read from disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SETTING, "off")
        wanted = drawn(a_model(**CHANGES[change]))
    forget()
    drawn(a_model())
    forget()
    with pytest.MonkeyPatch.context() as patch:
        name = only_file().name.removesuffix(ANALYSES)
        patch.setattr(analyses_on_disk, "name_of_analyses", lambda model: name)
        return drawn(a_model(**CHANGES[change])) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_differs_in_one_thing_is_told_apart(on_disk, change):
    """It is given the objects of the other model, which a wrong name of the file could do."""
    assert others_are_told_apart(change)


@pytest.mark.slow
def test_keys_without_operations_would_be_noticed(on_disk):
    with pytest.MonkeyPatch.context() as planted:
        planted.setattr(Walk, "_op", lambda self, op: digest(type(op).__name__.encode()))
        assert not others_are_told_apart("function")


@pytest.mark.slow
def test_two_fresh_processes_draw_the_same():
    found = drawn_twice(0, 8)
    sampled = [one for one in found if ":" not in one[1]]
    assert len(sampled) >= 4
    assert [(a, made) for _, a, _, made in sampled] == [(b, []) for _, _, b, _ in sampled]


def test_a_model_with_functions_of_the_user_has_no_file(on_disk):
    with pm.Model() as model:
        pm.CustomDist("z", logp=lambda z: -abs(z), dtype="int64")
    assert name_of_analyses(model) is None
    assert name_of_analyses(a_model()) is not None


# ---------------------------------------------------------------- files
def truncated(content):
    return content[: len(content) // 2]


def flipped(content):
    return content[:-5] + bytes([content[-5] ^ 1]) + content[-4:]


def runs_code(content):
    """As somebody could write it who does not know of the checksum."""
    return HEADER + bytes(32) + b"cbuiltins\nexit\n(tR."


@pytest.mark.parametrize("damaged", [truncated, flipped, runs_code, lambda _: b""])
def test_a_damaged_file_is_made_anew(on_disk, made, damaged):
    looked_at(a_model())
    whole = only_file().read_bytes()
    only_file().write_bytes(damaged(whole))
    for count in (2, 2):
        forget()
        looked_at(a_model())
        assert len(made) == count


def test_a_file_of_another_model_is_not_read(on_disk, made):
    looked_at(a_model())
    other = only_file()
    forget()
    looked_at(a_model(effect=pt.sin))
    (own,) = {*folder().glob(f"*{ANALYSES}")} - {other}
    other.replace(own)
    forget()
    looked_at(a_model(effect=pt.sin))
    assert len(made) == 3


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_disk_that_cannot_be_written_to(on_disk, monkeypatch, number):
    def replace(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", replace)
    looked_at(a_model())
    assert not [file for file in folder().iterdir() if file.is_file()]


def test_what_is_too_large_is_not_written(on_disk, monkeypatch):
    monkeypatch.setattr(analyses_on_disk, "LARGEST_FILE", 1000)
    looked_at(a_model())
    assert not [*folder().glob(f"*{ANALYSES}")]


def test_arrays_of_jax_and_functions_of_the_user_are_not_written(on_disk):
    kept = Kept(3, "objects of this test")
    for made in (np.ones(2), jnp.ones(2), a_model):
        with analyses_kept(a_model()):
            kept.get(type(made), lambda made=made: made)
        written = [*folder().glob(f"*{ANALYSES}")]
        assert len(written) == isinstance(made, np.ndarray)
        for file in written:
            file.unlink()
            forget()


def test_what_was_made_for_another_model_is_not_written(on_disk):
    """It may hold for both, and compute with other rounding than what would be made for this one."""
    kept = Kept(2, "objects of this test")
    kept.get("of another", list)
    for names in (["of another", "own"], ["new"], ["own"]):
        with analyses_kept(a_model()):
            for name in names:
                kept.get(name, list)
        assert bool([*folder().glob(f"*{ANALYSES}")]) == (names != ["of another", "own"])


@pytest.mark.slow
def test_draws_do_not_depend_on_what_is_on_disk_for_other_data(on_disk):
    """A density for counts of which some are 0 holds for others, too, and rounds otherwise."""

    def of_counts(y):
        with pm.Model() as model:
            N = pm.Poisson("N", 6.0, shape=5)
            pm.Binomial("y", N, pm.Beta("p", 2, 2), observed=np.array(y))
        forget()
        return drawn(model)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SETTING, "off")
        wanted = of_counts([4, 1, 2, 2, 3])
    of_counts([0, 1, 2, 0, 3])
    assert of_counts([4, 1, 2, 2, 3]) == wanted
