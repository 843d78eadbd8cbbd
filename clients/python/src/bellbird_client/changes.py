"""Where `follow_transactions` and `follow_trades` keep what has changed."""

from collections.abc import Awaitable, Mapping, Set
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


Row_co = TypeVar("Row_co", covariant=True)
Row_contra = TypeVar("Row_contra", contravariant=True)


@dataclass(frozen=True)
class Batch(Generic[Row_co]):
    """The changes of one page: of each key the last one."""

    upserts: Mapping[str, Row_co]
    removals: Set[str]
    cursor: str
    complete_from: str | None
    """Set on the last page: rows of this day or a later one that have not come since `begin` are gone."""


class Store(Protocol[Row_contra]):
    """A table with the rows of one connection, or of one account of it, by their keys.

    Each row has a mark, which says that it has not come since `begin`. It is kept in the table, to outlive a crash.
    """

    def cursor(self) -> str | None:
        """The cursor of the last batch, or None if there has been none since `begin`."""

    def begin(self) -> None:
        """In one transaction: forget the cursor, and mark every row."""

    def apply(self, batch: Batch[Row_contra]) -> None:
        """In one transaction: write the upserts, without a mark, delete the removals, and keep the cursor.

        If `complete_from` is set, also delete the marked rows of this day and later, and remove all other marks.
        """


class AsyncStore(Protocol[Row_contra]):
    """As `Store`, for a database that is awaited."""

    def cursor(self) -> Awaitable[str | None]: ...

    def begin(self) -> Awaitable[None]: ...

    def apply(self, batch: Batch[Row_contra]) -> Awaitable[None]: ...
