import asyncio
import re
import threading
import time
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple, Protocol

import httpx

LIVE_AT_ONCE = 4
# A read from a provider takes 25 seconds at most.
TIMEOUT_SECONDS = 30.0

Outcome = httpx.Response | httpx.RequestError


class Request(NamedTuple):
    method: str
    path: str
    query: Mapping[str, str]
    body: object = None
    headers: Mapping[str, str] | None = None
    live: bool = False

    def arguments(self) -> dict[str, Any]:
        """Of `httpx.Client.request`."""
        return {
            "method": self.method,
            "url": self.path,
            "params": self.query,
            "json": self.body,
            "headers": self.headers,
        }


class Transport(Protocol):
    async def send(self, request: Request) -> Outcome:
        """A response, read whole, or why there is none.

        A failure is returned, because an error raised while handling it would lead to the request with its key.
        """

    async def sleep(self, seconds: float) -> None: ...


def _settings(base_url: str, api_key: str) -> dict[str, Any]:
    if not base_url.startswith(("http://", "https://")):
        raise ValueError("the base URL has to start with http:// or https://")
    # Of a line break, httpx would complain with the whole header.
    if not re.fullmatch("[!-~]+", api_key):
        raise ValueError("the API key is empty, or has a space, a line break or a letter outside ASCII")
    return {
        "base_url": base_url,
        "headers": {"Accept": "application/json", "Authorization": f"Bearer {api_key}"},
        "timeout": TIMEOUT_SECONDS,
    }


class BlockingTransport:
    """Its coroutines block and never suspend, so that one `send` runs whatever awaits them."""

    def __init__(self, base_url: str, api_key: str) -> None:
        self.http = httpx.Client(**_settings(base_url, api_key))
        self._live = threading.Semaphore(LIVE_AT_ONCE)

    async def send(self, request: Request) -> Outcome:
        with self._live if request.live else nullcontext():
            try:
                return self.http.request(**request.arguments())
            except httpx.RequestError as failure:
                return failure

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class AsyncTransport:
    def __init__(self, base_url: str, api_key: str) -> None:
        self.http = httpx.AsyncClient(**_settings(base_url, api_key))
        self._live = asyncio.Semaphore(LIVE_AT_ONCE)

    async def send(self, request: Request) -> Outcome:
        async with self._live if request.live else nullcontext():
            try:
                return await self.http.request(**request.arguments())
            except httpx.RequestError as failure:
                return failure

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
