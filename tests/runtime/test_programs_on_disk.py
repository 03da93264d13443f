"""Compiled programs on disk: found by their names, and never another's, a damaged or a foreign one."""

import errno
import functools
import os
import pickle
import re
import threading
import uuid

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_discrete as pmd
from pymc_discrete.engine.program import Program
from pymc_discrete.model.identity import EXPECTED, of_known_version
from pymc_discrete.runtime import programs_on_disk
from pymc_discrete.runtime.checked_files import CHECKSUM, HEADER, checksum_of, read_checked
from pymc_discrete.runtime.compile_cache import PROGRAM, SETTING, folder
from pymc_discrete.runtime.jax_settings import REPEATED, jitted
from pymc_discrete.runtime.programs_on_disk import KeptOnDisk, under_name
from tests.tools.processes import output_of, start_python
from tests.tools.running import QUIET

DRAWS = """
import numpy as np
import pymc as pm
import pymc_discrete as pmd
from pymc_discrete.runtime import programs_on_disk
made, compiled = [], programs_on_disk.compiled
programs_on_disk.compiled = lambda lowered, *more: made.append(lowered) or compiled(lowered, *more)
with pm.Model() as model:
    lam, p = pm.Gamma("lam", 3, 0.5), pm.Beta("p", 2, 2)
    N = pm.Poisson("N", lam, shape=2)
    pm.Binomial("y", n=N, p=p, observed=np.array([2, 4]))
tree = pmd.sample(20, tune=30, chains=2, random_seed=1, model=model, progressbar=False,
                  compute_convergence_checks=False)
values = [tree["posterior"][name].values.tobytes() for name in sorted(tree["posterior"].data_vars)]
import hashlib, threading
[t.join() for t in threading.enumerate() if t.name in ("write", "compile")]
print(hashlib.sha256(b"".join(values)).hexdigest(), len(made))
"""


def test_versions_that_no_digest_has_are_in_the_names_of_programs():
    assert {*programs_on_disk.LIBRARIES, "builtins", "pymc_discrete"} >= EXPECTED


