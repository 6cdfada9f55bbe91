"""Data sets by name, from files and from folders: prepared, split, and with withheld classes."""

from bayesify.data.arrays import from_npz
from bayesify.data.columns import Column
from bayesify.data.dataset import DataSet
from bayesify.data.encoding import EncodedRows
from bayesify.data.errors import DataError
from bayesify.data.folders import from_folder
from bayesify.data.images import ImageLayout
from bayesify.data.loading import load
from bayesify.data.locations import Available, available
from bayesify.data.preparation import NORMALISATIONS, Preparation
from bayesify.data.sources import open_data
from bayesify.data.splitting import label_noise, split, withhold
from bayesify.data.tables import encode_rows, from_csv, from_sql, from_table, rows_from_csv

__all__ = [
    "NORMALISATIONS",
    "Available",
    "Column",
    "DataError",
    "DataSet",
    "EncodedRows",
    "ImageLayout",
    "Preparation",
    "available",
    "encode_rows",
    "from_csv",
    "from_folder",
    "from_npz",
    "from_sql",
    "from_table",
    "label_noise",
    "load",
    "open_data",
    "rows_from_csv",
    "split",
    "withhold",
]
