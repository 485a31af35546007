package tui

import (
	"path/filepath"
	"testing"

	"github.com/charmbracelet/colorprofile"
)

func TestTheEnvironmentIsTheOneThatWasGiven(t *testing.T) {
	for name, value := range map[string]string{
		"EDITOR": "outer", "VISUAL": "outer", "XDG_STATE_HOME": "/outer", "TERM": "dumb", "COLORTERM": "",
	} {
		t.Setenv(name, value)
	}
	state := t.TempDir()
	m := newModel(Options{Environ: []string{
		"EDITOR=vi", "EDITOR=vim", "XDG_STATE_HOME=" + state, "TERM=xterm-256color", "COLORTERM=truecolor",
	}})
	if m.share.editor != "vim" {
		t.Errorf("the editor is %q", m.share.editor)
	}
	if dir := stateDir(m); dir != filepath.Join(state, "gmemtop") {
		t.Errorf("the state folder is %s", dir)
	}
	if p := m.opts.colors(); p != colorprofile.TrueColor {
		t.Errorf("the colours are %v", p)
	}
	outer := newModel(Options{})
	if outer.share.editor != "outer" || stateDir(outer) != filepath.Join("/outer", "gmemtop") ||
		outer.opts.colors() != colorprofile.ANSI256 {
		t.Errorf("without an environment of its own: %q, %s, %v", outer.share.editor, stateDir(outer),
			outer.opts.colors())
	}
}
