"""The formulas of a report's scores: MathML, which browsers show without a script, and plain text.

p_d are the class probabilities of draw d of D, p their mean; w are weights, x inputs and y targets.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from bayesify.evaluation.scores import SCORES

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class Definition:
    """A score's name, its formula (as MathML and as text), and how to read it."""

    name: str
    mathml: str
    text: str
    words: str


_SPACE = '<mspace width="0.17em"/>'


def classification(*, unknown: bool) -> list[Definition]:
    """The scores of a classifier; those about unknown inputs only where there are any."""
    listed = [_NLL, _ECE, _ENTROPY, _RISK]
    return [*listed, _AUROC] if unknown else listed


def regression(*, unknown: bool) -> list[Definition]:
    """The scores of a regression."""
    return [_RMSE, _NLL, _CRPS, _VARIANCE, *([_AUROC] if unknown else [])]


def variational() -> list[Definition]:
    """What a variational network minimises, and what its weights are ranked by."""
    return [_OBJECTIVE, _SNR]


def _i(*names: str) -> str:
    return "".join(f"<mi>{escape(name)}</mi>" for name in names)


def _n(number: str) -> str:
    return f"<mn>{number}</mn>"


def _o(sign: str) -> str:
    return f"<mo>{escape(sign)}</mo>"


def _log() -> str:
    return _i("log") + _SPACE


def _word(text: str) -> str:
    return f"<mtext>{escape(text)}</mtext>"


def _row(*parts: str) -> str:
    return f"<mrow>{''.join(parts)}</mrow>"


def _sub(base: str, below: str) -> str:
    return f"<msub>{base}{below}</msub>"


def _square(base: str) -> str:
    return f"<msup>{base}{_n('2')}</msup>"


def _root(*parts: str) -> str:
    return f"<msqrt>{_row(*parts)}</msqrt>"


def _over(above: str, below: str) -> str:
    return f"<mfrac>{above}{below}</mfrac>"


def _sum(index: str) -> str:
    return f"<munder>{_o('∑')}{index}</munder>"


def _bracketed(*parts: str, ends: str = "()") -> str:
    return _row(_o(ends[0]), *parts, _o(ends[1]))


def _absolute(*parts: str) -> str:
    return _row(_o("|"), *parts, _o("|"))


def _formula(parts: Iterable[str]) -> str:
    return f'<math displaystyle="true">{_row(*parts)}</math>'


_MEAN_OVER_EXAMPLES = _over(_n("1"), _i("N")) + _sum(_i("n"))
_MEAN_OVER_DRAWS = _over(_n("1"), _i("D")) + _sum(_i("d"))

