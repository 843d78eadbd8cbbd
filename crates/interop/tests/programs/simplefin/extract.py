"""Imports account.json of the working directory with beangulp-simplefin, into extracted.beancount."""

import json
from beancount.core.data import Balance
from beancount.parser.printer import format_entry
from beangulp_simplefin import SimpleFINImporter

id = json.load(open("account.json"))["id"]
importer = SimpleFINImporter({id: "Assets:Account"})
assert importer.identify("account.json")
entries = importer.extract("account.json", [])
for entry in entries:
    if isinstance(entry, Balance):
        print(json.dumps({"day": str(entry.date), "balance": str(entry.amount.number)}))
    else:
        units = entry.postings[0].units
        print(json.dumps({"id": entry.meta["simplefin_id"], "day": str(entry.date), "amount": str(units.number),
                          "narration": entry.narration}))
with open("extracted.beancount", "w") as out:
    out.writelines(format_entry(entry) + "\n" for entry in entries)
