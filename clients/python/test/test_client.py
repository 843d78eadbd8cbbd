import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date, datetime, timezone
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Thread
from typing import Any, cast

import pytest
from conformance import KEY, scripted_server

from bellbird_client import AsyncClient, BellbirdError, Client, decimal
from bellbird_client.types import Transaction


# So many requests wait for each other, however long a busy machine takes to send them.
AT_ONCE = {"/v1/holdings": 4, "/v1/connections": 5}


@contextmanager
def counting_server() -> Iterator[tuple[str, dict[str, int]]]:
    """Gives the URL and, for each path, the largest number of requests at one time."""
    changed = Condition()
    now: dict[str, int] = {}
    most: dict[str, int] = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.split("?")[0]
            with changed:
                now[path] = now.get(path, 0) + 1
                most[path] = max(most.get(path, 0), now[path])
                changed.notify_all()
                changed.wait_for(lambda: most[path] >= AT_ONCE[path], timeout=20)
            # One too many would come in this time.
            time.sleep(0.1)
            with changed:
                now[path] -= 1
            self.send_response(200)
            self.send_header("Content-Length", "11")
            self.end_headers()
            self.wfile.write(b'{"data":[]}')

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        thread = Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", most
        server.shutdown()
        thread.join()


def test_four_live_requests_at_once_of_threads() -> None:
    with counting_server() as (url, most), Client(url, KEY) as client, ThreadPoolExecutor(20) as threads:
        calls = [threads.submit(client.holdings, "id") for _ in range(10)]
        others = [threads.submit(client.connections) for _ in range(10)]
        assert [call.result() for call in calls] == [[]] * 10
        assert [other.result() for other in others] == [[]] * 10
    assert most["/v1/holdings"] == 4
    assert most["/v1/connections"] > 4


def test_four_live_requests_at_once_of_tasks() -> None:
    async def main(url: str) -> None:
        async with AsyncClient(url, KEY) as client:
            calls = [client.holdings("id") for _ in range(10)]
            others = [client.connections() for _ in range(10)]
            assert await asyncio.gather(*calls, *others) == [[]] * 20

    with counting_server() as (url, most):
        asyncio.run(main(url))
    assert most["/v1/holdings"] == 4
    assert most["/v1/connections"] > 4


def page(rows: list[Any], more: bool) -> dict[str, Any]:
    pagination = {"total": len(rows), "limit": len(rows), "offset": 0, "hasMore": more}
    return {"status": 200, "body": {"data": rows, "pagination": pagination}}


def test_a_page_is_read_when_its_first_row_is_wanted() -> None:
    exchange = {"request": {"path": "/v1/accounts", "query": {}}, "response": page([{"id": "1"}, {"id": "2"}], True)}
    with scripted_server([exchange]) as url, Client(url, KEY) as client:
        accounts = client.accounts()
        assert [next(accounts)["id"], next(accounts)["id"]] == ["1", "2"]


def test_dates_of_python() -> None:
    query = {"from": "2026-10-01", "to": "2026-10-02T03:04:05+00:00"}
    exchange = {"request": {"path": "/v1/trades", "query": query}, "response": page([], False)}
    to = datetime(2026, 10, 2, 3, 4, 5, tzinfo=timezone.utc)
    with scripted_server([exchange]) as url, Client(url, KEY) as client:
        assert list(client.trades("id", from_=date(2026, 10, 1), to=to)) == []


@pytest.mark.parametrize("key", ["", f"{KEY}\n", f"{KEY} ", f"{KEY}\u00e9"])
def test_key_that_no_header_can_have(key: str) -> None:
    with pytest.raises(ValueError, match="API key") as raised:
        Client("http://127.0.0.1", key)
    assert KEY not in str(raised.value)


def test_url_without_scheme() -> None:
    with pytest.raises(ValueError, match="http://"):
        Client("127.0.0.1:8080", KEY)


def test_no_server() -> None:
    with Client("http://127.0.0.1:1", KEY, wait_up_to=0) as client, pytest.raises(BellbirdError) as raised:
        client.me()
    assert str(raised.value).startswith("ConnectError: ")
    assert KEY not in repr(vars(client)) + repr(client)


@pytest.mark.parametrize("error", [None, "text", ["text"], {"message": 1}, {"message": "text", "details": "text"}])
def test_error_of_another_form(error: object) -> None:
    response = {"status": 400, "body": {"error": error}}
    exchange = {"request": {"path": "/v1/me", "query": {}}, "response": response}
    with scripted_server([exchange]) as url, Client(url, KEY) as client, pytest.raises(BellbirdError) as raised:
        client.me()
    assert raised.value.status == 400
    assert raised.value.details == []


def test_text_of_an_error() -> None:
    error = BellbirdError("Invalid", status=400, code="invalid_parameters", details=["limit: ..."], request_id="id")
    assert str(error) == "400: invalid_parameters: Invalid (limit: ...; request id)"


def test_store_with_coroutines_needs_the_async_client() -> None:
    class Store:
        async def cursor(self) -> str | None:
            await asyncio.sleep(0)
            return None

    with Client("http://127.0.0.1:1", KEY) as client, pytest.raises(TypeError, match="AsyncClient"):
        client.follow_transactions(cast(Any, Store()), "id")


@pytest.mark.parametrize("amount", ["0", "-0.50", "84.30", "123456789012345678901234567.890"])
def test_decimal_keeps_every_digit(amount: str) -> None:
    assert str(decimal(amount)) == amount


def test_decimal_of_a_row() -> None:
    row = cast(Transaction, {"amount": "-5.00"})
    assert decimal(row["amount"]) == Decimal(-5)


@pytest.mark.parametrize("amount", ["", "1e5", "NaN", "1_000", " 1", "1\n", "+1", "1.", "\u0661"])
def test_decimal_of_another_text(amount: str) -> None:
    with pytest.raises(ValueError, match="decimal"):
        decimal(amount)
