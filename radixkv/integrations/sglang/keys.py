"""SGLang's keys as our tree takes them: token ids and a namespace.

**Namespaces.** SGLang joins the caller's `extra_key` and the adapter's id into one text. A request
says which part is the adapter's, so that here the two are apart again and no caller can ask for an
adapter's K/V by naming it.

**Bigrams.** With EAGLE the path of t0 t1 t2 t3 is (t0 t1) (t1 t2) (t2 t3): equal to another where
the first token and all later ones are. So it is t1 t2 t3 here, in a namespace that holds t0, too.

**Wide ids.** Images come as ids of up to 63 bits made from their hashes. They are numbered from the
top of int32 down, and forgotten when the tree no longer holds them.
"""

from array import array
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radixkv.arrays import INT32_MAX, Int32Array
from radixkv.tree import DEFAULT, Namespace

# No vocabulary comes near it.
FIRST_WIDE = 2**30
# How many wide ids are numbered before those that are gone are looked for.
SWEEP_AT = 2**20


class Keys:
    """Reads the keys of one cache.

    is_eagle: whether keys are bigrams. held_codes: the codes that its tree holds.
    """

    def __init__(self, is_eagle: bool, held_codes: Callable[[], Iterable[Int32Array]]) -> None:
        self.is_eagle = is_eagle
        self._held_codes = held_codes
        self._adapters: set[str] = set()
        self.clear()

    def clear(self) -> None:
        """The tree holds nothing any more."""
        self._code_of: dict[int, int] = {}
        self._id_of: dict[int, int] = {}
        self._next_code = INT32_MAX
        self._sweep_at = SWEEP_AT

    def length(self, num_tokens: int) -> int:
        """How long the key of so many tokens is."""
        return max(num_tokens - 1, 0) if self.is_eagle else num_tokens

    def path(self, token_ids: "array[int]", length: int) -> Any:
        """What the tree takes for the first `length` places of a key; read in place where it can
        be, so keep it no longer than the call."""
        view = memoryview(token_ids)[self.is_eagle : self.is_eagle + length]
        return self.narrow(view) if self._code_of else view

    # ---- namespaces ----

    def of_request(self, req: Any) -> Namespace:
        """The namespace of a request of SGLang's."""
        adapter, extra_key = req.lora_id, req.extra_key
        if adapter is not None:
            self._adapters.add(adapter)
            extra_key = extra_key.removesuffix(adapter) or None
        return self._namespace(req.cache_salt, adapter, extra_key, req.full_untruncated_fill_ids)

    def of_key(self, key: Any, req: Any = None) -> Namespace:
        """The namespace of a `RadixKey`; without its request, as far as the adapter is known."""
        if key.extra_key is None:  # where an adapter's id would be, too
            return self._namespace(key.cache_salt, None, None, key.token_ids)
        adapter = req.lora_id if req is not None else self._adapter_in(key.extra_key)
        extra_key = key.extra_key
        if adapter is not None:
            self._adapters.add(adapter)
            extra_key = extra_key.removesuffix(adapter) or None
        return self._namespace(key.cache_salt, adapter, extra_key, key.token_ids)

    def _adapter_in(self, extra_key: str | None) -> str | None:
        known = (adapter for adapter in self._adapters if (extra_key or "").endswith(adapter))
        return next(known, None)

    def _namespace(
        self, salt: str | None, adapter: str | None, extra_key: str | None, ids: "array[int]"
    ) -> Namespace:
        if self.is_eagle and ids:
            return _namespace(salt or None, adapter, _join(ids[0], extra_key))
        if salt or adapter is not None or extra_key is not None:
            return _namespace(salt or None, adapter, extra_key)
        return DEFAULT

    # ---- wide ids ----

    def narrow(self, token_ids: Any) -> Int32Array:
        """`token_ids` as int32, with a number in place of each id from FIRST_WIDE on or below 0."""
        if len(self._code_of) >= self._sweep_at:
            self._sweep()  # not later: what this key was given must stay
        ids = np.asarray(token_ids, np.int64)
        codes = ids.astype(np.int32)
        wide = np.flatnonzero((ids >= FIRST_WIDE) | (ids < 0))
        if len(wide):
            values, place = np.unique(ids[wide], return_inverse=True)
            codes[wide] = np.array([self._number(value) for value in values.tolist()])[place]
        return codes

    def widen(self, codes: Int32Array) -> NDArray[np.int64]:
        """The ids that `narrow` gave numbers for."""
        ids = codes.astype(np.int64)
        for at in np.flatnonzero(codes >= FIRST_WIDE).tolist():
            ids[at] = self._id_of.get(int(codes[at]), ids[at])
        return ids

    def _number(self, wide: int) -> int:
        code = self._code_of.get(wide)
        if code is None:
            code = self._code_of[wide] = self._free_code()
            self._id_of[code] = wide
        return code

    def _free_code(self) -> int:
        while self._next_code in self._id_of:
            self._next_code -= 1
        return self._next_code

    def _sweep(self) -> None:
        """Forget what the tree does not hold; not again before as many have come."""
        held: set[int] = set()
        for codes in self._held_codes():
            held.update(codes[codes >= FIRST_WIDE].tolist())
        self._id_of = {code: wide for code, wide in self._id_of.items() if code in held}
        self._code_of = {wide: code for code, wide in self._id_of.items()}
        self._next_code = INT32_MAX
        self._sweep_at = max(SWEEP_AT, 2 * len(self._code_of))


def first_token(namespace: Namespace) -> int:
    """The token that a bigram path begins with."""
    assert namespace.extra_key is not None
    return int(namespace.extra_key.partition(" ")[0])


def _join(first: int, extra_key: str | None) -> str:
    """A number and a text that none other gives: the number ends at the space, and a text of None
    has no space."""
    return str(first) if extra_key is None else f"{first} {extra_key}"


@lru_cache(maxsize=4096)
def _namespace(salt: str | None, adapter: str | None, extra_key: str | None) -> Namespace:
    return Namespace(salt=salt, adapter=adapter, extra_key=extra_key)
