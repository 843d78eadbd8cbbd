from collections.abc import Sequence


class BellbirdError(Exception):
    """A request that failed, for good or for longer than the client may wait."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        details: Sequence[str] = (),
        request_id: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        """None if no response arrived whole."""
        self.code = code
        """The word of the header `Bellbird-Error`. More may come, so treat one that you do not know by the status."""
        self.details = list(details)
        self.request_id = request_id
        self.retry_after = retry_after

    def __str__(self) -> str:
        facts = [str(fact) for fact in (self.status, self.code, self.message) if fact is not None]
        notes = self.details + ([f"request {self.request_id}"] if self.request_id else [])
        return ": ".join(facts) + (f" ({'; '.join(notes)})" if notes else "")


class ReconnectRequired(BellbirdError):
    """No repetition helps until the user has reconnected the connection that `details` names."""


class CursorExpired(BellbirdError):
    """The cursor is older than what the service remembers: begin without one."""
