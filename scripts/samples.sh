#!/usr/bin/env bash
# Records the embedded samples again: real training steps on the CPU. PYTHON names an interpreter with torch
# (default python3).
set -euo pipefail
cd "$(dirname "$0")/../traces/samples"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"${PYTHON:-python3}" record_samples.py "$tmp"
for profile in "$tmp"/*.json "$tmp"/*.jsonl; do
	name=$(basename "${profile%.*}")
	cp "$profile" "$tmp/$name"
	go -C ../.. run ./cmd/gmemtop export "$tmp/$name" --format gmt -f -o "$tmp/$name.gmt"
	mv "$tmp/$name.gmt" .
done
ls -l ./*.gmt
