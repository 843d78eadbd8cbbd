import re
from collections.abc import Mapping
from datetime import date
from typing import Any

import httpx

from ._transport import Request, Transport
from .errors import BellbirdError, CursorExpired, ReconnectRequired

Query = Mapping[str, str | int | date | None]

RETRY_SECONDS_AFTER_FAILURE = (1, 2)


class Caller:
    """Sends requests, and repeats those that may succeed later."""

    def __init__(self, transport: Transport, wait_up_to: float) -> None:
        self._transport = transport
        self._wait_up_to = wait_up_to

    async def _call(self, method: str, path: str, query: Query | None = None, **more: Any) -> Any:
        """`more` are other members of the `Request`."""
        texts = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        request = Request(method, path, texts, **more)
        seconds_left = self._wait_up_to
        retries = iter(RETRY_SECONDS_AFTER_FAILURE)
        while True:
            outcome = await self._transport.send(request)
            if isinstance(outcome, httpx.RequestError):
                error = BellbirdError(f"{type(outcome).__name__}: {outcome}")
                seconds = next(retries, None)
            elif outcome.is_success:
                return None if outcome.status_code == 204 else _json(outcome)
            else:
                error = _error(outcome)
                repeatable = outcome.status_code in (429, 503) and not isinstance(error, ReconnectRequired)
                seconds = error.retry_after if repeatable else None
            if seconds is None or seconds > seconds_left:
                raise error
            seconds_left -= seconds
            await self._transport.sleep(seconds)


def _text(value: str | int | date) -> str:
    return value.isoformat() if isinstance(value, date) else str(value)


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        pass  # Raised here, the error would lead to the whole body.
    raise BellbirdError(
        "the response is not JSON", status=response.status_code, request_id=response.headers.get("X-Request-Id")
    )


def _error(response: httpx.Response) -> BellbirdError:
    try:
        body = response.json()
    except ValueError:
        body = None
    match body:
        case {"error": {"message": str(message), "details": [*details]}}:
            pass
        case {"error": {"message": str(message)}}:
            details = []
        case _:
            message, details = response.reason_phrase, []
    code = response.headers.get("Bellbird-Error")
    kind = BellbirdError
    if code == "reconnect_required":
        kind = ReconnectRequired
    elif response.status_code == 410:
        kind = CursorExpired
    return kind(
        message,
        status=response.status_code,
        code=code,
        details=details,
        request_id=response.headers.get("X-Request-Id"),
        retry_after=_seconds(response.headers.get("Retry-After", "")),
    )


def _seconds(retry_after: str) -> int | None:
    return max(int(retry_after), 1) if re.fullmatch("[0-9]{1,9}", retry_after) else None
