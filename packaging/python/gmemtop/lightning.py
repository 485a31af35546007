"""A callback of Lightning: trainer = Trainer(callbacks=[Gmemtop("run.gmt")])."""

from __future__ import annotations

import os
import sys
from typing import Any

from ._watch import Watch, watch

# Lightning has two names, and each accepts only its own callbacks. Use the one that the script has imported.
if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback
else:
    from lightning.pytorch import Callback


class Gmemtop(Callback):
    """Records the training that fit() runs. The arguments are those of gmemtop.watch()."""

    def __init__(self, output: str | os.PathLike[str] | None = None, **options: Any) -> None:
        self.output, self.options = output, options
        self.watch: Watch | None = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self.watch = watch(self.output, **self.options)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        if self.watch is not None:
            self.watch.stop()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        if self.watch is not None:
            self.watch.stop()
