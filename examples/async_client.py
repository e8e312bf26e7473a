"""Many coroutines ask a server at once, and one follows what becomes cached.

radixkv serve --slots 1000
python examples/async_client.py 127.0.0.1:50051
"""

import asyncio
import sys

from radixkv.errors import RadixKVError
from radixkv.service import AsyncClient


async def follow(client: AsyncClient, updates: int) -> None:
    """A snapshot comes first, then what changes."""
    watch = client.watch()
    async for update in watch:
        print(f"revision {update.revision}: {len(update.events)} events")
        updates -= 1
        if not updates:
            return


async def main(address: str) -> None:
    # Matches of single prompts that come while one is under way go together.
    async with AsyncClient(address, coalesce=True) as client:
        prompts = [[0, 1, 2, number] for number in range(100)]
        replies = await asyncio.gather(*(client.match([prompt]) for prompt in prompts))
        cached = sum(reply.lengths[0] for reply in replies)
        print(f"{cached} tokens of {len(prompts)} prompts cached")
        try:
            await client.match([[-1]])
        except RadixKVError as error:  # as if the cache were in this process
            print(f"{type(error).__name__}: {error}")
        await follow(client, 1)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
