"""Against the operator's API at BELLBIRD_TEST_ADMIN_URL, with the key BELLBIRD_TEST_OPERATOR_KEY.

It has to allow the return origin https://app.example.com and webhook endpoints on loopback.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from bellbird_client import BellbirdError, Client
from bellbird_client.operator import AsyncOperatorClient, OperatorClient
from bellbird_client.operator_types import NewUser

URL = os.environ.get("BELLBIRD_TEST_ADMIN_URL", "")
KEY = os.environ.get("BELLBIRD_TEST_OPERATOR_KEY", "")
WEBHOOK_URL = "http://127.0.0.1:1024/"  # nobody listens there
NOBODY = "00000000-0000-7000-8000-000000000000"

pytestmark = pytest.mark.skipif(
    not (URL and KEY), reason="BELLBIRD_TEST_ADMIN_URL and BELLBIRD_TEST_OPERATOR_KEY are not set"
)


@pytest.fixture
def operator() -> Iterator[OperatorClient]:
    with OperatorClient(URL, KEY) as operator:
        yield operator


def new_user() -> NewUser:
    reference = f"customer-{uuid4()}"
    return {"email": f"{reference}@example.com", "reference": reference}


def check_error(call: Callable[[], object], status: int, code: str) -> None:
    with pytest.raises(BellbirdError) as raised:
        call()
    assert (raised.value.status, raised.value.code) == (status, code)


def test_user_from_creation_to_removal(operator: OperatorClient) -> None:
    body, key = new_user(), str(uuid4())
    user = operator.create_user(body, idempotency_key=key)
    assert operator.create_user(body, idempotency_key=key) == user
    assert list(operator.users(reference=body["reference"])) == [user]
    assert operator.user(user["id"]) == user
    check_error(lambda: operator.create_user(body), 409, "conflict")
    check_error(lambda: operator.create_user(new_user(), idempotency_key=key), 409, "idempotency_conflict")
    assert operator.update_user(user["id"], {"timezone": "Pacific/Auckland"})["timezone"] == "Pacific/Auckland"
    operator.remove_user(user["id"])
    check_error(lambda: operator.user(user["id"]), 404, "not_found")
    actions = [row["action"] for row in operator.audit(user_id=user["id"])]
    assert actions == ["user.remove", "user.update", "user.create"]


def test_keys(operator: OperatorClient) -> None:
    user = operator.create_user(new_user())["id"]
    created = operator.create_key(user, {"name": "app"})
    with Client(os.environ["BELLBIRD_TEST_URL"], created["key"]) as client:
        assert client.me()["key"]["prefix"] == created["prefix"]
        rotated = operator.rotate_key(created["id"], {"graceSeconds": 0})
        check_error(client.me, 401, "invalid_key")
    operator.revoke_key(rotated["id"])
    revoked = {key["id"]: key["revokedAt"] is not None for key in operator.keys(user)}
    assert revoked == {created["id"]: False, rotated["id"]: True}
    assert operator.create_setup_token(user)["token"]
    operator.revoke_setup_tokens(user)


def test_link_session(operator: OperatorClient) -> None:
    user = operator.create_user(new_user())["id"]
    created = operator.create_link_session({"userId": user, "returnUrl": "https://app.example.com/linked"})
    session = operator.link_session(created["id"])
    assert (session["userId"], session["status"], session["connections"]) == (user, "open", [])
    elsewhere = "https://evil.example/"
    check_error(
        lambda: operator.create_link_session({"userId": user, "returnUrl": elsewhere}), 400, "invalid_parameters"
    )
    check_error(lambda: operator.link_session(NOBODY), 404, "not_found")


def test_pages_of_users_and_connections(operator: OperatorClient) -> None:
    async def main() -> None:
        async with AsyncOperatorClient(URL, KEY) as operator:
            created = {(await operator.create_user(new_user()))["id"] for _ in range(201)}
            assert created <= {user["id"] async for user in operator.users()}

    asyncio.run(main())
    connection = next(operator.connections())
    assert operator.connection(connection["id"])["userId"] == connection["userId"]
    assert operator.sync_connection(connection["id"])["id"] == connection["id"]
    check_error(lambda: operator.remove_connection(NOBODY), 404, "not_found")


def test_webhook_endpoint(operator: OperatorClient) -> None:
    user = operator.create_user(new_user())["id"]
    created = operator.create_webhook_endpoint({"userId": user, "url": WEBHOOK_URL})
    id = created["id"]
    assert [endpoint["id"] for endpoint in operator.webhook_endpoints(user_id=user)] == [id]
    assert operator.update_webhook_endpoint(id, {"enabled": False})["status"] == "disabled"
    assert operator.webhook_endpoint(id)["status"] == "disabled"
    assert operator.rotate_webhook_secret(id)["secret"] != created["secret"]
    ping = operator.ping_webhook_endpoint(id)
    assert not ping["delivered"]
    assert [delivery["eventId"] for delivery in operator.deliveries(id, state="failed")] == [ping["eventId"]]
    assert len(operator.delivery(id, ping["eventId"])["attemptLog"]) == 1
    check_error(lambda: operator.redeliver(id, NOBODY), 404, "not_found")
    operator.update_webhook_endpoint(id, {"enabled": True})
    assert operator.recover(id, {"since": created["createdAt"]})["recovered"] == 0
    operator.remove_webhook_endpoint(id)
    check_error(lambda: operator.webhook_endpoint(id), 404, "not_found")


def test_key_that_is_not_an_operators() -> None:
    with OperatorClient(URL, os.environ["BELLBIRD_TEST_KEY"]) as operator:
        check_error(lambda: list(operator.users()), 401, "invalid_key")
