"""Token ids read in C++: see `kernels/`."""

from radixkv.kernels._core import read_ids, read_message_ids
from radixkv.tree.reader import Reader

NATIVE_READER = Reader(read_ids, read_message_ids)
