"""What every client asks, and what it must get. The truth is /v1, read with Python's standard library."""

import json
import re
import unicodedata
import urllib.parse
import urllib.request
from collections import Counter, defaultdict
from datetime import date, datetime, timedelta
from decimal import Decimal, DefaultContext, Inexact, setcontext

TOOLS = [
    "list_accounts",
    "list_transactions",
    "list_new_transactions",
    "summarize_transactions",
    "list_holdings",
    "list_trades",
]
ANSWER_BYTES_MAX = 40_000
NO_ACCOUNT = "01920000-0000-7000-8000-000000000000"
NO_SUCH_ACCOUNT = "account_ids: one or more accounts do not exist"
INVALID_PARAMS = -32602
# Sums are exact, or an error: in this thread and in new ones.
DefaultContext.prec = 2_000
DefaultContext.traps[Inexact] = True
setcontext(DefaultContext)


class Failure(Exception):
    pass


def demand(condition, text):
    if not condition:
        raise Failure(text)


def demand_equal(got, expected, what):
    if got == expected:
        return
    if isinstance(got, list) and isinstance(expected, list):
        missing = [one for one in expected if one not in got][:2]
        surplus = [one for one in got if one not in expected][:2]
        counts = f"{what}: {len(got)} for {len(expected)}"
        raise Failure(f"{counts}, missing {missing}, not in /v1 {surplus}, or another order")
    raise Failure(f"{what}: {got!r} for {expected!r}")


def in_one_order(rows):
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


class V1:
    """Reads of /v1 with a key."""

    def __init__(self, url, key):
        self.url, self.key = url, key
        # The environment may name a proxy, but the service listens on loopback.
        self.http = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(self, path, **query):
        url = f"{self.url}/v1/{path}?{urllib.parse.urlencode(query)}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self.key}"})
        with self.http.open(request, timeout=60) as answer:
            return json.load(answer)

    def all(self, path, limit, **query):
        rows = []
        while True:
            page = self.get(path, **query, limit=limit, offset=len(rows))
            rows += page["data"]
            if not page["pagination"]["hasMore"]:
                return rows


class Truth:
    """Everything that /v1 has about a user in a range of days that is over, so that the clock changes nothing."""

    def __init__(self, url, key):
        v1 = V1(url, key)
        self.days = {"from": str(date.today() - timedelta(days=200)), "to": str(date.today() - timedelta(days=2))}
        self.connections = v1.get("connections")["data"]
        self.accounts = v1.all("accounts", 200)
        ids = ",".join(account["id"] for account in self.accounts)
        self.balances = {balance["accountId"]: balance for balance in v1.get("balances", accountIds=ids)["data"]}
        self.currency = {account["id"]: account["currency"] for account in self.accounts}
        self.transactions, self.holdings, self.trades = {}, [], []
        categories = {connection["id"]: connection["category"] for connection in self.connections}
        for account in self.accounts:
            of = {"connectionId": account["connectionId"], "accountId": account["id"]}
            if categories[account["connectionId"]] == "banking":
                self.transactions[account["id"]] = v1.all("transactions", 500, **of, **self.days)
            else:
                self.holdings += v1.get("holdings", **of)["data"]
                self.trades += v1.all("trades", 500, **of, **self.days)
        for name, rows in (("transactions", self.rows()), ("holdings", self.holdings), ("trades", self.trades)):
            demand(rows, f"/v1 has no {name}, so that nothing is compared")

    def rows(self, accounts=None, matches=lambda row: True):
        return [row for account in accounts or self.transactions for row in self.transactions[account] if matches(row)]


def clean(text, chars_max):
    """An untrusted text on one line, without characters that a person does not see."""
    spaced = "".join(" " if unicodedata.category(char) in ("Cc", "Zl", "Zp", "Zs") else char for char in text)
    hidden = ("Cf", "Co", "Cn", "Cs")
    seen = [c for c in spaced if unicodedata.category(c) not in hidden and not "\ufe00" <= c <= "\ufe0f"]
    line = " ".join("".join(seen).split())
    return line if len(line) <= chars_max else line[:chars_max].rstrip() + "…"


