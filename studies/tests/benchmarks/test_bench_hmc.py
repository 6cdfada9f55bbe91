"""`bench hmc` measures ours, and says why it cannot measure the peer."""

import sys

import pytest

from bayesify_studies.benchmarks import hmc


def test_the_peer_is_skipped_with_a_reason(monkeypatch, tmp_path):
    monkeypatch.delenv(hmc.PEER, raising=False)
    monkeypatch.setattr(hmc.importlib.util, "find_spec", lambda name: None)
    assert hmc.find_peer(None)[0] is None
    assert "numpyro is not installed here" in hmc.find_peer(None)[1]
    assert "cannot run" in hmc.find_peer(str(tmp_path / "absent"))[1]
    monkeypatch.setattr(hmc, "_SCRIPT", tmp_path / "absent.py")
    assert "run from a checkout" in hmc.find_peer(sys.executable)[1]


def test_it_gives_effective_draws_per_second(monkeypatch):
    monkeypatch.setattr(hmc, "find_peer", lambda given: (None, "not here"))
    result = hmc.measure(chains=2, warm_up=20, samples=20, compiled=False)
    eager = result["eager"]
    assert eager["ess_min_per_second"] == pytest.approx(eager["ess_min"] / eager["seconds"])
    assert 1 <= eager["ess_min"] <= eager["ess_median"]
    assert result["numpyro"] is None
    assert result["numpyro_skipped"] == "not here"
    assert result["compiled"] is None


def test_ratios_are_ours_over_theirs():
    ours = {"ess_min_per_second": 80.0, "ess_min_per_second_with_compilation": 60.0}
    theirs = {"ess_min_per_second": 20.0, "ess_min_per_second_with_compilation": 10.0}
    found = hmc._ratios({"eager": ours, "compiled": None, "numpyro": theirs})
    assert found == {"ratio_eager": 4.0, "ratio_eager_with_compilation": 6.0}
