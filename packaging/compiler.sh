#!/usr/bin/env bash
# Prints the command of a C++ compiler that builds for glibc 2.28, the C library of RHEL 8 and Debian 10: the
# stand-in GPU then runs wherever PyTorch does. It stays in the cache, under its version: the stand-in's
# objects are kept by the compiler's path, and a folder that is new each time would have all of them compiled
# again. The exit status is 1 if it cannot be had.
set -euo pipefail
zig=0.17.1
compiler=${XDG_CACHE_HOME:-$HOME/.cache}/gmemtop/ziglang-$zig
if ! "$compiler/bin/python" -m ziglang version >/dev/null 2>&1; then
	rm -rf "$compiler"
	if ! { python3 -m venv "$compiler" &&
		"$compiler/bin/pip" install -q --disable-pip-version-check "ziglang==$zig"; } >&2; then
		echo "no compiler for glibc 2.28: python3 with venv and pip fetches it" >&2
		exit 1
	fi
fi
echo "$compiler/bin/python -m ziglang c++ -target x86_64-linux-gnu.2.28 -fno-sanitize=undefined"
