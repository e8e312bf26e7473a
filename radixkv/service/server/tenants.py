"""Metrics by tenant: tokens looked up and found, by configured alias, never by salt."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter

from radixkv.tree import Namespace

OTHERS = "others"


class TenantMetrics:
    """tenants: alias -> salt; all other salts count as one, `others`."""

    def __init__(self, registry: CollectorRegistry, tenants: Mapping[str, str]) -> None:
        self._alias_of = {salt: alias for alias, salt in tenants.items()}
        self._lookups = Counter(
            "radixkv_tenant_lookup_tokens",
            "Tokens looked up over gRPC",
            ["tenant"],
            registry=registry,
        )
        self._hits = Counter(
            "radixkv_tenant_hit_tokens", "Of those, tokens found", ["tenant"], registry=registry
        )

    def count(self, namespace: Namespace, looked_up: int, found: int) -> None:
        """Add a look-up over gRPC; probes do not count."""
        alias = self._alias_of.get(namespace.salt or "", OTHERS)
        self._lookups.labels(alias).inc(looked_up)
        self._hits.labels(alias).inc(found)