_NLL = Definition(
    SCORES["nll"].heading,
    _formula(
        [
            _word("NLL"),
            _o("="),
            _o("−"),
            _MEAN_OVER_EXAMPLES,
            _log(),
            _over(_n("1"), _i("D")),
            _sum(_i("d")),
            _i("p"),
            _bracketed(_sub(_i("y"), _i("n")), _o("|"), _sub(_i("x"), _i("n")), _o(","), _sub(_i("w"), _i("d"))),
        ]
    ),
    "NLL = -(1/N) sum_n log((1/D) sum_d p(y_n | x_n, w_d))",
    "Negative log-likelihood in nats. Lower is better; confident mistakes cost most.",
)
_ECE = Definition(
    SCORES["ece"].heading,
    _formula(
        [
            _word("ECE"),
            _o("="),
            _sum(_i("b")),
            _over(_sub(_i("n"), _i("b")), _i("N")),
            _absolute(
                _word("accuracy"), _o("⁡"), _bracketed(_i("b")), _o("−"), _word("confidence"), _bracketed(_i("b"))
            ),
        ]
    ),
    "ECE = sum_b (n_b / N) |accuracy(b) - confidence(b)|",
    "Expected calibration error over 15 equal bins b of confidence: the mean gap between accuracy and confidence.",
)
_ENTROPY = Definition(
    "Entropy, aleatoric and epistemic",
    _formula(
        [
            *(_i("H"), _bracketed(_i("p"), ends="[]"), _o("=")),
            *(_MEAN_OVER_DRAWS, _i("H"), _bracketed(_sub(_i("p"), _i("d")), ends="[]"), _o("+"), _i("I"), _o(",")),
            *(_SPACE * 4, _i("H"), _bracketed(_i("p"), ends="[]"), _o("="), _o("−"), _sum(_i("c"))),
            *(_sub(_i("p"), _i("c")), _log(), _sub(_i("p"), _i("c"))),
        ]
    ),
    "H[p] = (1/D) sum_d H[p_d] + I, H[p] = -sum_c p_c log p_c",
    "The total uncertainty about an input, in nats, is the mean over draws of each draw's entropy (aleatoric) plus the "
    "disagreement of the draws (epistemic, I). More data lowers only the second.",
)
_RISK = Definition(
    SCORES["accuracy_at_90"].heading.capitalize(),
    _formula(
        [
            _word("accuracy"),
            _bracketed(_n("0.9")),
            _o("="),
            _n("1"),
            _o("−"),
            _word("risk"),
            _bracketed(_n("0.9")),
            _o(","),
            _SPACE * 4,
            _word("risk"),
            _bracketed(_i("c")),
            _o("="),
            _over(_word("mistakes among the surest share c"), _word("predictions among the surest share c")),
        ]
    ),
    "accuracy(0.9) = 1 - risk(0.9), risk(c) = mistakes / predictions among the surest share c",
    "The accuracy when the least sure tenth of the predictions is withheld.",
)
_AUROC = Definition(
    SCORES["auroc"].heading,
    _formula(
        [
            _word("AUROC"),
            _o("="),
            _i("P"),
            _bracketed(_sub(_i("u"), _word("unknown")), _o(">"), _sub(_i("u"), _word("known"))),
        ]
    ),
    "AUROC = P(u_unknown > u_known)",
    "The probability that the uncertainty u of an unknown input is above that of a known one, ties counting half: 0.5 "
    "is chance, 1 is perfect.",
)
_RMSE = Definition(
    SCORES["rmse"].heading,
    _formula(
        [
            _word("RMSE"),
            _o("="),
            _root(_MEAN_OVER_EXAMPLES, _square(_bracketed(_sub(_i("y"), _i("n")), _o("−"), _sub(_i("m"), _i("n"))))),
        ]
    ),
    "RMSE = sqrt((1/N) sum_n (y_n - m_n)^2)",
    "The typical distance from the predicted mean m, in the units of the target.",
)
_CRPS = Definition(
    SCORES["crps"].heading,
    _formula(
        [
            _word("CRPS"),
            _o("="),
            _MEAN_OVER_EXAMPLES,
            _o("∫"),
            _square(
                _bracketed(
                    *(_sub(_i("F"), _i("n")), _bracketed(_i("z")), _o("−"), _n("1")),
                    _bracketed(_i("z"), _o("≥"), _sub(_i("y"), _i("n")), ends="[]"),
                )
            ),
            _i("d", "z"),
        ]
    ),
    "CRPS = (1/N) sum_n integral (F_n(z) - 1[z >= y_n])^2 dz",
    "The distance between the whole predicted distribution F and the target, in its units; for a single number it is "
    "the absolute error.",
)
_VARIANCE = Definition(
    "Aleatoric and epistemic",
    _formula(
        [
            *(_word("variance"), _o("="), _MEAN_OVER_DRAWS, _square(_sub(_i("σ"), _i("d"))), _o("+")),
            *(_MEAN_OVER_DRAWS, _square(_bracketed(_sub(_i("m"), _i("d")), _o("−"), _i("m")))),
        ]
    ),
    "variance = (1/D) sum_d sigma_d^2 + (1/D) sum_d (m_d - m)^2",
    "The mean noise variance (aleatoric) plus the variance of the draws' means (epistemic), which shrinks with data.",
)
_OBJECTIVE = Definition(
    "Objective",
    _formula(
        [
            *(_word("loss"), _o("="), _o("−"), _MEAN_OVER_EXAMPLES, _sub(_word("E"), _i("q"))),
            _bracketed(
                *(_log(), _i("p")),
                _bracketed(_sub(_i("y"), _i("n")), _o("|"), _sub(_i("x"), _i("n")), _o(","), _i("w")),
                ends="[]",
            ),
            *(_o("+"), _over(_n("1"), _i("N")), _word("KL"), _bracketed(_i("q"), _o("‖"), _i("p"))),
        ]
    ),
    "loss = -(1/N) sum_n E_q[log p(y_n | x_n, w)] + KL(q || p) / N",
    "What a variational network minimises: the expected negative log-likelihood plus the KL divergence of the "
    "posterior q from the prior p. It is minus the evidence lower bound, per example.",
)
_SNR = Definition(
    "Signal-to-noise",
    _formula([_word("SNR"), _o("="), _over(_absolute(_i("μ")), _i("σ"))]),
    "SNR = |mu| / sigma",
    "A weight's posterior mean over its standard deviation. Below one, zero is within one standard deviation, and the "
    "weight can often be removed.",
)
