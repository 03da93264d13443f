"""Python processes of their own, which can import the package and the tests."""

import os
import subprocess
import sys
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).parents[2]


def forkserver():
    """How workers of `pm.sample` start, with one import for all of them."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["pymc_discrete.steps.auto"])
    return context


def start_python(code: str, **environment: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,  # where `-c` looks for what is imported
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output_of(process: subprocess.Popen, timeout: float = 300) -> str:
    """What a process writes until it ends, which must be without an error."""
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == 0, errors[-3000:]
    return output


def run_python(code: str, timeout: float = 300, **environment: str) -> str:
    return output_of(start_python(code, **environment), timeout)
