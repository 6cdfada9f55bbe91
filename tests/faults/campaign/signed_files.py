"""Files of a run changed by somebody who computes their checksums anew, so that no checksum refuses them.

Such a file must be read and used, or refused in one line. `mutated_files` damages files by chance; there the checksum
refuses nearly all of those that have one, and what reads their content is hardly tried.
"""

import mutated_files

FULL, SHORT, BLOCK = 20_000, 400, 1_000


def rows(ledger, short):
    """One row for each kind of file, and one for memory."""
    return mutated_files.made(ledger, SHORT if short else FULL, BLOCK, signed=True)
