"""Features of images without labels: the smooth functions on their graph of nearest neighbours.

Images are blurred and reduced to principal components; each is joined to its nearest neighbours, with weights
`exp(-(d / d_k)^2)`. The features are the first eigenvectors of the graph's normalised Laplacian (Belkin and Niyogi,
"Laplacian eigenmaps for dimensionality reduction and data representation", 2003), with mean 0 and deviation 1. A new
image has the weighted mean of its neighbours' features.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import csr_matrix, diags
from scipy.sparse.linalg import eigsh
from torch import Tensor
from torch.nn import functional

_COMPONENTS, _MOST = 50, 5.0


class NeighbourGraph:
    """The graph of some images.

    Args:
        images: levels 0 ... 1, `[n, height, width]`.
        neighbours: of each image.
        features: eigenvectors; those that are constant are left out.

    Attributes:
        features: of the images, `[n, features]`.

    """

    def __init__(self, images: Tensor, neighbours: int = 10, features: int = 50) -> None:
        flat = _blurred(images)
        self._neighbours, self._mean = neighbours, flat.mean(0)
        covariance = torch.cov((flat - self._mean).double().T)
        self._directions = torch.linalg.eigh(covariance).eigenvectors[:, -_COMPONENTS:].float()
        self._places = self._reduced(flat)
        weights, nearest = self._near(self._places, itself=True)
        n = len(flat)
        rows = np.repeat(np.arange(n), neighbours)
        joined = csr_matrix((weights.flatten().double().numpy(), (rows, nearest.flatten().numpy())), shape=(n, n))
        joined = (joined + joined.T) / 2
        root = np.asarray(joined.sum(1)).ravel() ** -0.5
        normalised = diags(root) @ joined @ diags(root)
        _, vectors = eigsh(normalised, k=features, which="LA", v0=np.ones(n))
        smooth = torch.tensor(vectors * root[:, None])
        spread = smooth.std(0)
        kept = spread > 1e-3 * spread.median()
        centred = (smooth[:, kept] - smooth[:, kept].mean(0)) / spread[kept]
        self.features = centred.clamp(-_MOST, _MOST).float()

    def of(self, images: Tensor) -> Tensor:
        """The features of other images, `[n, features]`."""
        weights, nearest = self._near(self._reduced(_blurred(images)))
        share = weights / weights.sum(1, keepdim=True)
        mixed: Tensor = (self.features[nearest] * share.unsqueeze(-1)).sum(1)
        return mixed

    def _reduced(self, flat: Tensor) -> Tensor:
        reduced: Tensor = (flat - self._mean) @ self._directions
        return reduced

    def _near(self, places: Tensor, *, itself: bool = False) -> tuple[Tensor, Tensor]:
        """Weights and numbers of the nearest images of the graph; an image of the graph is not its own neighbour."""
        weights, nearest = [], []
        for piece in places.split(1000):
            found = torch.cdist(piece, self._places).topk(self._neighbours + int(itself), largest=False)
            distances, numbers = found.values[:, int(itself) :], found.indices[:, int(itself) :]
            weights.append(torch.exp(-((distances / distances[:, -1:].clamp(min=1e-12)) ** 2)))
            nearest.append(numbers)
        return torch.cat(weights), torch.cat(nearest)


def _blurred(images: Tensor) -> Tensor:
    return functional.avg_pool2d(images.unsqueeze(1), 3, 1, 1).flatten(1)
