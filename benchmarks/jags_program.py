"""JAGS as a program (Linux): models written for it, its commands, its output files."""

import contextlib
import os
import pty
import shutil
import subprocess
import tempfile
import time
import tty
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.harness import CannotRun

PILOT = 100  # draws of JAGS from which the number of draws in the given time is estimated; they are dropped


@dataclass(frozen=True)
class JagsModel:
    """A model in PyMC and in JAGS.

    Attributes
    ----------
    pymc : () -> (pm.Model, names of its discrete variables)
    summaries : {variable of the PyMC model: (draws, ...)} -> {summary: (draws,)}
    jags : {form of the model: text}; the name of a form is empty where there is only one
    watched : {variable that JAGS monitors: its shape}
    jags_summaries : {monitored: (draws, *shape)} -> {summary: (draws,)}
    start : y -> initial values of JAGS
    data : what JAGS gets; "y", if it is not among it, is that of the PyMC model. nan is a missing value
    """

    title: str
    pymc: Callable
    summaries: Callable
    jags: dict[str, str]
    watched: dict[str, tuple]
    jags_summaries: Callable
    start: Callable
    data: dict = field(default_factory=dict)


def stacked(chains):
    """{summary: (chains, draws)} of a list of {summary: (draws,)}."""
    return {name: np.stack([np.asarray(c[name], float) for c in chains]) for name in chains[0]}


# ---------------------------------------------------------------- the process
class Jags:
    """A JAGS process that is given one command at a time."""

    def __init__(self, folder):
        # a terminal, since from a pipe JAGS would not read before there are 8 KiB of commands
        self.terminal, theirs = pty.openpty()
        tty.setraw(theirs)
        self.process = subprocess.Popen(
            ["jags"], cwd=folder, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        os.close(theirs)
        self.version = self.answer().split()[3]  # Welcome to JAGS 4.3.1 on ...

    def ask(self, command):
        """Seconds until JAGS is ready for the next command: of the processor, of the clock."""
        start = self.seconds()
        os.write(self.terminal, f"{command}\n".encode())
        text = self.answer()
        if any(word in text.lower() for word in ("error", "failed", "cannot", "invalid", "unknown")):
            raise RuntimeError(f"JAGS on {command!r}: {text}")
        return self.seconds() - start

    def seconds(self):
        ticks = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return np.array([sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"), time.perf_counter()])

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        os.close(self.terminal)

    def answer(self):
        """The output up to the next prompt."""
        text = b""
        while not text.endswith(b". "):
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                raise RuntimeError(f"JAGS ended: {text.decode()}")
            text += more
        return text.decode()


def r_text(values):
    """{name: array} as R's dump writes it."""
    lines = []
    for name, value in values.items():
        a = np.asarray(value)
        each = ("NA" if v != v else repr(v) for v in a.T.reshape(-1).tolist())  # columns first
        flat = f"c({', '.join(each)})"
        lines.append(
            f'"{name}" <- structure({flat}, .Dim = c({", ".join(map(str, a.shape))}))'
            if a.ndim > 1
            else f'"{name}" <- {flat}'
        )
    return "\n".join(lines) + "\n"


def observed(spec):
    model, _ = spec.pymc()
    return model.rvs_to_values[model["y"]].data


def run_jags(spec, text, modules, seconds, seed, chains, tune):
    """Draw for a number of processor seconds.

    Parameters
    ----------
    spec : JagsModel
    text : one of `spec.jags`
    modules : names of JAGS modules to load
    seconds : of the processor, for sampling
    chains, tune : number of chains; draws of adaptation and again of burn-in

    Returns
    -------
    summaries : {summary: (chains, draws)}
    sampling : (2,) seconds of sampling, of the processor and of the clock
    before : processor seconds of compiling, adapting and burn-in
    details : the samplers that JAGS chose, and its version
    """
    if not shutil.which("jags"):
        raise CannotRun("there is no program `jags`: install Debian's package jags")
    y = spec.data["y"] if "y" in spec.data else observed(spec)
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "model.txt").write_text(text)
        (here / "data.txt").write_text(r_text({"y": y, **spec.data}))
        for c in range(chains):
            rng = f'".RNG.name" <- "base::Mersenne-Twister"\n".RNG.seed" <- {seed * chains + c + 1}\n'
            (here / f"start{c + 1}.txt").write_text(r_text(spec.start(y)) + rng)
        inits = [f'parameters in "start{c}.txt", chain({c})' for c in range(1, chains + 1)]
        setup = [
            *(f"load {name}" for name in modules),
            'model in "model.txt"',
            'data in "data.txt"',
            f"compile, nchains({chains})",
        ]
        with contextlib.closing(Jags(folder)) as jags:
            for command in [*setup, *inits, "initialize", f"adapt {tune}", f"update {tune}"]:
                jags.ask(command)
            jags.ask('samplers to "samplers.txt"')
            for name in spec.watched:
                jags.ask(f"monitor {name}")
            jags.ask(f"update {PILOT}")
            before, draws, sampling = jags.seconds()[0], PILOT, np.zeros(2)
            while sampling[0] < seconds:  # as many draws as the ones so far suggest, at most four times those
                wanted = (seconds - sampling[0]) / max(sampling[0], 1e-3)
                size = int(np.ceil((draws - PILOT) * min(wanted + 0.02, 4))) or PILOT
                sampling += jags.ask(f"update {size}")
                draws += size
            jags.ask("coda *")
        per_chain = []
        for c in range(1, chains + 1):
            values = np.loadtxt(here / f"CODAchain{c}.txt", usecols=1)
            a = coda(values, (here / "CODAindex.txt").read_text(), spec.watched)
            per_chain.append(spec.jags_summaries({name: v[PILOT:] for name, v in a.items()}))
        kinds = sorted({line.split("\t")[1] for line in (here / "samplers.txt").read_text().splitlines()})
    return stacked(per_chain), sampling, before, {"samplers": kinds, "jags": jags.version}


def coda(values, index, watched):
    """{name: (draws, *shape)} of one chain's file."""
    lines = map(str.split, index.splitlines())
    draws = {name: values[int(first) - 1 : int(last)] for name, first, last in lines}
    return {
        name: np.stack([draws[f"{name}[{k + 1}]"] for k in range(shape[0])], 1) if shape else draws[name]
        for name, shape in watched.items()
    }
