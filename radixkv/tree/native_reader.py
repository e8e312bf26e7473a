"""Token ids read in C++: see `kernels/`."""

from radixkv.kernels._core import append_ids, copy_ids, read_ids, read_message_ids
from radixkv.tree.reader import Reader

NATIVE_READER = Reader(read_ids, copy_ids, append_ids, read_message_ids)
