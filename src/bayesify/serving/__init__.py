"""Answers over HTTP: runs kept in memory, asked by many at once (`bayesify.serving.app.create_app`)."""

from bayesify.serving.limits import Limits
from bayesify.serving.models import LoadedModel, Registry
from bayesify.serving.refusals import Refusal

__all__ = ["Limits", "LoadedModel", "Refusal", "Registry"]
