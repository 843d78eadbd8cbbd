"""Gives the service's files to the programs that read them, and compares what they see with /v1, row by row.

Every program runs in a timezone far in the east and in one far in the west: no day may move.
"""

import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections import namedtuple
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

SOURCE = Path(__file__).resolve().parent
ZONES = ("Pacific/Auckland", "America/Los_Angeles")
FIRST_DAY = "2020-01-01"
CENT = Decimal("0.01")

# What a program may see of a row. None: the format has no place for it, or it is not compared.
Seen = namedtuple("Seen", "day amount id payee memo")


class Mismatch(Exception):
    pass


def line(text):
    """A text as programs show it on one line: blanks, line breaks and other control characters are one blank."""
    return re.sub(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]+", " ", text or "").strip()


def expected(row, payee_chars=None, memo_chars=None, amount=Decimal):
    """What /v1 says about a row, cut as the format says. A cut text may end with a blank, which is not shown."""
    memo = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+", " ", row["description"]).strip()
    merchant = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+", " ", row["merchantName"] or "").strip()
    payee = (merchant or memo)[:payee_chars]
    return Seen(row["date"], amount(row["amount"]), row["id"], line(payee), line(memo[:memo_chars]))


def plain(value):
    """Amounts by value, exactly: `normalize` would round to 28 digits."""
    if not isinstance(value, Decimal):
        return str(value)
    text = f"{value:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def compare(what, seen, rows, fields=Seen._fields):
    """Compares rows in any order: some programs sort by day."""

    def key(row):
        return tuple(plain(getattr(row, field)) for field in fields)

    seen, rows = sorted(map(key, seen)), sorted(map(key, rows))
    if seen != rows:
        only_seen = [row for row in seen if row not in rows]
        only_v1 = [row for row in rows if row not in seen]
        raise Mismatch(f"{what}: read {len(seen)} of {len(rows)} rows\n  read: {only_seen[:3]}\n  /v1:  {only_v1[:3]}")


