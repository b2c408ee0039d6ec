#!/usr/bin/env python3
"""Ask a portal for a stack, and wait for it: an example of a program that uses the API. Needs Python alone.

PORTAL_TOKEN=eyas_... client.py http://127.0.0.1:8765 objects.txt --out stack.fits
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any


class Client:
    """Calls of one portal, with a token."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url.rstrip("/"), token

    def _call(self, path: str, body: object = None) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._url}/api{path}", data, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: bytes = answer.read()
        return found

    def ask(self, text: str, size: int = 41, band: str | None = None) -> str:
        """Begin a request; gives its id. `band` is that of objects that name none."""
        return str(json.loads(self._call("/requests", {"text": text, "size": size, "band": band}))["id"])

    def wait(self, number: str) -> dict[str, Any]:
        """The request when it has ended."""
        while True:
            found: dict[str, Any] = json.loads(self._call(f"/requests/{number}?wait=30"))
            if found["state"] in ("done", "failed", "cancelled"):
                return found

    def file(self, number: str, name: str) -> bytes:
        """stack.fits, stack.png, stack.jpg or one.png."""
        return self._call(f"/requests/{number}/files/{name}")


def read(path: Path) -> str:
    """The text of a list, as spreadsheets write it, too."""
    data = path.read_bytes()
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", errors="replace")


def main() -> int:
    parser = argparse.ArgumentParser(description="Ask a portal for a stack. The token is in PORTAL_TOKEN.")
    parser.add_argument("url", help="address of the portal")
    parser.add_argument(
        "list", type=Path, help="file with a line `RA DEC BAND` for each object, CSV or VOTable"
    )
    parser.add_argument("--band", help="band of objects that name none: u, g, r, i or z")
    parser.add_argument("--size", type=int, default=41, help="side of a cutout in pixels")
    parser.add_argument("--out", type=Path, default=Path("stack.fits"))
    args = parser.parse_args()
    client = Client(args.url, os.environ.get("PORTAL_TOKEN", ""))
    try:
        number = client.ask(read(args.list), args.size, args.band)
        ended = client.wait(number)
        result = ended.get("result") or {}
        if ended["state"] != "done" or not result["files"]:
            print(
                f"error: request {number} is {ended['state']}: {ended['problem'] or 'no picture'}",
                file=sys.stderr,
            )
            return 1
        args.out.write_bytes(client.file(number, "stack.fits"))
    except urllib.error.HTTPError as error:
        print(
            f"error: {args.url} answers {error.code}: {error.read().decode(errors='replace')}",
            file=sys.stderr,
        )
        return 1
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{result['n_found']} of {result['n_objects']} objects in {result['seconds']} s: {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