@pytest.mark.slow
def test_a_second_process_draws_the_same_and_compiles_nothing(tmp_path):
    """The chains call LAPACK, and hashes of strings are others in the second process."""
    environment = {SETTING: str(tmp_path), "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "jax")}
    draws, made = output_of(start_python(DRAWS, **environment, PYTHONHASHSEED="0")).split()
    assert int(made) >= 2
    assert output_of(start_python(DRAWS, **environment, PYTHONHASHSEED="1")).split() == [draws, "0"]
    assert not [file for file in tmp_path.rglob("tmp*") if file.is_file()]


# ---------------------------------------------------------------- files
@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A folder for programs, and a function (what to compile) -> what `KeptOnDisk` makes of it.

    Its name is that of no program that JAX's cache of the tests has.
    """
    monkeypatch.setenv(SETTING, str(tmp_path))
    name = uuid.uuid4().hex

    def of(function, name=name):
        return KeptOnDisk(jitted(under_name(function, name)), name, REPEATED)

    return of


def files():
    return sorted(folder().glob(f"*{PROGRAM}"))


def written(function, *args):
    """What a function gives, when its program is on disk."""
    result = np.asarray(function(*args))
    for thread in programs_on_disk.threading.enumerate():
        if thread.name == "write":
            thread.join()
    return result


def twice(x):
    return 2 * x + 1


def thrice(x):
    return 3 * x


def several(x):
    """Several functions of XLA."""
    return jax.lax.fori_loop(0, 3, lambda n, x: jnp.cumsum(jnp.sin(x)) - jnp.flip(x), x)


def truncated(content):
    return content[: len(content) // 2]


def flipped(content):
    return content[:-5] + bytes([content[-5] ^ 1]) + content[-4:]


def no_program(content):
    kept = pickle.dumps("no program")
    return HEADER + checksum_of(kept) + kept


def runs_code(content):
    """As another user could write it, who does not know of the checksum_of."""
    return HEADER + bytes(CHECKSUM) + b"cbuiltins\nexit\n(tR."


@pytest.mark.parametrize(
    "damaged", [truncated, flipped, no_program, runs_code, lambda _: b"", lambda _: b"other"]
)
def test_a_damaged_file_is_made_anew(kept, damaged):
    assert written(kept(twice), 3.0) == 7.0
    (file,) = files()
    whole = file.read_bytes()
    file.write_bytes(damaged(whole))
    assert written(kept(twice), 3.0) == 7.0
    assert file.read_bytes()[: len(HEADER)] == HEADER
    assert read_checked(file.name.removesuffix(PROGRAM), PROGRAM) is not None


@pytest.mark.parametrize("silent", [False, True])
def test_what_jaxs_own_cache_had_is_compiled_once_more(kept, silent):
    """What JAX has loaded lacks functions if it is written. It is not, where JAX does not say what it did."""
    assert written(kept(several), np.ones(50)).shape == (50,)
    (file,) = files()
    file.unlink()
    jax.clear_caches()
    if silent:
        jax.monitoring.unregister_event_listener(programs_on_disk.count)
    try:
        wanted = written(kept(several), np.ones(50))
    finally:
        if silent:
            jax.monitoring.register_event_listener(programs_on_disk.count)
    assert len(files()) == (0 if silent else 1)
    np.testing.assert_array_equal(written(kept(several), np.ones(50)), wanted)


def test_a_file_of_another_program_is_not_used(kept):
    assert written(kept(thrice, uuid.uuid4().hex), 3.0) == 9.0
    (other,) = files()
    assert written(kept(twice), 3.0) == 7.0
    own = next(file for file in files() if file != other)
    other.rename(own)
    assert written(kept(twice), 3.0) == 7.0


def test_each_shape_and_type_has_a_program(kept):
    function = kept(twice)
    for n, x in enumerate([3.0, 3, np.ones(2), np.ones(3), np.ones(2, np.float32), [1.0, 2.0]], 1):
        of_list = [np.asarray(a) for a in x] if isinstance(x, list) else x
        argument = of_list[0] if isinstance(of_list, list) else of_list
        np.testing.assert_array_equal(written(function, argument), 2 * np.asarray(argument) + 1)
        assert len(files()) == min(n, 5) + (n > 5)


def test_what_is_on_disk_is_not_traced(kept):
    assert written(kept(twice), 3.0) == 7.0

    def raises(x):
        raise AssertionError("traced")

    assert written(kept(raises), 3.0) == 7.0


def test_programs_that_call_python_are_not_written(kept):
    def calls(x):
        return jax.pure_callback(lambda x: np.asarray(x) + 1, jax.ShapeDtypeStruct((), x.dtype), x)

    for _ in range(2):
        assert written(kept(calls), np.asarray(3.0)) == 4.0
    assert not files()


def test_lapack_is_found_by_a_loaded_program(kept):
    a = np.array([[4.0, 2.0], [2.0, 5.0]])
    for _ in range(2):
        np.testing.assert_allclose(written(kept(jnp.linalg.cholesky), a), np.linalg.cholesky(a))
    (file,) = files()
    assert b"lapack_dpotrf" in file.read_bytes()


def test_two_that_write_the_same_file_at_once(kept, monkeypatch):
    both, replace = threading.Barrier(2, timeout=60), os.replace

    def together(*paths):
        both.wait()
        replace(*paths)

    monkeypatch.setattr(os, "replace", together)
    assert kept(twice)(3.0) == 7.0
    assert written(kept(twice), 3.0) == 7.0  # nothing is on disk yet
    (file,) = files()
    assert not [other for other in folder().iterdir() if other.is_file() and other != file]
    assert read_checked(file.name.removesuffix(PROGRAM), PROGRAM) is not None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_disk_that_cannot_be_written_to(kept, monkeypatch, number):
    def replace(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", replace)
    assert written(kept(twice), 3.0) == 7.0
    assert not [file for file in folder().iterdir() if file.is_file()]


def test_nothing_is_written_where_the_cache_is_off(kept, tmp_path, monkeypatch):
    monkeypatch.setenv(SETTING, "off")
    assert written(kept(twice), 3.0) == 7.0
    assert not [*tmp_path.iterdir()]


def test_settings_of_jax_that_look_at_every_number_are_heeded(kept):
    assert written(kept(jnp.log), np.asarray(-1.0)) != 0.0
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        written(kept(jnp.log), np.asarray(-1.0))


# ---------------------------------------------------------------- names
class Found(Exception):
    """The name of a run's program on disk, and its key in memory."""


@pytest.fixture
def found_of(monkeypatch, tmp_path):
    """A function that gives the name and the key of the program of a run, which it does not compile."""
    monkeypatch.setenv(SETTING, str(tmp_path))

    def begin(program, *_, **__):
        raise Found(program.lasting_name(), program.key)

    monkeypatch.setattr(Program, "begin", begin)

    def of(model, **options):
        with pytest.raises(Found) as raised:
            pmd.sample(20, tune=30, chains=2, random_seed=1, model=model, **options, **QUIET)
        return raised.value.args

    return of


@pytest.fixture
def name_of(found_of):
    return lambda model, **options: found_of(model, **options)[0]


Y = np.array([1.0, 2.5, 0.5, 3.0])


def stays(key, point, state):
    return point, state


def a_model(
    y=Y, sd=2.0, mean=0.3, effect=None, function=None, other="twice", by=2, upper=4, start=None, p=0.3
):
    with pm.Model() as model:
        b = pm.Normal("b", mean, sd, initval=start)
        z = pm.Bernoulli("z", p, shape=4)
        k = pm.DiscreteUniform("k", 0, upper)
        mu = b * z + k if effect is None else effect(b, z, k)
        pm.Normal("y", mu if function is None else function(mu), 1.0, observed=y)
        pm.Deterministic(other, by * b)
    return model


def continuous(effect):
    with pm.Model() as model:
        b = pm.Normal("b", 0.3, 2.0)
        pm.Normal("y", effect(b), 1.0, observed=Y)
    return model


def discrete(effect):
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.3, shape=4)
        pm.Potential("e", effect(0.3 * z.sum()))
    return model


