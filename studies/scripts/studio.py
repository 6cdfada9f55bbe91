"""How quickly the studio paints and answers: a real browser and the real server over the demo's runs.

python studies/scripts/studio.py          # medians and the slowest, in milliseconds, as one JSON object
"""

import json
import shutil
import statistics
import sys
import threading
import time

import uvicorn
from playwright.sync_api import sync_playwright

from bayesify.serving import Registry
from bayesify.serving.app import create_app
from bayesify.studio import attach, demo_runs

STROKE = [[[0.3, 0.2], [0.7, 0.2], [0.45, 0.8]]]
ROUNDS = 30


def main() -> None:
    registry = Registry(demo_runs())
    server = uvicorn.Server(uvicorn.Config(create_app(registry, pages=attach), port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not (server.started and registry.ready):
        time.sleep(0.05)
    address = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if program is None:
        sys.exit("no Chromium on this machine: apt-get install chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page()
        paints, answers = [], []
        for _ in range(10):
            page.goto(address)
            page.get_by_role("heading", level=1).wait_for()
            paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        for _ in range(ROUNDS):
            answers.append(page.evaluate(ASK, STROKE))
        browser.close()
    server.should_exit = True
    thread.join(10)
    print(json.dumps({"first_paint_ms": spread(paints), "answer_at_30_draws_ms": spread(answers)}))


ASK = """async (strokes) => {
    const began = performance.now();
    const reply = await fetch("studio/api/draw", {method: "POST", headers: {"content-type": "application/json"},
        body: JSON.stringify({strokes, draws: 30})});
    await reply.json();
    return performance.now() - began;
}"""


def spread(values: list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(values), 1), "slowest": round(max(values), 1)}


if __name__ == "__main__":
    main()
