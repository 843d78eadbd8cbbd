"""The service under test, and what /v1 says: clients of SimpleFIN have to read the same."""

import calendar
import json
import os
import subprocess
import urllib.request
from collections import namedtuple
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parents[1]
# How long a client keeps rows at first, with some days more on both sides.
FIRST_DAYS = 120

Row = namedtuple("Row", "day amount description payee")
Holding = namedtuple("Holding", "symbol description currency shares market_value purchase_price cost_basis")


class Mismatch(Exception):
    pass


def same(what, got, want):
    """Compares two dictionaries member by member, so that a failure is short."""
    if got == want:
        return
    lines = [f"{what}: {len(got)} instead of {len(want)}"]
    for key in list(got.keys() | want.keys()):
        if got.get(key) != want.get(key):
            lines.append(f"  {key}\n    read: {got.get(key)}\n    /v1:  {want.get(key)}")
    raise Mismatch("\n".join(lines[:7]))


def expect(what, got, want):
    if got != want:
        raise Mismatch(f"{what}: {got!r} instead of {want!r}")


def by_id(what, rows):
    """Rows of a list as a dictionary. An id that comes twice is a failure of its own."""
    rows = list(rows)
    found = dict(rows)
    expect(f"{what}: different ids", len(found), len(rows))
    return found


def cents(amount):
    return Decimal(amount).quantize(Decimal("0.01"), ROUND_HALF_EVEN)


def posted(day):
    """The second at which a row of a day is posted: 10:59 UTC is that day in almost every timezone."""
    return calendar.timegm((*date.fromisoformat(day).timetuple()[:3], 10, 59, 0))


def payee(row):
    """Never empty, because Actual asks for it."""
    texts = (row["merchantName"] or "", row["description"], "Unknown")
    return next(text for text in texts if text.strip())


def holding(row):
    names = ("quantity", "marketValue", "averagePrice", "unrealizedPnl")
    quantity, value, price, profit = [None if row[name] is None else Decimal(row[name]) for name in names]
    # No member has the multiplier of a contract. Each position here that has a cost has a price.
    cost = None if profit is None else value - profit
    return Holding(row["symbol"], row["name"] or row["symbol"], row["currency"], quantity, value, price, cost)


class Account:
    def __init__(self, account, balance, institution, rows, holdings, recent):
        self.id, self.currency = account["id"], account["currency"]
        # As shown: behind currency and last digits.
        self.name = account["shownName"]
        self.connection = account["connectionId"]
        self.institution = institution
        self.balance = cents(balance["currentBalance"])
        self.available = None if balance["availableBalance"] is None else Decimal(balance["availableBalance"])
        self.rows, self.holdings = rows, holdings
        # The rows of a request without dates.
        self.recent = recent

    def between(self, start, end=float("inf")):
        """The rows that a client gets for `start-date` and `end-date`."""
        return {id: row for id, row in self.rows.items() if start <= posted(row.day) < end}


