"""Where radixkv keeps files between runs."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """What may be deleted at any time: RADIXKV_CACHE_DIR, else radixkv in XDG_CACHE_HOME."""
    if named := os.environ.get("RADIXKV_CACHE_DIR"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "radixkv"
