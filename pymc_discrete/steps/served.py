"""Draws for the processes that PyMC starts for its chains, which ask the process of the step for them.

JAX hangs in a process that was forked after it had run, and every process would compile the same program. So
the process that made a step (its home) makes the draws of all chains, each in a thread, and other processes
are its clients. There is one listener for all steps of a process, opened when the process forks or a step is
pickled: an abstract Unix socket on Linux, which leaves no file behind however the process ends, and a port of
the loopback interface elsewhere. A client must show that it knows a random key. Messages are arrays and JSON,
and nothing in them is executed.

This module does not import JAX, so that a worker does not wait for the import.
"""

import atexit
import contextlib
import functools
import hmac
import os
import pickle
import secrets
import select
import socket
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from multiprocessing import parent_process
from typing import Any, NamedTuple, cast

import numpy as np
from pymc.blocking import PointType, StatsType
from pymc.exceptions import SamplingError
from pymc.step_methods.compound import BlockedStep
from pymc.util import get_random_generator

from pymc_discrete.engine.source import ChainOrder, ChainSource, Chunk, Handed
from pymc_discrete.runtime.fork import jax_is_running
from pymc_discrete.runtime.messages import decoded, encoded
from pymc_discrete.steps.ahead import Ahead, AheadState, HasChain

WAIT = 5.0  # seconds after which a client checks whether its parent is alive
ENDED = "The process that makes the draws of this chain has ended, and the chain cannot go on."
# A client sends this word in place of a step's name on a connection that carries no messages: the connection
# closes when the process that makes the draws has ended.
LIFELINE = "lifeline"
PURPOSE = b"pymc_discrete"  # a text that a client signs together with the server's random challenge
# errors that keep their type when they are sent to a client
SENT_ERRORS = {
    e.__name__: e for e in (SamplingError, ValueError, TypeError, NotImplementedError, RuntimeError)
}


class Address(NamedTuple):
    """The address at which a step is served.

    Attributes
    ----------
    place : the address of a socket: a name, or a host and a port
    key : the key that clients must know
    step : the name of the step in its home process
    """

    place: str | tuple[str, int]
    key: bytes
    step: str


# ---------------------------------------------------------------- messages
def as_chunk(parts: Any) -> Chunk | None:
    """The draws of a chunk, as a `Chunk`, from a message."""
    if parts is None:
        return None
    first, draws, stats, blocks = parts
    return Chunk(first, draws, stats, [(place, names) for place, names in blocks])


def as_handed(parts: Any) -> Handed:
    """The state of a chain whose draws were handed out to PyMC, as a `Handed`, from a message."""
    before, first, used, order, last, divergences = parts
    return Handed(before, first, used, ChainOrder(*order), last, divergences)


# ---------------------------------------------------------------- sockets
def send(connection: socket.socket, message: bytes) -> None:
    """Send a message: first its length in 8 bytes, and then the message itself."""
    connection.sendall(len(message).to_bytes(8, "little") + message)


def receive(connection: socket.socket) -> bytes:
    """Wait for one message that the process at the other end has sent by `send`.

    Raises
    ------
    EOFError
        If the process at the other end has ended.
    """
    return _exactly(connection, int.from_bytes(_exactly(connection, 8), "little"))


