"""Runs SnapTrade's own Python client against the sandbox.

It makes the calls that the service makes and more, and the client's own models validate each response.
The argument is a file with the output of `bellbird sandbox --json`.
"""

import http.client
import json
import sys
import urllib.parse
import urllib.request

from snaptrade_client import ApiException, Configuration, SnapTrade, SnapTradeAuth
from snaptrade_client.model.account import Account
from snaptrade_client.model.all_account_positions_response import AllAccountPositionsResponse
from snaptrade_client.model.balance import Balance
from snaptrade_client.model.brokerage_authorization import BrokerageAuthorization
from snaptrade_client.model.paginated_universal_activity import PaginatedUniversalActivity

with open(sys.argv[1], encoding="utf-8") as file:
    sandbox = json.load(file)
access = sandbox["snaptrade"]
validated = 0


def client(consumer_key=access["consumerKey"]):
    auth = SnapTradeAuth.commercial_api_key(client_id=access["clientId"], consumer_key=consumer_key)
    configuration = Configuration(host=access["baseUrl"], auth=auth)
    configuration.retries = False  # a retry would sleep for the Retry-After of a 429
    return SnapTrade(configuration, auth=None)


def control(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(access["baseUrl"] + "/__control" + path, data, method=method)
    with urllib.request.urlopen(request) as response:
        return response.read()


def valid(model, value):
    """Raises if the client's own model rejects the value."""
    global validated
    model.from_openapi_data_oapg(value)
    validated += 1


def rejected(status, code, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except ApiException as error:
        body = error.body if isinstance(error.body, dict) else json.loads(error.body)
        assert (error.status, body.get("code")) == (status, code), (error.status, body)
        return
    raise AssertionError(f"not rejected: {call}")


def check_user(snaptrade, user, connection_id):
    connections = snaptrade.connections.list_brokerage_authorizations(**user).body
    for connection in connections:
        valid(BrokerageAuthorization, connection)
    one = snaptrade.connections.detail_brokerage_authorization(authorization_id=connection_id, **user).body
    valid(BrokerageAuthorization, one)
    assert connection_id in [connection["id"] for connection in connections]

    accounts = snaptrade.account_information.list_user_accounts(**user).body
    ours = [account for account in accounts if account["brokerage_authorization"] == connection_id]
    assert ours, "the connection has no accounts"
    kinds, types, rows = set(), set(), 0
    for account in ours:
        valid(Account, account)
        named = {"account_id": account["id"], **user}
        for balance in snaptrade.account_information.get_user_account_balance(**named).body:
            valid(Balance, balance)
        positions = snaptrade.account_information.get_all_account_positions(**named).body
        valid(AllAccountPositionsResponse, positions)
        kinds |= {position["instrument"]["kind"] for position in positions["results"]}
        offset = 0
        while True:
            page = snaptrade.account_information.get_account_activities(offset=offset, limit=1000, **named).body
            valid(PaginatedUniversalActivity, page)
            types |= {row["type"] for row in page["data"]}
            dates = [row["trade_date"] for row in page["data"]]
            assert dates == sorted(dates, reverse=True), "not newest first"
            offset += len(page["data"])
            if offset >= page["pagination"]["total"] or not page["data"]:
                break
        rows += offset
        if dates:
            day = dates[0][:10]
            some = snaptrade.account_information.get_account_activities(start_date=day, end_date=day, **named).body
            assert some["data"] and all(row["trade_date"][:10] == day for row in some["data"])
        only = snaptrade.account_information.get_account_activities(type="BUY,SELL", **named).body
        assert {row["type"] for row in only["data"]} <= {"BUY", "SELL"}
    return kinds, types, rows


snaptrade = client()
kinds, types, rows = set(), set(), 0
all_credentials = [entry for entry in sandbox["credentials"] if entry["provider"] == "snaptrade"]
for credentials in all_credentials[:2]:  # the first user's; the others have odd data on purpose
    user = {"user_id": credentials["userId"], "user_secret": credentials["userSecret"]}
    more = check_user(snaptrade, user, credentials["authorizationId"])
    kinds, types, rows = kinds | more[0], types | more[1], rows + more[2]
assert {"stock", "etf", "option", "crypto", "future"} <= kinds, kinds
assert {"BUY", "SELL", "DIVIDEND", "SPLIT", "FEE", "INTEREST", "CONTRIBUTION"} <= types, types

# Register, link and delete a user. The id needs every kind of escaping that the client does.
made = snaptrade.authentication.register_snap_trade_user(user_id="user 1+a@b/ç").body
own = {"user_id": made["userId"], "user_secret": made["userSecret"]}
rejected(400, "1010", snaptrade.authentication.register_snap_trade_user, user_id=made["userId"])
assert snaptrade.connections.list_brokerage_authorizations(**own).body == []
login = snaptrade.authentication.login_snap_trade_user(
    **own, connection_type="read", custom_redirect="https://example.com/cb?x=1&y=é/ü", immediate_redirect=True
).body
assert login["redirectURI"].startswith(access["baseUrl"]) and login["sessionId"]
# `sandbox_auto` skips the portal's pages. The accounts of a new user must have the documented shape too.
link = urllib.parse.urlsplit(login["redirectURI"])
portal = http.client.HTTPConnection(link.netloc)
portal.request("GET", f"{link.path}?{link.query}&sandbox_auto=accept")
callback = urllib.parse.urlsplit(portal.getresponse().getheader("location"))
result = dict(urllib.parse.parse_qsl(callback.query))
assert result["status"] == "SUCCESS" and result["x"] == "1" and result["y"] == "é/ü", result
assert check_user(snaptrade, own, result["connection_id"])[2] == 70
assert snaptrade.authentication.login_snap_trade_user(**own).body["sessionId"]
snaptrade.authentication.delete_snap_trade_user(user_id=made["userId"])

# Rejected calls.
rejected(401, "1076", client("another-key").account_information.list_user_accounts, **user)
rejected(401, "1083", snaptrade.account_information.list_user_accounts, user_id=user["user_id"], user_secret="wrong")
missing = "00000000-0000-4000-8000-000000000000"
rejected(404, "1011", snaptrade.account_information.get_user_account_balance, account_id=missing, **user)
control("POST", "/faults", {"match": "/accounts", "kind": "status", "status": 429, "retryAfter": 7, "times": 1})
rejected(429, "0000", snaptrade.account_information.list_user_accounts, **user)

# Refresh and delete a connection.
last = all_credentials[1]["authorizationId"]
snaptrade.connections.refresh_brokerage_authorization(authorization_id=last, **user)
snaptrade.connections.delete_connection(connection_id=last, **user)
control("POST", "/clock", {"advanceSeconds": 2})
left = [connection["id"] for connection in snaptrade.connections.list_brokerage_authorizations(**user).body]
assert last not in left, "a deleted connection is still there"

print(f"SnapTrade, Python client: {validated} answers validated, {rows} activities, kinds {', '.join(sorted(kinds))}")
