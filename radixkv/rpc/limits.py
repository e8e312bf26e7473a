"""Sizes and deadlines that both sides of a connection agree on and change together.

And the most that a server takes, which clients may learn from it.
"""

from typing import Literal, TypeAlias

CallKind: TypeAlias = Literal["data", "admin", "stream"]

# Between them is room for more servers on one host.
DEFAULT_ADDRESS, DEFAULT_ROUTER_ADDRESS = "127.0.0.1:50051", "127.0.0.1:50061"
MAX_MESSAGE_BYTES = 16 << 20
MAX_BATCH_SEQUENCES = 1024
DATA_DEADLINE_S = 1.0
ADMIN_DEADLINE_S = 10.0
# For callers that set no deadline.
LONGEST_CALL_S = 30.0
# What a line of the log tells of, streams apart.
SLOW_CALL_S = 1.0
# The largest call that runs in the event loop: a quarter of a million packed tokens, about 1 ms.
MOST_BYTES_AT_ONCE = 1 << 20
# Calls under way at once, of all callers; more are refused. Streams cannot starve the rest.
CONCURRENT_CALLS: dict[CallKind, int] = {
    "data": 256,
    "admin": 32,
    "stream": 4096,
}
# Before a caller is known: streams of one connection, which HTTP/2 refuses beyond it, and calls of
# all connections that the runtime hands to Python at once.
MAX_STREAMS_A_CONNECTION, MAX_CALLS_IN_PYTHON = 256, 8192
# Streams that take no token: watches of health, reflection.
MAX_OPEN_STREAMS, MAX_OPEN_STREAMS_A_CONNECTION = 1024, 16
# A caller beyond its calls a second gets its refusals this late, so that one which asks again at
# once does not take the server's time with refusals alone; so many of one caller wait at once.
REFUSAL_DELAY_S, MOST_LATE_REFUSALS = 0.5, 256
MIN_LEASE_TTL_S, MAX_LEASE_TTL_S = 1.0, 300.0
MAX_LEASES, MAX_PINS = 16_384, 65_536
# Of a stream of requests, which are all small.
LONGEST_STREAMED_REQUEST = 4096
MAX_PINS_A_RELEASE = MAX_PICKS_A_FINISH = 4096
LONGEST_HOLDER_BYTES = 128
# Text and chats of one call, which take a second to tokenize.
MOST_TEXT_BYTES = 4 << 20
# A holder stops using a lease this long before its end by its own clock, and its slots stay unused
# for the grace after its end. What begins before the margin is done before the grace is over.
LEASE_MARGIN_S, LEASE_GRACE_S = 0.25, 5.0
# How long a client of a stream may leave a message unread.
LONGEST_STALL_S = 60.0
# How often a watcher that asked for it gets a message while nothing changes.
PROGRESS_S = 10.0
