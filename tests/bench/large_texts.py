"""Measures the server's memory and CPU time for texts that no person writes.

    python tests/bench/large_texts.py [--binary RIDGELINE]

Opens and closes a document with a single line of 15 MB. Then types 400 keys per second for three
seconds into a text of 20,000 lines with an unclosed bracket, and into the same text without it.
Requires `cargo build --release`, and Linux for reading process statistics.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from lsp_client import Client

ROOT = Path(__file__).resolve().parent.parent.parent
KEYS = 1200


def megabytes(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def settle(client: Client, uri: str) -> None:
    """Waits until the server has processed everything sent before, and is idle."""
    client.request("textDocument/hover", at(uri, 0))
    before = -1.0
    while (now := cpu_seconds(client.server.pid)) != before:
        before = now
        time.sleep(1.5)


def at(uri: str, line: int) -> dict[str, object]:
    return {"textDocument": {"uri": uri}, "position": {"line": line, "character": 0}}


def open_document(client: Client, uri: str, text: str) -> None:
    document = {"uri": uri, "languageId": "python", "version": 1, "text": text}
    client.notify("textDocument/didOpen", {"textDocument": document})
    settle(client, uri)


def close_document(client: Client, uri: str) -> None:
    client.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    settle(client, uri)


def one_long_line(client: Client) -> None:
    uri, process = "untitled:long", client.server.pid
    before = megabytes(process)
    open_document(client, uri, "x = [" + "1, " * 5_000_000 + "]\n")
    while_open = megabytes(process)
    close_document(client, uri)
    after = megabytes(process)
    print(
        f"one line of 15 MB: {before:.0f} MB before, {while_open:.0f} MB open, {after:.0f} MB after"
    )


def typing(client: Client, what: str, first_line: str) -> None:
    uri, process = f"untitled:{what}", client.server.pid
    function = "def f():\n" + "    a = foo(b, [c for c in d], {1: 2}, 'x')\n" * 19
    open_document(client, uri, first_line + "a = 1\n" + function * 1000)
    before = cpu_seconds(process)
    start = time.monotonic()
    for key in range(KEYS):
        place = {"line": 1, "character": 4}
        change = {"range": {"start": place, "end": place}, "text": "1"}
        identifier = {"uri": uri, "version": key + 2}
        params = {"textDocument": identifier, "contentChanges": [change]}
        client.notify("textDocument/didChange", params)
        time.sleep(max(0.0, start + (key + 1) / 400 - time.monotonic()))
    settle(client, uri)
    milliseconds = 1000 * (cpu_seconds(process) - before) / KEYS
    print(f"a key in {what} text: {milliseconds:.2f} ms of CPU time")
    close_document(client, uri)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument("--binary", type=Path, default=target / "release" / "ridgeline")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RIDGELINE_CACHE_DIR"] = os.environ["RIDGELINE_STATE_DIR"] = folder
        client = Client([str(arguments.binary), "lsp"], Path(folder))
        one_long_line(client)
        typing(client, "good", "")
        typing(client, "broken", "x = (\n")
        client.close()


if __name__ == "__main__":
    main()
