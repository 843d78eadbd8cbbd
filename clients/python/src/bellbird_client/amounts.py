import re
from decimal import Decimal

_AMOUNT = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def decimal(amount: str) -> Decimal:
    """An amount, quantity or price as an exact number.

    Arithmetic with it rounds to the precision of the decimal context, which has 28 digits unless you set more.
    """
    if not _AMOUNT.fullmatch(amount):
        raise ValueError("not a decimal of the API")
    return Decimal(amount)
