"""Whether two parts of a model are the same: keys that cover everything a graph can hold.

A key looks into constants, dense and sparse, into inner graphs (of Scan, OpFromGraph, Composite), the
attributes of Ops, and into functions and classes of the user: their code, closures and defaults, and the
global names that they read. Objects of an installed library are known by their names. Any other object, such
as an open file, cannot be looked into: within a process it is equal to itself only, and between processes it
is equal to nothing.
"""

import builtins
import dis
import functools
import hashlib
import importlib
import sys
import sysconfig
from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from contextlib import suppress
from importlib.util import resolve_name
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import numpy as np
import pymc as pm
from pymc.logprob.abstract import _icdf, _logcdf, _logprob
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph, FrozenFunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.traversal import toposort
from pytensor.graph.type import Type
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.misc.frozendict import frozendict
from pytensor.scalar.basic import ScalarInnerGraphOp
from pytensor.scan.op import Scan
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.optimize import ScipyWrapperOp
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.type import TensorType
from scipy.sparse import issparse

from pymc_discrete.runtime import programs_on_disk
from pymc_discrete.runtime.compile_cache import usable_folder
from pymc_discrete.runtime.jax_settings import settings_now

# {class: attributes that its objects fill when they are compiled}; keys leave these attributes out, since
# what an object computes does not depend on them
FILLED_LATER: dict[type, set[str]] = {
    CAReduce: {"_ufunc"},
    Elemwise: {"nfunc", "ufunc"},
    OpFromGraph: {
        "_connection_pattern",
        "_frozen_lop",
        "_frozen_rop",
        "_inner_shape_frozen",
        "_inner_shape_template",
        "_lop_op_cache",
        "_rop_op_cache",
    },
    ScalarInnerGraphOp: {"_c_code", "_name", "_py_perform_fn", "inner_float16", "nodenames"},
    Scan: {"_fn", "t_call", "t_fn", "vector_outs", "vector_seqs"},
    ScipyWrapperOp: {"_fn_wrapped"},
    frozendict: {"_hash"},
}
# attributes of classes and functions that keys leave out: Python makes them, or what is computed does not
# depend on them
NO_CONTENT = {
    "_abc_impl",
    "__annotate_func__",
    "__annotations__",
    "__annotations_cache__",
    "__dict__",
    "__doc__",
    "__epydoc_asRoutine",
    "__firstlineno__",
    "__module__",
    "__name__",
    "__oplist_tags",
    "__qualname__",
    "__static_attributes__",
    "__type_params__",
    "__weakref__",
    "__wrapped__",
}
# Functions by which a function of the user may read what is not in its code, its globals or its closure. A
# function that calls one of them cannot be compared with functions of another process.
UNSEEN = {"__import__", "compile", "eval", "exec", "globals", "input", "open", "vars"}
# packages that every model needs, whose versions need not be a part of the digest of a function or class
EXPECTED = {"builtins", "jax", "jaxlib", "numpy", "pymc", "pymc_discrete", "pytensor", "scipy"}
INSTALLED = [
    Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")
]
FOLLOWS = (type(None), bool, int, str, tuple, list, dict)
PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented))
NAMED_TYPES = (WrapperDescriptorType, MethodDescriptorType, GetSetDescriptorType, MemberDescriptorType)


_frozen: WeakKeyDictionary[FrozenFunctionGraph, bytes] = WeakKeyDictionary()


class Same(NamedTuple):
    """An object that is equal to itself only."""

    thing: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.thing is other.thing

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return id(self.thing)


class Key(NamedTuple):
    """The key of an object in this process.

    Attributes
    ----------
    digest : the checksum of all that can be looked into
    own : functions and classes of the user and objects that cannot be looked into, in the order of the walk,
        each equal to itself only; and objects of this package that define their own equality
    """

    digest: bytes
    own: tuple[Hashable, ...]


class NotComparable(ValueError):
    """An object holds something that cannot be compared with an object of another process."""


