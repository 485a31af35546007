"""Run the laws about what the stand-in GPU computes.

    python run_laws.py once|late|SEED laws|refusals|NAME...

Prints "ok NAME" or "FAIL NAME: why" for each law. The first argument is the order of work in this process: a
law about races expects wrong numbers in the order "late" and right ones in "once". The laws are about
programs that compute; the refusals are laws about what raises, which the process's report then lists.
"""

import sys
import traceback

import torch

from laws import forget_late_errors, laws, refusals

import laws_attention  # noqa: F401  each module adds its laws
import laws_graphs  # noqa: F401
import laws_orders  # noqa: F401
import laws_random_numbers  # noqa: F401
import laws_refusals  # noqa: F401
import laws_tensors  # noqa: F401
import laws_training  # noqa: F401


def main():
    groups = {"laws": list(laws), "refusals": list(refusals)}
    names = [n for a in sys.argv[2:] for n in groups.get(a, [a])]
    failed = 0
    for name in names:
        try:
            (laws | refusals)[name]()
            torch.cuda.synchronize()
            print(f"ok {name}", flush=True)
        except BaseException as error:
            failed += 1
            print(f"FAIL {name}: {type(error).__name__}: {error}".replace("\n", " "), flush=True)
            traceback.print_exc(limit=-4, file=sys.stderr)
            forget_late_errors()
    print(f"{len(names) - failed} of {len(names)} laws hold", flush=True)


if __name__ == "__main__":
    main()
