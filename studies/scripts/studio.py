"""How quickly the studio paints and answers, and the pictures of docs/studio.md: a real browser and the real server.

    python studies/scripts/studio.py [RUN...]            # milliseconds, as one JSON object; --out FILE writes it
    python studies/scripts/studio.py --pictures          # docs/images/studio-*.png instead

Without runs it takes those that `bayesify serve` shows. A first paint is of a browser that has nothing in its cache. A
stroke takes from the last event of the pen until the cards show the answer to all of it.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import sys
import threading
import time
from pathlib import Path

import uvicorn
from playwright.sync_api import Page, expect, sync_playwright

from bayesify import files
from bayesify.serving import Registry
from bayesify.serving.app import create_app
from bayesify.studio import attach, demo_runs
from bayesify_studies.benchmarks import machine

# Digits as a person might draw them, in corners of the pad's unit square.
STROKES = (
    ((0.3, 0.2), (0.7, 0.2), (0.45, 0.85)),
    ((0.5, 0.15), (0.52, 0.85)),
    ((0.3, 0.3), (0.5, 0.17), (0.68, 0.32), (0.3, 0.8), (0.72, 0.8)),
    ((0.65, 0.2), (0.36, 0.2), (0.36, 0.48), (0.66, 0.6), (0.55, 0.82), (0.34, 0.78)),
)
VISITS, ROUNDS = 20, 15
WATCH = """() => {
  window.pen = 0; window.shown = 0;
  const [pad, answers] = [document.querySelector(".pad"), document.querySelector(".answers")];
  for (const kind of ["pointerdown", "pointermove", "pointerup"]) {
    pad.addEventListener(kind, () => { window.pen = performance.now(); });
  }
  const painted = () => requestAnimationFrame(() => { window.shown = performance.now(); });
  new MutationObserver(painted).observe(answers, { childList: true });
}"""
PAGES = {"decide": "[data-gallery]", "weights": ".ridge", "results": ".cards img[src]", "runs": ".runs-table"}
PICTURES = Path("docs/images")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="*", type=Path, help="run folders (default: those of `bayesify serve`)")
    parser.add_argument("--pictures", action="store_true", help=f"write {PICTURES}/studio-*.png instead")
    parser.add_argument("--out", type=Path, help="also write the times there: docs/results/studio.json")
    given = parser.parse_args()
    load = os.getloadavg()[0]
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if program is None:
        sys.exit("no Chromium on this machine: apt-get install chromium")
    with serving(given.runs or demo_runs()) as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        if given.pictures:
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            take_pictures(page, address)
            return
        paints = []
        for _ in range(VISITS):
            context = browser.new_context()
            page = context.new_page()
            page.goto(address)
            page.locator(".pad").wait_for()
            paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
            context.close()
        page = browser.new_page()
        strokes = time_strokes(page, address)
        asked = page.evaluate("document.querySelectorAll('.waits').length")
        browser.close()
    found = {"first_paint_ms": spread(paints), "stroke_ms": spread(strokes), "networks": asked}
    print(json.dumps(found))
    if given.out is not None:
        counts = {"visits": len(paints), "strokes": len(strokes), "load_before": load}
        about = {"command": "python studies/scripts/studio.py", "machine": machine.describe()}
        files.write_json(given.out, {**about, **found, **counts})


@contextlib.contextmanager
def serving(folders):
    """The address of a server over these runs."""
    registry = Registry(folders)
    server = uvicorn.Server(uvicorn.Config(create_app(registry, pages=attach), port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not (server.started and registry.ready):
        time.sleep(0.05)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


def time_strokes(page: Page, address: str) -> list[float]:
    """Milliseconds from the last event of each stroke to the cards that answer it."""
    page.goto(address)
    page.locator(".pad").wait_for()
    page.evaluate(WATCH)
    box = page.locator(".pad").bounding_box()
    times = []
    for number in range(ROUNDS * len(STROKES)):
        points = STROKES[number % len(STROKES)]
        for place, (x, y) in enumerate(points):
            page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=1 if place == 0 else 8)
            if place == 0:
                page.mouse.down()
        page.mouse.up()
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(60)
        times.append(page.evaluate("shown - pen"))
        page.get_by_role("button", name="Clear").click()
        page.wait_for_timeout(60)
    # The first answers load code and compile nothing that later ones need again.
    return times[len(STROKES) :]


def take_pictures(page: Page, address: str) -> None:
    """The pictures of docs/studio.md and the README."""
    expect.set_options(timeout=60_000)
    page.goto(f"{address}/?page=draw")
    # The second withheld digit: the plain network is sure of a wrong answer.
    for _ in range(2):
        page.get_by_role("button", name="Withheld 3").click()
        expect(page.locator("article")).to_have_count(4)
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(500)
    page.evaluate("scrollTo(0, 0)")
    shoot(page, "draw")
    for name, ready in PAGES.items():
        page.goto(f"{address}/?page={name}")
        page.locator(ready).first.wait_for(timeout=60_000)
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(4000)
        shoot(page, name)
    page.set_viewport_size({"width": 1440, "height": 1760})
    page.goto(f"{address}/?page=understand&all=1")
    expect(page.locator("#ten-status")).to_contain_text("Closest to HMC", timeout=400_000)
    page.evaluate("scrollTo(0, 0)")
    shoot(page, "understand")


def shoot(page: Page, name: str) -> None:
    """A picture of the window, in few colours, so that it stays small."""
    from io import BytesIO

    from PIL import Image

    image = Image.open(BytesIO(page.screenshot()))
    image.convert("RGB").quantize(192, dither=Image.Dither.NONE).save(PICTURES / f"studio-{name}.png", optimize=True)


def spread(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    high = ordered[min(len(ordered) - 1, -(-95 * len(ordered) // 100) - 1)]
    return {"median": round(statistics.median(ordered), 1), "p95": round(high, 1), "slowest": round(ordered[-1], 1)}


if __name__ == "__main__":
    main()
