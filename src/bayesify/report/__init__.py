"""Reports: one self-contained page with a JSON twin and a model card, built by hand or from methods' results."""

from bayesify.report.alerts import Alert, alerts
from bayesify.report.blocks import Column
from bayesify.report.card import model_card, write_model_card
from bayesify.report.comparison import comparison_report
from bayesify.report.examples import hero_figure
from bayesify.report.report import Report
from bayesify.report.results import MethodResult, Spread

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
