"""Namespaces of requests: tenants by salt, adapters, keys of callers."""

ADAPTER = "0123456789abcdef0123456789abcdef"
SPACES = [
    {},
    {"cache_salt": "tenant"},
    {"extra_key": "k"},
    {"lora_id": ADAPTER},
    {"extra_key": "k", "lora_id": ADAPTER, "cache_salt": "tenant"},
]
