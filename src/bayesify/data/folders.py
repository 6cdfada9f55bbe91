"""A user's folder of pictures as a data set: a sub-folder per class, perhaps inside `train/` and `test/`."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from bayesify.data.dataset import DataSet, assemble
from bayesify.data.errors import DataError, check_one_of, unknown_name
from bayesify.data.images import IMAGE_FILES, open_image, pixel_levels
from bayesify.data.targets import sorted_naturally

_OTHER_PARTS = ("test", "val", "valid", "validation", "dev")


def from_folder(
    path: str | Path,
    *,
    size: int | tuple[int, int] | None = None,
    colour: str = "auto",
    test: float = 0.2,
    seed: int = 0,
) -> DataSet:
    """PNG and JPEG pictures, the folder's name being the class; other files are passed over.

    `size` (a number, or height and width) resizes all of them; without it they must already have one size.
    With `colour` "auto" they are grey where every picture is, else colour. Without `train/` and `test/`
    folders a seeded share `test`, every class in proportion, is kept for testing.
    """
    root = Path(path)
    check_one_of("colour", colour, ("auto", "grey", "colour"))
    if not root.is_dir():
        raise DataError(f"{root}: there is no such folder")
    if (root / "train").is_dir() and (root / "test").is_dir():
        parts = [_by_class(root / "train"), _by_class(root / "test")]
        for name in parts[1]:
            if name not in parts[0]:
                raise unknown_name(f"class in {root / 'test'}:", name, parts[0])
    else:
        _check_not_halves(root)
        parts = [_by_class(root)]
    names = sorted_naturally(set(parts[0]))
    if len(names) < 2:
        raise DataError(f"{root}: one class only, {names[0]!r}; classification needs two or more sub-folders")
    files = [(file, names.index(name)) for part in parts for name, listed in part.items() for file in listed]
    x = _read([file for file, _ in files], root, _pair(size), colour)
    y = torch.tensor([label for _, label in files])
    train_count = sum(map(len, parts[0].values()))
    rows = (torch.arange(train_count), torch.arange(train_count, len(files)))
    return assemble(
        root.resolve().name,
        "classification",
        x,
        y,
        test=rows if len(parts) == 2 else test,
        seed=seed,
        maximum=255.0,
        class_names=tuple(names),
        source=str(root),
    )


def _check_not_halves(root: Path) -> None:
    """Refuse a training and another part under names that we do not read: they would be taken for two classes."""
    held = {child.name.casefold(): child.name for child in sorted(root.iterdir()) if child.is_dir()}
    other = next((held[name] for name in _OTHER_PARTS if name in held), None)
    if "train" in held and other is not None:
        raise DataError(
            f"{root}: {held['train']} and {other} look like parts of the data, not classes: name them train and test"
        )


def _by_class(folder: Path) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for child in sorted(folder.iterdir()):
        if child.is_dir() and not child.name.startswith("."):
            pictures = [file for file in child.rglob("*") if _is_picture(file)]
            if not pictures:
                raise DataError(f"{child}: no PNG or JPEG pictures for this class; add some or remove the folder")
            found[child.name] = sorted(pictures)
    if not found:
        raise DataError(f"{folder}: expected one sub-folder of PNG or JPEG pictures per class, found none")
    return found


def _is_picture(file: Path) -> bool:
    return file.suffix.lower() in IMAGE_FILES and not file.name.startswith(".") and file.is_file()


def _pair(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    if size is None:
        return None
    height, width = (size, size) if isinstance(size, int) else size
    if height < 1 or width < 1:
        raise DataError(f"size must be at least 1 pixel, got {size}")
    return height, width


def _read(files: list[Path], root: Path, size: tuple[int, int] | None, colour: str) -> Tensor:
    first: tuple[int, int] | None = None
    grey: list[Tensor] = []
    coloured: list[Tensor] = []
    for file in files:
        picture = open_image(file)
        height, width = picture.height, picture.width
        if size is None and first is not None and first != (height, width):
            odd, model = file.relative_to(root), files[0].relative_to(root)
            sizes = f"{odd} is {height}x{width}, {model} is {first[0]}x{first[1]}"
            raise DataError(f"{root}: pictures must have one size, but {sizes}; resize them with size={first[0]}")
        first = first or (height, width)
        if colour == "colour" or (colour == "auto" and (coloured or picture.mode != "L")):
            if not coloured:
                # The greys read so far are kept as colours from the first coloured picture on.
                coloured = [levels.expand(3, -1, -1) for levels in grey]
                grey = []
            coloured.append(pixel_levels(picture, 3, size))
        else:
            grey.append(pixel_levels(picture, 1, size))
    return torch.stack(coloured or grey)
