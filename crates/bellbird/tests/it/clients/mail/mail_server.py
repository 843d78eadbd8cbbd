"""Receives e-mails with aiosmtpd on a free port of this machine, and prints each as a line of JSON.

A recipient `rejected@...` is rejected for good, and `busy@...` until the file named by the first argument exists.
"""

import asyncio
import email
import email.policy
import json
import pathlib
import sys

from aiosmtpd.smtp import SMTP


class Handler:
    def __init__(self, ready):
        self.ready = ready

    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("rejected@"):
            return "550 no such mailbox"
        if address.startswith("busy@") and not self.ready.exists():
            return "451 try again"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        message = email.message_from_bytes(envelope.content, policy=email.policy.default)
        line = {
            "from": message["from"],
            "to": envelope.rcpt_tos,
            "subject": message["subject"],
            "automatic": message["auto-submitted"],
            "text": message.get_content(),
            "client": session.host_name,
        }
        print(json.dumps(line), flush=True)
        return "250 OK"


async def main():
    handler = Handler(pathlib.Path(sys.argv[1]))
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(handler, enable_SMTPUTF8=True), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
