from collections.abc import Mapping
from typing import Any

from bellbird_client import Batch


class MemoryStore:
    """Follows the rows of one connection for as long as the program runs."""

    def __init__(self) -> None:
        self.rows: dict[str, Mapping[str, Any]] = {}
        self._marked: set[str] = set()
        self._cursor: str | None = None

    def cursor(self) -> str | None:
        return self._cursor

    def begin(self) -> None:
        self._marked = set(self.rows)
        self._cursor = None

    def apply(self, batch: Batch[Mapping[str, Any]]) -> None:
        self.rows.update(batch.upserts)
        for key in batch.removals:
            self.rows.pop(key, None)
        self._marked -= batch.upserts.keys() | batch.removals
        if batch.complete_from is not None:
            for key in self._marked:
                if _day(self.rows[key]) >= batch.complete_from:
                    del self.rows[key]
            self._marked = set()
        self._cursor = batch.cursor


def _day(row: Mapping[str, Any]) -> str:
    text: str = row.get("date") or row["tradeDate"]  # of a transaction or a trade, which may have a time
    return text[:10]
