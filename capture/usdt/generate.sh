#!/bin/sh
# Compiles probe.bpf.c to probe_x86_bpfel.o and its Go wrapper. The bytes depend on the compiler, so only the
# version below may write them. With another one, or none, this says so and leaves the committed object alone.
set -eu
want="14.0.6"
have=$(clang --version 2>/dev/null | sed -n 's/.*clang version \([0-9.]*\).*/\1/p' | head -n 1)
if [ "$have" != "$want" ] || ! command -v llvm-strip >/dev/null; then
	echo "skip: capture/usdt: clang and llvm-strip $want compile its eBPF object; here: ${have:-no clang}" >&2
	exit 0
fi
exec go tool bpf2go -go-package usdt -tags linux -cc clang -strip llvm-strip -target amd64 \
	-type event probe probe.bpf.c -- -Wall -Werror
