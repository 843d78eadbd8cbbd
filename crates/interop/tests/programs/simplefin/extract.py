"""Imports the accounts of the working directory, 0.json and so on, with beangulp-simplefin, in each given timezone.

Writes <zone's number>.beancount, and prints a line of JSON for each entry.
"""

import json
import os
import sys
import time
from pathlib import Path

from beancount.core.data import Balance
from beancount.parser.printer import format_entry
from beangulp_simplefin import SimpleFINImporter


def described(entry):
    if isinstance(entry, Balance):
        return {"day": str(entry.date), "balance": str(entry.amount.number)}
    amount = str(entry.postings[0].units.number)
    return {"id": entry.meta["simplefin_id"], "day": str(entry.date), "amount": amount, "text": entry.narration}


for number, zone in enumerate(sys.argv[1:]):
    os.environ["TZ"] = zone
    time.tzset()
    with open(f"{number}.beancount", "w") as out:
        for path in sorted(Path(".").glob("*.json")):
            importer = SimpleFINImporter({json.loads(path.read_text())["id"]: f"Assets:Account{path.stem}"})
            assert importer.identify(str(path)), path
            for entry in importer.extract(str(path), []):
                print(json.dumps({"zone": zone, "account": path.stem, **described(entry)}))
                out.write(format_entry(entry) + "\n")
