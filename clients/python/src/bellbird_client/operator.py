"""The operator's API, for programs that manage users, with an operator key."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, overload
from urllib.parse import quote
from uuid import uuid4

from typing_extensions import Self

from . import operator_types as types
from ._caller import Caller, Query
from ._transport import AsyncTransport, BlockingTransport
from .client import _iterate, _run

__all__ = ["AsyncOperatorClient", "OperatorClient"]

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
Call = Coroutine[Any, Any, T]

ROWS_MAX = 200


class _Method(Generic[P, A, B]):
    """A method whose result `AsyncOperatorClient` gives as it is, and `OperatorClient` after `block`."""

    def __init__(self, method: Callable[Concatenate[Any, P], A], block: Callable[[A], B]) -> None:
        self._method = method
        self._block = block
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, client: None, kind: object) -> Self: ...
    @overload
    def __get__(self, client: "AsyncOperatorClient", kind: object) -> Callable[P, A]: ...
    @overload
    def __get__(self, client: "OperatorClient", kind: object) -> Callable[P, B]: ...
    def __get__(self, client: object, kind: object) -> Any:
        if client is None:
            return self
        call: Callable[..., Any] = partial(self._method, client)
        if isinstance(client, AsyncOperatorClient):
            return call
        return lambda *arguments, **options: self._block(call(*arguments, **options))


def _value(method: Callable[Concatenate[Any, P], Call[T]]) -> _Method[P, Call[T], T]:
    return _Method(method, _run)


def _rows(method: Callable[Concatenate[Any, P], AsyncIterator[T]]) -> _Method[P, AsyncIterator[T], Iterator[T]]:
    return _Method(method, _iterate)


class _Operator(Caller):
    """Bodies are dicts, typed in `bellbird_client.operator_types`.

    An `idempotency_key` names a change, so that the service makes it once however often it is sent. It is random unless
    given, and the same when the client repeats the request.
    """

    @_rows
    def users(self, *, email: str | None = None, reference: str | None = None) -> AsyncIterator[types.User]:
        return self._pages("/users", {"email": email, "reference": reference})

    @_value
    def create_user(self, user: types.NewUser, *, idempotency_key: str | None = None) -> Call[types.User]:
        return self._create("/users", user, idempotency_key)

    @_value
    def user(self, id: str) -> Call[types.User]:
        return self._data("GET", f"/users/{_id(id)}")

    @_value
    def update_user(self, id: str, change: types.UserChange) -> Call[types.User]:
        return self._data("PATCH", f"/users/{_id(id)}", change)

    @_value
    async def remove_user(self, id: str, *, connections: Literal["remove"] | None = None) -> None:
        """With `connections="remove"`, the service goes on after the response."""
        await self._call("DELETE", f"/admin/v1/users/{_id(id)}", {"connections": connections})

    @_value
    def keys(self, user_id: str) -> Call[list[types.Key]]:
        return self._data("GET", f"/users/{_id(user_id)}/keys")

    @_value
    def create_key(
        self, user_id: str, key: types.NewKey | None = None, *, idempotency_key: str | None = None
    ) -> Call[types.CreatedKey]:
        return self._create(f"/users/{_id(user_id)}/keys", key or {}, idempotency_key)

    @_value
    def revoke_key(self, id: str) -> Call[None]:
        return self._delete(f"/keys/{_id(id)}")

    @_value
    def rotate_key(
        self, id: str, rotation: types.KeyRotation | None = None, *, idempotency_key: str | None = None
    ) -> Call[types.CreatedKey]:
        return self._create(f"/keys/{_id(id)}/rotate", rotation or {}, idempotency_key)

    @_value
    def create_setup_token(
        self, user_id: str, token: types.NewSetupToken | None = None, *, idempotency_key: str | None = None
    ) -> Call[types.SetupToken]:
        return self._create(f"/users/{_id(user_id)}/setup-tokens", token or {}, idempotency_key)

    @_value
    def revoke_setup_tokens(self, user_id: str) -> Call[None]:
        """Those that nobody has claimed."""
        return self._delete(f"/users/{_id(user_id)}/setup-tokens")

    @_value
    def create_link_session(
        self, session: types.NewLinkSession, *, idempotency_key: str | None = None
    ) -> Call[types.CreatedLinkSession]:
        return self._create("/link-sessions", session, idempotency_key)

    @_value
    def link_session(self, id: str) -> Call[types.LinkSession]:
        return self._data("GET", f"/link-sessions/{_id(id)}")

    @_rows
    def connections(self, *, user_id: str | None = None) -> AsyncIterator[types.Connection]:
        return self._pages("/connections", {"userId": user_id})

    @_value
    def connection(self, id: str) -> Call[types.ConnectionDetails]:
        return self._data("GET", f"/connections/{_id(id)}")

    @_value
    def sync_connection(self, id: str, *, idempotency_key: str | None = None) -> Call[types.ConnectionDetails]:
        """Requests a sync. `sync.syncedAt` of the connection shows when it ran."""
        return self._create(f"/connections/{_id(id)}/sync", None, idempotency_key)

    @_value
    def remove_connection(self, id: str) -> Call[types.ConnectionDetails]:
        """Requests the removal. The connection is 404 once the provider has withdrawn the consent."""
        return self._data("DELETE", f"/connections/{_id(id)}")

    @_rows
    def webhook_endpoints(self, *, user_id: str | None = None) -> AsyncIterator[types.WebhookEndpoint]:
        return self._pages("/webhook-endpoints", {"userId": user_id})

    @_value
    def create_webhook_endpoint(
        self, endpoint: types.NewWebhookEndpoint, *, idempotency_key: str | None = None
    ) -> Call[types.CreatedWebhookEndpoint]:
        """The secret is in this response only."""
        return self._create("/webhook-endpoints", endpoint, idempotency_key)

    @_value
    def webhook_endpoint(self, id: str) -> Call[types.WebhookEndpoint]:
        return self._data("GET", f"/webhook-endpoints/{_id(id)}")

    @_value
    def update_webhook_endpoint(self, id: str, change: types.WebhookEndpointChange) -> Call[types.WebhookEndpoint]:
        return self._data("PATCH", f"/webhook-endpoints/{_id(id)}", change)

    @_value
    def remove_webhook_endpoint(self, id: str) -> Call[None]:
        return self._delete(f"/webhook-endpoints/{_id(id)}")

    @_value
    def rotate_webhook_secret(self, id: str, *, idempotency_key: str | None = None) -> Call[types.NewWebhookSecret]:
        return self._create(f"/webhook-endpoints/{_id(id)}/rotate-secret", None, idempotency_key)

    @_value
    def ping_webhook_endpoint(self, id: str, *, idempotency_key: str | None = None) -> Call[types.Ping]:
        return self._create(f"/webhook-endpoints/{_id(id)}/ping", None, idempotency_key)

    @_rows
    def deliveries(
        self, endpoint_id: str, *, state: str | None = None, user_id: str | None = None
    ) -> AsyncIterator[types.Delivery]:
        """The newest first."""
        path = f"/webhook-endpoints/{_id(endpoint_id)}/deliveries"
        return self._pages(path, {"state": state, "userId": user_id})

    @_value
    def delivery(self, endpoint_id: str, event_id: str, *, user_id: str | None = None) -> Call[types.DeliveryDetails]:
        """At an endpoint for all users, `user_id` names the user."""
        path = f"/webhook-endpoints/{_id(endpoint_id)}/deliveries/{_id(event_id)}"
        return self._data("GET", path, query={"userId": user_id})

    @_value
    def redeliver(
        self, endpoint_id: str, event_id: str, *, user_id: str | None = None, idempotency_key: str | None = None
    ) -> Call[types.Redelivery]:
        """At an endpoint for all users, `user_id` names the user."""
        path = f"/webhook-endpoints/{_id(endpoint_id)}/deliveries/{_id(event_id)}/redeliver"
        return self._create(path, None if user_id is None else {"userId": user_id}, idempotency_key)

    @_value
    def recover(
        self, endpoint_id: str, recovery: types.WebhookRecovery, *, idempotency_key: str | None = None
    ) -> Call[types.Recovered]:
        """Delivers again what failed since a time."""
        return self._create(f"/webhook-endpoints/{_id(endpoint_id)}/recover", recovery, idempotency_key)

    @_rows
    def audit(self, *, user_id: str | None = None) -> AsyncIterator[types.AuditRow]:
        """What operators did, the newest first."""
        return self._pages("/audit", {"userId": user_id})

    async def _pages(self, path: str, query: Query) -> AsyncIterator[Any]:
        cursor, more = None, True
        while more:
            page = await self._call("GET", f"/admin/v1{path}", {**query, "limit": ROWS_MAX, "cursor": cursor})
            for row in page["data"]:
                yield row
            cursor = page["nextCursor"]
            more = cursor is not None

    async def _create(self, path: str, body: object, idempotency_key: str | None) -> Any:
        headers = {"Idempotency-Key": str(uuid4()) if idempotency_key is None else idempotency_key}
        return await self._data("POST", path, body, headers=headers)

    async def _delete(self, path: str) -> None:
        await self._call("DELETE", f"/admin/v1{path}")

    async def _data(self, method: str, path: str, body: object = None, **more: Any) -> Any:
        return (await self._call(method, f"/admin/v1{path}", body=body, **more))["data"]


class AsyncOperatorClient(_Operator):
    """For asyncio."""

    def __init__(self, base_url: str, operator_key: str, *, wait_up_to: float = 60) -> None:
        transport = AsyncTransport(base_url, operator_key)
        super().__init__(transport, wait_up_to)
        self.aclose = transport.http.aclose

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


class OperatorClient(_Operator):
    """The methods of `AsyncOperatorClient`, blocking. Threads may share a client."""

    def __init__(self, base_url: str, operator_key: str, *, wait_up_to: float = 60) -> None:
        transport = BlockingTransport(base_url, operator_key)
        super().__init__(transport, wait_up_to)
        self.close = transport.http.close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _id(text: str) -> str:
    return quote(text, safe="")
