"""Watches where GPU memory goes during training, from inside a script or a notebook.

    import torch, gmemtop

    with gmemtop.watch("run.gmt"):
        train()

`gmemtop replay run.gmt` then shows the training in the terminal. In a notebook, `%load_ext gmemtop` adds the
cell magic `%%gmemtop`. gmemtop.lightning and gmemtop.transformers have callbacks, and the pytest marker
`gmemtop_peak` fails a test whose peak grew.

Nothing here changes a result or raises in your script: if something goes wrong, you get a warning.
"""

from __future__ import annotations

from typing import Any

from ._program import Missing, find_program
from ._watch import GmemtopWarning, Watch, watch

__all__ = ["GmemtopWarning", "Missing", "Watch", "find_program", "load_ipython_extension", "watch"]


def load_ipython_extension(shell: Any) -> None:
    """Add the cell magic %%gmemtop to a notebook: %load_ext gmemtop."""
    from .notebook import register

    register(shell)
