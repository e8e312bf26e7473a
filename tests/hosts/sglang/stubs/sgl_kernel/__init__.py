"""Stands in for SGLang's kernels, of which PyPI has no build for the CPU.

Without AMX every layer falls back to plain torch: the names are imported, and never called.
"""

__version__ = "0.0.0"


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*args, **kwargs):
        raise NotImplementedError(f"sgl_kernel.{name} is a stand-in")

    return missing
