// Package examples holds the networks that anyone can train without a data set, as files to read and to run,
// and as text for the checks that gmemtop runs on a GPU. It imports nothing of ours.
package examples

import "embed"

// Files has every example under its file name, such as gpt2.py.
//
//go:embed *.py
var Files embed.FS
