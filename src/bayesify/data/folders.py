"""A data set from a folder of images: one sub-folder per class, perhaps inside `train/` and `test/`."""

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
    """A data set from a folder of PNG and JPEG images with one sub-folder per class.

    The name of a sub-folder is the class. The sub-folders may be inside `train/` and `test/`. Other files are ignored.

    Args:
        path: the folder.
        size: resize all images to this height and width (one number or two); without it they must have the same size.
        colour: "grey", "colour", or "auto" for grey if every image is grey.
        test: share (a float) or number (an int) of test examples, every class in proportion, unless there are `train/`
            and `test/` folders.
        seed: the seed of that split.

    Returns:
        The data set, not yet prepared.

    Raises:
        DataError: the folder is missing, has fewer than two classes, or an image cannot be read.

    Examples:
        >>> import pathlib
        >>> from PIL import Image
        >>> for number in range(8):
        ...     folder = pathlib.Path("photos", "cat" if number < 4 else "dog")
        ...     folder.mkdir(parents=True, exist_ok=True)
        ...     Image.new("RGB", (10, 10), (number, 0, 0)).save(folder / f"{number}.png")
        >>> dataset = bf.data.from_folder("photos", size=8, test=2)
        >>> dataset.class_names, dataset.x_train.shape
        (('cat', 'dog'), torch.Size([6, 3, 8, 8]))

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
        _check_no_other_parts(root)
        parts = [_by_class(root)]
    names = sorted_naturally(set(parts[0]))
    if len(names) < 2:
        raise DataError(f"{root}: one class only, {names[0]!r}; classification needs two or more sub-folders")
    files = [(file, names.index(name)) for part in parts for name, images in part.items() for file in images]
    x = _read([file for file, _ in files], root, _height_and_width(size), colour)
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


def _check_no_other_parts(root: Path) -> None:
    """Raise an error for folders such as `train` and `val`, which would be read as two classes."""
    folders = {child.name.casefold(): child.name for child in sorted(root.iterdir()) if child.is_dir()}
    other = next((folders[name] for name in _OTHER_PARTS if name in folders), None)
    if "train" in folders and other is not None:
        raise DataError(
            f"{root}: {folders['train']} and {other} look like parts of the data, not classes: name them train and test"
        )


def _by_class(folder: Path) -> dict[str, list[Path]]:
    images_by_class: dict[str, list[Path]] = {}
    for child in sorted(folder.iterdir()):
        if child.is_dir() and not child.name.startswith("."):
            images = [file for file in child.rglob("*") if _is_image(file)]
            if not images:
                raise DataError(f"{child}: no PNG or JPEG images for this class; add some or remove the folder")
            images_by_class[child.name] = sorted(images)
    if not images_by_class:
        raise DataError(f"{folder}: expected one sub-folder of PNG or JPEG images per class, found none")
    return images_by_class


def _is_image(file: Path) -> bool:
    return file.suffix.lower() in IMAGE_FILES and not file.name.startswith(".") and file.is_file()


def _height_and_width(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
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
        image = open_image(file)
        height, width = image.height, image.width
        if size is None and first is not None and first != (height, width):
            this, other = file.relative_to(root), files[0].relative_to(root)
            sizes = f"{this} is {height}x{width}, {other} is {first[0]}x{first[1]}"
            raise DataError(f"{root}: images must have the same size, but {sizes}; resize them with size={first[0]}")
        first = first or (height, width)
        if colour == "colour" or (colour == "auto" and (coloured or image.mode != "L")):
            if not coloured:
                # The first coloured image turns the grey ones before it into colour.
                coloured = [levels.expand(3, -1, -1) for levels in grey]
                grey = []
            coloured.append(pixel_levels(image, 3, size))
        else:
            grey.append(pixel_levels(image, 1, size))
    return torch.stack(coloured or grey)
