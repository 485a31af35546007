"""python -m gmemtop runs the program."""

import os
import sys

from ._program import Missing, find_program

if __name__ == "__main__":
    try:
        program = find_program()
    except Missing as e:
        sys.exit("gmemtop: %s" % e)
    os.execv(program, [program, *sys.argv[1:]])