def cell(text, chars_max=140):
    """The same where a program may show it as Markdown: it breaks no table and becomes no link."""
    cleaned = clean(text, chars_max).translate(str.maketrans("|`[<]>\\", "/'(())/"))
    unlinked = cleaned.replace("@", "@ ").rstrip().replace("://", ": //")
    return re.sub("www[.]", lambda found: found[0][:3] + " .", unlinked, flags=re.IGNORECASE | re.ASCII)


def without_nulls(row):
    return {name: value for name, value in row.items() if value is not None}


def common(row, currency):
    return without_nulls(
        {
            "id": row["id"],
            "day": row["date"],
            "amount": row["amount"],
            "currency": currency[row["accountId"]],
            "category": row["category"],
            "account_id": row["accountId"],
        }
    )


def brief(row, currency):
    merchant = row["merchantName"]
    return common(row, currency) | {"payee": clean(row["description"] if merchant is None else merchant, 140)}


def full(row, currency):
    merchant = row["merchantName"]
    return common(row, currency) | without_nulls(
        {
            "datetime": row["datetime"],
            "direction": row["direction"],
            "description": clean(row["description"], 500),
            "merchant_name": None if merchant is None else clean(merchant, 500),
            "merchant_category_code": row["merchantCategoryCode"],
        }
    )


class Step:
    """A call, repeated to its end if it has pages, and the judge of its responses."""

    def __init__(self, tool, arguments, judge, pages=True):
        self.tool = tool
        self.call = {"tool": tool, "arguments": arguments, "pages": pages}
        self.judge = judge

    def __str__(self):
        return f"{self.tool} {json.dumps(self.call['arguments'])[:200]}"


def structured(answers, name):
    """The rows of all pages of a response, each with a table of the same rows."""
    rows = []
    for answer in answers:
        demand(not answer.get("isError") and answer.get("structured"), f"failed: {str(answer)[:300]}")
        content = answer["structured"]
        size = len(json.dumps(answer["text"], ensure_ascii=False)) + len(json.dumps(content, ensure_ascii=False))
        demand(size <= ANSWER_BYTES_MAX, f"a response of {size} bytes")
        demand_equal(content["problems"], [], "problems")
        demand_equal(content["shown"], len(content[name]), "shown")
        demand(content["shown"], "an empty page")
        rows += content[name]
        judge_text(answer["text"], content, name)
        total = content.get("total", content.get("at_least"))
        demand(total is not None and total >= len(rows), f"total {total} after {len(rows)} rows")
    demand(len(answers) == 1 or max(len(answer["structured"][name]) for answer in answers) > 1, "a page for each row")
    last = answers[-1]["structured"]
    demand("next_cursor" not in last, "the last page has a cursor")
    demand_equal(last.get("total"), len(rows), "total on the last page")
    return rows


