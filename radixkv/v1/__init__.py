"""Messages and stubs of the wire contract, generated from `proto/`."""
