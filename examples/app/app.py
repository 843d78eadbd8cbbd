"""An app whose users link their accounts and see them. README.md beside it says how to run it."""

import os
import secrets
import sys
from dataclasses import dataclass, field
from html import escape
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

from bellbird_client import BellbirdError, Client
from bellbird_client.operator import OperatorClient
from bellbird_client.operator_types import User

# An app has a copy of it, or its own table.
sys.path.append(str(Path(__file__).parents[2] / "clients/python/examples"))
from memory_store import MemoryStore  # noqa: E402

APP_URL = os.environ.get("APP_URL", "http://localhost:8090")
API_URL = os.environ.get("BELLBIRD_URL", "http://127.0.0.1:8080")
ADMIN_URL = os.environ.get("BELLBIRD_ADMIN_URL", "http://127.0.0.1:8082")
COOKIE = "example_app"
FORM_BYTES_MAX = 4096
ACCOUNTS_MAX = 100  # of one request for balances
ROWS_SHOWN = 20

operator = OperatorClient(ADMIN_URL, os.environ["BELLBIRD_OPERATOR_KEY"], wait_up_to=5)


@dataclass
class Person:
    """Whoever has the cookie."""

    cookie: str = ""
    reference: str = field(default_factory=lambda: str(uuid4()))
    user: User | None = None
    client: Client | None = None
    link: dict[str, str] | None = None  # what the return URL has to have
    has_returned: bool = False
    stores: dict[str, MemoryStore] = field(default_factory=dict)  # by connection
    lock: Any = field(default_factory=Lock)  # a store takes one call at a time


people: dict[str, Person] = {}


class Html(str):
    """Text that is escaped already."""


def html(template: str, **values: object) -> Html:
    return Html(
        template.format_map(
            {name: value if isinstance(value, Html) else escape(str(value)) for name, value in values.items()}
        )
    )


def join(parts: list[Html]) -> Html:
    return Html("".join(parts))


PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<link rel="stylesheet" href="/style.css">
<main><h1>{title}</h1>{body}</main>
</html>"""

SIGN_UP = """<form method="post" action="/sign-up">
<label for="email">E-mail</label>
<input id="email" name="email" type="email" autocomplete="email" required maxlength="200">
<button>Sign up</button>
</form>"""

HOME = """<p>Signed up as {email}.</p>{note}
<form method="post" action="/link"><button>Connect a bank or broker</button></form>
{errors}{balances}{transactions}"""

TABLE = """<h2 id="{id}">{heading}</h2>
<div class="scroll" tabindex="0" role="region" aria-labelledby="{id}"><table>
<thead><tr><th scope="col">{first}</th><th scope="col">{second}</th><th scope="col">{third}</th></tr></thead>
<tbody>{rows}</tbody></table></div>"""

ROW = '<tr><td>{first}</td><td>{second}</td><td class="amount">{amount} {currency}</td></tr>'


def sign_up(person: Person, email: str) -> None:
    # The same in each attempt of this person, so a form that is sent again makes no second user and no second key.
    key = person.reference
    # An app that has verified the address adds "consoleSignIn": True.
    user = operator.create_user({"email": email, "reference": key}, idempotency_key=f"user-{key}")
    created = operator.create_key(user["id"], {"name": "example app"}, idempotency_key=f"key-{key}")
    person.user, person.client = user, Client(API_URL, created["key"], wait_up_to=5)


def begin_link(person: Person, user: User) -> str:
    """The URL to which the browser goes. It is a secret, because whoever has it links for this person."""
    state = secrets.token_urlsafe(16)
    session = operator.create_link_session({"userId": user["id"], "returnUrl": f"{APP_URL}/linked", "state": state})
    person.link, person.has_returned = {"session": session["id"], "state": state}, False
    return session["url"]


def link_note(person: Person) -> Html:
    """What came of the link session. The return says only that the browser is back."""
    if person.link is None or not person.has_returned:
        return Html()
    session = operator.link_session(person.link["session"])
    if session["status"] in ("open", "waiting"):
        note = "Your bank has not confirmed yet. Reload this page in a moment."
    else:
        person.link = None
        note = session["reason"]["message"] if session["reason"] else "Your accounts are connected."
    return html('<p class="note" role="status">{note}</p>', note=note)


def show_home(person: Person, user: User, client: Client) -> Html:
    note = link_note(person)
    errors: list[Html] = []
    rows: list[Any] = []
    for connection in client.connections():
        if connection["category"] != "banking":
            continue
        store = person.stores.setdefault(connection["id"], MemoryStore())
        try:
            client.follow_transactions(store, connection["id"])
        except BellbirdError as error:  # the other connections are shown
            text = f"{connection['institutionName']}: {error.message}"
            errors.append(html('<p class="note">{text}</p>', text=text))
        rows += store.rows.values()
    rows.sort(key=lambda row: str(row["date"]), reverse=True)
    accounts = list(client.accounts())[:ACCOUNTS_MAX]
    balances = {}
    if accounts:
        balances = {row["accountId"]: row for row in client.balances(account["id"] for account in accounts)}
    return html(
        HOME,
        email=user["email"],
        note=note,
        errors=join(errors),
        balances=table(
            "Balances",
            ("Account", "Institution", "Balance"),
            [
                (account["name"], account["institutionName"] or "", balance["currentBalance"], balance["currency"])
                for account in accounts
                if (balance := balances.get(account["id"]))
            ],
        ),
        transactions=table(
            "Latest transactions",
            ("Day", "Description", "Amount"),
            [(row["date"], row["description"], row["amount"], row["currency"]) for row in rows[:ROWS_SHOWN]],
        ),
    )


def table(heading: str, columns: tuple[str, str, str], rows: list[tuple[Any, ...]]) -> Html:
    """Amounts stay the strings that they are, so no digit is lost."""
    if not rows:
        return Html()
    names = dict(zip(("first", "second", "third"), columns, strict=True))
    cells = [
        html(ROW, first=first, second=second, amount="unknown" if amount is None else amount, currency=currency or "")
        for first, second, amount, currency in rows
    ]
    return html(TABLE, id=heading.split()[-1].lower(), heading=heading, rows=join(cells), **names)


class Handler(BaseHTTPRequestHandler):
    def person(self) -> Person | None:
        cookie = SimpleCookie(self.headers.get("Cookie", "")).get(COOKIE)
        return people.get(cookie.value) if cookie else None

    def do_GET(self) -> None:
        self.handle_errors(self.get)

    def do_POST(self) -> None:
        self.handle_errors(self.post)

    def handle_errors(self, respond: Any) -> None:
        try:
            respond()
        except BellbirdError as error:
            text = "; ".join([error.message, *error.details])
            status = 400 if error.status in (400, 409) else 502
            self.page(status, "That did not work", html('<p>{text}</p><p><a href="/">Go back</a></p>', text=text))

    def get(self) -> None:
        url, person = urlsplit(self.path), self.person()
        if url.path == "/style.css":
            self.send(200, (Path(__file__).parent / "style.css").read_bytes(), {"Content-Type": "text/css"})
        elif url.path == "/linked":
            returned = {name: values[0] for name, values in parse_qs(url.query).items()}
            # Anyone can lead a person's browser here, so the session and the state have to be this person's own.
            if person is None or person.link is None or returned != person.link:
                self.page(400, "This is not your link", Html('<p><a href="/">Go to your accounts</a></p>'))
            else:
                person.has_returned = True
                self.redirect("/")
        elif url.path != "/":
            self.page(404, "Not found", Html('<p><a href="/">Go to your accounts</a></p>'))
        elif person and person.user and person.client:
            with person.lock:
                body = show_home(person, person.user, person.client)
            self.page(200, "Your accounts", body)
        else:
            cookie = {} if person else self.new_cookie(Person())
            self.page(200, "Sign up", Html(SIGN_UP), cookie)

    def post(self) -> None:
        person, size = self.person(), int(self.headers.get("Content-Length", 0))
        # A form of another site has another origin.
        if self.headers.get("Origin") != APP_URL or person is None or not 0 <= size <= FORM_BYTES_MAX:
            self.page(403, "That did not work", Html('<p><a href="/">Begin again</a></p>'))
            return
        form = parse_qs(self.rfile.read(size).decode(errors="replace"))
        if self.path == "/sign-up" and person.user is None:
            sign_up(person, form.get("email", [""])[0])
            # Another cookie than before the sign-up, which somebody else may have set.
            self.redirect("/", self.new_cookie(person))
        elif self.path == "/link" and person.user is not None:
            self.redirect(begin_link(person, person.user), {"Referrer-Policy": "no-referrer"})
        else:
            self.redirect("/")

    def new_cookie(self, person: Person) -> dict[str, str]:
        people.pop(person.cookie, None)
        person.cookie = secrets.token_urlsafe(32)
        people[person.cookie] = person
        secure = "; Secure" if APP_URL.startswith("https:") else ""
        return {"Set-Cookie": f"{COOKIE}={person.cookie}; Path=/; HttpOnly; SameSite=Lax{secure}"}

    def page(self, status: int, title: str, body: Html, headers: dict[str, str] | None = None) -> None:
        html_type = {"Content-Type": "text/html; charset=utf-8"}
        self.send(status, html(PAGE, title=title, body=body).encode(), html_type | (headers or {}))

    def redirect(self, url: str, headers: dict[str, str] | None = None) -> None:
        self.send(303, b"", {"Location": url} | (headers or {}))

    def send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        # Without `form-action`, which would forbid that /link redirects to Bellbird.
        policy = "default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'"
        common = {
            "Cache-Control": "no-store",
            "Content-Length": str(len(body)),
            "Content-Security-Policy": policy,
            "Referrer-Policy": "same-origin",
            "X-Content-Type-Options": "nosniff",
        }
        self.send_response(status)
        for name, value in (common | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """No log: the return URL names link sessions."""


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", urlsplit(APP_URL).port or 8090), Handler) as server:
        print(f"listening on {APP_URL}", flush=True)
        server.serve_forever()
