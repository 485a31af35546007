"""Tests how rules become a plan, without torch."""

from agent.alone import backup, planned, rerun, swap


def test_rules_become_the_plan_that_a_carrier_reads():
    rules = [
        swap(1000, (3, 5, 0), (1, 2, 4)),
        swap(512, (7, 8, 0)),
        rerun({"relu": [0, 2], "quantized::mm": [1]}, {64: [0], 32: [2, 4]}),
        rerun({"relu": [1]}, {16: [9]}),
        backup({"mm": [3]}),
    ]
    dropped = {"how": "drop", "slot": 0, "release": 0, "fetch": 0}
    assert planned(rules, "cuda:1", 12, True, 4096) == {
        "version": 1,
        "device": "cuda:1",
        "slab": 2560,
        "saves": 12,
        "trained": True,
        "values": [
            {"save": 3, "bytes": 1000, "how": "swap", "slot": 0, "release": 5, "fetch": 0, "group": 0},
            {"save": 1, "bytes": 1000, "how": "swap", "slot": 1024, "release": 2, "fetch": 4, "group": 0},
            {"save": 7, "bytes": 512, "how": "swap", "slot": 2048, "release": 8, "fetch": 0, "group": 0},
            dict(dropped, save=0, bytes=64, group=0),
            dict(dropped, save=2, bytes=32, group=0),
            dict(dropped, save=4, bytes=32, group=0),
            dict(dropped, save=9, bytes=16, group=1),
        ],
        "groups": [[("aten::relu", 0), ("aten::relu", 2), ("quantized::mm", 1)], [("aten::relu", 1)]],
        "backups": [[("aten::mm", 3)]],
        "copies": 4096,
    }
