#!/usr/bin/env bash
# Writes every generated file, by the go:generate lines in the tree.
set -euo pipefail
cd "$(dirname "$0")/.."
go generate ./...