class Service:
    def __init__(self):
        start = SOURCE.parent / "start_service"
        self.process = subprocess.Popen([start], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ready = self.process.stdout.readline()
        if not ready:
            raise SystemExit("the service did not start")
        self.facts = json.loads(ready)

    def get(self, path, **query):
        url = f"{self.facts['apiUrl']}{path}?{'&'.join(f'{name}={value}' for name, value in query.items())}"
        request = urllib.request.Request(url, headers={"authorization": f"Bearer {self.facts['key']}"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=120) as answer:
            return answer.read()

    def rows(self, account, start):
        rows, query = [], {"connectionId": account["connectionId"], "accountId": account["id"], "from": start}
        while True:
            page = json.loads(self.get("/v1/transactions", **query, limit=200, offset=len(rows)))
            rows += page["data"]
            if not page["pagination"]["hasMore"]:
                return rows

    def rejection(self, path, **query):
        try:
            self.get(path, **query)
        except urllib.error.HTTPError as error:
            return json.load(error)["error"]["message"]
        raise Mismatch(f"{path} {query}: a file in place of an error")


class Account:
    """An account's rows, and its files in a folder of its own."""

    def __init__(self, service, account, balance, folder):
        self.service, self.account, self.balance, self.folder = service, account, balance, folder
        self.rows = service.rows(account, FIRST_DAY)
        self.name = f"{account['name']} ({account['type']}, {account['currency']})"
        folder.mkdir()

    def file(self, suffix, can_hold=lambda amount: True, **options):
        """A file of the format, and its rows. It begins after the last row that the format cannot hold."""
        start = FIRST_DAY
        query = {"accountId": self.account["id"], **options}
        too_much = [row["date"] for row in self.rows if not can_hold(row["amount"])]
        path = f"/v1/export/transactions.{suffix}"
        if too_much:
            message = self.service.rejection(path, **query, **{"from": FIRST_DAY})
            if "csv" not in message:
                raise Mismatch(f"{path}: no advice in {message!r}")
            start = (date.fromisoformat(max(too_much)) + timedelta(1)).isoformat()
        name = self.folder / f"{'-'.join(options.values())}transactions.{suffix}"
        name.write_bytes(self.service.get(path, **query, **{"from": start}))
        return str(name), [row for row in self.rows if row["date"] >= start]


def run(command, zone=None, **more):
    environment = {**os.environ, **({"TZ": zone} if zone else {}), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300, **more)
    if done.returncode != 0:
        raise Mismatch(f"{command[0]} ended with {done.returncode}: {done.stderr[-1500:]}{done.stdout[-500:]}")
    return done.stdout


class Programs:
    def __init__(self, place):
        self.python, self.place = f"{place}/venv/bin/python", place

    def library(self, reader, path, zone):
        return json.loads(run([self.python, SOURCE / "read_files.py", reader, path], zone))

    def transactions(self, reader, path, zone):
        rows = self.library(reader, path, zone)
        return [Seen(day, Decimal(amount), id, line(payee), line(memo)) for day, amount, id, payee, memo in rows]

    def actual(self, paths, zone):
        command = [f"{os.environ['NODE22']}/node", SOURCE / "read_actual.mjs", self.place, *paths]
        return json.loads(run(command, zone).splitlines()[-1])


def cents(amount):
    return Decimal(amount).quantize(CENT, ROUND_HALF_UP)


def double(amount):
    """An amount as programs show it that hold a binary number."""
    return Decimal(f"{float(amount):.2f}")


def check_ofx(account, programs, zone):
    if account.balance["currentBalance"] is None:
        message = account.service.rejection("/v1/export/transactions.ofx", accountId=account.account["id"])
        if "balance" not in message:
            raise Mismatch(f"OFX without a balance: {message!r}")
        return
    path, rows = account.file("ofx")
    want = [expected(row, 32, 255) for row in rows]
    for reader in ("ofxtools", "ofxparse"):
        compare(f"{reader}, {account.name}", programs.transactions(reader, path, zone), want)
    want = [expected(row, 32, 255, double) for row in rows]
    compare(f"ofxdump, {account.name}", read_ofxdump(run(["ofxdump", path], zone)), want)


def read_ofxdump(text):
    for block in text.split("ofx_proc_transaction():")[1:]:

        def value(label):
            found = re.search(rf"^ +{re.escape(label)}[a-z ]*: (.*)$", block, re.MULTILINE)
            return found and found[1]

        # `Sun Nov 22 23:59:00 2026 NZDT`: the day in the timezone of the program.
        day = datetime.strptime(" ".join(value("Date posted").split()[:5]), "%a %b %d %H:%M:%S %Y").date().isoformat()
        id, payee = value("Financial institution's ID for this transaction"), value("Name of payee or transaction")
        memo = value("Extra transaction information (memo)")
        yield Seen(day, Decimal(value("Total money amount")), id, line(payee), line(memo))


def check_actual(accounts, programs, zone):
    """All accounts at once: the engine takes seconds to start."""
    files = {}
    for account in accounts:
        if account.balance["currentBalance"] is not None:
            path, rows = account.file("ofx")
            files[path] = account, rows, True
        path, rows = account.file("qif", can_hold=fits_qif)
        files[path] = account, rows, False
    found = programs.actual(files, zone)
    for path, (account, rows, is_ofx) in files.items():
        what, read = f"Actual, {Path(path).suffix} of {account.name}", found[path]

        def unescape(text):
            # It unescapes twice.
            return (text or "").replace("&amp;", "&") if is_ofx else text

        limits = (32, 255) if is_ofx else (None, None)
        want = [expected(row, *limits, lambda amount: float(amount)) for row in rows]
        want = [row._replace(payee=unescape(row.payee), memo=unescape(row.memo)) for row in want]
        seen = [Seen(day, float(amount), id, line(payee), line(memo)) for day, amount, id, payee, memo in read["read"]]
        fields = Seen._fields if is_ofx else ("day", "amount", "payee", "memo")
        compare(what, seen, want, fields)
        # What it then has in its budget: whole cents.
        held = [row for row in rows if abs(Decimal(row["amount"])) < 10**9]
        budget = [Seen(day, Decimal(amount) / 100, id, None, None) for day, amount, id in read["budget"]]
        want = [expected(row, amount=lambda amount: Decimal(round(float(amount) * 100)) / 100) for row in held]
        compare(f"{what}, budget", budget, want, ("day", "amount", "id") if is_ofx else ("day", "amount"))
        if read["addedAgain"] != 0:
            raise Mismatch(f"{what}: a second import added {read['addedAgain']} rows")


def parts(amount):
    """The digits before and behind the point, without zeros around them."""
    whole, _, fraction = amount.lstrip("-").partition(".")
    return whole.lstrip("0"), fraction.rstrip("0")


def fits_qif(amount):
    whole, fraction = parts(amount)
    return len(fraction) <= 2 and len(whole + fraction) <= 15


def fits_beancount(amount):
    whole, fraction = parts(amount)
    return len((whole + fraction).lstrip("0")) <= 28


def check_qif(account, programs, zone):
    path, rows = account.file("qif", can_hold=fits_qif)
    if rows:
        seen = programs.transactions("quiffen", path, zone)
        compare(f"quiffen, {account.name}", seen, map(expected, rows), ("day", "amount", "payee", "memo"))


def journal_text(row):
    """`merchant | description` with the signs replaced that mean something in a journal."""
    parts = [line(text).replace(";", ",").replace("|", "/") for text in (row["merchantName"], row["description"])]
    return " | ".join(filter(None, parts))


def check_journal(account, zone):
    path, rows = account.file("journal")
    want = [Seen(row["date"], Decimal(row["amount"]), row["id"], journal_text(row), None) for row in rows]
    want = [row._replace(payee=line(row.payee)) for row in want]
    fields = ("day", "amount", "id", "payee")
    run(["hledger", "-f", path, "check"], zone)
    printed = run(["hledger", "-f", path, "print", "-O", "csv"], zone)
    compare(f"hledger, {account.name}", read_hledger(printed), want, fields)
    printed = run(["ledger", "-f", path, "xml", "--empty"], zone)
    compare(f"ledger, {account.name}", read_ledger(printed), want, fields)
    check_assertion(path, account, rows, zone)


def read_hledger(text):
    postings = list(csv.DictReader(text.splitlines()))
    for number in {posting["txnidx"]: None for posting in postings}:
        first, second = [posting for posting in postings if posting["txnidx"] == number]
        assert first["account"].startswith(("assets:", "liabilities:")), first
        assert second["account"].startswith(("expenses:", "income:", "equity:transfers")), second
        assert first["code"] == "" and first["status"] == "*", first
        # The lines of a comment follow one another without a break.
        id = re.fullmatch(r"id: (\S+?)(category: [A-Z_]+)?", first["comment"])[1]
        yield Seen(first["date"], Decimal(first["amount"]), id, line(first["description"]), None)


def read_ledger(text):
    for row in ElementTree.fromstring(text).iter("transaction"):
        first, second = row.find("postings")
        amount = first.find("post-amount/amount/quantity").text
        keys = {value.get("key"): value.find("string").text for value in row.iter("value")}
        assert set(keys) <= {"id", "category"} and row.find("code") in (None, ""), keys
        assert second.find("account/name").text.startswith(("expenses:", "income:", "equity:transfers"))
        payee = row.find("payee").text
        payee = "" if payee == "<Unspecified payee>" else payee
        yield Seen(row.find("date").text.replace("/", "-"), Decimal(amount), keys["id"], line(payee), None)


def check_assertion(path, account, rows, zone):
    """With the rest of the money in an opening balance, the assertion of the file holds."""
    balance = account.balance["currentBalance"]
    if balance is None:
        return
    text = Path(path).read_text()
    start = text.index("; The balance then")
    comment = text[start:].split("\n\n")[0].split("\n")[1:3]
    asserted = "\n".join(one.removeprefix("; ") for one in comment)
    name = asserted.split("\n")[1].strip().split("  ")[0]
    currency = account.account["currency"]
    opening = exact_sum([balance, *(negated(row["amount"]) for row in rows)])
    whole = f"{text}\n{FIRST_DAY} opening\n  {name}  {opening} {currency}\n  equity:opening\n\n{asserted}\n"
    complete = Path(path).with_name("complete.journal")
    complete.write_text(whole)
    run(["hledger", "-f", str(complete), "check"], zone)


def negated(amount):
    return amount[1:] if amount.startswith("-") else f"-{amount}"


def exact_sum(amounts):
    """Python's decimals round sums to 28 digits, whole numbers do not."""
    places = max(len(amount.partition(".")[2]) for amount in amounts)
    split = [one.partition(".") for one in amounts]
    total = sum(int(whole + fraction.ljust(places, "0")) for whole, _, fraction in split)
    digits = str(abs(total)).rjust(places + 1, "0")
    point = len(digits) - places
    return f"{'-' if total < 0 else ''}{digits[:point]}.{digits[point:]}"


def check_beancount(account, programs, zone):
    path, rows = account.file("beancount", can_hold=fits_beancount)
    run([f"{programs.place}/venv/bin/bean-check", path], zone)
    want = [expected(row)._replace(payee=line(row["merchantName"])) for row in rows]
    compare(f"beancount, {account.name}", programs.transactions("beancount", path, zone), want)


# The columns that read_files.py prints.
COLUMNS = ("id", "accountId", "accountName", "date", "description", "amount", "category", "merchantName")


def check_tables(account, programs, zone):
    want = [[row[name] or "" for name in COLUMNS] for row in account.rows]
    for reader, suffix in [("duckdb-csv", "csv"), ("duckdb-jsonl", "jsonl")]:
        rows = programs.library(reader, account.file(suffix)[0], zone)
        rows = [[value or "" for value in row] for row in rows]
        if rows != want:
            different = [pair for pair in zip(rows, want) if pair[0] != pair[1]]
            raise Mismatch(f"{reader}, {account.name}: {len(rows)} of {len(want)} rows, different: {different[:2]}")


def check_ynab(account):
    """No program of YNAB runs here: its columns are compared as they are."""
    path, _ = account.file("csv", layout="ynab")
    with open(path, newline="", encoding="utf-8") as file:
        seen = list(csv.DictReader(file))
    for line_of_file, row in zip(seen, account.rows, strict=True):
        side = "Outflow" if row["amount"].startswith("-") else "Inflow"
        amount = row["amount"].lstrip("-")
        want = {"Date": row["date"], "Outflow": "", "Inflow": "", side: amount, "Memo": row["description"]}
        if {name: line_of_file[name] for name in want} != want:
            raise Mismatch(f"YNAB, {account.name}: {line_of_file} in place of {want}")


def main():
    programs = Programs(sys.argv[1])
    service = Service()
    try:
        facts = service.facts
        odd = [one for one in facts["accounts"] if one["connectionId"] in facts["odd"]]
        # Two plain accounts with many rows beside those with odd ones.
        banks = {one["id"]: one["provider"] for one in facts["connections"] if one["category"] == "banking"}
        plain = {
            banks[one["connectionId"]]: one
            for one in facts["accounts"]
            if one["connectionId"] in banks and one["connectionId"] not in facts["odd"] and one["type"] == "credit-card"
        }
        chosen = odd + list(plain.values())
        found = json.loads(service.get("/v1/balances", accountIds=",".join(one["id"] for one in chosen)))["data"]
        balances = {one["accountId"]: one for one in found}
        with tempfile.TemporaryDirectory(prefix="bellbird-files-") as folder:
            folders = [Path(folder, str(number)) for number in range(len(chosen))]
            accounts = [Account(service, one, balances[one["id"]], place) for one, place in zip(chosen, folders)]
            for account in accounts:
                print(f"files: {len(account.rows)} rows of {account.name}", flush=True)
                check_ynab(account)
            for zone in ZONES:
                for account in accounts:
                    check_ofx(account, programs, zone)
                    check_qif(account, programs, zone)
                    check_journal(account, zone)
                    check_beancount(account, programs, zone)
                    check_tables(account, programs, zone)
                check_actual(accounts, programs, zone)
                print(f"files: all programs agree with /v1 in {zone}", flush=True)
    except Mismatch as mismatch:
        sys.exit(f"files: {mismatch}")
    finally:
        service.process.stdin.close()
        service.process.wait()


main()
