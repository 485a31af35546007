"""The cell magic %%gmemtop: runs a cell, and shows below it where the memory went."""

from __future__ import annotations

import argparse
import html
import shlex
import tempfile
from pathlib import Path
from typing import Any

from ._watch import GmemtopWarning, Watch, warn, watch

__all__ = ["GmemtopWarning", "register", "show"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="%%gmemtop", add_help=False)
    parser.add_argument("-o", "--output", help="keep the recording in this file")
    parser.add_argument("--every", type=int, help="capture one step in this many whole")
    parser.add_argument("--height", type=int, default=700, help="of the report, in pixels")
    return parser


def register(shell: Any) -> None:
    """Add %%gmemtop to an IPython shell."""

    def gmemtop(line: str, cell: str) -> None:
        """%%gmemtop [-o FILE] [--every N] [--height PIXELS]: run the cell, and show where its memory went."""
        try:
            options = _parser().parse_args(shlex.split(line))
        except (SystemExit, ValueError):  # argparse has printed the usage
            warn("%%gmemtop runs the cell without recording it: its options are not understood")
            shell.run_cell(cell, store_history=False)
            return
        with tempfile.TemporaryDirectory(prefix="gmemtop-") as folder:
            path = options.output or str(Path(folder) / "cell.gmt")
            watching = watch(path, every=options.every, force=True)
            try:
                shell.run_cell(cell, store_history=False)
            finally:
                watching.stop()
            page = watching.report(Path(folder) / "cell.html")
            if page is not None:
                show(page, options.height)

    shell.register_magic_function(gmemtop, magic_kind="cell")


def show(page: Path | Watch, height: int = 700) -> None:
    """Show a report in the notebook: a page that was already written, or the page of a recording, which
    ends."""
    if isinstance(page, Watch):
        written = page.report()
        if written is None:
            return
        page = written
    from IPython.display import HTML, display

    # In its own frame, so that the page's style and script do not affect the notebook.
    frame = '<iframe srcdoc="%s" style="width:100%%;height:%dpx;border:0"></iframe>'
    display(HTML(frame % (html.escape(page.read_text(encoding="utf-8")), height)))
