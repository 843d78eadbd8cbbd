import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from bellbird_client import Batch


class SqliteStore:
    """Follows the rows of one connection in a SQLite database."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        db.execute(
            "CREATE TABLE IF NOT EXISTS rows (key TEXT PRIMARY KEY, day TEXT NOT NULL, row TEXT NOT NULL,"
            " marked INTEGER NOT NULL DEFAULT 0)"
        )
        db.execute("CREATE TABLE IF NOT EXISTS cursors (cursor TEXT NOT NULL)")

    def cursor(self) -> str | None:
        found = self._db.execute("SELECT cursor FROM cursors").fetchone()
        return found[0] if found else None

    def begin(self) -> None:
        with self._db:  # one transaction
            self._db.execute("UPDATE rows SET marked = 1")
            self._db.execute("DELETE FROM cursors")

    def apply(self, batch: Batch[Mapping[str, Any]]) -> None:
        # The day of a transaction, or of a trade, where a time may follow it.
        upserts = [
            (key, (row.get("date") or row["tradeDate"])[:10], json.dumps(row)) for key, row in batch.upserts.items()
        ]
        with self._db:
            self._db.executemany("REPLACE INTO rows (key, day, row) VALUES (?, ?, ?)", upserts)
            self._db.executemany("DELETE FROM rows WHERE key = ?", [(key,) for key in batch.removals])
            if batch.complete_from is not None:
                self._db.execute("DELETE FROM rows WHERE marked AND day >= ?", [batch.complete_from])
                self._db.execute("UPDATE rows SET marked = 0 WHERE marked")
            self._db.execute("DELETE FROM cursors")
            self._db.execute("INSERT INTO cursors VALUES (?)", [batch.cursor])
