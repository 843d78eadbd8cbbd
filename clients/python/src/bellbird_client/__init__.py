"""A client for the API of Bellbird. Amounts are strings; `decimal` reads one exactly."""

from .amounts import decimal
from .changes import AsyncStore, Batch, Store
from .client import AsyncClient, Client
from .errors import BellbirdError, CursorExpired, ReconnectRequired

__all__ = [
    "AsyncClient",
    "AsyncStore",
    "Batch",
    "BellbirdError",
    "Client",
    "CursorExpired",
    "ReconnectRequired",
    "Store",
    "decimal",
]
