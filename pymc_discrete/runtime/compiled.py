"""Methods that are compiled once, at their first call, for all objects that share them."""

from collections.abc import Callable
from typing import Any

from pymc_discrete.runtime.compile_cache import usable_folder
from pymc_discrete.runtime.jax_settings import REPEATED, jitted, settings_now
from pymc_discrete.runtime.programs_on_disk import KeptOnDisk, under_name


class Programs:
    """The compiled methods of some objects, and their names on disk. Only the names are pickled.

    Attributes
    ----------
    compiled : {name of a method: the compiled method}
    names : {settings of JAX: the result of `CompiledMethods.lasting_name`}
    """

    def __init__(self) -> None:
        self.compiled: dict[str, Callable[..., Any]] = {}
        self.names: dict[tuple[str, ...], str | None] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "compiled": {}}


class CompiledMethods:
    """An object with methods that are pure functions of JAX arrays, compiled when they are first needed.

    Objects are equal if they share their compiled programs. A copy shares the programs of the original
    object; a copy in another process has no programs yet, but copies that are pickled together share theirs.
    """

    def __init__(self) -> None:
        self._programs = Programs()

    def __eq__(self, other: object) -> bool:
        """Whether two objects have the same functions and share their compiled programs."""
        return isinstance(other, CompiledMethods) and self._programs is other._programs

    def __hash__(self) -> int:
        return id(self._programs)

    def __copy__(self) -> "CompiledMethods":
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def level_of(self, name: str) -> Any:
        """The optimisation level at which XLA compiles a method, see `jitted`."""
        return REPEATED

    def lasting_name(self) -> str | None:
        """A name that is the same in every process and tells the object's functions from all others; None
        where there is no such name.
        """
        return None

    def compiled(self, name: str) -> Callable[..., Any]:
        """The method of the given name, compiled at its first call."""
        programs = self._programs.compiled
        if name not in programs:
            lasting = self._lasting_name_now()
            level = self.level_of(name)
            function = jitted(under_name(getattr(self, name), lasting), level)
            programs[name] = KeptOnDisk(function, f"{lasting} {name}", level) if lasting else function
        return programs[name]

    def _lasting_name_now(self) -> str | None:
        """The result of `lasting_name` under the present settings of JAX; None if nothing is kept on disk.

        It takes long to find, so it is kept, also in a pickled copy.
        """
        if usable_folder() is None:
            return None
        settings = (*map(str, settings_now()),)
        if settings not in self._programs.names:
            self._programs.names[settings] = self.lasting_name()
        return self._programs.names[settings]
