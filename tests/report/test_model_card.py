"""The model card: a header that is read as YAML, every field filled, and the numbers of the run."""

import json
import math
import re
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import bayesify as bf
from bayesify.evaluation import SCORES, score
from bayesify.methods.cards import CARDS
from bayesify.report import MethodResult, model_card, write_model_card
from bayesify.report.model_card import as_yaml

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: a card's header cannot be read back")
EVIL = "<script>alert(1)</script> | `x` \n# heading [a](b) *b*"


def split(card):
    _, header, body = re.split(r"^---$", card, maxsplit=2, flags=re.MULTILINE)
    return yaml.safe_load(header), body


def leaves(value):
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in leaves(part)] or [None]
    if isinstance(value, list):
        return [leaf for part in value for leaf in leaves(part)] or [None]
    return [value]


def fitted(x, y, method=None, notes=None, **training):
    method = method or bf.PointEstimate(bf.networks.mlp(2, 3, units=8, layers=1), "categorical")
    method.notes = notes or {}
    if training:
        method.fit((x, y), progress=False, **training)
    predictive = method.predict(x, draws=5)
    return MethodResult(method.name, "M", method, score(predictive, y), predictive, y, history=method.history)


def test_a_sampler_has_done_iterations_and_no_epochs(blobs):
    x, y = blobs
    chains = bf.HMC(bf.networks.mlp(2, 3, units=3, layers=1), "categorical", chains=2)
    body = split(model_card(fitted(x, y, chains, warm_up=20, samples=13), name="m"))[1]
    assert re.search(r"iterations done \| 33\b", body)
    assert "epochs done" not in body


@pytest.mark.parametrize("run", ["one", "several/point", "several/variational"])
def test_every_field_is_filled_and_every_number_is_the_run_s(runs, run):
    header, body = split((runs / run / "README.md").read_text("utf-8"))
    metrics = json.loads((runs / run / "metrics.json").read_text("utf-8"))
    config = json.loads((runs / run / "config.json").read_text("utf-8"))
    assert all(leaf is not None and str(leaf).strip() for leaf in leaves(header))
    assert set(header) >= {"license", "library_name", "pipeline_tag", "tags", "datasets", "metrics", "model-index"}
    assert header["license"] == ("mit" if run == "one" else "other")
    assert header["datasets"] == [config["data"]["name"]]
    (index,) = header["model-index"]
    (result,) = index["results"]
    shown = {part["type"]: part["value"] for part in result["metrics"]}
    assert shown == {
        name: metrics[name] for name, score in SCORES.items() if score.on_card and metrics[name] is not None
    }
    assert list(shown) == header["metrics"]
    for name, value in shown.items():
        assert f"| {SCORES[name].title} | {value:.4f} |" in body
    assert not re.search(r"\bNone\b|(?<!on )\bnan\b|TODO|\{|\}|^\|[^|]*\|\s*\|$|: $", body, re.MULTILINE)
    assert str(config["data"]["fingerprint"]) in body
    assert f"| epochs | {config['plan']['epochs']} |" in body
    assert f"| prior | {config['prior'] or 'none (maximum likelihood)'} |" in body
    assert f"{config['data']['examples']['train']:,} train" in body
    for version in config["versions"].values():
        assert version in body


def test_every_section_has_something_under_it(runs):
    _, body = split((runs / "one" / "README.md").read_text("utf-8"))
    sections = re.split(r"^## ", body, flags=re.MULTILINE)[1:]
    assert [part.splitlines()[0] for part in sections] == [
        "Before you trust it",
        "How to use it",
        "What it is",
        "Training data",
        "Training",
        "Evaluation",
        "Limits",
        "Made with",
    ]
    assert all(len(part.split("\n", 1)[1].strip()) > 20 for part in sections)


def test_no_place_on_this_machine_is_named(runs):
    for path in runs.rglob("README.md"):
        assert str(runs) not in path.read_text("utf-8")


def test_the_code_on_the_card_runs(runs, monkeypatch):
    _, body = split((runs / "one" / "README.md").read_text("utf-8"))
    code = re.search(r"```python\n(.*?)```", body, re.DOTALL)[1]
    monkeypatch.chdir(runs)
    raw = 16 * torch.rand(2, 64)
    names = {"raw": raw}
    exec(code, names)
    assert len(names["p"]) == 2
    # It answers as the run was trained, on pixels that were scaled.
    assert float((names["inputs"] - raw).abs().max()) > 1


def test_alerts_are_on_the_card(blobs):
    card = model_card(fitted(*blobs, epochs=1), name="run", alerts=["not converged: it still fell"])
    assert "- not converged: it still fell" in card
    assert "No alert was raised" in model_card(fitted(*blobs, epochs=1), name="run")


