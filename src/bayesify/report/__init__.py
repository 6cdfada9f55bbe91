"""Reports: one self-contained page with a JSON twin, built by hand or from the results of several methods."""

from bayesify.report.alerts import Alert, alerts
from bayesify.report.comparison import comparison_report
from bayesify.report.examples import hero_figure
from bayesify.report.report import Column, Report
from bayesify.report.results import MethodResult

__all__ = ["Alert", "Column", "MethodResult", "Report", "alerts", "comparison_report", "hero_figure"]
