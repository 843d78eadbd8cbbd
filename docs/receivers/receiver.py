# Receives Bellbird's webhooks: verifies each, skips what came before, prints a line of JSON for each event.
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
taking = Lock()
# Ids of events that were taken, the oldest first. In a real receiver: a table, so that a restart does not lose them.
taken = {}


def take(event):
    """What you do with an event. If it takes long, put the event into a queue of your own here, and work later.

    Of two events that tell of one row, keep what the one with the later `created` says; where that is
    equal, the one with the later `webhook-timestamp`.
    """
    counts = ("new_count", "updated_count", "chunk", "total_chunks")
    line = {"id": event["id"], "type": event["type"]} | {name: event["metadata"][name] for name in counts}
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
        body = self.rfile.read(int(length))  # as it came: what is signed are the bytes
        try:
            event = webhook.verify(body, dict(self.headers))
        except (WebhookVerificationError, ValueError):  # ValueError: a header or a body that cannot be read
            return 400
        with taking:
            if event["id"] not in taken:
                take(event)
                taken[event["id"]] = True
                if len(taken) > IDS_MAX:
                    del taken[next(iter(taken))]
        return 204


port = int(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("PORT", "9000"))
server = ThreadingHTTPServer(("127.0.0.1", port), Receiver)
print(f"listening on http://127.0.0.1:{port}/", file=sys.stderr, flush=True)
server.serve_forever()
