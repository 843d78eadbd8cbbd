from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from typing import Any, TypeVar

from typing_extensions import Self

from ._api import Api, Day
from ._transport import AsyncTransport, BlockingTransport
from .changes import Store
from .types import (
    Account,
    Balance,
    Category,
    Connection,
    Holding,
    MeData,
    Trade,
    TradeChangesPage,
    Transaction,
    TransactionChangesPage,
)

T = TypeVar("T")


class AsyncClient(Api):
    """A client for asyncio.

    Each request may wait up to `wait_up_to` seconds in total where the service says when to repeat it, or after a
    failure of the network.
    """

    def __init__(self, base_url: str, api_key: str, *, wait_up_to: float = 60) -> None:
        transport = AsyncTransport(base_url, api_key)
        super().__init__(transport, wait_up_to)
        self.aclose = transport.http.aclose

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


class Client:
    """The methods of `AsyncClient`, blocking. Threads may share a client."""

    def __init__(self, base_url: str, api_key: str, *, wait_up_to: float = 60) -> None:
        transport = BlockingTransport(base_url, api_key)
        self._api = Api(transport, wait_up_to)
        self.close = transport.http.close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def connections(self) -> list[Connection]:
        return _run(self._api.connections())

    def accounts(self, *, limit: int = 200) -> Iterator[Account]:
        return _iterate(self._api.accounts(limit=limit))

    def balances(self, account_ids: Iterable[str]) -> list[Balance]:
        return _run(self._api.balances(account_ids))

    def transactions(
        self, connection_id: str, account_id: str | None = None, *, from_: Day = None, to: Day = None, limit: int = 500
    ) -> Iterator[Transaction]:
        return _iterate(self._api.transactions(connection_id, account_id, from_=from_, to=to, limit=limit))

    def holdings(self, connection_id: str, account_id: str | None = None) -> list[Holding]:
        return _run(self._api.holdings(connection_id, account_id))

    def trades(
        self, connection_id: str, account_id: str | None = None, *, from_: Day = None, to: Day = None, limit: int = 500
    ) -> Iterator[Trade]:
        return _iterate(self._api.trades(connection_id, account_id, from_=from_, to=to, limit=limit))

    def categories(self) -> list[Category]:
        return _run(self._api.categories())

    def me(self) -> MeData:
        return _run(self._api.me())

    def transaction_changes(
        self, connection_id: str, account_id: str | None = None, *, cursor: str | None = None, from_: Day = None
    ) -> Iterator[TransactionChangesPage]:
        return _iterate(self._api.transaction_changes(connection_id, account_id, cursor=cursor, from_=from_))

    def trade_changes(
        self, connection_id: str, account_id: str | None = None, *, cursor: str | None = None, from_: Day = None
    ) -> Iterator[TradeChangesPage]:
        return _iterate(self._api.trade_changes(connection_id, account_id, cursor=cursor, from_=from_))

    def follow_transactions(
        self, store: Store[Transaction], connection_id: str, account_id: str | None = None, *, from_: Day = None
    ) -> int:
        return _run(self._api.follow_transactions(store, connection_id, account_id, from_=from_))

    def follow_trades(
        self, store: Store[Trade], connection_id: str, account_id: str | None = None, *, from_: Day = None
    ) -> int:
        return _run(self._api.follow_trades(store, connection_id, account_id, from_=from_))


def _run(call: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never suspends, because what it awaits blocks."""
    try:
        call.send(None)
    except StopIteration as finished:
        result: T = finished.value
        return result
    raise TypeError("a store with coroutines needs AsyncClient")


def _iterate(rows: AsyncIterator[T]) -> Iterator[T]:
    async def next_row() -> T | None:
        return await anext(rows, None)

    while (row := _run(next_row())) is not None:
        yield row
