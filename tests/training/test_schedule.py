"""Numbers of each step: shares of the KL sum to one, learning rates follow the schedule, each network has its own."""

import pytest
import torch

from bayesify.training.kl import KL
from bayesify.training.schedule import StepSchedule

EPOCHS, BATCH, N_DATA = 5, 8, 27
BATCHES = 4  # the last has three examples
WARM, COLD, HALVED = KL.parse("uniform,warm-up=2"), KL.parse("uniform,temperature=0.25"), KL.parse("reweighted")
NETWORKS = [(WARM, 0.1), (HALVED, 0.3), (COLD, 0.1), (HALVED, 0.3)]


def falling(done):
    return 1 - done / 2


def schedule():
    return StepSchedule(NETWORKS, falling, epochs=EPOCHS, batches=BATCHES, batch_size=BATCH, n_data=N_DATA)


def test_the_last_batch_has_what_is_left():
    assert schedule().sizes == [8, 8, 8, 3]


@pytest.mark.parametrize("epoch", [0, 1, 4])
def test_an_epochs_shares_add_up_to_what_the_whole_kl_is_worth_then(epoch):
    shares = schedule().table(epoch, lambda share, _, __: (share,), torch.float64)[:, :, 0]
    at = [epoch + number / BATCHES for number in range(BATCHES)]
    warm = sum(size / N_DATA * min(1, time / 2) for size, time in zip(schedule().sizes, at, strict=True))
    expected = torch.tensor([warm, 1.0, 0.25, 1.0], dtype=torch.float64)
    torch.testing.assert_close(shares.sum(0), expected, rtol=1e-12, atol=1e-12)
    # Half of what is left at every batch: 8, 4, 2, 1 fifteenths.
    torch.testing.assert_close(shares[:, 1] * 15, torch.tensor([8.0, 4, 2, 1], dtype=torch.float64))


def test_rates_follow_the_schedule_from_each_networks_own():
    rates = schedule().table(2, lambda _, rate, __: (rate,), torch.float64)[:, :, 0]
    for number in range(BATCHES):
        factor = falling((2 * BATCHES + number) / (EPOCHS * BATCHES))
        torch.testing.assert_close(rates[number], factor * torch.tensor([0.1, 0.3, 0.1, 0.3], dtype=torch.float64))


def test_a_single_step_is_given_what_its_row_of_the_table_says():
    whole = schedule()
    table = whole.table(3, lambda share, rate, number: (share, rate, number), torch.float64)
    for number, size in enumerate(whole.sizes):
        step = 3 * BATCHES + number
        for network, (_, rate) in enumerate(NETWORKS):
            expected = [whole.share(step, size, network), rate * whole.factor(step), number]
            assert table[number, network].tolist() == pytest.approx(expected, rel=1e-12)


def test_equal_networks_are_worked_out_once():
    asked = []
    schedule().table(0, lambda share, rate, number: asked.append(number) or (share, rate), torch.float32)
    assert len(asked) == 3 * BATCHES
