package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// On a terminal that is not as high as a report, the answer would scroll away with its first lines: it stands
// at the end, too. Where all has room it stands there once.
func TestTheAnswerStaysOnTheScreen(t *testing.T) {
	path := recorded(t, t.TempDir(), "oom.json", "oom")
	for _, c := range []struct{ height, answers int }{{24, 1}, {200, 1}} {
		cmd := exec.Command("sh", "-c", `gmemtop oom "$0"; echo END`, path)
		cmd.Env = append(os.Environ(), "TERM=xterm-256color")
		x := newTerminal(t, 100, c.height, cmd)
		text, _ := x.until("the report is printed", func(screen string) bool {
			return strings.Contains(screen, "END")
		})
		x.close()
		if n := strings.Count(text, "OOM: asked for"); n != c.answers {
			t.Errorf("at %d lines the answer stands on the screen %d times:\n%s", c.height, n, text)
		}
		if lines := strings.Split(strings.TrimRight(text, " \n"), "\n"); c.height == 24 &&
			!strings.Contains(strings.Join(lines[max(len(lines)-6, 0):], "\n"), "OOM: asked for") {
			t.Errorf("the answer is not at the end:\n%s", text)
		}
	}
}
