#!/usr/bin/env bash
# Writes docs/results.md, which compares the papers' figures with ours. GMEMTOP_TRACES names the folder of the
# public recordings; without it the sections that need them say so. Arguments are passed on, for example -only
# joint; with arguments the page goes to standard output. Parts made with -only become a page with -join.
set -euo pipefail
cd "$(dirname "$0")/.."
if (($#)); then
	exec go run ./scripts/results "$@"
fi
page=$(mktemp)
trap 'rm -f "$page"' EXIT
go run ./scripts/results >"$page"
cat "$page" >docs/results.md
