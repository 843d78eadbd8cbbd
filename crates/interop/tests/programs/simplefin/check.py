"""Runs SimpleFIN clients against the service: check.py <place>."""

import signal
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import clients
from actual import Actual
from bellbird import Bellbird, Mismatch


def main():
    place = Path(sys.argv[1])
    # So that everything ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    bellbird = Bellbird()
    actuals = []
    failed = False
    with tempfile.TemporaryDirectory(prefix="bellbird-simplefin-") as folder:

        def step(name, work, *arguments):
            nonlocal failed
            begin = time.monotonic()
            try:
                print(f"{name}: {work(*arguments)} ({time.monotonic() - begin:.0f} s)", flush=True)
            except Exception as error:
                failed = True
                text = str(error) if isinstance(error, Mismatch) else traceback.format_exc()
                print(f"FAILED {name}: {text}", flush=True)

        def new_folder(name):
            path = Path(folder, name)
            path.mkdir(parents=True)
            return path

        try:
            actuals = [Actual(bellbird, place, new_folder(zone), zone) for zone in clients.ZONES]
            with ThreadPoolExecutor() as pool:
                for client in clients.CLIENTS:
                    pool.submit(step, client.__name__, client, bellbird, new_folder(client.__name__))
                for actual in actuals:
                    pool.submit(step, f"Actual in {actual.zone}", actual.check)
            if not failed:
                connection = bellbird.expire_consent()
                step(f"Actual in {actuals[0].zone}", actuals[0].check_attention, connection)
                step("simplefin4py", clients.simplefin4py_attention, bellbird, connection)
        finally:
            for actual in actuals:
                actual.stop()
            bellbird.stop()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
