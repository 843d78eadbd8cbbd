"""Actual Budget: what its engine has stored after it linked and synced each account, compared with /v1."""

import json
import os
import signal
import subprocess
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

from bellbird import Mismatch, expect, posted, same

# Days before today that the engine asks for at first.
FIRST_DAYS = 89


class Actual:
    """Actual's sync server and engine in a timezone, with a budget of their own."""

    def __init__(self, bellbird, place, folder, zone):
        self.bellbird, self.zone, self.folder = bellbird, zone, folder
        self.first_day = self.today()
        self.process = subprocess.Popen(
            [f"{os.environ['NODE22']}/node", "actual.mjs", folder, bellbird.setup_token(f"Actual in {zone}")],
            cwd=place,
            env={**os.environ, "TZ": zone},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=open(folder / "errors.log", "wb"),
            text=True,
            start_new_session=True,
        )

    def today(self):
        return datetime.now(ZoneInfo(self.zone)).date()

    def stop(self):
        """Ends the engine and its server, also in the middle of a sync."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            logs = [Path(self.folder, name) for name in ("errors.log", "server.log")]
            raise Mismatch(f"Actual ended: {''.join(log.read_text()[-1500:] for log in logs)}")
        return json.loads(line)

    def check(self):
        """Compares what was linked and synced with /v1."""
        result = self.read()
        what = f"Actual in {self.zone}"
        expect(f"{what}: status", result["status"], {"configured": True})
        expect(f"{what}: failed", result["failed"], {})
        # `simplefin-accounts` gives an error in the place of the accounts.
        expect(f"{what}: accounts", result["listed"].get("error_code"), None)
        accounts = self.bellbird.accounts
        expect(f"{what}: accounts", result["linked"].keys(), accounts.keys())
        expect(f"{what}: sync", result["synced"]["error"], None)
        count = 0
        for id, want in accounts.items():
            linked, synced = result["linked"][id], result["synced"]["accounts"][id]
            count += self.compare(f"{what}: {want.name}", linked, want)
            same(f"{what}: {want.name} after a second sync", rows_by_id(synced), rows_by_id(linked))
            expect(f"{what}: balance of {want.name}", synced["balance"], int(want.balance * 100))
            expect(f"{what}: status of {want.name}", (linked["status"], synced["status"]), ("ok", "ok"))
        return f"{len(accounts)} accounts, {count} rows; a second sync adds none"

    def compare(self, what, linked, want):
        expect(what, linked["name"], want.name)
        rows = [row for row in linked["rows"] if not row["starting_balance_flag"]]
        found = {row["imported_id"]: row for row in rows}
        expect(f"{what}: different ids", len(found), len(rows))
        got = {id: shown(row) for id, row in found.items()}
        # Another day may have begun while the engine read.
        for today in (self.first_day, self.today()):
            expected = want.between(*self.window(today))
            wanted = {id: imported(row) for id, row in expected.items()}
            if got == wanted:
                break
        same(what, got, wanted)
        for id, row in found.items():
            # Exact to half a cent: the engine keeps cents.
            difference = abs(Decimal(row["amount"]) - expected[id].amount * 100)
            expect(f"{what}: {id}: {row['amount']} for {expected[id].amount}", difference <= Decimal("0.5"), True)
        self.compare_start(what, linked, want, expected)
        return len(rows)

    def compare_start(self, what, linked, want, expected):
        """The engine adds one row more: the balance before the first row."""
        [start] = [row for row in linked["rows"] if row["starting_balance_flag"]]
        # Of an account without rows, it is the day of the sync, after which another may have begun.
        today = {self.first_day.isoformat(), self.today().isoformat()}
        first = {min(row.day for row in expected.values())} if expected else today
        expect(f"{what}: day of the starting balance {start['date']} is of {first}", start["date"] in first, True)
        # It takes the point out of each amount, so a third place counts ten times too much.
        if all(row.amount.as_tuple().exponent >= -2 for row in expected.values()):
            total = sum(row["amount"] for row in linked["rows"])
            expect(f"{what}: starting balance and rows", total, int(want.balance * 100))

    def window(self, today):
        """The times that the sync server asks for. It counts days of UTC, then moves them by the zone's offset."""
        zone = ZoneInfo(self.zone)
        first = today - timedelta(FIRST_DAYS)
        midnight = datetime(first.year, first.month, first.day, tzinfo=ZoneInfo("UTC"))
        start = midnight.timestamp() + midnight.astimezone(zone).utcoffset().total_seconds()
        after = (today.replace(day=1) + timedelta(31)).replace(day=1)
        return max(start, midnight.timestamp()), posted(after.isoformat()) - (10 * 60 + 59) * 60

    def check_attention(self, connection):
        """After a consent expired, its accounts need attention, and the others do not."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        result = self.read()
        what = f"Actual in {self.zone}: status after a consent expired"
        wanted = {
            id: "attention-required" if account.connection == connection["id"] else "ok"
            for id, account in self.bellbird.accounts.items()
        }
        same(what, {id: account["status"] for id, account in result["accounts"].items()}, wanted)
        return f"{sum(status != 'ok' for status in wanted.values())} accounts need attention"


def rows_by_id(account):
    """The engine stores an empty text as no text when it sees the row again."""
    return {row["id"]: {name: None if value == "" else value for name, value in row.items()} for row in account["rows"]}


def imported(row):
    """What the engine makes of a row, but for its amount."""
    return (row.day, row.payee.strip(), row.description.strip().replace("#", "##"), True)


def shown(row):
    return (row["date"], row["imported_payee"] or "", row["notes"] or "", row["cleared"])
