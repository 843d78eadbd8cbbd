from collections.abc import AsyncIterator, Awaitable, Iterable
from datetime import date
from inspect import isawaitable
from typing import Any, TypeVar

from . import types
from ._caller import Caller, Query
from .changes import AsyncStore, Batch, Store
from .errors import CursorExpired

T = TypeVar("T")
AnyStore = Store[T] | AsyncStore[T]
Day = date | str | None

METADATA_PATHS = {"/v1/connections", "/v1/accounts", "/v1/categories", "/v1/me"}


class Api(Caller):
    """Every method of both clients. `Client` runs these coroutines on a transport that never suspends."""

    async def connections(self) -> list[types.Connection]:
        body: types.ConnectionList = await self._get("/v1/connections", {})
        return body["data"]

    def accounts(self, *, limit: int = 200) -> AsyncIterator[types.Account]:
        return self._rows("/v1/accounts", {"limit": limit})

    async def balances(self, account_ids: Iterable[str]) -> list[types.Balance]:
        """Of up to 100 accounts. The values of an account that could not be read are None."""
        body: types.BalanceList = await self._get("/v1/balances", {"accountIds": ",".join(account_ids)})
        return body["data"]

    def transactions(
        self, connection_id: str, account_id: str | None = None, *, from_: Day = None, to: Day = None, limit: int = 500
    ) -> AsyncIterator[types.Transaction]:
        """Posted transactions, the newest first; without `from_` those of the last 30 days.

        `limit` is the size of a page: smaller, if you stop after a few rows.
        """
        query = {"connectionId": connection_id, "accountId": account_id, "from": from_, "to": to, "limit": limit}
        return self._rows("/v1/transactions", query)

    async def holdings(self, connection_id: str, account_id: str | None = None) -> list[types.Holding]:
        query = {"connectionId": connection_id, "accountId": account_id}
        body: types.HoldingList = await self._get("/v1/holdings", query)
        return body["data"]

    def trades(
        self, connection_id: str, account_id: str | None = None, *, from_: Day = None, to: Day = None, limit: int = 500
    ) -> AsyncIterator[types.Trade]:
        """Trades, the newest first; without `from_` those of the broker's own range.

        If trades appear meanwhile, the last row of a page comes again. `id` does not tell it from an equal trade.
        """
        query = {"connectionId": connection_id, "accountId": account_id, "from": from_, "to": to, "limit": limit}
        return self._rows("/v1/trades", query)

    async def categories(self) -> list[types.Category]:
        body: types.CategoryList = await self._get("/v1/categories", {})
        return body["categories"]

    async def me(self) -> types.MeData:
        body: types.Me = await self._get("/v1/me", {})
        return body["data"]

    def transaction_changes(
        self, connection_id: str, account_id: str | None = None, *, cursor: str | None = None, from_: Day = None
    ) -> AsyncIterator[types.TransactionChangesPage]:
        """The pages of changes since `cursor`, or from `from_` on (30 days ago) if there is no cursor yet.

        Apply the entries of a page in their order, and keep its cursor in the same database transaction.
        """
        return self._changes("/v1/transactions/changes", connection_id, account_id, cursor, from_)

    def trade_changes(
        self, connection_id: str, account_id: str | None = None, *, cursor: str | None = None, from_: Day = None
    ) -> AsyncIterator[types.TradeChangesPage]:
        """As `transaction_changes`."""
        return self._changes("/v1/trades/changes", connection_id, account_id, cursor, from_)

    async def follow_transactions(
        self,
        store: AnyStore[types.Transaction],
        connection_id: str,
        account_id: str | None = None,
        *,
        from_: Day = None,
    ) -> int:
        """Makes the store's table equal to the transactions that the provider lists now.

        Returns the number of changes. The first copy goes back to `from_`, by default 30 days. An exception, also of
        the store, loses nothing: the next call continues after the last batch that the store has applied.
        """
        return await self._follow(store, "/v1/transactions/changes", "transaction", connection_id, account_id, from_)

    async def follow_trades(
        self, store: AnyStore[types.Trade], connection_id: str, account_id: str | None = None, *, from_: Day = None
    ) -> int:
        """As `follow_transactions`."""
        return await self._follow(store, "/v1/trades/changes", "trade", connection_id, account_id, from_)

    async def _follow(
        self, store: AnyStore[Any], path: str, member: str, connection_id: str, account_id: str | None, from_: Day
    ) -> int:
        count = 0
        cursor = await _result(store.cursor())
        # Begins again once, because a service that expires its own new cursor would be asked forever.
        for may_begin_again in (True, False):
            if cursor is None:
                await _result(store.begin())
            try:
                async for page in self._changes(path, connection_id, account_id, cursor, from_):
                    await _result(store.apply(_batch(page, member)))
                    count += len(page["data"])
                break
            except CursorExpired:
                if not may_begin_again:
                    raise
                cursor = None
        return count

    async def _changes(
        self, path: str, connection_id: str, account_id: str | None, cursor: str | None, from_: Day
    ) -> AsyncIterator[Any]:
        selection = {"connectionId": connection_id, "accountId": account_id}
        more = True
        while more:
            begin = {"from": from_} if cursor is None else {"cursor": cursor}
            page = await self._get(path, {**selection, **begin})
            yield page
            cursor, more = page["cursor"], page["hasMore"]

    async def _rows(self, path: str, query: Query) -> AsyncIterator[Any]:
        offset, more = 0, True
        while more:
            body = await self._get(path, {**query, "offset": offset})
            for row in body["data"]:
                yield row
            pagination = body["pagination"]
            offset, more = offset + pagination["limit"], pagination["hasMore"]

    async def _get(self, path: str, query: Query) -> Any:
        return await self._call("GET", path, query, live=path not in METADATA_PATHS)


def _batch(page: Any, member: str) -> Batch[Any]:
    upserts: dict[str, Any] = {}
    removals: set[str] = set()
    for change in page["data"]:
        match change:
            case {"op": "upsert", "key": key}:
                upserts[key] = change[member]
                removals.discard(key)
            case {"op": "remove", "key": key}:
                upserts.pop(key, None)
                removals.add(key)
    return Batch(upserts, removals, page["cursor"], None if page["hasMore"] else page["watchedFrom"])


async def _result(value: T | Awaitable[T]) -> T:
    return await value if isawaitable(value) else value
