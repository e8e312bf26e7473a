"""Which weights are served: K/V of other weights is neither matched nor stored."""

from dataclasses import replace

from radixkv.errors import StaleWeightsError
from radixkv.tree import Namespace
from radixkv.tree.namespace import check_namespace


class Weights:
    """The version of the weights that are served. In a namespace, version 0 stands for it."""

    def __init__(self) -> None:
        self.version = 0

    def is_present(self, namespace: Namespace) -> bool:
        """Whether `namespace` is of these weights. InvalidNamespaceError for another type."""
        check_namespace(namespace)
        return namespace.weight_version in (0, self.version)

    def present(self, namespace: Namespace) -> Namespace:
        """`namespace` with the version that is served."""
        if namespace.weight_version == self.version:
            return namespace
        return replace(namespace, weight_version=self.version)

    def to_store(self, namespace: Namespace) -> Namespace:
        """`present`; StaleWeightsError for a namespace of other weights."""
        if not self.is_present(namespace):
            raise StaleWeightsError(
                f"the namespace's weight version must be {self.version}, or 0 for the present one; "
                f"got {namespace.weight_version}",
                weight_version=self.version,
            )
        return self.present(namespace)
