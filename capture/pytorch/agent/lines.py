"""Writes a captured window as text: the JSON lines that gmemtop's package traces/described documents.

This runs on the sending thread, where nobody waits for it. Categories, labels and the device's times are
looked up only now.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Iterator

from .process import environment_number
from .says import told

if TYPE_CHECKING:
    from .rows import Rows
    from .storages import Storages
    from .uses import Uses


def lines(
    head: dict[str, Any], steps: list[tuple[int, int]], rows: Rows, storages: Storages, uses: Uses
) -> Iterator[str]:
    """A window as text, some hundred kilobytes at a time. head adds fields to its first line; its epoch_ns is
    the Unix time of the clock's zero. The device must have finished everything that it times."""
    steps = rows.device_times(steps)
    storages.untouched()
    head = dict(
        head,
        gmemtop="described",
        version=1,
        torch=storages.torch.__version__,
        device=storages.device,
        pid=os.getpid(),
        rank=environment_number("RANK"),
        world_size=environment_number("WORLD_SIZE"),
        epoch_ns=rows.start + head["epoch_ns"],
        steps=[[rows.at(a), rows.at(b)] for a, b in steps],
    )
    quoted, out = {}, [json.dumps(head, separators=(",", ":"))]

    def quote(s: str) -> str:
        if s not in quoted:
            quoted[s] = json.dumps(s)
        return quoted[s]

    def says(label: str) -> str:
        code = told(label)
        return ',"says":' + json.dumps(code, separators=(",", ":")) if code else ""

    for table in (storages.before, rows.list):
        for row in table:
            if row[0] == "o":
                _, t, d, name, phase, module, r, w, m, rerun, stream, again, nograd = row
                out.append(
                    '{"k":"op","t":%d,"d":%d,"name":%s,"phase":"%s","module":%s,'
                    '"r":%s,"w":%s,"m":%s,"rerun":%s%s%s%s}'
                    % (
                        rows.at(t),
                        d,
                        quote(name if "::" in name or name == "running_statistics" else "aten::" + name),
                        phase,
                        quote(module),
                        list(r),
                        list(w),
                        list(m),
                        "true" if rerun else "false",
                        ',"stream":%d' % stream if stream else "",
                        ',"again":true' if again else "",
                        ',"nograd":true' if nograd else "",
                    )
                )
            elif row[0] == "f":
                out.append('{"k":"free","id":%d,"t":%d}' % (row[1], rows.at(row[2])))
            else:
                label = uses.label(row[1])
                out.append(
                    '{"k":"alloc","id":%d,"size":%d,"addr":%d,"t":%d,"category":"%s","on":"%s"%s}'
                    % (
                        row[1],
                        row[2],
                        row[4],
                        max(rows.at(row[3]), 0),
                        uses.category(row[1]),
                        storages.where[row[1]],
                        "" if label is None else ',"label":' + quote(label) + says(label),
                    )
                )
            if len(out) >= 2000:
                yield "\n".join(out) + "\n"
                out = []
    yield "\n".join(out) + "\n"
