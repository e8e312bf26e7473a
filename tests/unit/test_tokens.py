"""Every form that token ids and slots may have, and every form that they may not."""

from array import array
from collections import deque

import numpy as np
import pytest
import torch

from radixkv.errors import InvalidSlotsError, InvalidTokensError
from radixkv.tree import as_slots, as_token_ids
from tests.support.trees import snapshot

IDS = [5, 0, 2**31 - 1, 7]
BIG = np.iinfo(np.int32).max


class Ids:
    """A sequence of a caller's own."""

    def __len__(self):
        return len(IDS)

    def __getitem__(self, at):
        return IDS[at]


GOOD = {
    "list": list(IDS),
    "tuple": tuple(IDS),
    "deque": deque(IDS),
    "own sequence": Ids(),
    "list of NumPy ints": [np.int32(i) for i in IDS],
    "list of NumPy ints of mixed width": [np.uint8(5), np.int64(0), np.uint32(BIG), 7],
    "array i": array("i", IDS),
    "array q": array("q", IDS),
    "array I": array("I", IDS),
    "bytes": np.array(IDS, "<i4").tobytes(),
    "bytearray": bytearray(np.array(IDS, "<i4").tobytes()),
    "memoryview of int32": memoryview(array("i", IDS)),
    "memoryview of int64": memoryview(array("q", IDS)),
    "memoryview with a stride": memoryview(array("i", [i for id_ in IDS for i in (id_, 9)]))[::2],
    "int32": np.array(IDS, np.int32),
    "int64": np.array(IDS, np.int64),
    "uint32": np.array(IDS, np.uint32),
    "uint64": np.array(IDS, np.uint64),
    "big endian": np.array(IDS, ">i4"),
    "read-only": np.frombuffer(np.array(IDS, np.int32).tobytes(), np.int32),
    "with a stride": np.array([[i, 9] for i in IDS], np.int32)[:, 0],
    "backwards": np.array(IDS[::-1], np.int32)[::-1],
    "unaligned": np.frombuffer(b"." + np.array(IDS, "<i4").tobytes(), "<i4", offset=1),
    "tensor int32": torch.tensor(IDS, dtype=torch.int32),
    "tensor int64": torch.tensor(IDS),
    "tensor with a stride": torch.tensor([[i, 9] for i in IDS])[:, 0],
}
SMALL = {
    "range": range(3, 6),
    "int8": np.array([3, 4, 5], np.int8),
    "uint8": np.array([3, 4, 5], np.uint8),
    "int16": np.array([3, 4, 5], np.int16),
    "array b": array("b", [3, 4, 5]),
    "tensor uint8": torch.tensor([3, 4, 5], dtype=torch.uint8),
}
EMPTY = [[], (), b"", range(0), array("i"), np.empty(0, np.int32), np.empty(0), torch.empty(0)]

# What is wrong, and where the message must say so (None: nowhere in particular).
BAD = {
    "a negative id": ([1, 2, -1], 2),
    "a negative id in an array": (np.array([1, -5, -6], np.int64), 1),
    "2**31": ([1, 2**31], 1),
    "2**31 in an array": (np.array([7, 8, 2**31]), 2),
    "2**32 + 1, which is 1 when cut": ([2**32 + 1], 0),
    "2**63": ([0, 2**63], 1),
    "2**64 - 1 in an array": (np.array([3, 2**64 - 1], np.uint64), 1),
    "a huge int": ([1, 10**30], 1),
    "a huge negative int": ([-(10**30)], 0),
    "negative and huge": ([-1, 2**63], 0),
    "a float": ([1, 2.0, 3], 1),
    "not a number": ([float("nan")], 0),
    "text in a list": ([1, "2"], 1),
    "bytes in a list": ([1, b"2"], 1),
    "None in a list": ([1, 2, None], 2),
    "a list in a list": ([1, [2]], 1),
    "a ragged list": ([[1], [2, 3]], 0),
    "a complex number": ([1j], 0),
    "a set in a list": ([{1}], 0),
    "bools": ([True, False], 0),
    "a bool among ints": ([1, True, 7], 1),
    "a NumPy bool among ints": ((1, 7, np.True_), 2),
    "a float array": (np.array([1.0]), None),
    "a bool array": (np.array([True]), None),
    "an object array": (np.array([1, 2], object), None),
    "a text array": (np.array(["1"]), None),
    "a date array": (np.array(["2026-11-29"], "datetime64[D]"), None),
    "a float tensor": (torch.tensor([1.0]), None),
    "a bool tensor": (torch.tensor([True]), None),
    "a bfloat16 tensor": (torch.ones(2, dtype=torch.bfloat16), None),
    "a tensor with a gradient": (torch.ones(2, requires_grad=True), None),
    "array d": (array("d", [1.0]), None),
    "bytes of length 3": (b"abc", None),
    "bytearray of length 5": (bytearray(5), None),
    "text": ("12", None),
    "empty text": ("", None),
    "None": (None, None),
    "an int": (7, None),
    "a NumPy int": (np.int32(7), None),
    "a 0-d array": (np.array(7), None),
    "a 0-d tensor": (torch.tensor(7), None),
    "two dimensions": ([[1, 2], [3, 4]], None),
    "a 2-D array": (np.ones((2, 2), np.int32), None),
    "an empty 2-D array": (np.empty((0, 2), np.int32), None),
    "a set": ({1, 2}, None),
    "a dict": ({1: 2}, None),
    "a generator": ((i for i in IDS), None),
    "an iterator": (iter(IDS), None),
    "a map": (map(int, IDS), None),
    "an object": (object(), None),
}
FIELDS = [(as_token_ids, InvalidTokensError), (as_slots, InvalidSlotsError)]


