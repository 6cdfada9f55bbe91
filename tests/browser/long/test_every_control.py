"""Every control of every page is used, and every kind of run is looked at on every page: nothing fails or complains."""

import contextlib
import io

import pytest
from PIL import Image
from playwright.sync_api import expect

from bayesify.cli import main
from bayesify.methods.cards import CARDS

SMALL = "epochs=20&n=20&units=4&method=point"
PAGES = {
    "draw": "article",
    "decide": "[data-gallery]",
    f"understand&{SMALL}": "[data-state='trained']",
    "understand&topic=coin": "figure svg",
    "understand&topic=line": "figure svg",
    "weights": ".ridge",
    "results": ".cards",
    "runs": ".runs-table",
}
# What a person can use, by kind, label and place; of what comes and goes, all that is there when its turn comes.
CONTROLS = """() => [...document.querySelectorAll("main button, main select, main input:not([type=file]), main summary, main .topics a")]
  .filter((each) => each.checkVisibility() && !each.disabled && !each.closest("fieldset:disabled"))
  .map((each) => [each.tagName, each.type ?? "", each.getAttribute("aria-label") ?? each.labels?.[0]?.innerText.split("\\n")[0] ?? each.innerText, each.value && each.type === "radio" ? each.value : ""].join("|"))"""
# The first that fits, marked for Playwright.
FIND = """(wanted) => { for (const each of document.querySelectorAll("[data-next]")) each.removeAttribute("data-next");
  const all = [...document.querySelectorAll("main button, main select, main input:not([type=file]), main summary, main .topics a")].filter((each) => each.checkVisibility() && !each.disabled && !each.closest("fieldset:disabled"));
  const found = all.find((each) => [each.tagName, each.type ?? "", each.getAttribute("aria-label") ?? each.labels?.[0]?.innerText.split("\\n")[0] ?? each.innerText, each.value && each.type === "radio" ? each.value : ""].join("|") === wanted);
  found?.setAttribute("data-next", ""); return Boolean(found); }"""
# These open a file chooser. Only the picture is given: a table or a run would be one more run in all tests that follow.
CHOOSERS = ("Picture…", "Choose a table…", "Choose a run folder…")
# These train for long: they are started and stopped.
LONG = ("All 10 methods", "Train all 10")


@pytest.fixture(scope="module")
def every_kind(every_run, tmp_path_factory):
    """Runs of every method, and of every kind: tables, numbers, counts, a convolution, pruned, certified, other families."""
    folder = tmp_path_factory.mktemp("kinds")
    (folder / "iris.csv").write_text(
        "a,b,kind\n" + "".join(f"{k % 7},{(k * 5) % 11},{'xyz'[k % 3]}\n" for k in range(90))
    )
    (folder / "numbers.csv").write_text("a,b,target\n" + "".join(f"{k % 7},{k % 5},{k % 7 + 0.5}\n" for k in range(80)))
    (folder / "counts.csv").write_text("a,target\n" + "".join(f"{k % 7},{k % 4}\n" for k in range(80)))
    for name, level in (("dark", 40), ("light", 200)):
        (folder / "pictures" / name).mkdir(parents=True)
        for k in range(20):
            Image.new("RGB", (16, 16), (level + k, level, 90)).save(folder / "pictures" / name / f"{k}.png")
    digits = ["--data", "digits", "--units", "8", "--layers", "1", "--method", "variational"]
    made = {
        "table": ["--data", str(folder / "iris.csv"), "--method", "variational"],
        "numbers": ["--data", str(folder / "numbers.csv"), "--method", "ensemble", "--members", "2"],
        "counts": ["--data", str(folder / "counts.csv"), "--likelihood", "poisson", "--method", "variational"],
        "noise": ["--data", "gap", "--likelihood", "gaussian:heteroscedastic", "--method", "mc-dropout"],
        "cnn": ["--data", str(folder / "pictures"), "--network", "cnn", "--method", "variational"],
        "full": ["--data", "moons", "--units", "4", "--method", "variational", "--family", "full_rank"],
        "low": [*digits, "--family", "low_rank"],
        "hyper": [*digits, "--prior", "normal:half-cauchy(1)"],
        "last": [*digits, "--bayesian", "last_layer"],
        "map": ["--data", "digits", "--units", "8", "--method", "point", "--prior", "normal:1"],
    }
    runs = [*(every_run / name for name in (*CARDS, "gap"))]
    for name, words in made.items():
        say(["train", *words, "--epochs", "4", "--out", str(folder / name), "--json"])
        runs.append(folder / name)
    say(["prune", str(folder / "last"), "--fraction", "0.5", "--out", str(folder / "pruned"), "--json"], may_fail=True)
    say(["prune", str(every_run / "variational"), "--fraction", "0.5", "--out", str(folder / "small"), "--json"])
    say(["unknown", str(folder / "map")])
    return [run for run in [*runs, folder / "small", folder / "pruned"] if run.is_dir()]


