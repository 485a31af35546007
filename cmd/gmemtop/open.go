package main

import (
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/input"
	"github.com/gmemtop/gmemtop/traces/load"
)

// reader reads the traces that the command line names.
func (a *app) reader() *input.Reader {
	o := load.Options{NoCache: a.flags.noCache, Stdin: a.In, Waiting: a.waiting}
	if a.piped != nil {
		o.Stdin = a.piped
	}
	return &input.Reader{Options: o, Detail: a.detailf, Bar: func() (input.Progress, func()) {
		bar := a.newProgress()
		return bar.Tell, bar.Done
	}}
}

// waiting tells the user why nothing happens.
func (a *app) waiting(path string) {
	a.notef("waiting for a program to write to %s, which is a named pipe", load.Name(path))
}
