"""The demo: a real model serves chats that share prefixes, with the cache and without.

`chats.py` has the conversations, `serving.py` serves them both ways, `show.py` prints them.
"""

from radixkv.demo.run import run

__all__ = ["run"]
