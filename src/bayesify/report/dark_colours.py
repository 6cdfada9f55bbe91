"""The colours of a drawing on a dark page: the same hue, with light and dark exchanged.

In the Oklab space of B. Ottosson (A perceptual color space for image processing, 2020) a lightness L becomes

    L' = 0.21 + 0.85 (1 - L)^0.7

so that white becomes the page's dark background and ink nearly white. A colour that is outside sRGB at its new
lightness is made paler until it is inside.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from bayesify.plots import style

DARK_PAPER = "#14181d"
# Colours over a picture's pixels stay, because the pixels do.
_STAYS = {style.ON_PICTURE, style.PAPER}
_TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
_FROM_CONES, _FROM_LAB = np.linalg.inv(_TO_CONES), np.linalg.inv(_TO_LAB)


def for_both(svg: str) -> str:
    """An SVG whose colours follow the reader's light or dark mode, also inside an `<img>`."""
    used = sorted(set(re.findall(r"#[0-9a-f]{6}(?=[;\"])", svg)) - _STAYS)
    names = {color: f"--c{place}" for place, color in enumerate(used)}
    turned = re.sub(r"#[0-9a-f]{6}(?=[;\"])", lambda found: _variable(names, found[0]), svg)
    light = "".join(f"{name}:{color};" for color, name in names.items())
    in_dark = "".join(f"{name}:{in_dark_mode(color)};" for color, name in names.items())
    # Matplotlib writes no colour for black: the root's fill makes it ink.
    rules = (
        f":root{{{light}fill:{style.INK}}}"
        f"@media (prefers-color-scheme:dark){{:root{{{in_dark}fill:{in_dark_mode(style.INK)}}}}}"
    )
    return re.sub(r"(<svg[^>]*>)", lambda found: f"{found[1]}<style>{rules}</style>", turned, count=1)


def in_dark_mode(color: str) -> str:
    """The colour, as `#rrggbb`, that stands for this one on a dark page."""
    lightness, *hue = _oklab(color)
    turned = 0.21 + 0.85 * (1.0 - min(lightness, 1.0)) ** 0.7
    for keep in np.linspace(1.0, 0.0, 21):
        rgb = _FROM_CONES @ (_FROM_LAB @ np.array([turned, keep * hue[0], keep * hue[1]])) ** 3
        if rgb.min() >= -1e-4 and rgb.max() <= 1 + 1e-4:
            break
    encoded = np.where(rgb <= 0.0031308, 12.92 * rgb, 1.055 * np.clip(rgb, 0.0031308, None) ** (1 / 2.4) - 0.055)
    return "#" + "".join(f"{round(255 * float(part)):02x}" for part in np.clip(encoded, 0, 1))


def _oklab(color: str) -> NDArray[np.float64]:
    encoded = np.array([int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    lab: NDArray[np.float64] = _TO_LAB @ np.cbrt(_TO_CONES @ linear)
    return lab


def _variable(names: dict[str, str], color: str) -> str:
    return f"var({names[color]})" if color in names else color