def test_the_card_says_what_was_checked_and_shows_a_low_elbo(blobs):
    one = model_card(fitted(*blobs, epochs=1), name="run")
    assert "converged" not in one
    assert "no longer fell" not in one  # one epoch says nothing about that
    assert "No alert was raised: its predictions are better than a constant one on" in one
    long = fitted(*blobs, epochs=5, schedule="cosine")
    assert "no longer fell clearly in the last epochs, where the learning rate is close to 0;" in model_card(
        long, name="r"
    )
    note = "the ELBO of -11,104 nats is below the -485 nats of a constant prediction"
    low = fitted(*blobs, epochs=1)
    low.method.checked = replace(low.method.checked, notes={"elbo_below_constant": note})
    _, body = split(model_card(low, name="run"))
    trusted = body.partition("## Before you trust it")[2].partition("##")[0]
    assert trusted.index("No alert was raised") < trusted.index("\n- The ELBO of -11,104 nats")
    assert body.count("-11,104") == 1


def test_words_from_outside_stay_words(blobs):
    notes = {"name": EVIL, "class_names": [EVIL, "b", "c"], "examples": {"train": 5}}
    card = model_card(fitted(*blobs, notes=notes, epochs=1), name=EVIL, licence=EVIL)
    header, body = split(card)
    assert header["datasets"] == [EVIL]
    assert header["license"] == EVIL
    assert header["model-index"][0]["name"] == EVIL
    outside = re.sub(r"```.*?```", "", body, flags=re.DOTALL)
    assert "<script" not in outside
    assert not re.search(r"(?<!\\)[`*<](?!Training data)", re.sub(r"\*Training data\*|`accept`", "", outside))
    headings = re.findall(r"^#+ (.*)", outside, re.MULTILINE)
    assert len(headings) == 9
    compile(re.search(r"```python\n(.*?)```", body, re.DOTALL)[1], "card", "exec")


def test_a_method_that_was_never_fitted_has_a_card_that_says_so(blobs):
    card = model_card(fitted(*blobs), name="run")
    assert "not recorded: never fitted" in card
    header, _ = split(card)
    assert "datasets" not in header  # what is not known is left out, never empty
    assert all(leaf is not None and str(leaf).strip() for leaf in leaves(header))


def test_a_network_of_the_user_s_own_is_named_as_such(blobs):
    x, y = blobs
    own = bf.PointEstimate(torch.nn.Sequential(torch.nn.Linear(2, 3)), "categorical")
    card = model_card(fitted(x, y, own, epochs=1), name="run")
    assert "from the user's own code" in card
    assert "network=your_network" in card


def test_a_regression_has_its_own_scores():
    x = torch.linspace(-1, 1, 40)[:, None]
    method = bf.Variational(bf.networks.mlp(1, 1, units=8, layers=1), bf.likelihoods.Gaussian(noise=0.2))
    header, body = split(model_card(fitted(x, x[:, 0], method, epochs=2), name="line"))
    assert header["pipeline_tag"] == "tabular-regression"
    assert {"rmse", "nll", "crps", "coverage_95"} <= set(header["metrics"])
    assert "accuracy" not in header["metrics"]
    assert "None" not in body


def test_a_readme_that_somebody_wrote_is_left_alone(blobs, tmp_path, caplog):
    result = fitted(*blobs, epochs=1)
    (tmp_path / "README.md").write_text("# Mine\n")
    assert write_model_card(result, tmp_path) is None
    assert (tmp_path / "README.md").read_text() == "# Mine\n"
    assert "left as it is" in caplog.text
    (tmp_path / "README.md").unlink()
    path = write_model_card(result, tmp_path)
    assert write_model_card(result, tmp_path, licence="mit") == path
    assert split(path.read_text("utf-8"))[0]["license"] == "mit"


def test_a_new_run_in_the_folder_takes_the_old_card_away(blobs, tmp_path):
    x, y = blobs
    result = fitted(x, y, epochs=1)
    result.method.save(tmp_path / "run")
    write_model_card(result, tmp_path / "run")
    other = bf.PointEstimate(bf.networks.mlp(2, 3, units=4, layers=1), "categorical")
    other.fit((x, y), epochs=1, progress=False, run=tmp_path / "run", overwrite=True)
    assert not (tmp_path / "run" / "README.md").exists()


@pytest.mark.parametrize("name", CARDS)
def test_the_card_says_what_the_method_is(blobs, name):
    x, y = blobs
    network = bf.networks.mlp(2, 3, units=4, dropout=0.1 if name == "mc-dropout" else 0.0)
    method = getattr(bf, CARDS[name].class_name)(network, "categorical")
    result = fitted(x, y, bf.PointEstimate(bf.networks.mlp(2, 3, units=4), "categorical"))
    assert CARDS[name].sentence in model_card(replace(result, method=method), name="m")


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
LEAF = st.one_of(TEXT, st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False))
VALUE = st.recursive(LEAF, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4))


@given(VALUE)
def test_any_value_of_a_header_is_read_back_as_it_was(value):
    assert yaml.safe_load(as_yaml({"key": value})) == {"key": value}


@pytest.mark.parametrize("number", [1e-5, -1.5e300, 0.1, 1e16, 5e-324, float("inf"), -0.0])
def test_numbers_of_a_header_stay_numbers(number):
    read = yaml.safe_load(as_yaml({"key": number}))["key"]
    assert isinstance(read, float)
    assert read == number


def test_not_a_number_is_read_back_as_such():
    assert math.isnan(yaml.safe_load(as_yaml({"key": float("nan")}))["key"])
