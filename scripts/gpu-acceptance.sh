#!/bin/sh
# Runs every check that needs a GPU, however long that takes, and resumes an earlier run in the same folder.
# The report is FOLDER/report.json, with recordings and logs beside it. Exit code 3: a check failed.
#
# usage: scripts/gpu-acceptance.sh GMEMTOP FOLDER [PYTHON]
set -eu
if [ $# -lt 2 ] || [ $# -gt 3 ]; then
	echo "usage: $0 GMEMTOP FOLDER [PYTHON]" >&2
	exit 2
fi
mkdir -p -- "$2"
exec "$1" doctor --gpu-report "$2/report.json" --force --all --keep "$2" ${3:+--python "$3"}
