"""An OpenAI gateway: each request goes to the worker that holds most of its prompt.

    pip install . httpx starlette uvicorn    # in the checkout of radixkv
    radixkv route --model MODEL --worker http://host-a:30000=host-a:50051 --worker ...
    python examples/gateway.py 127.0.0.1:50061 8000

MODEL: a folder with the workers' tokenizer and chat template. A worker's name is its engine's URL,
its address where its cache is served over gRPC (RADIXKV_SGLANG_LISTEN of an SGLang, or any
`CacheServer`); `radixkv route --events` follows engines that publish KV events instead.
"""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from radixkv import Namespace
from radixkv.errors import InvalidArgumentError, RadixKVError
from radixkv.service import AsyncRouterClient, Chat, RoutedPick, Text


class Gateway:
    """Picks, forwards, and streams what comes back; the pick ends with the answer."""

    def __init__(self, target: str, http: httpx.AsyncClient) -> None:
        self.target, self.http = target, http
        paths = ("/v1/chat/completions", "/v1/completions")
        routes = [Route(path, self.serve, methods=["POST"]) for path in paths]
        self.app = Starlette(routes=routes, lifespan=self.connected)

    @asynccontextmanager
    async def connected(self, _: Starlette) -> AsyncIterator[None]:
        async with AsyncRouterClient(self.target) as self.router:
            yield

    async def serve(self, request: Request) -> Response:
        content = await request.body()
        try:
            pick = await self.pick(content)
        except RadixKVError as error:
            status = 400 if isinstance(error, InvalidArgumentError) else 503
            return JSONResponse({"error": {"message": str(error)}}, status)
        headers, url = {"content-type": "application/json"}, f"{pick.worker}{request.url.path}"
        try:
            sent = self.http.build_request("POST", url, content=content, headers=headers)
            answer = await self.http.send(sent, stream=True)
        except httpx.HTTPError as error:
            await self.router.finish(pick.pick_id)
            return JSONResponse({"error": {"message": f"{pick.worker}: {error!r}"}}, 502)
        kind = answer.headers.get("content-type")
        return StreamingResponse(self.chunks(answer, pick), answer.status_code, media_type=kind)

    async def pick(self, content: bytes) -> RoutedPick:
        body = json.loads(content)
        prompt = body.get("prompt", Chat(content))  # text, token ids, or a chat
        salt = Namespace(salt=body.get("cache_salt"))
        return await self.router.pick(Text(prompt) if isinstance(prompt, str) else prompt, salt)

    async def chunks(self, answer: httpx.Response, pick: RoutedPick) -> AsyncIterator[bytes]:
        try:
            async for chunk in answer.aiter_bytes():
                yield chunk
        finally:  # the client may leave in the middle
            await answer.aclose()
            await self.router.finish(pick.pick_id)


if __name__ == "__main__":
    gateway = Gateway(sys.argv[1], httpx.AsyncClient(timeout=None))
    uvicorn.run(gateway.app, port=int(sys.argv[2]))
