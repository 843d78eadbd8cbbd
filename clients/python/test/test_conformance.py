import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from conformance import CASES, KEY, scripted_server, snake_case
from conftest import Rows, Table

from bellbird_client import AsyncClient, Batch, BellbirdError, Client
from bellbird_client._transport import AsyncTransport, BlockingTransport
from bellbird_client.operator import AsyncOperatorClient, OperatorClient

Outcome = dict[str, Any]
FOLLOW_CASES = [case for case in CASES if "store" in case]
OTHER_CASES = [case for case in CASES if "store" not in case]


class StoreFailure(Exception):
    pass


class FailingStore:
    def __init__(self, store: Table, fails_at_page: int | None) -> None:
        self._store = store
        self._fails_at_page = fails_at_page
        self._pages = 0
        self.cursor = store.cursor
        self.begin = store.begin

    def apply(self, batch: Batch[Mapping[str, Any]]) -> None:
        self._pages += 1
        if self._pages == self._fails_at_page:
            raise StoreFailure
        self._store.apply(batch)


class StoreWithCoroutines:
    def __init__(self, store: FailingStore) -> None:
        self._store = store

    async def cursor(self) -> str | None:
        return self._store.cursor()

    async def begin(self) -> None:
        self._store.begin()

    async def apply(self, batch: Batch[Mapping[str, Any]]) -> None:
        self._store.apply(batch)


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[float]:
    waited: list[float] = []

    async def sleep(_: object, seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(BlockingTransport, "sleep", sleep)
    monkeypatch.setattr(AsyncTransport, "sleep", sleep)
    # Without certificates, because loading them takes longer than a case.
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    return waited


def names(cases: list[dict[str, Any]]) -> list[str]:
    return [case["name"] for case in cases]


def call_blocking(client: Client | OperatorClient, method: str, arguments: dict[str, Any]) -> Outcome:
    outcome: Outcome = {}
    try:
        result = getattr(client, method)(**arguments)
        if isinstance(result, Iterator):
            outcome["rows"] = []
            for row in result:
                outcome["rows"].append(row)
        else:
            outcome["value"] = result
    except BellbirdError as error:
        outcome["error"] = error
    return outcome


async def call_async(
    client: AsyncClient | AsyncOperatorClient, method: str, arguments: dict[str, Any]
) -> Outcome:
    outcome: Outcome = {}
    try:
        result = getattr(client, method)(**arguments)
        if isinstance(result, AsyncIterator):
            outcome["rows"] = []
            async for row in result:
                outcome["rows"].append(row)
        else:
            outcome["value"] = await result
    except BellbirdError as error:
        outcome["error"] = error
    return outcome


def run(kind: str, url: str, case: dict[str, Any], **further: Any) -> Outcome:
    method = snake_case(case["call"]["method"])
    arguments = {snake_case(name): value for name, value in case["call"]["arguments"].items()} | further
    options = {"wait_up_to": case["call"]["waitUpTo"]} if "waitUpTo" in case["call"] else {}
    is_operator = case["call"].get("client") == "operator"
    if kind == "sync":
        with (OperatorClient if is_operator else Client)(url, KEY, **options) as client:
            return call_blocking(client, method, arguments)

    async def main() -> Outcome:
        async with (AsyncOperatorClient if is_operator else AsyncClient)(url, KEY, **options) as client:
            return await call_async(client, method, arguments)

    return asyncio.run(main())


def check_error(error: BellbirdError | None, expected: dict[str, Any] | None) -> None:
    assert (error is None) == (expected is None), error
    if error is not None and expected is not None:
        assert {name: getattr(error, snake_case(name)) for name in expected} == expected
        shown = "".join(traceback.format_exception(error)) + str(error) + repr(error) + repr(vars(error))
        assert KEY not in shown
        assert error.__context__ is None


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("case", OTHER_CASES, ids=names(OTHER_CASES))
def test_case(kind: str, case: dict[str, Any], waited: list[float], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with scripted_server(case["exchanges"]) as url:
        outcome = run(kind, url, case)
    expected = case["expect"]
    check_error(outcome.get("error"), expected.get("error"))
    assert outcome.get("value") == expected.get("value")
    assert outcome.get("rows") == expected.get("rows")
    assert waited == expected.get("waited", [])
    assert KEY not in caplog.text


@pytest.mark.parametrize("kind", ["sync", "async", "async with an async store"])
@pytest.mark.parametrize("case", FOLLOW_CASES, ids=names(FOLLOW_CASES))
def test_follow(kind: str, case: dict[str, Any], store: tuple[Table, Rows], waited: list[float]) -> None:
    table, rows = store
    if case["store"]["cursor"] is not None:
        table.apply(Batch(case["store"]["rows"], set(), case["store"]["cursor"], None))
    fails_at_page = case["store"].get("failsAtPage")
    failing = FailingStore(table, fails_at_page)
    given = StoreWithCoroutines(failing) if kind == "async with an async store" else failing
    with scripted_server(case["exchanges"]) as url:
        if fails_at_page is not None:
            with pytest.raises(StoreFailure):
                run(kind, url, case, store=given)
        for _ in range(case["call"].get("times", 1)):
            outcome = run(kind, url, case, store=given)
    check_error(outcome.get("error"), case["expect"].get("error"))
    assert rows() == case["expect"]["rows"]
    assert table.cursor() == case["expect"]["cursor"]
    assert waited == case["expect"].get("waited", [])
