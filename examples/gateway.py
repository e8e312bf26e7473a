"""An OpenAI gateway: each request goes to the worker that holds most of its prompt.

    pip install 'radixkv[lab]' httpx starlette uvicorn
    python examples/gateway.py MODEL PORT http://host-a:30000=host-a:50051 http://host-b:...

MODEL: a folder with the workers' tokenizer and chat template. A worker is an engine's URL, and
where its cache is served: RADIXKV_SGLANG_LISTEN of an SGLang, or any `CacheServer`.
"""

import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from transformers import AutoTokenizer

from radixkv import Namespace
from radixkv.lab.logs.formats.chat import chat_of
from radixkv.prompts.template_files import find_template
from radixkv.router import Pick, Router
from radixkv.service import Client


class Gateway:
    """Picks, forwards, and streams what comes back; the pick ends with the answer."""

    def __init__(self, router: Router, model: str, http: httpx.AsyncClient) -> None:
        self.router, self.http = router, http
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        self.template = find_template(model, None, "sglang")
        paths = ("/v1/chat/completions", "/v1/completions")
        self.app = Starlette(routes=[Route(path, self.serve, methods=["POST"]) for path in paths])

    async def serve(self, request: Request) -> Response:
        body = await request.json()
        pick = self.router.pick(self.tokens(body), Namespace(salt=body.get("cache_salt")))
        sent = self.http.build_request("POST", f"{pick.worker}{request.url.path}", json=body)
        try:
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
        """The prompt as the engine makes it, of tools and parts, too."""
        if "messages" in body:
            text = self.template.prompt(chat_of(body, time.time()))
            return self.tokenizer.encode(text, add_special_tokens=False)
        prompt = body["prompt"]
        return self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt


def main(model: str, port: str, *workers: str) -> None:
    with Router(gone_after_s=5.0) as router:
        for url, address in (worker.rsplit("=", 1) for worker in workers):
            router.follow(url, Client(address), address=address)
        uvicorn.run(Gateway(router, model, httpx.AsyncClient(timeout=None)).app, port=int(port))


if __name__ == "__main__":
    main(*sys.argv[1:])
