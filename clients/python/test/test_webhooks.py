import base64
import json
from datetime import datetime, timedelta, timezone

import pytest
from standardwebhooks import Webhook

from bellbird_client.webhooks import WebhookVerificationError, verify_webhook

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()
EVENT = {"id": "e1", "object": "event", "type": "moon.risen", "data": {"new": [], "updated": []}}
BODY = json.dumps(EVENT).encode()


def signed(body: bytes, age: timedelta = timedelta()) -> dict[str, str]:
    at = datetime.now(timezone.utc) - age
    signature = Webhook(SECRET).sign("e1", at, body.decode())
    return {"Webhook-Id": "e1", "Webhook-Timestamp": str(int(at.timestamp())), "Webhook-Signature": signature}


def test_event_of_an_unknown_type_is_returned() -> None:
    event: object = verify_webhook(BODY, signed(BODY), SECRET)
    assert event == EVENT


def test_either_signature_of_a_rotation() -> None:
    headers = signed(BODY)
    headers["Webhook-Signature"] = f"v1,AAAA {headers['Webhook-Signature']}"
    event: object = verify_webhook(BODY, headers, SECRET)
    assert event == EVENT


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (BODY + b" ", signed(BODY)),
        (b"\xff", signed(BODY)),
        (BODY, signed(BODY, timedelta(minutes=6))),
        (BODY, {}),
        (BODY, signed(BODY) | {"Webhook-Signature": "v1"}),
        (BODY, signed(BODY) | {"Webhook-Signature": "v1,a"}),
        (BODY, signed(BODY) | {"Webhook-Timestamp": "soon"}),
    ],
    ids=["other body", "not text", "old", "no headers", "no signature", "cut signature", "no time"],
)
def test_what_does_not_verify(body: bytes, headers: dict[str, str]) -> None:
    with pytest.raises(WebhookVerificationError):
        verify_webhook(body, headers, SECRET)