def key_of_object(thing: Any) -> Key:
    """The key of an object, with all that it holds, in this process."""
    walk = Walk()
    return Key(walk.of(thing), tuple(walk.own))


def key_of_graph(outputs: Iterable[Variable]) -> Key:
    """The key of PyTensor graphs: their Ops, how they are connected, and their leaves."""
    return key_of_object(Graphs(list(outputs), {}))


def lasting_key(thing: Any, of_users: bool = True) -> str:
    """The key of an object that is the same in every process.

    Parameters
    ----------
    of_users : whether the key may contain functions and classes of the user, or of a library of unknown
        version, which may read what is no part of the key: files, or variables that other code sets

    Raises
    ------
    NotComparable
        If a part of the object cannot be looked into, or reads something that no object holds.
    """
    walk = Walk(lasting=True, of_users=of_users)
    digest = walk.of(thing)
    if walk.unseen:
        raise NotComparable(walk.unseen[0])
    return digest.hex()


def lasting_name(*things: Any) -> str | None:
    """A name on disk for what is made of some objects under the settings of JAX, such as a program.

    None where nothing is kept on disk, or an object cannot be compared with objects of another process.
    """
    if usable_folder() is None:
        return None
    try:
        found = [programs_on_disk.environment(), [*map(str, settings_now())], *things]
        return lasting_key(found, of_users=False)
    except NotComparable:
        return None


class Graphs(NamedTuple):
    """PyTensor graphs as an object whose key has other objects in the place of some leaves.

    Attributes
    ----------
    outputs : the variables that the graphs compute
    known : {leaf: the object that replaces it in the key}
    """

    outputs: list[Variable]
    known: Mapping[Variable, Hashable]


