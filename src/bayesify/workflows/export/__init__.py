"""A fitted method as a file for other programs: ONNX, torch.export, safetensors, a plain module, an adapter."""

from bayesify.workflows.export.exporting import FORMATS, Exported, export
from bayesify.workflows.export.plain_module import to_module

__all__ = ["FORMATS", "Exported", "export", "to_module"]
