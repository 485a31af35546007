//go:build !linux

package procs

import "github.com/gmemtop/gmemtop/traces/maybe"

func owner(string) maybe.Int { return maybe.Int{} }
