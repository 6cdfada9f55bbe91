"""`bayesify series`, `bandit` and `learn-on`, as a user would, wrongly too."""

import csv
import json

import numpy as np
import pytest

pytestmark = pytest.mark.filterwarnings("ignore::bayesify.errors.BayesifyWarning")


def write(path, x, y):
    rows = "\n".join(f"{a:.4f},{b:.4f},{c}" for (a, b), c in zip(x, y, strict=True))
    path.write_text(f"a,b,y\n{rows}\n")


@pytest.fixture
def tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(400, 2))
    line = x @ [1.0, 0.5]
    words = np.array(["low", "high"])[(line > 0).astype(int)]
    write(tmp_path / "old.csv", x[:200], words[:200])
    write(tmp_path / "new.csv", x[200:] + 1.0, words[200:])
    # The noise grows fourfold in the second half.
    noise = generator.normal(size=400) * np.repeat([0.5, 2.0], 200)
    write(tmp_path / "past.csv", x[:200], line[:200] + noise[:200])
    write(tmp_path / "future.csv", x, line + noise)
    return tmp_path


def test_a_series_misses_what_is_allowed_where_the_own_intervals_do_not(tables, call, refused):
    train = ("train", "--data", "past.csv", "--method", "point", "--likelihood", "gaussian:0.5", "--epochs", 60)
    assert call(*train, "--learning-rate", 0.03, "--out", "run").code == 0
    found = json.loads(call("series", "run", "--data", "future.csv", "--step", 0.05, "--out", "i.csv", "--json").out)
    assert abs(found["missed"] - 0.1) <= found["bound"]
    assert found["own_missed"] > 0.2  # the noise of half the rows is four times what was learned
    assert found["missed"] < 0.16
    with (tables / "i.csv").open() as file:
        rows = list(csv.DictReader(file))
    inside = [float(r["lower"]) <= float(r["target"]) <= float(r["upper"]) for r in rows]
    assert np.mean(inside) == pytest.approx(1 - found["missed"])
    assert [str(one) for one in inside] == [row["covered"] for row in rows]
    refused(["series", "run", "--data", "future.csv", "--alpha", 2], "alpha")
    (tables / "few.csv").write_text("a,b,y\n0.1,0.2,0.2\n0.3,0.1,\n0.5,0.1,0.6\n")
    few = call("series", "run", "--data", "few.csv")
    assert "few.csv: 1 row has no target and is left out" in few.err
    assert "2 targets (all of few)" in few.out
    assert "from about 230 on the two differ by at most 20%" in few.out
    assert call("train", "--data", "old.csv", "--method", "point", "--epochs", 1, "--out", "words").code == 0
    refused(["series", "words", "--data", "new.csv"], "predicts classes")


def test_learn_on_learns_the_new_data_and_goes_on(tables, call, refused):
    train = ("train", "--data", "old.csv", "--method", "variational", "--learning-rate", 0.01, "--epochs", 60)
    assert call(*train, "--out", "one").code == 0
    learn = ("learn-on", "one", "--data", "new.csv", "--epochs", 60, "--learning-rate", 0.01, "--json")
    found = json.loads(call(*learn, "--out", "two", "--coreset", 20, "--task", "moved").out)
    assert found["tasks"] == ["first", "moved"]
    assert found["learned"] == 160
    assert found["after"]["new"]["nll"] < found["before"]["new"]["nll"]
    assert found["after"]["old"]["accuracy"] > 0.7
    # The new run is a run: it predicts, and goes on with its coreset.
    assert call("evaluate", "two", "--json").code == 0
    again = ("learn-on", "two", "--data", "new.csv", "--epochs", 2, "--out", "three", "--json")
    third = json.loads(call(*again, "--discount", 0.5).out)
    assert (third["tasks"], third["coreset"], third["discount"]) == (["first", "moved", "2"], 20, 0.5)
    refused(["learn-on", "one", "--data", "new.csv", "--out", "two"], "two", "overwrite")
    refused(["learn-on", "one", "--data", "old.csv", "--out", "four"], "was trained on")
    refused(["learn-on", "one", "--data", "new.csv", "--out", "four", "--test", 2], "between 0 and 1")
    assert call("train", "--data", "old.csv", "--method", "point", "--epochs", 1, "--out", "plain").code == 0
    refused(["learn-on", "plain", "--data", "new.csv", "--out", "four"], "--method variational")
    write(tables / "odd.csv", np.zeros((20, 2)), ["other"] * 20)
    refused(["learn-on", "one", "--data", "odd.csv", "--out", "four"], "other")


def test_agents_play_the_same_games(tables, call, refused):
    play = ("bandit", "linear", "--steps", 150, "--seeds", 3, "--json")
    found = json.loads(call(*play, "--agents", "linear-thompson,linear-greedy,linear-greedy-50%").out)
    thompson, greedy, half = (found["agents"][name] for name in found["agents"])
    assert thompson["less_first"] is None
    gaps = np.subtract(greedy["regret"]["values"], thompson["regret"]["values"])
    assert greedy["less_first"]["values"] == pytest.approx(gaps)
    # Half of the acts are random, which costs half of a random act's regret at least.
    assert half["regret"]["mean"] > 0.3 * 150 * found["random_step"]
    table = ("bandit", "old.csv", "--steps", 100, "--seeds", 1, "--json", "--agents")
    played = json.loads(call(*table, "linear-ucb,variational-thompson").out)["agents"]
    regrets = [one["regret"]["mean"] for one in played.values()]
    # The right class gives 1, and a random act is wrong half of the time.
    assert regrets[0] < 35
    assert all(0 <= regret <= 100 for regret in regrets)
    # A logistic agent needs both values of a reward before it can choose: the first acts are random.
    chance = [json.loads(call(*table, name).out)["first_by_chance"] for name in ("linear-ucb", "logistic-greedy")]
    assert chance == [0, 32]
    assert json.loads(call(*table, "logistic-greedy", "--first-by-chance", 0).out)["first_by_chance"] == 0
    one_game = call("bandit", "linear", "--steps", 20, "--seeds", 1)
    assert one_game.code == 0
    assert "±" not in one_game.out
    refused(["bandit", "linear", "--agents", "linear-thomson"], "thompson")
    refused(["bandit", "linear", "--agents", "nerual-linear-ucb"], "neural-linear")
    refused(["bandit", "linear", "--agents", "ensemble-ucb"], "ucb is for")
    refused(["bandit", "linear", "--seeds", 0], "seeds")
    refused(["bandit", "casino"], "the bandits are mushroom, wheel, linear, quadratic")
    refused(["bandit", "casino.csv"], "no such file")
    refused(["bandit", "past.csv"], "needs classes")