def say(words, *, may_fail=False):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        assert main(words) == 0 or may_fail, said.getvalue()


@pytest.fixture(scope="module")
def studio(program, every_kind, tmp_path_factory):
    from studio_server import serving

    results = tmp_path_factory.mktemp("results")
    (results / "one.json").write_text(
        '{"title": "One", "question": "Is it one?", "answer": "It is 1.", "command": "true", "rows": [{"a": 1}]}'
    )
    Image.new("L", (40, 30), 90).save(results / "one.png")
    with serving(every_kind, results) as address:
        yield address


def use(page, key, picture):
    """Use a control in every way that it has."""
    control = page.locator("[data-next]")
    tag, kind, name, _ = key.split("|")
    if name in CHOOSERS:
        with page.expect_file_chooser() as opened:
            control.click()
        if name == CHOOSERS[0]:
            opened.value.set_files(picture)
            page.wait_for_timeout(300)
    elif name in LONG:
        control.click()
        ten = page.get_by_role("region", name="Ten methods, one data set")
        expect(ten.locator("#ten-status")).to_contain_text("Training 1 of 10")
        ten.get_by_role("button", name="Stop").click()
        expect(ten.locator("#ten-status")).to_have_text("Stopped.")
    elif name == "Find the threshold":
        page.get_by_role("region", name="Choose an error").get_by_role("combobox").select_option("0.1")
        control.click()
        expect(page.get_by_text("With 95% confidence, at most 10.0%")).to_be_visible()
    elif tag == "SELECT":
        for value in control.evaluate(
            "each => [...each.options].filter((one) => !one.disabled).map((one) => one.value)"
        ):
            page.evaluate(FIND, key)
            if control.count():
                control.select_option(value)
                page.wait_for_timeout(60)
    elif kind == "range":
        for end in ("min", "max"):
            control.fill(control.get_attribute(end))
            page.wait_for_timeout(60)
    elif kind in {"number", "text"}:
        control.fill("3")
        control.blur()
    elif kind in {"radio", "checkbox"}:
        control.check()
    else:
        control.click()
        page.wait_for_timeout(80)
        if page.locator("dialog[open]").count():
            page.keyboard.press("Escape")


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("query", PAGES)
def test_every_control_can_be_used(visit, query, width, tmp_path):
    Image.new("L", (60, 60), 40).save(tmp_path / "picture.png")
    visited = visit(width=width, height=900, has_touch=width < 1000)
    page = visited.open(f"?page={query}")
    if query == "draw":
        page.get_by_role("button", name="Digit 7", exact=True).click()
    page.locator(PAGES[query]).first.wait_for(state="attached")
    used = []
    for _ in range(3):
        fresh = [key for key in page.evaluate(CONTROLS) if key not in used]
        if not fresh:
            break
        for key in fresh:
            used.append(key)
            if not page.evaluate(FIND, key):
                continue
            use(page, key, tmp_path / "picture.png")
            alerts = page.get_by_role("alert")
            assert alerts.count() == 0, f"{key}: {alerts.first.inner_text()}"
            if f"page={query.split('&')[0]}" not in page.url:
                page.go_back()
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert len(used) >= 3, used


def test_every_kind_of_run_is_shown_on_every_page(visit, every_kind):
    visited = visit(width=1440)
    page = visited.open("?page=draw")
    page.get_by_role("button", name="Digit 7", exact=True).click()
    page.locator("article").first.wait_for()
    kinds = page.request.get(f"{visited.address}/studio/api/models").json()["models"]
    assert len(kinds) == len(every_kind)
    expect(page.locator("article")).to_have_count(sum(kind["drawable"] for kind in kinds))
    for kind in kinds:
        name = kind["name"]
        page = visited.open(f"?page=weights&model={name}")
        expect(page.get_by_role("combobox", name="Run").locator("option")).to_have_count(len(kinds))
        expect(page.get_by_role("img").first).to_be_visible()
        assert page.locator(".graph, [data-why]").count(), name
        expect(page.get_by_role("alert")).to_have_count(0)
        if kind["kind"] == "classification":
            page = visited.open(f"?page=decide&model={name}")
            expect(page.locator("[data-gallery]").first).to_be_visible()
            expect(page.get_by_role("alert")).to_have_count(0)
        page = visited.open(f"?page=runs&own={name}")
        expect(page.get_by_role("region", name="Least sure", exact=True)).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)


@pytest.mark.parametrize("method", CARDS)
def test_every_method_trains_on_understand(visit, method):
    page = visit(width=1440).open(f"?page=understand&epochs=20&n=20&units=4&method={method}")
    page.locator("[data-state='trained']").wait_for(timeout=300_000)
    page.get_by_role("button", name="Six posterior draws").click()
    expect(page.get_by_role("region", name="Posterior draws")).to_be_visible()
    page.get_by_role("button", name="Hidden units").click()
    expect(page.get_by_role("region", name="Hidden units")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
