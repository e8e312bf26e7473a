"""SGLang's keys as ours: namespaces, bigrams, ids of images."""

from array import array

import numpy as np
import pytest

from radixkv.integrations.sglang import keys as module
from radixkv.tree import Namespace
from tests.integrations.sglang.tenants import ADAPTER, SPACES

IMAGE = 2**61 + 12345


def make(is_eagle=False, held=()):
    return module.Keys(is_eagle, lambda: held)


class Asked:
    def __init__(self, ids=(1, 2), extra_key=None, lora_id=None, cache_salt=None):
        self.full_untruncated_fill_ids = self.token_ids = array("q", ids)
        self.lora_id, self.cache_salt = lora_id, cache_salt
        self.extra_key = extra_key if lora_id is None else (extra_key or "") + lora_id


def test_salt_adapter_and_key_are_fields_of_their_own():
    spaces = [make().of_request(Asked(**space)) for space in SPACES]
    assert spaces == [
        Namespace(),
        Namespace(salt="tenant"),
        Namespace(extra_key="k"),
        Namespace(adapter=ADAPTER),
        Namespace(salt="tenant", adapter=ADAPTER, extra_key="k"),
    ]


def test_no_caller_gets_an_adapters_namespace_by_naming_it():
    keys = make()
    asked, adapted = Asked(extra_key=ADAPTER), Asked(lora_id=ADAPTER)
    assert keys.of_request(asked) != keys.of_request(adapted)
    assert keys.of_key(asked, asked) != keys.of_key(adapted, adapted)


def test_a_key_without_its_request_is_the_known_adapters():
    keys = make()
    adapted = Asked(extra_key="k", lora_id=ADAPTER)
    assert keys.of_key(adapted).adapter is None
    keys.of_request(adapted)
    assert keys.of_key(adapted) == keys.of_request(adapted)


def test_bigram_paths_share_just_what_bigrams_do(scheduler):
    """t1 t2 t3 in a namespace with t0, against pairs."""
    host = scheduler(is_eagle=True)
    stored = [5, 6, 7, 8, 9]
    host.run(stored)
    # The last token is not asked for, and so no pair with it.
    for ids, shared in (
        ([5, 6, 7, 8, 9], 3),
        ([5, 6, 7, 1, 1], 2),
        ([5, 1, 7, 8], 0),
        ([6, 7, 8, 9], 0),
        ([5, 6], 0),
        ([5], 0),
    ):
        assert host.run(ids) == shared, ids
        host.cache.reset()
        host.allocator.clear()
        host.run(stored)


@pytest.mark.parametrize("extra_key", [None, "", "7", " ", "7 8"])
def test_the_first_token_of_a_bigram_path_is_in_its_namespace(extra_key):
    keys = make(is_eagle=True)
    spaces = [keys.of_request(Asked(ids=[first], extra_key=extra_key)) for first in (1, 12)]
    assert [module.first_token(space) for space in spaces] == [1, 12]
    others = [keys.of_request(Asked(ids=[1], extra_key=other)) for other in ("x", "1", None)]
    assert spaces[0] not in others or extra_key is None


def test_ids_of_images_are_numbered_and_given_back():
    keys = make()
    ids = array("q", [5, IMAGE, IMAGE + 1, IMAGE, 2**31, 7])
    codes = keys.narrow(ids)
    assert codes.dtype == np.int32
    assert (codes >= 0).all()
    assert codes[1] == codes[3] != codes[2]
    assert keys.narrow(ids).tolist() == codes.tolist()
    assert keys.widen(codes).tolist() == ids.tolist()


def test_ids_that_are_no_token_ids_are_never_equal_to_ones_that_are():
    keys = make()
    assert keys.narrow(array("q", [-1])).tolist() != keys.narrow(array("q", [2**32 - 1])).tolist()
    assert keys.narrow(array("q", [IMAGE & 0xFFFFFFFF]))[0] != keys.narrow(array("q", [IMAGE]))[0]


def test_ids_of_images_that_are_gone_are_forgotten(monkeypatch):
    monkeypatch.setattr(module, "SWEEP_AT", 4)
    held = []
    keys = make(held=held)
    kept = keys.narrow(array("q", [IMAGE]))
    held.append(kept)
    for more in range(1, 50):
        keys.narrow(array("q", [IMAGE + 2 * more, IMAGE + 2 * more + 1]))
        assert len(keys._code_of) <= 7
    assert keys.narrow(array("q", [IMAGE])).tolist() == kept.tolist()
    assert keys.widen(kept).tolist() == [IMAGE]


@pytest.mark.parametrize("is_eagle", [False, True])
def test_prompts_with_images_are_shared(scheduler, is_eagle):
    host = scheduler(is_eagle=is_eagle)
    prompt = [1, 2, *[IMAGE, IMAGE + 1] * 4, 3, 4]
    assert host.run(prompt) == 0
    assert host.run(prompt) == len(prompt) - 1 - is_eagle
    # Equal in the lower half of each id.
    assert host.run([1, 2, *[IMAGE + 2**32] * 8, 3, 4]) == 2 - is_eagle
    assert host.run([1, 2, 3, 4]) == 2 - is_eagle
