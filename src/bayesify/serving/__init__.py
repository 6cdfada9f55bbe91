"""Predictions over HTTP: runs in memory behind one ASGI application (`bayesify.serving.app.create_app`)."""

from bayesify.serving.limits import Limits
from bayesify.serving.models import LoadedModel, Registry

__all__ = ["Limits", "LoadedModel", "Registry"]
