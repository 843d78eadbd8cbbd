import pytest
from conformance import KEY, scripted_server
from conftest import Rows, Table

from bellbird_client import Batch, BellbirdError, Client

OLD, NEW = {"date": "2026-10-01"}, {"tradeDate": "2026-10-23T23:59:59Z"}


def test_rows_that_are_not_watched_stay(store: tuple[Table, Rows]) -> None:
    table, rows = store
    table.apply(Batch({"old": OLD, "new": NEW}, set(), "c0", None))
    table.begin()
    assert table.cursor() is None
    table.apply(Batch({}, set(), "c1", "2026-10-23"))
    assert rows() == {"old": OLD}
    table.apply(Batch({}, set(), "c2", "2026-09-01"))
    assert rows() == {"old": OLD}
    assert table.cursor() == "c2"


def test_row_that_a_page_removes_is_no_longer_marked(store: tuple[Table, Rows]) -> None:
    table, rows = store
    table.apply(Batch({"old": OLD, "new": NEW}, set(), "c0", None))
    table.begin()
    table.apply(Batch({}, {"new"}, "c1", None))
    table.apply(Batch({}, set(), "c2", "2026-10-23"))
    assert rows() == {"old": OLD}
    assert table.cursor() == "c2"


def test_nothing_is_removed_before_the_last_page(store: tuple[Table, Rows]) -> None:
    table, rows = store
    table.apply(Batch({"new": NEW}, set(), "c0", None))
    request = {"path": "/v1/trades/changes", "query": {"connectionId": "id"}}
    page = {"data": [], "cursor": "c1", "hasMore": True, "watchedFrom": "2026-10-01"}
    responses = [{"status": 410, "body": {}}, {"status": 200, "body": page}, {"status": 500, "body": {}}]
    exchanges = [{"request": request, "response": response} for response in responses]
    with scripted_server(exchanges) as url, Client(url, KEY) as client, pytest.raises(BellbirdError, match="500"):
        client.follow_trades(table, "id")
    assert rows() == {"new": NEW}
    assert table.cursor() == "c1"