def _exactly(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        part = connection.recv(min(size - len(received), 2**20))
        if not part:
            raise EOFError
        received += part
    return bytes(received)


def proof(key: bytes, challenge: bytes) -> bytes:
    """The signature of a challenge, by which a client shows that it knows the key."""
    return hmac.digest(key, challenge + PURPOSE, "sha256")


# ---------------------------------------------------------------- the process that makes draws
class Server:
    """An object that makes the draws of the steps of this process for other processes.

    Attributes
    ----------
    place : the address of its socket: a name, or a host and a port
    key : the key that clients must know
    """

    def __init__(self) -> None:
        self.key = secrets.token_bytes(32)
        if sys.platform == "linux":
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._listener.bind(f"\0pymc-discrete-{os.getpid()}-{secrets.token_hex(8)}")
            self.place = self._listener.getsockname().decode()
        else:
            self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            self._listener.bind(("127.0.0.1", 0))
            self.place = self._listener.getsockname()
        self._listener.listen(64)
        self._open: set[socket.socket] = set()
        # one lock for each client, held while the client is answered
        self._answering: set[threading.Lock] = set()
        threading.Thread(target=self._accept, name="draws-ahead-listener", daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            self._open.add(connection)
            threading.Thread(target=self._serve, args=(connection,), name="draws-ahead", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        """Answer one client until its process ends."""
        source: ChainSource | None = None
        answering = threading.Lock()
        self._answering.add(answering)
        try:
            challenge = secrets.token_bytes(32)
            send(connection, challenge)
            if not hmac.compare_digest(_exactly(connection, 8 + 32)[8:], proof(self.key, challenge)):
                return
            name = receive(connection).decode()
            served = _served.get(name)
            send(connection, encoded(served is not None or name == LIFELINE))
            if name == LIFELINE:
                # `receive` returns only when the client's process has ended, since the client sends nothing
                receive(connection)
            if served is None:
                return
            source = served()
            while True:
                name, *args = decoded(receive(connection))
                try:
                    with answering:
                        answer = {"value": _answer(source, name, args)}
                except Exception as error:  # the error is sent to the client, which raises it
                    answer = {"error": type(error).__name__, "text": str(error)}
                send(connection, encoded(answer))
        except (EOFError, OSError):  # the client's process has ended
            pass
        finally:
            if source is not None:
                source.close()
            self._answering.discard(answering)
            self._open.discard(connection)
            connection.close()

    def finish(self) -> None:
        """Wait until all current requests are answered, and answer no further ones.

        Python ends threads that are still running after the main thread. A thread that is ended in JAX's code
        ends the process with SIGABRT, as after Ctrl-C while the first chunk is compiled.
        """
        for answering in [*self._answering]:
            answering.acquire()

    def close_in_child(self) -> None:
        """Close the sockets that this process has inherited by a fork.

        While these sockets are open, the clients do not see that the process which serves them has ended.
        """
        for inherited in (self._listener, *self._open):
            inherited.close()


def _answer(source: ChainSource, name: str, args: list[Any]) -> Any:
    """The answer of a source to a client's request."""
    if name == "begin":
        return source.begin(ChainOrder(*args[0]), args[1])
    if name == "resume":
        return source.resume(as_handed(args[0]))
    if name not in ("next", "moved", "stop_tuning", "conclude", "state"):
        raise ValueError(f"{name!r} is nothing that can be asked of a source of draws.")
    return getattr(source, name)(*args)


class Served:
    """A step whose draws its home process makes, also for other processes.

    Parameters
    ----------
    make : a function that makes a `ChainSource` in this process
    """

    def __init__(self, make: Callable[[], ChainSource]):
        self._make, self._home, self._name = make, os.getpid(), secrets.token_hex(8)
        _served[self._name] = self

    def __call__(self) -> ChainSource:
        """A new source of draws, in this process."""
        return self._make()

    def address(self) -> Address:
        """The address at which the step is served from now on."""
        server = server_of_process()
        return Address(server.place, server.key, self._name)

    def source(self, here: Callable[[], ChainSource]) -> ChainSource:
        """The source of draws for this process: the home process, if this process was forked from it, else
        the result of `here`, a function.

        The result of `here` is also used if the home process does not answer.
        """
        if self._home == os.getpid() or _inherited is None:
            return here()
        return Remote.at(Address(*_inherited, self._name)) or here()


_served: "weakref.WeakValueDictionary[str, Served]" = weakref.WeakValueDictionary()
_server: Server | None = None
# the place and the key of the home's server, in a forked process
_inherited: tuple[str | tuple[str, int], bytes] | None = None
# a context that hides JAX's warning about forks, kept while the process forks, else None
_hidden: warnings.catch_warnings | None = None


def server_of_process() -> Server:
    """The server of this process, which is started if there is none."""
    global _server
    if _server is None:
        _server = Server()
    return _server


def no_warning_of_forks() -> None:
    """From now on, hide JAX's warning at each fork if a step is served, since PyMC's workers do not use JAX.

    JAX registers its warning with `os.register_at_fork` when its backend starts. Registered functions run in
    the reverse order of registration, so that a function that is registered later hides the warning in time.
    """
    if jax_is_running():
        _hide_warnings_of_forks()


@functools.cache
def _hide_warnings_of_forks() -> None:
    if hasattr(os, "register_at_fork"):  # Windows cannot fork processes
        os.register_at_fork(before=_hide_warning, after_in_parent=_warn_again, after_in_child=_warn_again)


def _hide_warning() -> None:
    global _hidden
    if len(_served):
        _hidden = warnings.catch_warnings()
        _hidden.__enter__()
        warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)


def _warn_again() -> None:
    global _hidden
    if _hidden is not None:
        _hidden.__exit__(None, None, None)
        _hidden = None


def _before_fork() -> None:
    if len(_served):
        server_of_process()


@atexit.register
def _finish() -> None:
    if _server is not None:
        _server.finish()


def _after_in_child() -> None:
    global _server, _inherited
    if _server is not None:
        _inherited = (_server.place, _server.key)
        _server.close_in_child()
        _server = None


if hasattr(os, "register_at_fork"):  # Windows cannot fork processes
    os.register_at_fork(before=_before_fork, after_in_child=_after_in_child)


# ---------------------------------------------------------------- the processes that ask for draws
ONE_CHAIN = "A process that PyMC has started runs one chain, and makes no others beside it."


class Remote:
    """A `ChainSource` that receives its draws through a socket from the process that makes them."""

    spare = 0  # a process of PyMC makes no chains beside its own

    def __init__(self, connection: socket.socket, address: Address):
        self._connection, self._address = connection, address
        self._lifeline: Remote | None = None
        self._closed = False

    @classmethod
    def at(cls, address: Address) -> "Remote | None":
        """The client of a step; None if nobody serves the step."""
        family = socket.AF_INET if isinstance(address.place, tuple) else socket.AF_UNIX
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.connect(address.place)
            send(connection, proof(address.key, receive(connection)))
            send(connection, address.step.encode())
            if decoded(receive(connection)):
                return cls(connection, address)
        except (OSError, EOFError):
            pass
        connection.close()
        return None

    def _ask(self, name: str, *args: Any) -> Any:
        try:
            send(self._connection, encoded([name, *args]))
            while not select.select([self._connection], [], [], WAIT)[0]:
                parent = parent_process()
                if parent is not None and not parent.is_alive():
                    raise EOFError
            answer = decoded(receive(self._connection))
        except (EOFError, OSError) as error:
            raise RuntimeError(ENDED) from error
        if "error" in answer:
            raise SENT_ERRORS.get(answer["error"], RuntimeError)(answer["text"])
        return answer["value"]

    def _end_with_home(self) -> None:
        """End this process when the process that makes the draws ends.

        A process that PyMC has forked has both ends of its pipe to PyMC, and would wait for PyMC for ever.
        """
        if parent_process() is None or self._lifeline is not None:
            return
        self._lifeline = lifeline = Remote.at(self._address._replace(step=LIFELINE))
        if lifeline is not None:
            threading.Thread(target=lifeline._await_end, name="lifeline", daemon=True).start()

    def _await_end(self) -> None:
        try:
            while self._connection.recv(1):
                pass
        except OSError:
            pass
        if not self._closed:
            print(ENDED, file=sys.stderr, flush=True)
            os._exit(1)

    def foreseen(self, order: ChainOrder, point: dict[str, np.ndarray]) -> ChainSource:
        raise NotImplementedError(ONE_CHAIN)

    def allow(self, draws: int) -> None:
        raise NotImplementedError(ONE_CHAIN)

    def begin(self, order: ChainOrder, point: dict[str, np.ndarray]) -> Chunk:
        self._end_with_home()
        return cast(Chunk, as_chunk(self._ask("begin", order, point)))

    def next(self) -> Chunk:
        return cast(Chunk, as_chunk(self._ask("next")))

    def moved(self, used: int, point: dict[str, np.ndarray], left: list[str]) -> Chunk:
        return cast(Chunk, as_chunk(self._ask("moved", used, point, left)))

    def stop_tuning(self, used: int) -> tuple[list[str], Chunk | None]:
        texts, chunk = self._ask("stop_tuning", used)
        return texts, as_chunk(chunk)

    def conclude(self, used: int) -> list[str]:
        return self._ask("conclude", used)

    def state(self) -> bytes:
        return self._ask("state")

    def resume(self, handed: Handed) -> Chunk:
        self._end_with_home()
        return cast(Chunk, as_chunk(self._ask("resume", handed)))

    def close(self) -> None:
        if self._lifeline is not None:
            self._lifeline.close()
        self._closed = True
        with contextlib.suppress(OSError):
            # A thread may wait for this connection to close: shutting it down wakes the thread.
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


class FactsOfStep(NamedTuple):
    """The facts that are sent to another process in place of a step, enough to hand out the home's draws.

    Attributes
    ----------
    home : the id of the process that made the step
    address : Address, where the home process serves the step
    ahead : the arguments of `Ahead` but its source: the step's name, its variables, and the places of
        statistics
    settings : the step's settings, which a `sampling_state` must share
    handed : the state from which the next chain continues, if the chain does not tune
    stats_dtypes, stats_dtypes_shapes : the attributes of the step
    """

    home: int
    address: Address
    ahead: tuple[str, list[list[str]], list[str], list[int]]
    settings: str
    handed: Handed | None
    stats_dtypes: list[dict[str, Any]]
    stats_dtypes_shapes: dict[str, Any]


class Worker(HasChain, BlockedStep):
    """A step in a process to which PyMC has sent it; it hands out the draws that the step's home process
    makes.

    Parameters
    ----------
    facts : FactsOfStep
    """

    name = "worker"
    _state_class = AheadState

    def __new__(cls, facts: FactsOfStep) -> "Worker":
        return object.__new__(cls)

    def __init__(self, facts: FactsOfStep):
        self.rng, self.tune = get_random_generator(None), True
        self.settings = facts.settings
        self.stats_dtypes, self.stats_dtypes_shapes = facts.stats_dtypes, facts.stats_dtypes_shapes
        self._address = facts.address
        self.ahead = Ahead(self._source, *facts.ahead)
        self.ahead.go_on_from(facts.handed)

    def _source(self) -> ChainSource:
        remote = Remote.at(self._address)
        if remote is None:
            raise RuntimeError(ENDED)
        return remote

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        super().setup_chain(rng, tune, draws)
        self.tune = tune > 0
        self.ahead.set_up(self.rng, tune, draws)

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        return self.ahead.step(point)

    def stop_tuning(self) -> None:
        super().stop_tuning()
        self.ahead.stop_tuning()


def received(facts: FactsOfStep | None, sent: bytes) -> Any:
    """The step after pickling: a `Worker` while its home process serves it, else the step itself.

    Parameters
    ----------
    facts : the facts of a step that makes its draws ahead
    sent : the class of the step and its attributes, pickled
    """
    if facts is not None and facts.home != os.getpid() and (remote := Remote.at(facts.address)):
        remote.close()
        return Worker(facts)
    kind, state = pickle.loads(sent)
    step = object.__new__(kind)
    step.__setstate__(state)
    return step
