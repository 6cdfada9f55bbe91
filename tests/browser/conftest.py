"""A real browser on the real server; everything that it asked for and complained about is kept and judged at the end."""

import contextlib
import io
import shutil
from urllib.parse import urlsplit

import pytest

WAIT = 120_000  # milliseconds: what is there sooner is not waited for, and the processors may have other tests to run

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def program():
    pytest.importorskip("playwright", reason="playwright is not installed: pip install 'bayesify[dev]'")
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    return found


@pytest.fixture(scope="session")
def reproduced_results(tmp_path_factory):
    return tmp_path_factory.mktemp("reproduced")


@pytest.fixture(scope="session")
def studio(program, tmp_path_factory, reproduced_results):
    from studio_server import make_runs, serving

    runs = make_runs(tmp_path_factory.mktemp("runs"))
    with serving(runs.values(), reproduced_results) as address:
        yield address


@pytest.fixture(scope="session")
def every_run(tmp_path_factory):
    """A small run of every method on digits, and one that predicts numbers."""
    from bayesify.cli import main
    from bayesify.methods.cards import CARDS

    folder = tmp_path_factory.mktemp("every")
    shared = ["train", "--data", "digits", "--withhold", "3", "--units", "8", "--layers", "1", "--json"]
    steps = ["--epochs", "6", "--batch-size", "512"]
    own = {
        "hmc": ["--samples", "20", "--warm-up", "20", "--max-leapfrogs", "4"],
        "ensemble": [*steps, "--members", "2"],
        # Good enough that an error of 10% can be guaranteed.
        "variational": ["--epochs", "60", "--learning-rate", "0.03"],
    }
    for name in CARDS:
        words = [*shared, *own.get(name, steps), "--method", name, "--out", str(folder / name)]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            assert main(words) == 0, said.getvalue()
    numbers = ["train", "--data", "gap", "--units", "8", *steps, "--method", "variational", "--json"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        assert main([*numbers, "--out", str(folder / "gap")]) == 0
    return folder


@pytest.fixture(scope="module")
def browser(program):
    # Its event loop must not outlive the module: other tests run loops of their own in this process.
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=WAIT)
    with sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield launched
        launched.close()


class Visit:
    """One tab, and what it said."""

    def __init__(self, page, address):
        self.page, self.address = page, address
        self.complaints, self.asked = [], []
        page.set_default_timeout(WAIT)
        page.on(
            "console",
            lambda message: self.complaints.append(message.text) if message.type in {"error", "warning"} else None,
        )
        page.on("pageerror", lambda problem: self.complaints.append(str(problem)))
        page.on("request", lambda request: self.asked.append(request.url))

    def open(self, query=""):
        self.page.goto(f"{self.address}/{query}")
        self.page.get_by_role("heading", level=1).wait_for()
        return self.page

    def check(self):
        assert self.complaints == []
        hosts = {urlsplit(url).netloc for url in self.asked if not url.startswith(("blob:", "data:"))}
        assert hosts <= {urlsplit(self.address).netloc}, hosts


@pytest.fixture
def visit(browser, studio):
    made = []

    def start(*, scheme="light", width=1280, height=900, **options):
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **options)
        made.append((context, Visit(context.new_page(), studio)))
        return made[-1][1]

    yield start
    for context, visited in made:
        visited.check()
        context.close()
