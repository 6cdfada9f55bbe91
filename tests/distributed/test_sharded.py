"""Processes that hold a part of the weights each: the same training, a share of the memory, checkpoints for any number."""

import json
from pathlib import Path

import pytest
from test_training_together import difference
from together import run_cases, why_not

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
METHODS = (
    *("point", "mc_dropout", "weight_estimator", "local", "flipout", "ivon", "swag"),
    *("sgld", "sghmc", "laplace", "ensemble"),
)
SETTINGS = ("batch_norm", "batch_norm_few_examples", "clipped", "accumulated")
OTHERS = (
    *("ivon_clipped", "ivon_last_layer", "mixture_prior", "stick_the_landing", "priors_by_layer"),
    *("averaged", "validated", "learned_noise", "attention", "bfloat16", "sgld_batch_norm"),
)
OWN = ("own_variational", "own_closed_kl", "own_ivon")
MEMORY = ("variational_memory", "ivon_memory", "sghmc_memory")
REFUSED = {
    "refused_full_rank": "correlations between the weights of different processes",
    "refused_scales": "scales or a noise that are variables",
    "refused_method": "hmc cannot be sharded",
    "refused_scales_of_chains": "sgld cannot be sharded: scales that are variables",
    "refused_found_step": "sgld finds its step size from all weights",
    "refused_curvature": "use subset='last_layer'",
    "refused_rates": "rates= does not work with distributed='sharded'",
    "refused_recompute": "recompute= does not work with distributed='sharded'",
    "refused_optimizer": "depend on more than one weight",
}
# The sums of a part are rounded to 8 bits there.
LOOSE = {"bfloat16": 1e-2}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    cases = (*METHODS, *SETTINGS, *OWN, *MEMORY)
    return run_cases(HERE / "sharded_cases.py", tmp_path_factory.mktemp("sharded"), (1, 2, 4), cases)


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    # Three processes: few pieces are equal.
    return run_cases(HERE / "sharded_cases.py", tmp_path_factory.mktemp("others"), (1, 3), OTHERS)


@pytest.mark.parametrize("name", OTHERS)
def test_every_setting_has_the_weights_of_one_process(others, name):
    (alone,) = others[1]
    for process in others[3]:
        assert not isinstance(process[name], str), process[name]
        assert difference(alone[name], process[name])[0] < LOOSE.get(name, 1e-5)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", [*METHODS, *SETTINGS])
def test_parts_have_the_weights_of_one_process(results, name, size):
    (alone,) = results[1]
    for process in results[size]:
        assert not isinstance(process[name], str), process[name]
        assert difference(alone[name], process[name])[0] < 1e-5


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", OWN)
def test_processes_with_their_own_draws_are_one_process_with_all_draws(results, name, size):
    (alone,) = results[1]
    for process in results[size]:
        assert not isinstance(process[name], str), process[name]
        assert difference(alone[name], process[name])[0] < 1e-5


@pytest.mark.parametrize("name", MEMORY)
def test_a_process_holds_its_share_of_the_state(results, name):
    # 148,608 weights of 4 bytes: means, widths, their gradients, the moments, the given weights and the last good state
    # are 8 to 11 vectors of 594 kB. What does not shrink (data, activations) is below 2% of it.
    alone = int(results[1][0][name]["after a step"])
    assert alone > 8 * 594_000
    for size in (2, 4):
        for process in results[size]:
            assert int(process[name]["after a step"]) < alone / size * 1.05 + 20_000


@pytest.mark.parametrize("name", MEMORY)
def test_a_pass_holds_the_weights_of_one_layer_at_a_time(results, name):
    # One layer of 66 kB and its padding, and the one before it while the next is gathered; the network has 9.
    for size in (2, 4):
        for process in results[size]:
            assert 66_000 < int(process[name]["gathered"]) < 2.1 * 66_100


def test_a_checkpoint_is_resumed_by_any_number_of_processes(tmp_path, monkeypatch):
    monkeypatch.setenv("SHARDED_RUN", str(tmp_path / "runs"))
    folder = tmp_path / "runs" / "ivon" / "checkpoint"
    for size, cases in ((2, ["begin"]), (4, ["go_on"]), (1, ["go_on", "undisturbed"])):
        (tmp_path / str(size)).mkdir()
        (found, *_) = run_cases(HERE / "sharded_cases.py", tmp_path / str(size), (size,), cases)[size]
        for case in cases:
            assert not isinstance(found[case], str), found[case]
        names = {path.name for path in folder.iterdir()}
        if size == 4:
            assert names == {"index.json", *(f"part-{rank:05d}-of-00004-step-20.safetensors" for rank in range(4))}
            assert json.loads((folder / "index.json").read_text())["state"]["sharded"] == {"own_draws": False}
    assert names == {"state.safetensors"}
    assert difference(found["undisturbed"], found["go_on"])[0] < 1e-5


def test_what_cannot_be_divided_is_refused_in_one_line(tmp_path):
    (first, second) = run_cases(HERE / "sharded_cases.py", tmp_path, (2,), list(REFUSED))[2]
    for name, text in REFUSED.items():
        for process in (first, second):
            assert isinstance(process[name], str), name
            assert text in process[name]
            assert "\n" not in process[name]
