# Receives Bellbird's webhooks: verifies each event, skips repeated ones, and prints one line of
# JSON for each.
#
#   pip install standardwebhooks
#   BELLBIRD_WEBHOOK_SECRET=whsec_... python3 receiver.py 9000

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

from standardwebhooks import Webhook, WebhookVerificationError

BODY_BYTES_MAX = 4 * 1024 * 1024
IDS_MAX = 10_000

webhook = Webhook(os.environ["BELLBIRD_WEBHOOK_SECRET"])
lock = Lock()
# Ids of handled events, the oldest first. In production use a database table, so that a restart
# keeps them.
handled = {}


def handle(event):
    """Your own handling. If it takes long, put the event into your own queue here and process it
    later.

    If two events contain the same row, keep the row of the event with the later `created`. If those
    are equal, the later `webhook-timestamp` wins.
    """
    counts = ("new_count", "updated_count", "chunk", "total_chunks")
    line = {"id": event["id"], "type": event["type"]}
    line |= {name: event["metadata"][name] for name in counts}
    print(json.dumps(line), flush=True)


class Receiver(BaseHTTPRequestHandler):
    timeout = 15

    def do_POST(self):
        self.send_response(self.receive())
        self.end_headers()

    def receive(self):
        length = self.headers.get("content-length", "")
        if not length.isdecimal():
            return 411
        if len(length) > 7 or int(length) > BODY_BYTES_MAX:
            return 413
        body = self.rfile.read(int(length))  # the raw body: the signature covers its exact bytes
        try:
            event = webhook.verify(body, dict(self.headers))
        except (WebhookVerificationError, ValueError):  # ValueError: header or body is not readable
            return 400
        with lock:
            if event["id"] not in handled:
                handle(event)
                handled[event["id"]] = True
                if len(handled) > IDS_MAX:
                    del handled[next(iter(handled))]
        return 204


port = int(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("PORT", "9000"))
server = ThreadingHTTPServer(("127.0.0.1", port), Receiver)
print(f"listening on http://127.0.0.1:{port}/", file=sys.stderr, flush=True)
server.serve_forever()
