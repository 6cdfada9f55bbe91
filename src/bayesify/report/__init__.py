"""Reports: one self-contained page with a JSON twin and a model card, built by hand or from methods' results."""

from bayesify.evaluation.results import MethodResult, Spread
from bayesify.report.alerts import Alert, alerts
from bayesify.report.blocks import Column
from bayesify.report.comparison import comparison_report
from bayesify.report.model_card import model_card, write_model_card
from bayesify.report.report import Report
from bayesify.report.shown_examples import hero_figure

__all__ = [
    "Alert",
    "Column",
    "MethodResult",
    "Report",
    "Spread",
    "alerts",
    "comparison_report",
    "hero_figure",
    "model_card",
    "write_model_card",
]