def judge_text(text, content, name):
    """The text says the same as the JSON, and no untrusted text breaks its table."""
    bad = [char for char in text if char != "\n" and unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp", "Co", "Cs")]
    demand(not bad, f"characters {bad[:5]} in the text")
    if "next_cursor" in content:
        demand(content["next_cursor"] in text, "the text does not say how to go on")
    whole = [json.loads(line) for line in text.split("\n") if line.startswith("{")]
    if whole:
        safe = [{key: cell(value, 500) for key, value in row.items()} for row in content[name]]
        demand_equal(whole, safe, f"lines of {name}")
        return
    lines = [line for line in text.split("\n") if line.startswith("|")]
    demand_equal(len({line.count("|") for line in lines}), 1, f"numbers of columns of {name}")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    demand_equal(len(cells), len(content[name]), f"lines of the table of {name}")
    for row, line in zip(content[name], cells, strict=True):
        for member in ("amount", "day", "quantity"):
            if member in row:
                demand(row[member] in line, f"{member} {row[member]} is not in {line}")
        # A sum has the places of its currency there.
        if "net" in row:
            sums = [Decimal(each) for each in line if re.fullmatch(r"-?\d+(\.\d+)?", each)]
            demand(Decimal(row["net"]) in sums, f"net {row['net']} is not in {line}")
        # A longer one ends where it was cut.
        if len(row.get("payee", "")) <= 140 and "payee" in row:
            demand(cell(row["payee"]) in line, f"payee {row['payee']} is not in {line}")


def list_transactions(truth, arguments, shape=brief, accounts=None, matches=lambda row: True):
    # By instant, so that a day in the user's timezone can come twice.
    posted = {(row["accountId"], row["id"]): datetime.fromisoformat(row["datetime"]) for row in truth.rows()}

    def judge(answers):
        rows = structured(answers, "transactions")
        instants = [posted.get((row["account_id"], row["id"])) for row in rows]
        demand(None not in instants, "rows that /v1 does not have")
        demand(instants == sorted(instants, reverse=True), "the order is not newest first")
        for account in accounts or truth.transactions:
            expected = [shape(row, truth.currency) for row in truth.rows([account], matches)]
            demand_equal([row for row in rows if row["account_id"] == account], expected, f"rows of {account}")
        demand_equal(len(rows), len(truth.rows(accounts, matches)), "number of rows")

    expected = truth.rows(accounts, matches)
    demand(expected, f"no row of /v1 matches {arguments}, so that nothing is compared")
    return Step("list_transactions", truth.days | arguments, judge)


def summarize(truth, group_by, arguments=None, group=lambda row: None, matches=lambda row: True):
    def sums(rows):
        amounts = [Decimal(row["amount"]) for row in rows]
        return {
            "money_in": sum((amount for amount in amounts if amount > 0), Decimal(0)),
            "money_out": sum((amount for amount in amounts if amount < 0), Decimal(0)),
            "net": sum(amounts, Decimal(0)),
            "count": len(rows),
        }

    def got(member):
        return {
            name: member[name] if name == "count" else Decimal(member[name])
            for name in ("money_in", "money_out", "net", "count")
        }

    def judge(answers):
        content = answers[0].get("structured")
        demand(content, f"failed: {str(answers[0])[:300]}")
        demand(content["complete"], "the sums are not complete")
        groups, totals = defaultdict(list), defaultdict(list)
        for row in truth.rows(None, matches):
            currency = truth.currency[row["accountId"]]
            groups[group(row) or "", currency].append(row)
            totals[currency].append(row)
        expected = {key: sums(rows) for key, rows in totals.items()}
        demand_equal({one["currency"]: got(one) for one in content["totals"]}, expected, f"totals by {group_by}")
        if group_by:
            shown = {(one["group"], one["currency"]): got(one) for one in content["groups"]}
            expected = {key: sums(rows) for key, rows in groups.items()}
            demand_equal(len(shown), content["shown"], "groups shown")
            demand_equal(content["total"], len(expected), f"number of groups by {group_by}")
            demand_equal(shown, {key: value for key, value in expected.items() if key in shown}, f"by {group_by}")
            demand(len(shown) >= min(len(expected), 20), f"{len(shown)} groups by {group_by}")
            judge_text(answers[0]["text"].split("\n\n")[-1], content, "groups")

    by = {"group_by": group_by} if group_by else {}
    return Step("summarize_transactions", truth.days | by | (arguments or {}), judge, pages=False)


def list_accounts(truth):
    def judge(answers):
        rows = structured(answers, "accounts")
        expected = []
        for account in truth.accounts:
            balance = truth.balances[account["id"]]
            expected.append(
                without_nulls(
                    {
                        "id": account["id"],
                        "connection_id": account["connectionId"],
                        "name": clean(account["name"], 140),
                        "type": account["type"],
                        "number": account["accountNumber"],
                        "currency": account["currency"],
                        "current_balance": balance["currentBalance"],
                        "available_balance": balance["availableBalance"],
                    }
                )
            )
        demand_equal(in_one_order(rows), in_one_order(expected), "accounts")
        connections = {one["id"]: one["status"] for answer in answers for one in answer["structured"]["connections"]}
        demand_equal(connections, {one["id"]: one["status"] for one in truth.connections}, "connections")

    return Step("list_accounts", {}, judge)


# Members of /v1 under other names.
HOLDING = {
    "id": "id",
    "account_id": "accountId",
    "symbol": "symbol",
    "currency": "currency",
    "quantity": "quantity",
    "average_price": "averagePrice",
    "current_price": "currentPrice",
    "market_value": "marketValue",
    "unrealized_pnl": "unrealizedPnl",
}
TRADE = {
    "id": "id",
    "account_id": "accountId",
    "symbol": "symbol",
    "type": "type",
    "quantity": "quantity",
    "price": "price",
    "currency": "currency",
    "total_amount": "totalAmount",
    "fees": "fees",
    "trade_date": "tradeDate",
    "settlement_date": "settlementDate",
}


def brokerage(tool, name, names, rows, arguments, day=None):
    def judge(answers):
        got = [{member: row.get(member) for member in names} for row in structured(answers, name)]
        days = [row[day][:10] for row in got] if day else []
        demand(days == sorted(days, reverse=True), "the order is not newest first")
        expected = [{member: row[other] for member, other in names.items()} for row in rows]
        demand_equal(in_one_order(got), in_one_order(expected), name)

    return Step(tool, arguments, judge)


def mistake(tool, arguments, *words):
    """Arguments that a model gets wrong. The text must help it to try again."""

    def judge(answers):
        answer = answers[0]
        demand(answer.get("isError"), f"accepted: {str(answer)[:300]}")
        for word in words:
            demand(word in answer["text"], f"{word!r} is not in {answer['text']!r}")

    return Step(tool, arguments, judge, pages=False)


def unknown_tool():
    def judge(answers):
        demand_equal(answers[0].get("code"), INVALID_PARAMS, "code for a tool that does not exist")

    return Step("delete_account", {}, judge, pages=False)


def steps(truth, odd, stranger):
    """`odd` are accounts whose texts and amounts break programs, `stranger` is an account of another user."""
    largest = sorted((abs(Decimal(row["amount"])) for row in truth.rows()), reverse=True)
    minimum = largest[len(largest) // 2]
    words = Counter(word for row in truth.rows() for word in row["description"].split() if word.isalpha())
    word = words.most_common(3)[-1][0]
    category = Counter(row["category"] for row in truth.rows() if row["category"]).most_common(1)[0][0]
    return [
        # These are the short plan.
        list_accounts(truth),
        list_transactions(truth, {"account_ids": odd, "detail": "full"}, full, odd),
        list_transactions(
            truth, {"min_amount": str(minimum)}, matches=lambda row: abs(Decimal(row["amount"])) >= minimum
        ),
        summarize(truth, "month", group=lambda row: row["date"][:7]),
        brokerage("list_holdings", "holdings", HOLDING, truth.holdings, {}),
        mistake("list_transactions", {"from": "2026-02-30", "surprise": 1}, "from", "surprise"),
        unknown_tool(),
        # Only the whole plan has these.
        list_transactions(truth, {"limit": 200}),
        list_transactions(
            truth,
            {"category": category, "direction": "debit"},
            matches=lambda row: row["category"] == category and row["direction"] == "debit",
        ),
        list_transactions(
            truth,
            {"text": word.swapcase()},
            matches=lambda row: word.lower() in (row["description"] + "\n" + (row["merchantName"] or "")).lower(),
        ),
        summarize(truth, None),
        summarize(truth, "category", group=lambda row: row["category"]),
        summarize(truth, "account", group=lambda row: row["accountId"]),
        summarize(
            truth,
            "merchant",
            {"direction": "debit"},
            lambda row: clean(row["merchantName"] or "", 140),
            lambda row: row["direction"] == "debit",
        ),
        brokerage("list_trades", "trades", TRADE, truth.trades, truth.days, "trade_date"),
        mistake("list_transactions", {"limit": "many"}, "limit"),
        mistake("list_new_transactions", {}, "since"),
        mistake("list_transactions", {"cursor": "bm90IG91cnM"}, "cursor"),
        # Nothing says whether another user's account exists.
        mistake("list_transactions", {"account_ids": [NO_ACCOUNT]}, NO_SUCH_ACCOUNT),
        mistake("list_transactions", {"account_ids": [stranger]}, NO_SUCH_ACCOUNT),
        mistake("list_holdings", {"account_ids": odd[:1]}, "account"),
    ]


def short(steps):
    """For ways to the service that change nothing in the responses."""
    return steps[:7]
