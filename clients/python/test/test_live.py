"""Against the service at BELLBIRD_TEST_URL, such as `bellbird demo`, with the key BELLBIRD_TEST_KEY.

BELLBIRD_TEST_CONTROL and BELLBIRD_TEST_AKAHU_CONTROL are the URLs of the simulated Fiskil and Akahu behind it, whose
rows the tests then change. Akahu's events have to reach the service.
"""

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import date, timedelta
from typing import Any

import httpx
import pytest
from memory_store import MemoryStore
from sqlite_store import SqliteStore

from bellbird_client import AsyncClient, Client
from bellbird_client.types import Transaction

URL = os.environ.get("BELLBIRD_TEST_URL", "")
KEY = os.environ.get("BELLBIRD_TEST_KEY", "")
CONTROL = os.environ.get("BELLBIRD_TEST_CONTROL", "")
AKAHU_CONTROL = os.environ.get("BELLBIRD_TEST_AKAHU_CONTROL", "")
FROM = (date.today() - timedelta(days=365)).isoformat()

pytestmark = pytest.mark.skipif(not (URL and KEY), reason="BELLBIRD_TEST_URL and BELLBIRD_TEST_KEY are not set")


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(URL, KEY) as client:
        yield client


def connections_of(client: Client, category: str) -> list[str]:
    return [connection["id"] for connection in client.connections() if connection["category"] == category]


def check_whole(path: str, rows: Sequence[Any], **query: str) -> None:
    """The window after the last row but one has the last row, and nothing follows."""
    assert rows
    window = {"limit": "1", "offset": str(len(rows) - 1), **query}
    headers = {"Authorization": f"Bearer {KEY}"}
    while (response := httpx.get(URL + path, params=window, headers=headers)).status_code == 429:
        time.sleep(int(response.headers["Retry-After"]))
    body = response.raise_for_status().json()
    assert body["data"] == [rows[-1]]
    assert body["pagination"] == {"total": len(rows), "limit": 1, "offset": len(rows) - 1, "hasMore": False}


def test_accounts_and_balances(client: Client) -> None:
    accounts = list(client.accounts())
    check_whole("/v1/accounts", accounts)
    ids = [account["id"] for account in accounts][:100]
    assert sorted(balance["accountId"] for balance in client.balances(ids)) == sorted(ids)
    assert {account["connectionId"] for account in accounts} <= {row["id"] for row in client.connections()}


def test_categories_and_me(client: Client) -> None:
    assert len(client.categories()) == 16
    assert client.me()["limits"]["liveInFlight"] == 4


def test_transactions_of_all_banks_at_once(client: Client) -> None:
    connections = connections_of(client, "banking")

    async def main() -> list[list[Transaction]]:
        async with AsyncClient(URL, KEY) as client:

            async def whole(connection: str) -> list[Transaction]:
                return [row async for row in client.transactions(connection, from_=FROM)]

            return await asyncio.gather(*map(whole, connections))

    for connection, rows in zip(connections, asyncio.run(main()), strict=True):
        check_whole("/v1/transactions", rows, connectionId=connection, **{"from": FROM})


def test_holdings_and_trades(client: Client) -> None:
    for connection in connections_of(client, "brokerage"):
        assert client.holdings(connection)
        check_whole("/v1/trades", list(client.trades(connection)), connectionId=connection)


def in_order(rows: Iterable[Any]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def test_follow_transactions(client: Client) -> None:
    connection = connections_of(client, "banking")[0]
    with closing(sqlite3.connect(":memory:")) as db:
        store = SqliteStore(db)
        assert client.follow_transactions(store, connection, from_=FROM) > 0
        assert client.follow_transactions(store, connection) == 0
        rows = [json.loads(row) for (row,) in db.execute("SELECT row FROM rows")]
    assert in_order(rows) == in_order(client.transactions(connection, from_=FROM))


def test_follow_trades() -> None:
    async def main() -> None:
        async with AsyncClient(URL, KEY) as client:
            connection = next(row["id"] for row in await client.connections() if row["category"] == "brokerage")
            store = MemoryStore()
            assert await client.follow_trades(store, connection, from_=FROM) > 0
            assert await client.follow_trades(store, connection) == 0
            listed = [row async for row in client.trades(connection, from_=FROM)]
            assert in_order(store.rows.values()) == in_order(listed)

    asyncio.run(main())


@pytest.mark.skipif(not CONTROL, reason="BELLBIRD_TEST_CONTROL is not set")
def test_follow_changes_at_the_provider(client: Client) -> None:
    def ask(method: str, path: str, **body: str) -> httpx.Response:
        return httpx.request(method, f"{CONTROL}/__control/transactions{path}", json=body).raise_for_status()

    connection = next(row["id"] for row in client.connections() if row["provider"] == "fiskil")
    store = MemoryStore()
    client.follow_transactions(store, connection)
    (changed_key, changed), (removed_key, removed) = list(store.rows.items())[:2]
    description, added = f"CHANGED {time.time_ns()}", f"ADDED {time.time_ns()}"
    account = ask("PATCH", f"/{changed['id']}", description=description).json()["account_id"]
    ask("POST", "", account_id=account, amount="-1.25", description=added)
    ask("DELETE", f"/{removed['id']}")
    # The service syncs first, but only if its last sync is older than changes_max_age_seconds.
    for _ in range(240):
        if added in (row["description"] for row in store.rows.values()):
            break
        time.sleep(0.25)
        client.follow_transactions(store, connection)
    assert store.rows[changed_key]["description"] == description
    # A provider that leaves a row out for a moment has not removed it.
    assert store.rows.pop(removed_key) == removed
    oldest = min(row["date"] for row in store.rows.values())
    assert in_order(store.rows.values()) == in_order(client.transactions(connection, from_=oldest))


@pytest.mark.skipif(not AKAHU_CONTROL, reason="BELLBIRD_TEST_AKAHU_CONTROL is not set")
def test_follow_a_removal(client: Client) -> None:
    connection = next(row["id"] for row in client.connections() if row["provider"] == "akahu")
    store = MemoryStore()
    client.follow_transactions(store, connection)
    copied = dict(store.rows)
    key, row = next(iter(copied.items()))
    httpx.delete(f"{AKAHU_CONTROL}/__control/transactions/{row['id']}").raise_for_status()
    for _ in range(240):
        if key not in store.rows:
            break
        time.sleep(0.25)
        client.follow_transactions(store, connection)
    del copied[key]
    assert store.rows == copied
