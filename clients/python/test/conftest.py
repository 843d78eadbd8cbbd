import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from memory_store import MemoryStore
from sqlite_store import SqliteStore

Table = MemoryStore | SqliteStore
Rows = Callable[[], dict[str, Any]]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Table, Rows]]:
    """A store, and what reads its rows."""
    if request.param == "memory":
        memory = MemoryStore()
        yield memory, lambda: dict(memory.rows)
        return
    path = tmp_path / "rows.db"

    def rows() -> dict[str, Any]:
        with closing(sqlite3.connect(path)) as reader:
            return {key: json.loads(row) for key, row in reader.execute("SELECT key, row FROM rows")}

    with closing(sqlite3.connect(path)) as db:
        yield SqliteStore(db), rows
