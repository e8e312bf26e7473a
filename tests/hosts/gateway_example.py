"""examples/gateway.py as a module."""

import importlib.util
from pathlib import Path

GATEWAY = Path(__file__).resolve().parents[2] / "examples" / "gateway.py"


def load_gateway():
    spec = importlib.util.spec_from_file_location("gateway", GATEWAY)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
