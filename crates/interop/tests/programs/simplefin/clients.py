"""Clients of PyPI. Each function gets the service and a folder, and compares what its client reads with /v1."""

import asyncio
import json
import logging
import os
import re
import subprocess
import sys
import urllib.request
import warnings
from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import duckdb
from bellbird import Holding, Mismatch, Row, by_id, cents, expect, same

BIN = Path(sys.executable).parent
CENT = Decimal("0.01")
# simplefin4py turns all logs on, rows included.
logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")


def utc_day(time, client):
    """The day of a row's time, which has to be 10:59 UTC."""
    expect(f"{client}: time of a row", time.astimezone(UTC).strftime("%H:%M:%S"), "10:59:00")
    return time.astimezone(UTC).date().isoformat()


def run(command, folder, name, stdin="", **variables):
    """Runs a command with a home of its own. Returns what it prints."""
    home = {"HOME": str(folder), "GOETTA_FINANCE_HOME": str(folder), "COLUMNS": "100000"}
    variables = {**os.environ, **home, **variables}
    done = subprocess.run(
        command, input=stdin, env=variables, cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise Mismatch(f"{name} ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-1500:]}")
    return done.stdout


def simplefin4py(bellbird, folder):
    """The library of Home Assistant: claims, and asks without any parameter."""
    from simplefin4py import SimpleFin
    from simplefin4py.exceptions import SimpleFinAuthError, SimpleFinClaimError, SimpleFinPaymentRequiredError

    async def fails(what, error, call):
        try:
            await call
        except error:
            return
        raise Mismatch(f"simplefin4py: {what} does not raise {error.__name__}")

    async def check():
        token = bellbird.first_token or bellbird.setup_token("simplefin4py")
        client = SimpleFin(await SimpleFin.claim_setup_token(token))
        await fails("a second claim", SimpleFinClaimError, SimpleFin.claim_setup_token(token))
        data = await client.fetch_data()
        bellbird.compare_errors("simplefin4py: errors", data.errors)
        expect("simplefin4py: accounts", sorted(one.id for one in data.accounts), sorted(bellbird.accounts))
        for account in data.accounts:
            compare_simplefin4py(bellbird, account, bellbird.accounts[account.id])
        domains = {account.org.domain for account in data.accounts}
        institutions = {account.connection for account in bellbird.accounts.values()}
        expect("simplefin4py: institutions by domain", len(domains), len(institutions))

        name = "simplefin4py, revoked"
        client = SimpleFin(await SimpleFin.claim_setup_token(bellbird.setup_token(name)))
        bellbird.revoke(name)
        await fails("a revoked key", SimpleFinAuthError, client.fetch_data())

        token = bellbird.setup_token("simplefin4py", "saver@example.com")
        client = SimpleFin(await SimpleFin.claim_setup_token(token))
        await fails("a plan without API access", SimpleFinPaymentRequiredError, client.fetch_data())

    asyncio.run(check())
    recent = sum(len(account.recent) for account in bellbird.accounts.values())
    return f"{len(bellbird.accounts)} accounts, {recent} rows; second claim, revoked key and plan are rejected"


def compare_simplefin4py(bellbird, account, want):
    what = f"simplefin4py: {want.name}"
    expect(what, (account.name, account.currency, account.org.name), (want.name, want.currency, want.institution))
    expect(f"{what}: balance", account.balance, str(want.balance))
    available = None if account.available_balance is None else Decimal(account.available_balance)
    expect(f"{what}: available", available, want.available)
    rows = by_id(what, ((row.id, Row(
        utc_day(row.posted, "simplefin4py"), Decimal(row.amount), row.description, row.payee
    )) for row in account.transactions))
    # Another day may have begun since.
    same(what, rows, want.recent if rows == want.recent else bellbird.recent(want))
    for row in account.transactions:
        expect(f"{what}: transacted", row.transacted_at, row.posted)
    holdings = {}
    for one in account.holdings:
        numbers = (one.shares, one.market_value, one.purchase_price, one.cost_basis)
        numbers = [None if number is None else Decimal(number) for number in numbers]
        holdings[one.id] = Holding(one.symbol, one.description, one.currency, *numbers)
    same(f"{what}: holdings", holdings, want.holdings)


def simplefin4py_attention(bellbird, connection):
    """After a consent expired, the library marks its accounts."""
    from simplefin4py import SimpleFin

    client = SimpleFin(claim(bellbird.setup_token("simplefin4py, attention")))
    data = asyncio.run(client.fetch_data())
    marked = sorted(account.id for account in data.accounts_with_errors)
    wanted = sorted(one.id for one in bellbird.accounts.values() if one.connection == connection["id"])
    expect("simplefin4py: accounts with errors", marked, wanted)
    return f"{len(marked)} accounts need attention"


def simplefin_command(bellbird, folder):
    """The `simplefin` command line, in both timezones."""
    command = str(BIN / "simplefin")
    shown = run([command, "setup"], folder, "simplefin setup", bellbird.setup_token("simplefin") + "\n")
    access = re.search(r"Access URL: (\S+)", shown).group(1)
    versions = run([command, "info"], folder, "simplefin info", SIMPLEFIN_ACCESS_URL=access)
    expect("simplefin info", versions.strip(), "{'versions': ['1.0', '2.0']}")
    table = run([command, "accounts"], folder, "simplefin accounts", SIMPLEFIN_ACCESS_URL=access)
    printed = run([command, "accounts", "--format", "json"], folder, "simplefin accounts", SIMPLEFIN_ACCESS_URL=access)
    accounts = {one["id"]: one for one in json.loads(printed)}
    expect("simplefin accounts", accounts.keys(), bellbird.accounts.keys())
    count = 0
    for index, (id, want) in enumerate(bellbird.accounts.items()):
        expect(f"simplefin accounts: {want.name}", accounts[id]["balance"], str(want.balance))
        [line] = [line for line in table.splitlines() if id in line]
        cells = [cell.strip() for cell in line.strip("│┃ ").split("│")]
        expect("simplefin accounts", cells, [want.institution, want.name, str(want.balance), id])
        count += compare_simplefin_command(command, folder, access, want, ZONES[index % len(ZONES)])
    print_table(command, folder, access, bellbird)
    return f"{len(accounts)} accounts in turn in {len(ZONES)} timezones, {count} rows"


def compare_simplefin_command(command, folder, access, want, zone):
    what = f"simplefin transactions: {want.name} in {zone}"
    arguments = [command, "transactions", "--lookback-days", "20", want.id]
    variables = {"SIMPLEFIN_ACCESS_URL": access, "TZ": zone}
    before = lookback(zone)
    printed = run([*arguments, "--format", "json"], folder, what, **variables)
    # The program prints through a library that takes [...] for styles and :name: for emoji, so texts are not compared.
    pairs = re.findall(r'"id": "([^"]*)",.*?"posted": "([^"]*)",.*?"amount": "([^"]*)"', printed, re.DOTALL)
    rows = by_id(what, ((id, (utc_day(datetime.fromisoformat(time), what), Decimal(amount)))
                        for id, time, amount in pairs))
    # Another day may begin while the program runs.
    for start in (before, lookback(zone)):
        expected = {id: (row.day, row.amount) for id, row in want.between(start).items()}
        if rows == expected:
            break
    same(what, rows, expected)
    return len(rows)


def lookback(zone):
    """The beginning of the day 20 days ago."""
    start = datetime.now(ZoneInfo(zone)).date() - timedelta(20)
    return datetime.combine(start, datetime.min.time(), ZoneInfo(zone)).timestamp()


def print_table(command, folder, access, bellbird):
    """The table that the program prints for people has a line for each row."""
    want = max(bellbird.accounts.values(), key=lambda account: len(account.rows))
    what = f"simplefin transactions as a table: {want.name}"
    arguments = [command, "transactions", "--lookback-days", "20", want.id]
    before = lookback("UTC")
    table = run(arguments, folder, what, SIMPLEFIN_ACCESS_URL=access, TZ="UTC")
    lines = re.findall(r"^│ (\d\d \w{3} \d{4}) ", table, re.MULTILINE)
    days = [datetime.strptime(line, "%d %b %Y").date().isoformat() for line in lines]
    for start in (before, lookback("UTC")):
        expected = sorted(row.day for row in want.between(start).values())
        if sorted(days) == expected:
            break
    expect(what, sorted(days), expected)


ZONES = ("Pacific/Auckland", "America/Los_Angeles")


def goetta_finance(bellbird, folder):
    """goetta-finance: claims, fetches 90 days in pieces of 60, and stores them in DuckDB."""
    command = str(BIN / "goetta-finance")
    before = datetime.now(UTC)
    # Its questions: the token, pull data now, and whether to set up other programs.
    answers = f"{bellbird.setup_token('goetta')}\ny\nn\nn\nn\n"
    shown = run([command, "init"], folder, "goetta-finance init", answers)
    after = datetime.now(UTC)
    if "Setup complete" not in shown:
        raise Mismatch(f"goetta-finance init: {shown[-1000:]}")
    stored = read_goetta(folder)
    for start, end in ((before, before), (after, after)):
        want = {
            (account.id, id): (row.day, row.amount.quantize(CENT, ROUND_HALF_UP), row.description, row.payee)
            for account in bellbird.accounts.values()
            for id, row in account.between(int((start - timedelta(90)).timestamp()), int(end.timestamp())).items()
        }
        # A row may come or go while the program runs.
        if stored["rows"] == want:
            break
    same("goetta-finance: rows", stored["rows"], want)
    accounts = {
        one.id: (one.name, one.currency, one.institution, one.balance, one.available and cents(one.available))
        for one in bellbird.accounts.values()
    }
    same("goetta-finance: accounts", stored["accounts"], accounts)
    again = run([command, "sync"], folder, "goetta-finance sync")
    if not again.startswith("Synced: 0 new,"):
        raise Mismatch(f"goetta-finance sync: {again}")
    bellbird.compare_errors("goetta-finance: warnings", re.findall("^  warning: (.*)", again, re.MULTILINE))
    return f"{len(accounts)} accounts, {len(want)} rows; a second sync adds none"


def read_goetta(folder):
    with duckdb.connect(str(folder / "data.duckdb"), read_only=True) as base:
        accounts = base.sql("SELECT id, name, currency, org_name, balance, available_balance FROM accounts").fetchall()
        rows = base.sql("SELECT account_id, id, posted, amount, description, payee FROM transactions").fetchall()
    found = {}
    for account, id, time, amount, description, payee in rows:
        day = utc_day(time.replace(tzinfo=UTC), "goetta-finance")
        found[(account, id)] = (day, amount, description, payee)
    return {"accounts": {id: tuple(rest) for id, *rest in accounts}, "rows": found}


def beangulp(bellbird, folder):
    """beangulp-simplefin imports the JSON of each account, and `bean-check` accepts the balances, in both timezones."""
    access = claim(bellbird.setup_token("beangulp"))
    start = int(datetime.now(UTC).timestamp()) - 60 * 86_400
    accounts = {}
    for number, want in enumerate(bellbird.accounts.values()):
        [account] = fetch(access, f"account={want.id}&start-date={start}")["accounts"]
        times = [row["posted"] for row in account["transactions"]]
        expect(f"SimpleFIN: {want.name}: newest first", times, sorted(times, reverse=True))
        (folder / f"{number}.json").write_text(json.dumps(account))
        accounts[str(number)] = (account["balance-date"], want, want.between(start))
    extract = Path(__file__).with_name("extract.py")
    lines = run([sys.executable, str(extract), *ZONES], folder, "beangulp-simplefin").splitlines()
    entries = [json.loads(line) for line in lines]
    count = 0
    for number, zone in enumerate(ZONES):
        ledger = "1970-01-01 open Equity:Opening\n" + "".join(
            f"1970-01-01 open {kind}:Uncategorized\n" for kind in ("Expenses", "Income")
        )
        for account, facts in accounts.items():
            own = [one for one in entries if (one["zone"], one["account"]) == (zone, account)]
            ledger += compare_beangulp(own, account, *facts, zone)
            count += len(own) - 1
        (folder / "all.beancount").write_text(ledger + (folder / f"{number}.beancount").read_text())
        run([str(BIN / "bean-check"), "all.beancount"], folder, f"bean-check in {zone}")
    return f"{len(accounts)} accounts, {count} rows in {len(ZONES)} timezones"


def compare_beangulp(entries, number, balance_date, want, rows, zone):
    """Returns the account's beginning, with which its balance is right."""
    what = f"beangulp: {want.name} in {zone}"
    found = by_id(what, ((one["id"], Row(one["day"], Decimal(one["amount"]), one["text"], None))
                         for one in entries if "id" in one))
    same(what, found, {id: row._replace(payee=None) for id, row in rows.items()})
    [balance] = [one for one in entries if "balance" in one]
    local = datetime.fromtimestamp(balance_date, ZoneInfo(zone)).date().isoformat()
    expect(f"{what}: balance", (balance["day"], balance["balance"]), (local, str(want.balance)))
    # A balance holds at the beginning of its day.
    opening = want.balance - sum(row.amount for row in rows.values() if row.day < local)
    return (
        f"1970-01-01 open Assets:Account{number}\n"
        f'1970-01-01 * "Opening"\n'
        f"  Assets:Account{number}  {opening} {want.currency}\n"
        f"  Equity:Opening\n"
    )


def claim(token):
    request = urllib.request.Request(b64decode(token).decode(), b"", method="POST")
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
        return answer.read().decode()


def fetch(access, query):
    user, root = re.fullmatch(r"https?://([^@]*)@(.*)", access).groups()
    header = {"authorization": f"Basic {b64encode(user.encode()).decode()}"}
    request = urllib.request.Request(f"http://{root}/accounts?{query}", headers=header)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
        return json.load(answer)


CLIENTS = (simplefin4py, simplefin_command, goetta_finance, beangulp)