def counted(mean):
    with pm.Model() as model:
        N = pm.Poisson("N", mean)
        pm.Binomial("y", n=N, p=pm.Beta("p", 2, 2), observed=3)
    return model


SAME = {
    "as it is": lambda found: found(a_model()),
    "data": lambda found: found(a_model(y=Y + 0.25)),
    "parameters of a prior": lambda found: found(a_model(mean=0.7)),
    "scale": lambda found: found(a_model(sd=3.0)),
    "start": lambda found: found(a_model(start=1.5)),
    "acceptance": lambda found: found(a_model(), target_accept=0.9),
}
OTHERS = {
    "graph": lambda found: found(a_model(effect=lambda b, z, k: b * z - k)),
    "function": lambda found: found(a_model(function=pt.exp)),
    "continuous unknowns alone": lambda found: found(continuous(pt.exp)),
    "of which another function is read": lambda found: found(continuous(pt.sin)),
    "discrete unknowns alone": lambda found: found(discrete(pt.exp)),
    "of which a term is another": lambda found: found(discrete(pt.sin)),
    "short stretches of a sum": lambda found: found(counted(5.0), collapse=["N"]),
    "long stretches of a sum": lambda found: found(counted(500.0), collapse=["N"]),
    "shape of data": lambda found: found(a_model(y=np.stack([Y, Y]))),
    "number in place of several": lambda found: found(a_model(p=np.array([0.3, 0.3, 0.3, 0.4]))),
    "support": lambda found: found(a_model(upper=5)),
    "name of what is recorded": lambda found: found(a_model(other="double")),
    "what is recorded": lambda found: found(a_model(by=3)),
    "what is left out": lambda found: found(a_model(), var_names=["b"]),
    "step": lambda found: found(m := a_model(), step=pmd.GibbsWithGradients(model=m)),
    "option of a step": lambda found: found(m := a_model(), step=pmd.GibbsWithGradients(model=m, n_flips=2)),
    "step of continuous unknowns": lambda found: found(
        m := a_model(), step=pmd.ReparameterizedSlice("b", model=m)
    ),
    "support of a step": lambda found: found(
        m := counted(5.0), step=pmd.BlockGibbs(support={"N": (0, 40)}, model=m)
    ),
    "another support of a step": lambda found: found(
        m := counted(5.0), step=pmd.BlockGibbs(support={"N": (0, 30)}, model=m)
    ),
    "transitions": lambda found: found(m := a_model(), step=pmd.GibbsWithGradients(model=m, transitions=3)),
    "division": lambda found: found(m := a_model(), step=[pmd.BlockGibbs([v], model=m) for v in "zk"]),
    "order of steps": lambda found: found(m := a_model(), step=[pmd.BlockGibbs([v], model=m) for v in "kz"]),
    "sum": lambda found: found(a_model(), collapse=["k"]),
    "tree depth": lambda found: found(a_model(), nuts={"max_treedepth": 5}),
    "mass matrix": lambda found: found(a_model(), nuts={"dense": True}),
    "pooled": lambda found: found(a_model(), nuts={"pooled": True}),
    "width": lambda found: found(a_model(), dtype="float32"),
    "precision": lambda found: with_precision(found),
}


