"""What tells one model from another: the graphs of its log density and of what is recorded, with their constants and data."""

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
    """Equal for the same model with the same data, in any process."""
    graphs = [*model.logp(sum=False), *outputs]
    text = io.StringIO()
    debugprint(graphs, file=text)
    crc = zlib.crc32(re.sub(r"0x[0-9a-f]+", "", text.getvalue()).encode())
    for v in graph_inputs(graphs):
        data = v.get_value(borrow=True) if isinstance(v, SharedVariable) else v.data if isinstance(v, Constant) else None
        if isinstance(data, np.ndarray | np.number):
            crc = zlib.crc32(np.ascontiguousarray(data).tobytes(), crc)
    return f"{crc:08x}"


def starts_fingerprint(initvals: Any) -> str | None:
    """The same of `initvals`."""
    if initvals is None:
        return None
    shown = []
    for own in initvals if isinstance(initvals, list | tuple) else [initvals]:
        values = {str(getattr(k, "name", k)): v for k, v in (own or {}).items()}
        shown.append({name: str(v) if isinstance(v, str | Variable) else np.asarray(v).tolist() for name, v in values.items()})
    return f"{zlib.crc32(json.dumps(shown, sort_keys=True).encode()):08x}"
