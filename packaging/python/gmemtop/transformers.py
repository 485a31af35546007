"""A callback of Hugging Face's Trainer: Trainer(..., callbacks=[Gmemtop("run.gmt")])."""

from __future__ import annotations

import os
from typing import Any

from transformers import TrainerCallback

from ._watch import Watch, watch


class Gmemtop(TrainerCallback):
    """Records the training that train() runs. The arguments are those of gmemtop.watch(). If the training
    ends with an exception, the recording ends with the process, or with self.watch.stop()."""

    def __init__(self, output: str | os.PathLike[str] | None = None, **options: Any) -> None:
        self.output, self.options = output, options
        self.watch: Watch | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.watch = watch(self.output, **self.options)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.watch is not None:
            self.watch.stop()
