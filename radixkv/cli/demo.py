"""`radixkv demo`: a real model, with the cache and without."""

from radixkv.cli.show import console, model_packages


def demo() -> None:
    """Serve chats that share prefixes with a real model, with the cache and without it."""
    with model_packages():
        from radixkv.demo import run
    run(console())
