"""What a method answers, as drawn."""

import numpy as np
import pytest
import torch

from bayesify import plots
from bayesify.likelihoods import Categorical
from bayesify.plots.predictions import verdict
from bayesify.predictive import Predictive


def heights(axes):
    return [bar.get_height() for bar in axes.patches]


def draws_line(axes):
    return [line for line in axes.lines if line.get_gid() == "draws"]


def test_bars_are_the_mean_and_every_draw_is_there(two_draws):
    axes = plots.predictive_distribution(two_draws, 0, title="Ensemble")
    assert heights(axes) == pytest.approx([0.4, 0.4, 0.2])
    (line,) = draws_line(axes)
    x, y = line.get_data()
    shown = np.array(y).reshape(2, 3, 3)  # draws, classes, (start, end, gap)
    assert shown[..., 0] == pytest.approx(np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]]))
    assert np.isnan(shown[..., 2]).all()
    # Each tick lies within the bar of its class.
    centres = np.array(x).reshape(2, 3, 3)[..., :2].mean(-1)
    assert (np.abs(centres - np.arange(3)) < 0.37).all()


def test_only_an_answer_that_is_sure_enough_is_given(two_draws):
    axes = plots.predictive_distribution(two_draws, 1, ["cat", "dog", "owl"], title="Ensemble", at_least=0.9)
    assert "“cat”, 97% sure" in [text.get_text() for text in axes.texts]
    axes = plots.predictive_distribution(two_draws, 1, ["cat", "dog", "owl"], title="Ensemble", at_least=0.98)
    assert "“I do not know” (cat? 97%)" in [text.get_text() for text in axes.texts]
    guide = [line for line in axes.lines if line.get_gid() == "guide"]
    assert guide[0].get_ydata() == [0.98, 0.98]


def test_the_verdict_says_whether_it_was_right(two_draws):
    assert verdict(two_draws, 1, truth=0) == ("“0”, 97% sure ✓", True)
    assert verdict(two_draws, 1, truth=2) == ("“0”, 97% sure ✗", True)
    assert verdict(two_draws, 0, truth=2)[1] is False


def test_one_draw_needs_no_ticks(classes):
    axes = plots.predictive_distribution(classes([[[0.5, 0.5]]]))
    assert draws_line(axes) == []


def test_beyond_twelve_classes_the_rest_is_one_bar():
    probs = torch.tensor([0.3, 0.2, *[0.5 / 28] * 28], dtype=torch.float64)
    many = Predictive(probs.log().expand(3, 1, 30), Categorical())
    axes = plots.predictive_distribution(many, 0, most_classes=4)
    widths = [bar.get_width() for bar in axes.patches]  # names that are longer lie on their side
    assert widths == pytest.approx([0.3, 0.2, 0.5 / 28, 0.5 - 0.5 / 28])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "1", "2", "27 others"]


def test_long_names_lie_on_their_side_and_strange_ones_are_drawn(two_draws, tmp_path):
    names = ["<script>", r"$\broken{", "x" * 200]
    axes = plots.predictive_distribution(two_draws, 0, names)
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([0.4, 0.4, 0.2])
    axes.figure.savefig(tmp_path / "a.svg")


def test_a_wrong_number_of_names_is_refused(two_draws):
    with pytest.raises(ValueError, match="one name for each of 3 classes, got 2"):
        plots.predictive_distribution(two_draws, 0, ["a", "b"])


def test_the_histogram_holds_the_share_of_each_set(classes):
    known = classes([[[1 - 1e-12, 1e-12]] * 3 + [[0.5, 0.5]]])
    unknown = classes([[[0.5, 0.5]] * 5])
    axes = plots.entropy_histogram(known, unknown, bins=4)
    shown = [patch.get_data() for patch in axes.patches]
    assert shown[0].values.tolist() == pytest.approx([0.75, 0, 0, 0.25])
    assert shown[2].values.tolist() == pytest.approx([0, 0, 0, 1.0])
    assert shown[0].edges[[0, -1]].tolist() == pytest.approx([0, np.log(2)])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["known", "unknown"]


def test_the_histogram_of_one_set_and_of_equal_values(classes):
    axes = plots.entropy_histogram(classes([[[0.5, 0.5]] * 5]), score="epistemic")
    assert axes.patches[0].get_data().values.sum() == pytest.approx(1.0)
    assert axes.get_legend() is None


def test_the_legend_lies_where_there_is_less_to_hide(classes):
    sure, unsure = classes([[[1 - 1e-12, 1e-12]] * 9 + [[0.5, 0.5]]]), classes([[[0.5, 0.5]] * 9 + [[0.9, 0.1]]])
    at_the_right = plots.entropy_histogram(sure, sure).get_legend()._loc
    at_the_left = plots.entropy_histogram(unsure, unsure).get_legend()._loc
    assert (at_the_right, at_the_left) == (1, 2)  # upper right, upper left
