"""Options of gRPC connections, of both sides: they change together."""

import json
from typing import Any, TypeAlias

from radixkv.rpc.limits import MAX_MESSAGE_BYTES, MAX_STREAMS_A_CONNECTION

Options: TypeAlias = list[tuple[str, Any]]

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
    # A server that had no processor for a minute reads several pings at once: no strike.
    ("grpc.http2.max_ping_strikes", 0),
]

# Over a network, clients connect again now and then, so that balancers may move them; what is under
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
