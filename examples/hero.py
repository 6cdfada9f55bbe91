"""Draw the README's picture: four networks face a digit none of them has seen. `python examples/hero.py`."""

from pathlib import Path

from bayesify.data import open_data, withhold
from bayesify.report import hero_figure
from bayesify.workflows import demo

material = demo._digits(demo.WITHHELD, 0)
results = [r for r in demo.train(material) if "fifth" not in r.label]
images = withhold(open_data("digits"), demo.WITHHELD).unknown
figure = hero_figure(
    results,
    images,
    material.notes["class_names"],
    title=f"Four networks were taught nine digits. This is a {demo.WITHHELD}.",
)
path = Path(__file__).parents[1] / "docs" / "images" / "hero.png"
figure.savefig(path, dpi=160)
print(path)
