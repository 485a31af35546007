package main

import (
	"os"
	"testing"
)

func TestTheScreenIsASCIIWhereTheTerminalIs(t *testing.T) {
	for env, want := range map[string]bool{
		"": false, "LANG=C": true, "LANG=C.UTF-8": false, "LANG=en_US.utf8": false,
		"LANG=de_DE.ISO-8859-1": true, "LC_ALL=POSIX": true, "TERM=linux": true, "TERM=screen": false,
	} {
		if got := newApp(os.Stdin, os.Stdout, os.Stderr, []string{env}).OnlyASCII(); got != want {
			t.Errorf("%s: %v", env, got)
		}
	}
}