def with_precision(found):
    with jax.default_matmul_precision("float32"):
        return found(a_model())


def test_models_that_share_a_program_have_one_name_and_no_others(found_of):
    """And one key in memory. Any other change of a model or an option makes another name and another key."""
    shared, others = ({what: of(found_of) for what, of in cases.items()} for cases in (SAME, OTHERS))
    for names in ({what: found[n] for what, found in shared.items()} for n in range(2)):
        assert None not in names.values()
        assert len(set(names.values())) == 1, names
    for n in range(2):
        names = {what: found[n] for what, found in (("as it is", shared["as it is"]), *others.items())}
        assert None not in names.values()
        same = [(a, b) for a in names for b in names if a < b and names[a] == names[b]]
        assert not same


class Logged:
    """A decorator that is a class."""

    def __init__(self, function):
        functools.update_wrapper(self, function)

    def __call__(self, *args):
        return self.__wrapped__(*args)


def test_what_a_user_has_written_has_no_name(name_of):
    """It may read a file or the environment, which no name could tell."""
    model = a_model()
    for step in (stays, Logged(stays), functools.partial(stays)):
        assert name_of(model, step=pmd.CustomStep(["b"], step=step, model=model)) is None


def test_what_is_of_a_library_of_no_known_version_has_no_name(name_of, monkeypatch):
    assert name_of(a_model()) is not None
    monkeypatch.setattr(stays, "__module__", "scipy.of_theirs")
    assert of_known_version(stays)
    monkeypatch.setattr(stays, "__module__", "their.library")
    assert not of_known_version(stays)


def test_names_are_those_of_one_version_and_of_one_setting_of_xla(name_of, monkeypatch):
    model, environment = a_model(), programs_on_disk.environment
    here = name_of(model)
    assert re.fullmatch("[0-9a-f]{32}", here)
    with monkeypatch.context() as patch:
        patch.setenv("XLA_FLAGS", f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_enable_fast_math=false")
        patch.setattr(programs_on_disk, "environment", environment.__wrapped__)
        assert re.fullmatch("[0-9a-f]{32}", found := name_of(model))
    assert found != here
    assert name_of(model) == here
    monkeypatch.setattr(programs_on_disk, "environment", lambda: ("another version",))
    assert name_of(model) not in (here, found)
