"""A history in one line: its method, its length and its last numbers."""

import pytest

from bayesify.training.plan import History

RECORDS = [
    {"epoch": epoch, "step": 4 * epoch, "loss": 25.0 / epoch, "nll": 0.5, "kl": 12628.2, "weights": [0.0] * 5000}
    for epoch in range(1, 11)
]


def test_a_history_shows_its_end_and_not_its_records():
    assert repr(History(RECORDS, method="variational")) == (
        "<History of variational: 10 epochs, loss 2.5, nll 0.5, kl 12,628>"
    )
    assert repr(History(RECORDS[:1])) == "<History: 1 epoch, loss 25, nll 0.5, kl 12,628>"
    assert repr(History()) == "<History: 0 epochs>"


def test_it_says_why_it_stopped_and_how_validation_went():
    scored = {**RECORDS[-1], "validation_nll": 0.61, "validation_error": 0.25}
    text = repr(History([*RECORDS, scored], "validation NLL has not improved for 3 epochs"))
    assert text.endswith(
        "validation_nll 0.61, validation_error 0.25, stopped early: validation NLL has not improved for 3 epochs>"
    )


def test_a_history_of_sampling_counts_iterations():
    block = {"epoch": 3, "step": 1500, "phase": "sampling", "nll": 0.4, "acceptance": 0.81, "divergences": 0}
    assert repr(History([block], method="hmc")) == (
        "<History of hmc: 1,500 iterations, nll 0.4, acceptance 0.81, divergences 0>"
    )


def test_whose_it_is_is_no_part_of_what_it_showed():
    assert History(RECORDS, method="variational") == History(RECORDS)


def test_a_column_that_nobody_recorded_is_refused_with_the_nearest_name():
    history = History([{"epoch": 1, "loss": 2.0, "nll": 1.5, "elbo": -30.0}])
    assert history["elbo"] == [-30.0]
    with pytest.raises(KeyError, match="no epoch recorded the column 'elbow'; did you mean 'elbo'"):
        history["elbow"]
    with pytest.raises(KeyError, match="no epoch recorded the column 'validation_nll'"):
        history["validation_nll"]  # a training without validation data
    assert History()["nll"] == []  # nothing is trained yet


def test_a_history_is_asked_for_columns_by_name_and_gives_its_epochs_in_order():
    history = History([{"epoch": 1, "nll": 1.5, "elbo": -30.0, "validation_nll": None}, {"epoch": 2, "nll": 1.0}])
    assert "elbo" in history
    assert "validation_nll" not in history  # a training without validation data
    assert "accuracy" not in history
    assert 0 not in history
    assert [record["epoch"] for record in history] == [1, 2]
    with pytest.raises(TypeError, match=r"a column of the history has a name, such as 'nll', got 0: epochs are in"):
        history[0]