@pytest.mark.parametrize("values", GOOD.values(), ids=GOOD)
@pytest.mark.parametrize("convert", [as_token_ids, as_slots])
def test_every_form_is_read(convert, values):
    out = convert(values)
    assert (out.dtype, out.ndim, out.tolist()) == (np.int32, 1, IDS)
    assert out.flags.c_contiguous


@pytest.mark.parametrize("values", SMALL.values(), ids=SMALL)
def test_narrow_forms_are_read(values):
    out = as_token_ids(values)
    assert (out.dtype, out.tolist()) == (np.int32, [3, 4, 5])


@pytest.mark.parametrize("values", EMPTY, ids=lambda values: repr(values))
def test_nothing_is_a_prompt_too(values):
    assert as_token_ids(values).shape == (0,)
    assert as_token_ids(values).dtype == np.int32


def test_int32_buffers_are_read_in_place():
    ids = np.array(IDS, np.int32)
    assert np.shares_memory(as_token_ids(ids), ids)
    buffer = array("i", IDS)
    assert np.shares_memory(as_token_ids(buffer), np.asarray(buffer))


@pytest.mark.parametrize(("convert", "error"), FIELDS)
@pytest.mark.parametrize(("values", "at"), BAD.values(), ids=BAD)
def test_bad_values_are_refused_by_name_and_position(convert, error, values, at):
    with pytest.raises(error, match=r"^the_ids") as caught:
        convert(values, "the_ids")
    if at is not None:
        assert str(caught.value).startswith(f"the_ids[{at}] must be ")
        assert caught.value.details["index"] == at


@pytest.mark.parametrize("values", [*GOOD.values(), *SMALL.values()], ids=[*GOOD, *SMALL])
def test_a_tree_takes_every_form(tree, values):
    ids = as_token_ids(values).tolist()
    assert tree.insert(values, range(1, len(ids) + 1)).prefix_length == 0
    assert tree.probe(ids) == tree.probe(values) == len(ids)
    assert tree.match_prefix(values).slots.tolist() == list(range(1, len(ids) + 1))
    assert tree.probe_batch([values, ids]) == [len(ids)] * 2


@pytest.mark.parametrize("values", [*GOOD.values(), *SMALL.values()], ids=[*GOOD, *SMALL])
def test_a_tree_takes_slots_in_every_form(tree, values):
    slots = as_slots(values).tolist()
    tree.insert(range(len(slots)), values)
    assert tree.match_prefix(range(len(slots))).slots.tolist() == slots


@pytest.mark.parametrize("values", EMPTY, ids=lambda values: repr(values))
def test_a_tree_takes_nothing_in_every_form(tree, values):
    result = tree.insert(values, values)
    assert (result.prefix_length, result.slots.shape, result.handle.length) == (0, (0,), 0)
    assert tree.match_prefix(values).length == tree.probe(values) == tree.num_nodes == 0


@pytest.mark.parametrize(("values", "at"), BAD.values(), ids=BAD)
def test_a_tree_refuses_bad_tokens_and_changes_nothing(tree, values, at):
    tree.insert([1, 2, 3], [11, 12, 13])
    before = snapshot(tree)
    where = "token_ids" if at is None else rf"token_ids\[{at}\]"
    for call in (tree.match_prefix, tree.probe, lambda ids: tree.insert(ids, [21])):
        with pytest.raises(InvalidTokensError, match=f"^{where}"):
            call(values)
    with pytest.raises(InvalidTokensError, match=rf"^prompts\[1\]{where[9:]}"):
        tree.probe_batch([[1, 2], values])
    assert snapshot(tree) == before


@pytest.mark.parametrize(("values", "at"), BAD.values(), ids=BAD)
def test_a_tree_refuses_bad_slots_and_changes_nothing(tree, values, at):
    tree.insert([1, 2, 3], [11, 12, 13])
    before = snapshot(tree)
    where = "slots" if at is None else rf"slots\[{at}\]"
    with pytest.raises(InvalidSlotsError, match=f"^{where}"):
        tree.insert([4], values)
    assert snapshot(tree) == before


@pytest.mark.parametrize("slots", [[], [1], [1, 2, 3, 4]])
def test_slots_go_one_to_one_with_tokens(tree, slots):
    with pytest.raises(
        InvalidSlotsError, match=f"^slots must be one for each of 3 token_ids; got {len(slots)}"
    ):
        tree.insert([1, 2, 3], slots)
    assert tree.num_nodes == 0
