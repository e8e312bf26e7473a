"""Namespaces and the roots of what is held in them."""

from radixkv.router.holdings import Holdings
from radixkv.tree import DEFAULT, Namespace

_LEAST_KEPT = 64


class Spaces:
    """A root for each namespace in which a worker holds anything.

    Empty ones are removed when there are twice as many as were in use at the last removal, so a
    tenant's salt is not kept forever and no call pays for all of them.
    """

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings
        self._roots = {DEFAULT: holdings.add_root()}
        self._names = {root: name for name, root in self._roots.items()}
        self._default = self._roots[DEFAULT]
        self._most = _LEAST_KEPT

    def __len__(self) -> int:
        return len(self._roots)

    def find(self, namespace: Namespace) -> int | None:
        """Its root; None where no worker holds anything."""
        if namespace is DEFAULT:  # the hash of a dataclass costs more than the look-up
            return self._default
        return self._roots.get(namespace)

    def root(self, namespace: Namespace) -> int:
        """Its root, a new one where it had no root."""
        root = self.find(namespace)
        if root is None:
            if len(self._roots) >= self._most:
                self._drop_empty()
            root = self._holdings.add_root()
            self._roots[namespace], self._names[root] = root, namespace
        return root

    def name(self, root: int) -> Namespace:
        """The namespace of a root."""
        return self._names[root]

    def _drop_empty(self) -> None:
        for root, name in list(self._names.items()):
            if root != self._default and self._holdings.is_empty_root(root):
                self._holdings.remove_root(root)
                del self._names[root], self._roots[name]
        self._most = max(_LEAST_KEPT, 2 * len(self._roots))
