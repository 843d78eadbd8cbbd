"""A proxy that adds an API key to every request: the conformance suite sends none."""

import contextlib
import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

# The two sides frame bodies on their own.
FRAMING = ("connection", "content-length", "transfer-encoding")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def forward(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with contextlib.closing(http.client.HTTPConnection(self.server.service, timeout=60)) as service:
            # `Host` and `Origin` pass as they came: a scenario forges them.
            service.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in FRAMING:
                    service.putheader(name, value)
            service.putheader("Authorization", f"Bearer {self.server.key}")
            service.putheader("Content-Length", str(len(body)))
            service.endheaders(body)
            answer = service.getresponse()
            content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in FRAMING:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = forward

    def log_message(self, *_):
        pass


class KeyProxy(ThreadingHTTPServer):
    """Has a URL at once, which a service can be given before it starts."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_):
        """A client may leave at any time. It says itself what it lacks."""

    def serve(self, service, key):
        self.service, self.key = urlsplit(service).netloc, key
        threading.Thread(target=self.serve_forever, daemon=True).start()