class Walk:
    """A walk through objects and all that they hold.

    Parameters
    ----------
    lasting : whether the digests must be the same in every process
    of_users : whether objects may be functions and classes of the user, or of a library of unknown version

    Attributes
    ----------
    own : the objects that are compared as they are, and not by a digest, see `Key`
    unseen : descriptions of the objects that cannot be looked into
    """

    def __init__(self, lasting: bool = False, of_users: bool = True):
        self.lasting, self.of_users = lasting, of_users
        self.own: list[Hashable] = []
        self.unseen: list[str] = []
        self._known: dict[int, bytes] = {}
        self._open: dict[int, int] = {}  # {id: depth} of the objects that the walk is inside of
        # The walk knows objects by their id, and keeps all that it has seen alive: Python gives the id of an
        # object that is gone to another.
        self._alive: list[Any] = []

    def of(self, thing: Any) -> bytes:
        """The digest of an object: a checksum of all that it holds."""
        if type(thing) in PLAIN:
            return digest(f"{type(thing).__name__} {thing!r}".encode())
        place = id(thing)
        if place in self._known:
            return self._known[place]
        if place in self._open:  # the object contains itself
            return digest(f"the thing {len(self._open) - self._open[place]} levels up".encode())
        self._open[place] = len(self._open)
        self._alive.append(thing)
        found = self._look(thing)
        del self._open[place]
        self._known[place] = found
        return found

    def all(self, kind: str, *things: Any) -> bytes:
        """The digest of several objects together; `kind` is a word for what they form."""
        return digest(kind.encode() + b"".join(map(self.of, things)))

    def _look(self, thing: Any) -> bytes:
        """The digest of an object that the walk meets for the first time."""
        if type(thing) in (tuple, list):  # tuples and lists are the most frequent case, and are tried first
            return self.all(type(thing).__name__, *thing)
        if isinstance(thing, Graphs):
            return self.graph(thing.outputs, thing.known)
        if isinstance(thing, Op):
            return self._op(thing)
        if isinstance(thing, Type):
            return self._type(thing)
        if isinstance(thing, np.ndarray):
            return self._array(thing)
        if isinstance(thing, np.generic):
            return self._array(np.asarray(thing))
        if isinstance(thing, np.dtype):
            return self.all("dtype", str(thing.descr if thing.names else thing.str))
        if isinstance(thing, Variable):
            return self.graph([thing], {})
        if isinstance(thing, AbstractFunctionGraph):
            return self._inner_graph(thing)
        if isinstance(thing, pm.Model):
            return self._model(thing)
        if issparse(thing):
            return self._sparse(thing)
        if isinstance(thing, jax.Array):
            if jax.dtypes.issubdtype(thing.dtype, jax.dtypes.prng_key):
                return self.all("key", str(thing.dtype), np.asarray(jax.random.key_data(thing)))
            return self.all("jax", np.asarray(thing))
        if isinstance(thing, type | FunctionType):
            if not self.of_users and not of_known_version(thing):
                self.unseen.append(f"{thing.__qualname__}, of which no version is known")
            return self._class(thing) if isinstance(thing, type) else self._function(thing)
        if isinstance(thing, ModuleType):
            return self._module(thing, [])
        if isinstance(thing, CodeType):
            return self._code(thing)
        if isinstance(thing, CellType):
            try:
                return self.all("cell", thing.cell_contents)
            except ValueError:
                return digest(b"an empty cell")
        if isinstance(thing, NAMED_TYPES):
            return self.all("named", thing.__objclass__, thing.__name__)
        return self._other(thing)

    # ------------------------------------------------------------ numbers
    def _array(self, thing: np.ndarray) -> bytes:
        if isinstance(thing, np.ma.MaskedArray):
            return self.all("masked", np.asarray(thing.data), np.ma.getmaskarray(thing))
        if thing.dtype.hasobject:
            return self.all("objects", thing.dtype, thing.shape, thing.tolist())
        return self.all("array", thing.dtype, thing.shape, digest(np.ascontiguousarray(thing)))

    def _sparse(self, thing: Any) -> bytes:
        c = thing.tocsr()
        return self.all("sparse", thing.format, thing.shape, c.data, c.indices, c.indptr)

    # ------------------------------------------------------------ graphs
    def graph(self, outputs: list[Variable], known: Mapping[Variable, Hashable]) -> bytes:
        """The digest of graphs; `known` is {leaf: the object that replaces it in the digest}."""
        number: dict[Variable, int] = {}
        parts: list[bytes] = []

        def numbered(v: Variable) -> bytes:
            if v not in number:
                number[v] = len(number)
                parts.append(self.of(known[v]) if v in known else self._leaf(v))
            return number[v].to_bytes(4)

        for node in toposort(outputs):
            inputs = b"".join([numbered(v) for v in node.inputs])
            for out in node.outputs:
                number[out] = len(number)
            parts += [b"node", self.of(node.op), inputs, *(self.of(out.type) for out in node.outputs)]
        ends = b"".join([numbered(v) for v in outputs])
        return digest(b"graph" + b"".join(parts) + ends)

    def _inner_graph(self, graph: AbstractFunctionGraph) -> bytes:
        """The digest of a graph within an Op, computed only once in a process if the graph cannot change."""
        if isinstance(graph, FrozenFunctionGraph) and graph in _frozen:
            return _frozen[graph]
        before = len(self.own), len(self.unseen)
        found = self.graph(graph.outputs, {v: ("inner", n) for n, v in enumerate(graph.inputs)})
        # The digest is kept only if the graph has no function of the user, since what such a function reads
        # may change.
        if isinstance(graph, FrozenFunctionGraph) and before == (len(self.own), len(self.unseen)):
            _frozen[graph] = found
        return found

    def _leaf(self, v: Variable) -> bytes:
        """The digest of a variable that no Op computes."""
        if isinstance(v.type, RandomType):
            return digest(b"random generator")
        if isinstance(v, SharedVariable):
            return self.all("shared", v.type, v.get_value(borrow=True))
        if isinstance(v, Constant):
            return self.all("constant", v.type, v.data)
        return self.all("input", v.type, v.name)

    def _model(self, model: pm.Model) -> bytes:
        values = list(model.rvs_to_values.values())
        made = [*model.rvs_to_values, *model.potentials, *model.deterministics, *values]
        return self.all("model", self.graph(made, {}), list(model.rvs_to_transforms.values()))

    def _op(self, op: Op) -> bytes:
        kind: Any = type(op)
        if says_what_it_is(kind):
            if self.lasting:
                return self.all("own", kind, op.identity)
            self.own.append(op)
            return digest(b"an Op that is equal to others")
        # The functions that compute the Op are a part of its key, except functions of libraries.
        functions = [f for f in computing(kind) if not is_named(f)]
        props = [getattr(op, name) for name in getattr(kind, "__props__", None) or ()]
        if not props or not is_named(kind):
            return self.all("op", kind, self._attributes(op), props, functions)
        # The attributes of a library's Op follow from its `__props__`, except graphs, numbers and functions
        # among them.
        more = {n: v for n, v in vars(op).items() if type(v) not in FOLLOWS and n not in computed_later(kind)}
        return self.all("op", kind, props, *sorted_items(more), *functions)

    def _type(self, thing: Type) -> bytes:
        if type(thing) is TensorType:
            return digest(f"TensorType {thing.dtype} {thing.shape}".encode())
        content = {n: v for n, v in vars_of(thing).items() if n != "name"}
        return self.all("type", type(thing), *sorted_items(content))

    def _attributes(self, thing: Any) -> bytes:
        """The digest of an object's attributes, except attributes that it computes from others when first
        asked.
        """
        kind: Any = type(thing)
        later = computed_later(kind)
        found = {n: v for n, v in vars_of(thing).items() if n not in later}
        for name, slot in slots_of(kind):
            with suppress(AttributeError):
                found[name] = slot.__get__(thing)
        return self.all("attributes", *sorted_items(found))

    # ------------------------------------------------------------ functions, classes, modules
    def _class(self, kind: type) -> bytes:
        if is_named(kind):
            return self._name(kind)
        self.own.append(Same(kind))
        content = {n: v for n, v in vars(kind).items() if n not in NO_CONTENT}
        return self.all("class", kind.__name__, type(kind), kind.__bases__, *sorted_items(content))

    def _name(self, thing: Any) -> bytes:
        """The digest of a named object of a library."""
        top = thing.__module__.partition(".")[0]
        known = top in EXPECTED or top in sys.stdlib_module_names
        version = None if known else str(getattr(sys.modules.get(top), "__version__", None))
        return self.all("of a library", thing.__module__, thing.__qualname__, version)

    def _function(self, function: FunctionType) -> bytes:
        if is_named(function):
            return self._name(function)
        ours = is_installed(function.__module__)
        if not ours:
            self.own.append(Same(function))
        defaults = (function.__defaults__, function.__kwdefaults__)
        attributes = sorted_items(vars_of(function))
        # what a function of a library reads is given by the version of the library
        read = [] if ours else self._globals(function)
        return self.all("function", function.__code__, function.__closure__, defaults, attributes, read)

    def _code(self, code: CodeType) -> bytes:
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        return self.all("code", code.co_code, code.co_consts, code.co_exceptiontable, counts, names)

    def _globals(self, function: FunctionType) -> list[bytes]:
        """Digests of the global names that a function reads, and of the modules that it imports."""
        codes = nested(function.__code__)
        # All names and strings in the code of the function. Of a module of the user, only members with one of
        # these names are digested.
        words = {w for code in codes for w in (*code.co_names, *code.co_consts) if isinstance(w, str)}
        found = []
        for module, name in sorted({read for code in codes for read in reads_of(code)}):
            if module:
                value = imported(function, name)
                if value is None:
                    self._not_seen(f"{described(function)} imports {name!r}, which is not found")
                    continue
            elif name in function.__globals__:
                value = function.__globals__[name]
            else:
                if name in UNSEEN and hasattr(builtins, name):
                    self._not_seen(f"{described(function)} calls {name!r}, and what that reads is not known")
                continue
            digested = self._module(value, words) if isinstance(value, ModuleType) else self.of(value)
            found.append(self.all(name, digested))
        return found

    def _module(self, module: ModuleType, words: Iterable[str]) -> bytes:
        """The digest of a module; for a module of the user, the digest of its members with a name among
        `words`.
        """
        name = module.__name__
        if is_installed(name):
            return self.all("module", name)
        if id(module) in self._open:
            return digest(f"the module {name}".encode())
        self._open[id(module)] = len(self._open)
        values = {word: vars(module)[word] for word in words if word in vars(module)}
        found = {
            word: self._module(value, words) if isinstance(value, ModuleType) else self.of(value)
            for word, value in sorted(values.items())
        }
        del self._open[id(module)]
        return self.all("module", name, *sorted_items(found))

    # ------------------------------------------------------------ other objects
    def _other(self, thing: Any) -> bytes:
        kind: Any = type(thing)
        if self.lasting and says_what_it_is(kind):
            return self.all("own", kind, thing.identity)
        if is_named(thing):  # a function of a library that is not written in Python
            return self._name(thing)
        if isinstance(thing, MethodType):
            return self.all("method", thing.__self__, thing.__func__)
        if isinstance(thing, BuiltinFunctionType):
            bound: Any = getattr(thing, "__self__", None)
            of: Any = bound.__name__ if isinstance(bound, ModuleType) else bound
            return self.all("builtin", of, thing.__name__)
        if isinstance(thing, np.ufunc):
            name = getattr(thing, "__name__", "")
            for library in (np, sys.modules.get("scipy.special")):
                if library is not None and getattr(library, name, None) is thing:
                    return self.all("ufunc", library.__name__, name)
            return self._not_seen(f"the universal function {thing!r}")
        # a list, a tuple, or a subclass of these with attributes of its own
        if isinstance(thing, list | tuple | deque):
            return self.all("sequence", kind, self._attributes(thing), *thing)
        if isinstance(thing, dict | MappingProxyType | frozendict):
            items = [x for item in thing.items() for x in item]
            return self.all("dictionary", kind, self._attributes(thing), *items)
        if isinstance(thing, set | frozenset):
            return self.all("set", kind, self._attributes(thing), *sorted(map(self.of, thing)))
        if isinstance(thing, slice):
            return self.all("slice", thing.start, thing.stop, thing.step)
        if isinstance(thing, range):
            return self.all("range", thing.start, thing.stop, thing.step)
        if isinstance(thing, classmethod | staticmethod):
            return self.all("function", kind, thing.__func__)
        if isinstance(thing, property):
            return self.all("property", thing.fget, thing.fset, thing.fdel)
        if hasattr(thing, "__wrapped__") and is_named(kind):  # a function that a library has compiled
            return self.all("wrapped", kind, thing.__wrapped__, *callables(vars_of(thing)))
        return self._object(thing)

    def _object(self, thing: Any) -> bytes:
        """The digest of an object by what `pickle` would keep of it."""
        kind = type(thing)
        try:
            kept = thing.__reduce_ex__(2)
        # an object that cannot be pickled holds something outside of Python, such as a file
        except Exception:
            return self._not_seen(f"a {kind.__module__}.{kind.__qualname__}", thing)
        plain = kind.__reduce_ex__ is object.__reduce_ex__ and kind.__reduce__ is object.__reduce__
        own = self._attributes(thing) if plain or not is_named(kind) else None
        if isinstance(kept, str):
            return self.all("of a library" if is_named(kind) else "named", kind, kept, own)
        make, args, *rest = kept
        state, items, entries = [*rest, None, None, None][:3]
        if plain:
            # The state that `pickle` would keep of a plain object is its attributes. The digest has these,
            # without those that the object computes when they are first asked for.
            state = None
        return self.all("object", kind, own, make, args, state, list(items or ()), list(entries or ()))

    def _not_seen(self, what: str, thing: Any = None) -> bytes:
        self.unseen.append(what)
        if thing is not None:
            self.own.append(Same(thing))
        return digest(b"not seen")


