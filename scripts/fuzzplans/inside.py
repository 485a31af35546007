"""Carries made-up plans out in made-up programs: inside.py --seeds 1:100 [--rest PROGRAM'S FLAGS]

It needs no gmemtop and no viewer, so it runs many more programs than main.go: each trains in two forks of
this process, one of them with the agent. There the agent describes steps, and plans are drawn from what it
saw: any tensor may leave at any time, and a plan may stay on while the program does something else. Such a
plan is no good, but it must change no result, raise nothing and break nothing in the agent.
"""

import argparse
import ctypes
import faulthandler
import json
import os
import random
import signal
import sys
import traceback
import types
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "capture", "pytorch")]

import torch  # noqa: E402

sys.modules["observe"] = types.ModuleType("observe")
sys.modules["observe"].stepped = lambda tensors: None

import program  # noqa: E402
from agent import agent as agents  # noqa: E402
from agent.carry import Carrier  # noqa: E402
from agent.guard import Guard  # noqa: E402

STEPS, WORK, LIMIT = 18, 40, 400


def checksum(tensors):
    total = 0
    for t in tensors:
        memory = (ctypes.c_char * (t.numel() * t.element_size())).from_address(t.data_ptr())
        total = zlib.crc32(memory, total)
    return total


class Outside:
    """Stands in for the thread that talks to a viewer."""

    def __init__(self, say):
        self.say = say
        self.agent = agents.Agent("/nowhere", True)
        self.agent.thread = self
        self.agent._arm()
        self.draw = None
        self.number = 0

    def step(self, n):
        """Called between two steps of the program."""
        a, draw = self.agent, self.draw
        a.tally.wake()
        if a.guard.dead:
            return
        while a.windows.ready:
            window = a.windows.ready.popleft()
            if window.how != "ops":
                continue
            for _ in window.pieces({"epoch_ns": 0}):
                pass
            plan = made_up(window, draw)
            if plan is not None:
                self.number += 1
                a.wishes.carry(0, self.number, plan, False, True)
                self.say("plan of %d values, %d groups" % (len(plan["values"]), len(plan["groups"])))
            return
        carrier = a.manager.carrier
        if not a.windows.busy() and draw.random() < (0.2 if carrier is not None else 0.7):
            a.wishes.want.append(("ops", 2, draw.random() < 0.8, "", []))
        elif carrier is not None and draw.random() < 0.1:
            a.wishes.carry(0, 0, None, False, True)


def made_up(window, draw):
    """A plan from a step that a window shows; None if it saw no saves."""
    begin, end = window.steps[draw.randrange(len(window.steps))]
    sizes = {}
    for r in window.storages.before + window.rows.list:
        if r[0] == "a":
            sizes[r[1]] = r[2]
    rows = [r for r in window.rows.list if r[0] == "o" and begin <= r[1] < end]
    saves, loads, seen, number = [], [], {}, {}
    where, passes, loading = [], 0, False
    ops = []
    for r in rows:
        _, _, _, name, phase, module, reads, makes, writes, again, _, _, nograd = r
        if name == "gmemtop::save":
            loading = False
            saves.append(reads[0] if reads else -1)
            where.append((module, passes))
            number.setdefault(saves[-1], len(saves) - 1)
        elif name == "gmemtop::load":
            passes, loading = passes + (not loading), True
            loads.append(number.get(reads[0], 0) if reads else 0)
        elif phase == "forward" and module:
            key = name, nograd
            k = seen[key] = seen.get(key, -1) + 1
            ops.append((name, -1 - k if nograd else k, reads, makes, writes, again, module, passes))
    if not saves:
        return None
    maker = {n: k for k, o in enumerate(ops) for n in o[3]}
    swaps, drops = draw.choice([(0.6, 0.0), (0.0, 0.9), (0.4, 0.5), (0.1, 0.2), (0.0, 0.9)])
    values, groups, slab, deep = [], [], 0, draw.random()
    shared = {}
    for n, save in sorted(number.items(), key=lambda x: x[1]):
        size = sizes.get(n, 0)
        if n < 0 or size < 256 or n in window.roles.parameters:
            continue
        how = draw.random()
        last = max(k for k, s in enumerate(saves) if s == n)
        if how < swaps:
            release = draw.choice([last + 1, save + 1, draw.randrange(save, len(saves) + 1)])
            values.append(
                {
                    "save": save,
                    "bytes": size,
                    "how": "swap",
                    "slot": slab,
                    "release": release,
                    "fetch": draw.randrange(max(len(loads), 1)),
                    "group": 0,
                }
            )
            slab += (size + 511) & ~511
        elif how < swaps + drops and n in maker and ops[maker[n]][5]:
            todo, chain = [n], set()
            while todo:
                k = maker.get(todo.pop())
                # what another pass made may depend on weights that have changed since
                if k is None or k in chain or not ops[k][5] or ops[k][7] != ops[maker[n]][7]:
                    continue
                chain.add(k)
                later = range(k + 1, maker[n] + 1)
                chain.update(i for i in later if set(ops[i][4]) & set(ops[k][3]) and ops[i][5])
                if draw.random() < deep and len(chain) < 12:
                    todo.extend(ops[k][2])
            key = frozenset(chain)
            if key not in shared:
                shared[key] = len(groups)
                groups.append([[full(ops[k][0]), ops[k][1]] for k in sorted(chain)])
            values.append(
                {
                    "save": save,
                    "bytes": size,
                    "how": "drop",
                    "slot": 0,
                    "release": last + 1,
                    "fetch": 0,
                    "group": shared[key],
                }
            )
    plan = {
        "version": 1,
        "device": "cpu",
        "slab": slab,
        "saves": len(saves),
        "values": values,
        "groups": groups,
    }
    # of a tensor that the program may change, the process copies what is small, and notes what makes the rest
    plan["copies"] = draw.choice([0, 256, 4 << 10, 1 << 20])
    if draw.random() < 0.7:
        grouped = {tuple(op) for g in groups for op in g}
        alone = [[full(o[0]), o[1]] for o in ops if o[5] and (full(o[0]), o[1]) not in grouped]
        plan["backups"] = [[op] for op in alone if draw.random() < 0.5]
    plan["trained"] = not window.evaluates
    if draw.random() < 0.4:
        modules = sorted({m for m, _ in where} | {o[6] for o in ops})
        at = {m: k for k, m in enumerate(modules)}
        called, count = {}, {}
        for o in ops:
            key = o[0], o[1] < 0, o[6], o[7]
            k = count[key] = count.get(key, -1) + 1
            called.setdefault(full(o[0]), []).append([o[1], at[o[6]], o[7], k])
        plan["places"] = {
            "modules": modules,
            "saves": [[at[m], passes] for m, passes in where],
            "loads": loads,
            "ops": called,
        }
        plan["sizes"] = [draw.choice([0, 1 << 40])] * 2
    elif draw.random() < 0.7:
        plan["sizes"] = [sizes.get(n, -1) for n in saves]
    return plan


