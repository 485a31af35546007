"""Check that the memory of private pools is counted from the list of segments, with a stand-in for torch that
notes what it was asked for.

usage: pools.py AGENT.py
"""
import sys

with open(sys.argv[1]) as f:
    space = {"__name__": "gmemtop_agent"}
    exec(compile(f.read(), "gmemtop_agent", "exec"), space)


class Torch(object):
    def __init__(self, segments, history=False):
        self.cuda, self._C, self.asked = self, self, 0
        self.segments, self._cuda_isHistoryEnabled = segments, lambda: history
        self.memory_snapshot = self.plain

    def plain(self):
        self.asked += 1
        if isinstance(self.segments, Exception):
            raise self.segments
        return self.segments

    def light(self, mempool_id=None, include_traces=True):
        assert not include_traces, "the program's own history was asked for"
        return self.plain()


def segment(pool, free, device=0):
    return {"device": device, "segment_pool_id": pool, "total_size": 100, "active_size": 100 - free}


def counted(torch, times=1):
    pools, now = space["Pools"](), [5]

    def clock():
        now[0] += 1000  # each reading of the clock is a thousand nanoseconds later
        return now[0]

    for _ in range(times):
        pools.next = min(pools.next, now[0]) if pools.next < 1 << 61 else pools.next
        if now[0] >= pools.next:
            pools.take(torch, 0, clock)
    return pools


several = [segment((0, 0), 50), segment((0, 1), 30), segment((0, 1), 0), segment((3, 0), 20),
           segment((0, 1), 70, device=1)]
assert counted(Torch(several)).seen[0] == 50, "the free bytes of this device's private pools"
assert counted(Torch([segment((0, 0), 50)])).seen[0] == 0, "there are none"
assert counted(Torch(several)).seen[1] > 0

newer = Torch(several, history=True)
newer.memory_snapshot = newer.light
assert counted(newer).seen[0] == 50, "without the program's history the list is cheap"

older = Torch(several, history=True)
assert counted(older).seen == (-1, -1) and older.asked == 0, "the program's history would come with it"

unnamed = Torch([{"device": 0, "total_size": 1, "active_size": 0}])
assert counted(unnamed).seen == (-1, -1), "a torch that does not say whose a segment is"

none = Torch(RuntimeError("not meaningful with this backend"))
assert counted(none, times=3).seen == (
        -1, -1) and none.asked == 1, "an allocator that keeps no list is asked once"

pools = counted(Torch(several))
assert pools.next >= 2000000000, "the next time is seconds away"

# If a reading was slow only because the thread had no processor, the next one is not put off for long; if
# readings cost more from now on, it is.
cost = space["_cost"]
assert cost(100, 0) == 100 and cost(60, 100) == 60 and cost(10000000, 100) == 200
assert cost(10000000, 0) == 2 * space["EXPECTED"], "the first one counts for little as well"
now, seen = 100, []
for took in (100, 10000000, 100, 100, 800, 800, 800, 800):
    now = cost(took, now)
    seen.append(now)
assert seen == [100, 200, 100, 100, 200, 400, 800, 800], seen
