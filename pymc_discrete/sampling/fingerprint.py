"""Checksums of models and starting values, by which a checkpoint recognises its run.

That of a model is computed from the graphs of its log density and of the recorded variables, with their
constants and data.
"""

import io
import json
import re
import zlib
from typing import Any

import numpy as np
import pymc as pm
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import graph_inputs
from pytensor.printing import debugprint


def fingerprint(model: pm.Model, outputs: list[Variable]) -> str:
    """A checksum of a model, its data and the recorded variables; the same in every process."""
    return graph_fingerprint([*model.logp(sum=False), *outputs])


def graph_fingerprint(graphs: list[Variable]) -> str:
    """A checksum of PyTensor graphs with the values of their constants and shared variables."""
    text = io.StringIO()
    debugprint(graphs, file=text)
    crc = zlib.crc32(re.sub(r"0x[0-9a-f]+", "", text.getvalue()).encode())
    for v in graph_inputs(graphs):
        data = (
            v.get_value(borrow=True)
            if isinstance(v, SharedVariable)
            else v.data
            if isinstance(v, Constant)
            else None
        )
        if isinstance(data, np.ndarray | np.number):
            crc = zlib.crc32(np.ascontiguousarray(data).tobytes(), crc)
    return f"{crc:08x}"


def starts_fingerprint(model: pm.Model, initvals: Any) -> str:
    """A checksum of the starting values that the model and `initvals` give."""
    shown = []
    for starts in [
        model.rvs_to_initial_values,
        *(initvals if isinstance(initvals, list | tuple) else [initvals]),
    ]:
        values = {str(getattr(k, "name", k)): v for k, v in (starts or {}).items() if v is not None}
        shown.append({name: start_shown(v) for name, v in values.items()})
    return f"{zlib.crc32(json.dumps(shown, sort_keys=True).encode()):08x}"


def start_shown(value: Any) -> Any:
    """A starting value in a form that JSON holds and that is the same in every process."""
    if isinstance(value, str):
        return value
    return graph_fingerprint([value]) if isinstance(value, Variable) else np.asarray(value).tolist()
