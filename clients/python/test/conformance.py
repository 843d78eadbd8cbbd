"""The cases of conformance.json, and a server that plays one."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

CLIENTS = Path(__file__).parents[2]
KEY = "bb_0123456789abcdefghijABCDEFGHIJ0123456789"
CASES: list[dict[str, Any]] = json.loads((CLIENTS / "conformance.json").read_text())["cases"]
PATHS = {
    path: operations
    for document in ("openapi.json", "admin-openapi.json")
    for path, operations in json.loads((CLIENTS.parent / "docs" / document).read_text())["paths"].items()
}


def snake_case(name: str) -> str:
    return "from_" if name == "from" else re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


def parameters(path: str) -> set[str]:
    operation = PATHS.get(path, {}).get("get", {})
    return {parameter["name"] for parameter in operation.get("parameters", [])}


class Script:
    def __init__(self, exchanges: list[dict[str, Any]]) -> None:
        self.exchanges = iter(exchanges)
        self.problems: list[str] = []
        self.idempotency_keys: set[str] = set()

    def respond(self, handler: BaseHTTPRequestHandler) -> None:
        exchange = next(self.exchanges, None)
        problem = self._problem(handler, exchange["request"]) if exchange else f"one request too many: {handler.path}"
        if problem:
            self.problems.append(problem)
        if problem or not exchange or exchange["response"] is None:
            handler.close_connection = True
            return
        response = exchange["response"]
        body = response["rawBody"].encode() if "rawBody" in response else json.dumps(response["body"]).encode()
        handler.send_response(response["status"])
        headers = {"Content-Type": "application/json"} | response.get("headers", {})
        if response["status"] != 204:
            headers["Content-Length"] = str(len(body))
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body[: response.get("cutAfter")])
        handler.close_connection = "cutAfter" in response

    def _problem(self, handler: BaseHTTPRequestHandler, expected: dict[str, Any]) -> str | None:
        url = urlsplit(handler.path)
        pairs = parse_qsl(url.query, keep_blank_values=True)
        query = dict(pairs)
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        key = handler.headers["Idempotency-Key"]
        if handler.command != expected.get("method", "GET"):
            return f"{handler.command} is not the method"
        if (json.loads(body) if body else None) != expected.get("body"):
            return f"another body: {body!r}"
        if (key is not None) != (handler.command == "POST") or expected.get("idempotencyKey", key) != key:
            return f"Idempotency-Key: {key}"
        if key is not None:
            self.idempotency_keys.add(key)
        if handler.headers["Authorization"] != f"Bearer {KEY}":
            return "no key"
        if url.path != expected["path"]:
            return f"{url.path} is not {expected['path']}"
        if len(query) < len(pairs) or not query.keys() <= parameters(url.path):
            return f"twice, or not a parameter of {url.path}: {url.query}"
        wrong = {name for name, value in expected["query"].items() if query.get(name) != value}
        return f"{wrong} of {url.query} are not those of {expected['query']}" if wrong else None


@contextmanager
def scripted_server(exchanges: list[dict[str, Any]]) -> Iterator[str]:
    """Gives the URL. At the end, exactly the expected requests have come."""
    script = Script(exchanges)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            script.respond(self)

        do_DELETE = do_PATCH = do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        thread = Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
    assert script.problems == []
    assert next(script.exchanges, None) is None, "a request is missing"
    assert len(script.idempotency_keys) <= 1, "one change has several Idempotency-Keys"
