"""Makes the calls of a plan with the Python package `mcp`, release 1 or 2, and prints what it got as JSON.

    client.py PLAN ERA URL                    over HTTP, with the key in BELLBIRD_KEY
    client.py PLAN ERA COMMAND [ARGUMENT...]  over stdio, with the environment variables BELLBIRD_*

ERA is `legacy`, `modern` or `auto` (what the package does by itself). Release 1 knows only `legacy`. PLAN is a file:
a list of {"tool", "arguments", "pages"}. With "pages", the call is repeated with `next_cursor` until there is none.
The package compares every result with the tool's output schema, and raises an error where they differ.
"""

import asyncio
import contextlib
import json
import os
import sys
from importlib.metadata import version

RELEASE = int(version("mcp").split(".")[0])
# A walk that does not end is a fault of the service.
PAGES_MAX = 200


def members(model):
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


@contextlib.asynccontextmanager
async def session_of_release_1(target):
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client
    import httpx

    async with contextlib.AsyncExitStack() as stack:
        if target[0].startswith("http"):
            http = await stack.enter_async_context(httpx.AsyncClient(headers=bearer(), timeout=60))
            streams = await stack.enter_async_context(streamable_http_client(target[0], http_client=http))
        else:
            command = StdioServerParameters(command=target[0], args=target[1:], env=environment())
            streams = await stack.enter_async_context(stdio_client(command))
        session = await stack.enter_async_context(ClientSession(streams[0], streams[1]))
        greeting = members(await session.initialize())
        await session.send_ping()
        yield session, greeting["protocolVersion"], greeting


@contextlib.asynccontextmanager
async def session_of_release_2(target, era):
    from mcp import Client, StdioServerParameters
    from mcp.client.streamable_http import streamable_http_client
    import httpx2

    mode = {"legacy": "legacy", "auto": "auto", "modern": "2026-07-28"}[era]
    async with contextlib.AsyncExitStack() as stack:
        if target[0].startswith("http"):
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=bearer(), timeout=60))
            server = streamable_http_client(target[0], http_client=http)
        else:
            server = StdioServerParameters(command=target[0], args=target[1:], env=environment())
        client = await stack.enter_async_context(Client(server, mode=mode, read_timeout_seconds=60))
        session = client.session
        greeting = session.initialize_result or session.discover_result
        # Without a probe (`modern`) the greeting is the package's own.
        yield client, session.protocol_version, members(greeting)


def bearer():
    return {"Authorization": "Bearer " + os.environ["BELLBIRD_KEY"]}


def environment():
    """The packages pass on only a few variables by themselves."""
    return {name: value for name, value in os.environ.items() if name.startswith(("BELLBIRD_", "NO_PROXY"))}


async def call(session, tool, arguments):
    try:
        result = members(await session.call_tool(tool, arguments))
    except Exception as error:  # JSON-RPC errors: their classes differ between the releases.
        code = getattr(getattr(error, "error", None), "code", None)
        if code is None:
            raise
        return {"code": code, "message": str(error)}
    return {
        "text": "\n".join(block["text"] for block in result["content"]),
        "structured": result.get("structuredContent"),
        "isError": result.get("isError", False),
    }


async def calls(session, step):
    arguments = dict(step["arguments"])
    answers = []
    while len(answers) < PAGES_MAX:
        answers.append(await call(session, step["tool"], arguments))
        cursor = (answers[-1].get("structured") or {}).get("next_cursor")
        if not step.get("pages") or cursor is None:
            return answers
        arguments["cursor"] = cursor
    raise SystemExit(f"{step['tool']}: no end after {PAGES_MAX} pages")


async def main(plan, era, *target):
    with open(plan, encoding="utf-8") as file:
        steps = json.load(file)
    opened = session_of_release_1(target) if RELEASE == 1 else session_of_release_2(target, era)
    async with opened as (session, revision, greeting):
        tools = [members(tool) for tool in (await session.list_tools()).tools]
        answers = [await calls(session, step) for step in steps]
    json.dump({"revision": revision, "greeting": greeting, "tools": tools, "answers": answers}, sys.stdout)


asyncio.run(main(*sys.argv[1:]))
