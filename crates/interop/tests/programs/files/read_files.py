"""Reads one file with one library, and prints its rows as JSON: what a program that uses the library sees.

    read_files.py ofxtools|ofxparse|quiffen|beancount|duckdb-csv|duckdb-jsonl FILE
"""

import json
import sys
import warnings

# beautifulsoup warns ofxparse that OFX looks like HTML.
warnings.simplefilter("ignore")


def ofxtools(path):
    from ofxtools.Parser import OFXTree

    tree = OFXTree()
    tree.parse(path)
    statement = tree.convert().statements[0]
    assert statement.ledgerbal.balamt is not None
    for row in statement.transactions:
        yield row.dtposted.date(), row.trnamt, row.fitid, row.name, row.memo


def ofxparse(path):
    from ofxparse import OfxParser

    with open(path, "rb") as file:
        statement = OfxParser.parse(file).account.statement
    for row in statement.transactions:
        yield row.date.date(), row.amount, row.id, row.payee, row.memo


def quiffen(path):
    from quiffen import Qif

    for account in Qif.parse(path, day_first=False, encoding="utf-8").accounts.values():
        for rows in account.transactions.values():
            for row in rows:
                yield row.date.date(), row.amount, None, row.payee, row.memo


def beancount(path):
    from beancount import loader
    from beancount.core.data import Transaction

    entries, errors, _ = loader.load_file(path)
    assert not errors, errors[0].message
    for entry in entries:
        if isinstance(entry, Transaction):
            assert not entry.tags and not entry.links and len(entry.postings) == 2
            yield entry.date, entry.postings[0].units.number, entry.meta["id"], entry.payee, entry.narration


def duckdb(query):
    import duckdb as library

    return library.sql(query).fetchall()


COLUMNS = "id, accountId, accountName, date, description, amount, category, merchantName"


def duckdb_csv(path):
    # Amounts with all their digits are texts: no decimal type holds each of them.
    types = "{'amount': 'VARCHAR', 'merchantCategoryCode': 'VARCHAR'}"
    return duckdb(f"SELECT {COLUMNS} FROM read_csv('{path}', types={types}, nullstr='\\N', new_line='\\r\\n')")


def duckdb_jsonl(path):
    return duckdb(f"SELECT {COLUMNS} FROM read_json('{path}', format='newline_delimited')")


def main():
    reader, path = sys.argv[1:]
    rows = globals()[reader.replace("-", "_")](path)
    print(json.dumps([[None if value is None else str(value) for value in row] for row in rows]))


main()