# ---------------------------------------------------------------- properties of Python objects
@functools.lru_cache(10_000)
def computed_later(kind: Any) -> frozenset[str]:
    """The attributes that objects of a class compute when they are first asked for, or when they are
    compiled.
    """
    names = {n for c in kind.__mro__ for n, v in vars(c).items() if isinstance(v, functools.cached_property)}
    return frozenset(names.union(NO_CONTENT, *(FILLED_LATER.get(c, ()) for c in kind.__mro__)))


@functools.lru_cache(10_000)
def slots_of(kind: Any) -> list[tuple[str, MemberDescriptorType]]:
    """The attributes of a class's objects that are in slots and not in a dictionary."""
    members = [item for c in kind.__mro__ for item in vars(c).items()]
    return [(name, slot) for name, slot in members if isinstance(slot, MemberDescriptorType)]


def says_what_it_is(kind: Any) -> bool:
    """Whether a class of this package has an attribute `identity`, which says all that its objects
    compute."""
    return kind.__module__.startswith("pymc_discrete.") and hasattr(kind, "identity")


def computing(kind: type) -> list[Any]:
    """The functions that PyMC and JAX call for the Ops of a class."""
    return [f.dispatch(kind) for f in (jax_funcify, _logprob, _logcdf, _icdf)]


