"""A picture of the portal's page of results, for the README: signs up, asks for 20 objects, and looks at the page.

.venv/bin/python scripts/screenshot_portal.py http://127.0.0.1:PORT docs/img/portal.png
"""

from __future__ import annotations

import argparse
import io
import secrets
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

COLOURS = 64


def main() -> int:
    parser = argparse.ArgumentParser(description="Take a picture of the portal's page of results.")
    parser.add_argument("url")
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        print("error: there is no chromium; `apt-get install chromium` brings it", file=sys.stderr)
        return 2
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1000, "height": 1200})
        page.goto(f"{args.url}/sign-up")
        page.get_by_label("Name").fill("ada-" + secrets.token_hex(2))
        page.get_by_label("Password").fill(secrets.token_urlsafe(12))
        page.get_by_role("button", name="Sign up").click()
        page.get_by_role("link", name="Fill in 20 objects").click()
        # One more, which the survey does not have.
        listed = page.get_by_label("Objects")
        listed.fill(listed.input_value() + "\n10.0 10.0 r\n")
        page.get_by_role("button", name="Stack them").click()
        page.locator("#picture").wait_for(timeout=120_000)
        picture = Image.open(io.BytesIO(page.screenshot()))
        browser.close()
    picture.convert("RGB").quantize(COLOURS).save(args.out, optimize=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
