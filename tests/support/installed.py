"""Whether the radixkv of this interpreter is whole: `python installed.py native`, or `python`.

Needs nothing but the package. Run it outside of a checkout, which Python would import instead.
"""

import subprocess
import sys

import radixkv
from radixkv.doctor import core_line
from radixkv.service import CacheServer, Client


def main(core: str) -> None:
    cache = radixkv.PrefixCache(16)
    assert cache.core == core, core_line()
    request = cache.admit([1, 2, 3])
    assert request is not None
    cache.finish(request, up_to=3)
    with CacheServer(cache, "127.0.0.1:0") as server, Client(server.address) as client:
        assert client.match([[1, 2, 9]]).lengths == [2]
    printed = subprocess.run(
        [sys.executable, "-m", "radixkv", "--version"], capture_output=True, text=True, check=True
    )
    assert printed.stdout == f"radixkv {radixkv.__version__}\n"
    print(f"radixkv {radixkv.__version__} in {radixkv.__file__}, {core_line()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
