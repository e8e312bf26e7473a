"""Why there is no room for a request, in words."""

from radixkv.cache.stats import CacheStats


def shortage(needed: int, stats: CacheStats, room: int, free_rows: int) -> str | None:
    """What is short for a request that needs `needed` slots of its own; None: nothing is.

    room: slots that eviction may free for it. free_rows: of `ReqToTokenPool`.
    """
    if not free_rows:
        return (
            f"max_requests must be above the live requests; got {stats.live_requests}, which hold "
            "all rows (a row takes 4 bytes x max_context_len)"
        )
    if needed <= stats.free + room:
        return None
    held = {
        "of live requests and on loan": stats.allocated,
        "cached and locked": stats.protected,
        "behind fences or set aside": stats.waiting,
        "reserved for other namespaces": stats.evictable - room,
    }
    shown = ", ".join(f"{count} {what}" for what, count in held.items() if count)
    return (
        f"{needed} slots are needed, {stats.free} are free and {room} can be evicted; of "
        f"{stats.num_slots} there are {shown}"
    )