def digest(content: Any) -> bytes:
    """A checksum of bytes, or of the numbers of a contiguous array."""
    return hashlib.blake2b(content, digest_size=16).digest()


def vars_of(thing: Any) -> dict[str, Any]:
    """The attributes in the dictionary of an object, except attributes that Python reserves."""
    return {n: v for n, v in getattr(thing, "__dict__", {}).items() if n not in NO_CONTENT}


def sorted_items(content: Mapping[str, Any]) -> list[Any]:
    """A list of the names in a dictionary in alphabetical order, each followed by its value."""
    return [x for item in sorted(content.items(), key=lambda item: item[0]) for x in item]


@functools.cache
def is_installed(module: str | None) -> bool:
    """Whether a module belongs to Python or to a package that is installed."""
    top = (module or "").partition(".")[0]
    if top in EXPECTED or top in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(top), "__file__", None)
    return file is not None and any(Path(file).resolve().is_relative_to(folder) for folder in INSTALLED)


def of_known_version(thing: Any) -> bool:
    """Whether a class or function is of Python or of a library whose version is known."""
    top = str(thing.__module__).partition(".")[0]
    return top in EXPECTED or top in programs_on_disk.LIBRARIES or top in sys.stdlib_module_names


def is_named(thing: Any) -> bool:
    """Whether a class or function can be found by its name in an installed module."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or not is_installed(module):
        return False
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is thing


def nested(code: CodeType) -> list[CodeType]:
    """The code of a function and of the functions in it."""
    return [code, *(c for const in code.co_consts if isinstance(const, CodeType) for c in nested(const))]


def reads_of(code: CodeType) -> list[tuple[bool, str]]:
    """[(whether it is imported, name)] of the global names and modules that some code reads."""
    found: list[tuple[bool, str]] = []
    before: list[dis.Instruction] = []
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
            found.append((False, step.argval))
        # the level of a relative import, 2 for `from .. import x`, is loaded two instructions earlier
        elif step.opname == "IMPORT_NAME":
            found.append((True, "." * int(before[-2].argval or 0) + step.argval))
        before.append(step)
    return found


def imported(function: FunctionType, name: str) -> ModuleType | None:
    """The module with the given name that a function imports; None where there is no such module."""
    try:
        package = function.__globals__.get("__package__")
        return importlib.import_module(resolve_name(name, package) if name.startswith(".") else name)
    except ImportError:
        return None


def callables(content: Mapping[str, Any]) -> list[Any]:
    """The callable values of a dictionary, in the order of their names."""
    return [content[name] for name in sorted(content) if callable(content[name])]


def described(function: FunctionType) -> str:
    """A description of a function for an error message."""
    return f"{function.__qualname__} of {function.__module__}"
