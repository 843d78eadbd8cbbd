"""Needs the extra `webhooks`: pip install 'bellbird-client[webhooks]'."""

from collections.abc import Mapping
from typing import cast

from standardwebhooks import Webhook, WebhookVerificationError

from .types import (
    ConnectionCreated,
    ConnectionExpiring,
    ConnectionRemoved,
    ConnectionUpdated,
    EndpointPing,
    TradesSynced,
    TransactionsSynced,
    UserRemoved,
)

__all__ = ["Event", "WebhookVerificationError", "verify_webhook"]

Event = (
    TransactionsSynced
    | TradesSynced
    | ConnectionCreated
    | ConnectionUpdated
    | ConnectionExpiring
    | ConnectionRemoved
    | UserRemoved
    | EndpointPing
)


def verify_webhook(body: bytes, headers: Mapping[str, str], secret: str) -> Event:
    """The event in the raw body of a request, if the secret (`whsec_...`) has signed it in the last five minutes.

    Raises `WebhookVerificationError` if it has not. Types of events that are not in `Event` are returned as well.
    """
    webhook = Webhook(secret)
    try:
        return cast(Event, webhook.verify(body, dict(headers)))
    except ValueError:
        raise WebhookVerificationError("a header or the body is not readable") from None