def full(name):
    return name if "::" in name else "aten::" + name


def runs(a, rest, watched, say):
    """Train, and return the checksums of the steps."""
    sums = []
    outside = Outside(say) if watched else None

    def stepped(tensors):
        sums.append(checksum(tensors))
        if len(sums) % 2 and outside is not None:
            sums.append(checksum(outside.weights()))
        elif len(sums) % 2:
            sums.append(checksum(weights()))

    class P(program.Program):
        def __init__(self, *args):
            super().__init__(*args)
            models.append(self)

    models = []

    def weights():
        return models[0].model.parameters() if models else ()

    if outside is not None:
        outside.weights = weights
        outside.draw = random.Random(a)
        program.EXTRAS["outside"] = lambda p: outside.step(p.n)
    else:
        program.EXTRAS["outside"] = lambda p: None
    program.observe.stepped = stepped
    program.Program = P
    program.print = lambda *args, **kw: say(*args)
    sys.argv = ["program.py", str(a), "--steps", str(STEPS), "--also", "outside", *rest]
    failed = ""
    try:
        program.main()
    except Exception as e:
        lines = traceback.format_exc().strip().split("\n")
        failed = "%s: %s" % (type(e).__name__, str(e).split("\n")[0])
        say("raised:", *lines[-12:], sep="\n")
    return sums, failed


def child(seed, rest, watched):
    """Run in a fork. Returns what it found and what it said."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(out)
        code = 1
        try:
            signal.setitimer(signal.ITIMER_PROF, WORK)
            faulthandler.dump_traceback_later(LIMIT, exit=True)
            said, broken = [], []
            say = lambda *args, sep=" ": said.append(sep.join(map(str, args)))  # noqa: E731

            def caught(self, error, original=Guard.caught):
                broken.append("disarmed: " + traces(error))
                return original(self, error)

            def broke(self, it, error, original=Carrier.broke):
                broken.append("plan broke: " + traces(error))
                return original(self, it, error)

            Guard.caught, Carrier.broke = caught, broke
            Carrier.remove = removing(Carrier.remove, say, broken)
            sums, failed = runs(seed, rest, watched, say)
            with os.fdopen(into, "w") as f:
                json.dump((sums, failed, broken, said), f)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(into)
    with os.fdopen(out) as f:
        text = f.read()
    _, status = os.waitpid(pid, 0)
    if not text:
        return [], "died with status %d" % status, [], []
    return json.loads(text)


def removing(original, say, broken):
    def remove(self):
        if self.why and self.entries:
            say("plan ended:", self.why)
        if self.differs:
            broken.append("differs: " + str(self.why))
        return original(self)

    return remove


def traces(error):
    return "".join(traceback.format_exception(type(error), error, error.__traceback__)[-6:])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seeds", default="1:20")
    p.add_argument("--verbose", action="store_true")
    p.add_argument("--rest", nargs=argparse.REMAINDER, default=[])
    a = p.parse_args()
    torch.set_num_threads(1)
    first, _, last = a.seeds.partition(":")
    bad = 0
    for seed in range(int(first), int(last or first) + 1):
        alone, failed, _, what = child(seed, a.rest, False)
        if failed:
            print("seed", seed, "is no program:", failed, what[:1], flush=True)
            continue
        sums, raised, broken, said = child(seed, a.rest, True)
        odd = list(dict.fromkeys(broken))
        if raised:
            odd.append("raised " + raised)
        for k, (x, y) in enumerate(zip(alone, sums)):
            if x != y:
                odd.append("checksum %d of %d differs" % (k, len(alone)))
                break
        else:
            if len(alone) != len(sums):
                odd.append("%d checksums instead of %d" % (len(sums), len(alone)))
        bad += bool(odd)
        print("seed", seed, "FAILED" if odd else "good", what[:1], flush=True)
        if odd or a.verbose:
            print("\n".join("    " + line for x in odd + said for line in x.split("\n")), flush=True)
    print(bad, "failed", flush=True)


if __name__ == "__main__":
    main()
