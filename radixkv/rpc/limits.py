"""Sizes, deadlines and keep-alive that both sides of a connection agree on and change together.

Beside them the most that a server takes, which clients may learn from it.
"""

import json
from typing import Any, Literal, TypeAlias

Options: TypeAlias = list[tuple[str, Any]]
CallKind: TypeAlias = Literal["data", "admin", "stream"]

DEFAULT_ADDRESS, DEFAULT_ROUTER_ADDRESS = "127.0.0.1:50051", "127.0.0.1:50052"
MAX_MESSAGE_BYTES = 16 << 20
MAX_BATCH_SEQUENCES = 1024
DATA_DEADLINE_S = 1.0
ADMIN_DEADLINE_S = 10.0
# For callers that set no deadline.
LONGEST_CALL_S = 30.0
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
MIN_LEASE_TTL_S, MAX_LEASE_TTL_S = 1.0, 300.0
MAX_LEASES, MAX_PINS = 16_384, 65_536
# Of a stream of requests, which are all small.
LONGEST_STREAMED_REQUEST = 4096
MAX_PINS_A_RELEASE = MAX_PICKS_A_FINISH = 4096
LONGEST_HOLDER_BYTES = 128
# A lease is no longer used so near its end by the holder's own clock, and its slots are used by no
# one for so long after its end. What begins before the one is done before the other.
LEASE_MARGIN_S, LEASE_GRACE_S = 0.25, 5.0
# How long a client of a stream may leave a message unread.
LONGEST_STALL_S = 60.0
# How often a quiet watcher that asked for it gets a message that nothing changed.
PROGRESS_S = 10.0

_SIZES: Options = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
]

SERVER_OPTIONS: Options = [
    *_SIZES,
    # Two servers on one port would share its connections in silence.
    ("grpc.so_reuseport", 0),
    # A client that opens streams and resets them at once waits for those under way to end.
    ("grpc.max_concurrent_streams", MAX_STREAMS_A_CONNECTION),
    # A client that is frozen or cut off holds its streams no longer than this.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    # A server that had no processor for a minute reads several pings at once: that is no attack.
    ("grpc.http2.max_ping_strikes", 0),
]

# Over a network, clients connect anew now and then, so that balancers may move them; what is under
# way has the grace to finish, and watches and renewals go on over the next connection.
AGE_OPTIONS: Options = [
    ("grpc.max_connection_age_ms", 30 * 60_000),
    ("grpc.max_connection_age_grace_ms", 30_000),
]

_RETRY = {
    "methodConfig": [
        {
            "name": [
                {"service": f"radixkv.v1.{service}"}
                for service in (
                    "PrefixCacheService",
                    "LeaseService",
                    "InfoService",
                    "AdminService",
                    "RouterService",
                )
            ],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.01s",
                "maxBackoff": "0.1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ],
    "retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1},
}

CLIENT_OPTIONS: Options = [
    *_SIZES,
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.service_config", json.dumps(_RETRY)),
    # A server that comes back is found within a second or two, not two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Caches run on the local network; a proxy meant for the web would only lose the call.
    ("grpc.enable_http_proxy", 0),
]
