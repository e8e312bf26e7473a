"""An OpenAI gateway: each request goes to the worker that holds most of its prompt.

    pip install 'radixkv[transformers]' httpx starlette uvicorn
    python examples/gateway.py MODEL http://host-a:30000=host-a:50051 http://host-b:30000=host-b:50051

MODEL: a folder with the workers' tokenizer. A worker is an engine's URL, and where its cache is
served over gRPC: RADIXKV_SGLANG_LISTEN of an SGLang, or any `CacheServer`.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from transformers import AutoTokenizer

from radixkv import Namespace
from radixkv.router import Router
from radixkv.router.router import Pick
from radixkv.service import Client


class Gateway:
    """Picks, forwards, and streams what comes back; the pick ends with the answer."""

    def __init__(self, router: Router, tokenizer: Any, http: httpx.AsyncClient) -> None:
        self.router, self.tokenizer, self.http = router, tokenizer, http
        paths = ("/v1/chat/completions", "/v1/completions")
        self.app = Starlette(routes=[Route(path, self.serve, methods=["POST"]) for path in paths])

    async def serve(self, request: Request) -> Response:
        content, body = await request.body(), await request.json()
        pick = self.router.pick(self.tokens(body), Namespace(salt=body.get("cache_salt")))
        headers = {"content-type": "application/json"}
        try:
            sent = self.http.build_request(
                "POST", f"{pick.worker}{request.url.path}", content=content, headers=headers
            )
            answer = await self.http.send(sent, stream=True)
        except httpx.HTTPError as error:
            self.router.finish(pick)
            return JSONResponse({"error": {"message": f"{pick.worker}: {error!r}"}}, 502)
        kind = answer.headers.get("content-type")
        return StreamingResponse(self.chunks(answer, pick), answer.status_code, media_type=kind)

    async def chunks(self, answer: httpx.Response, pick: Pick) -> AsyncIterator[bytes]:
        try:
            async for chunk in answer.aiter_bytes():
                yield chunk
        finally:  # the client may leave in the middle
            self.router.finish(pick)
            await answer.aclose()

    def tokens(self, body: dict[str, Any]) -> Any:
        """The prompt as the engine makes it."""
        if "messages" in body:
            how = {"add_generation_prompt": True, "return_dict": False, "tools": body.get("tools")}
            return self.tokenizer.apply_chat_template(body["messages"], **how)
        prompt = body["prompt"]
        return self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt


def main(model: str, *workers: str) -> None:
    with ExitStack() as stack:
        router = stack.enter_context(Router(gone_after_s=5.0))
        for url, address in (worker.rsplit("=", 1) for worker in workers):
            router.follow(url, stack.enter_context(Client(address)), address=address)
        http = httpx.AsyncClient(timeout=None)
        uvicorn.run(Gateway(router, AutoTokenizer.from_pretrained(model), http).app, port=8000)


if __name__ == "__main__":
    main(*sys.argv[1:])