class Bellbird:
    """The service of start_service."""

    def __init__(self):
        self.process = subprocess.Popen(
            [PROGRAMS / "start_service"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the service did not start")
        self.service = json.loads(line)
        self.first_token = self.service["setupToken"]
        self.delete_extreme_rows()
        institutions = {one["id"]: one for one in self.service["connections"]}
        for one in self.service["accounts"]:
            currency = one["currency"].replace("XXX", "")
            one["shownName"] = " ".join(filter(None, [currency, (one["accountNumber"] or "").lstrip("x"), one["name"]]))
        balances = {one["accountId"]: one for one in self.balances(self.service["accounts"])}
        # Their balance is not known, so SimpleFIN leaves them out.
        accounts = self.service["accounts"]
        self.left_out = [one["shownName"] for one in accounts if balances[one["id"]]["currentBalance"] is None]
        self.accounts = {
            one["id"]: self.read_account(one, balances[one["id"]], institutions[one["connectionId"]])
            for one in self.service["accounts"]
            if balances[one["id"]]["currentBalance"] is not None
        }

    def compare_errors(self, what, errors):
        """Each account that is left out is named, and nothing else is wrong."""
        expect(f"{what}: {errors}", len(errors), len(self.left_out))
        for name, error in zip(sorted(self.left_out), sorted(errors)):
            expect(f"{what}: {error}", name in error, True)

    def stop(self):
        self.process.stdin.close()
        self.process.wait()

    def get(self, path, **query):
        url = f"{self.service['apiUrl']}{path}?{'&'.join(f'{name}={value}' for name, value in query.items())}"
        request = urllib.request.Request(url, headers={"authorization": f"Bearer {self.service['key']}"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            return json.load(answer)["data"]

    def balances(self, accounts):
        return self.get("/v1/balances", accountIds=",".join(one["id"] for one in accounts))

    def read_account(self, account, balance, connection):
        ids = {"connectionId": connection["id"], "accountId": account["id"]}
        rows, recent, holdings = {}, {}, {}
        if connection["category"] == "banking":
            today = datetime.now(UTC).date()
            span = {"from": today - timedelta(FIRST_DAYS), "to": today + timedelta(2)}
            rows, recent = self.transactions(**ids, **span), self.transactions(**ids)
        else:
            holdings = {one["id"]: holding(one) for one in self.get("/v1/holdings", **ids)}
        return Account(account, balance, connection["institutionName"], rows, holdings, recent)

    def recent(self, account):
        """The rows of a request without dates, as they are now."""
        return self.transactions(connectionId=account.connection, accountId=account.id)

    def transactions(self, **query):
        rows, page = [], True
        while page:
            page = self.get("/v1/transactions", **query, offset=len(rows), limit=200)
            rows += page
        return by_id("/v1/transactions", ((one["id"], Row(
            one["date"], Decimal(one["amount"]), one["description"], payee(one)
        )) for one in rows))

    def run(self, *arguments):
        """The JSON that a command of the service prints."""
        done = subprocess.run(
            [os.environ["BELLBIRD"], *arguments, "--json"],
            env=self.service["environment"],
            cwd=self.service["folder"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        expect(f"bellbird {' '.join(arguments)}: {done.stderr}", done.returncode, 0)
        return json.loads(done.stdout)

    def setup_token(self, name, user=None):
        return self.run("simplefin", "token", "--user", user or self.service["email"], "--name", name)["token"]

    def revoke(self, name):
        """Revokes the key that the claim of a setup token of this name made."""
        keys = self.run("key", "list", "--user", self.service["email"])
        [key] = [one for one in keys if one["name"] == name]
        self.run("key", "revoke", key["id"])

    def control(self, provider, method, path, body=None):
        """A call of the simulated provider's test interface."""
        access = self.service["sandbox"][provider]
        url = f"{access.get('oauthUrl', access['baseUrl'])}/__control/{path}"
        request = urllib.request.Request(url, body, method=method)
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60).close()

    def delete_extreme_rows(self):
        """Deletes rows that no program here can hold: goetta-finance has 18 digits, beancount 28."""
        for account in self.service["accounts"]:
            if account["connectionId"] not in self.service["odd"]:
                continue
            for id, row in self.transactions(connectionId=account["connectionId"], accountId=account["id"]).items():
                if abs(row.amount) >= 10**15 or row.amount.as_tuple().exponent < -18:
                    self.control(account["provider"], "DELETE", f"transactions/{id}")

    def expire_consent(self):
        """Lets the consent of the New Zealand bank expire, whose data can still be read. Returns its connection."""
        sandbox = self.service["sandbox"]
        [connection] = [
            one
            for one in self.service["connections"]
            if one["provider"] == "akahu" and one["id"] not in self.service["odd"]
        ]
        authorisation = next(one for one in sandbox["credentials"] if one["provider"] == "akahu")["authorisation"]
        self.control("akahu", "POST", f"consents/{authorisation}", b'{"state": "expired"}')
        self.run("connection", "sync", "--all")
        return connection
