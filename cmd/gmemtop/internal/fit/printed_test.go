package fit

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
)

func TestOnlyTheEndOfWhatWasPrintedIsExplained(t *testing.T) {
	var o estimate.Options
	p, err := KeepPrinted(&o)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for i := range 4000 {
		fmt.Fprintf(o.Stdout, "line %d\r\n", i)
	}
	io.WriteString(o.Stderr, "an error\x1b[2J in red\n")
	var out bytes.Buffer
	said := p.Explain(&out)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(said) > printedShown || !strings.HasPrefix(said, "line ") || !strings.Contains(said, "an error") {
		t.Errorf("%d bytes, from %.20q", len(said), said)
	}
	if n := len(lines); n < 1000 || n > 3999 || lines[n-2] != "line 3999" ||
		strings.ContainsAny(out.String(), "\x1b\r") {
		t.Errorf("%d lines, to %q", n, lines[n-1])
	}
}

func TestWhatIsShownAtOnceIsNotShownAgain(t *testing.T) {
	var o estimate.Options
	var out bytes.Buffer
	screen, err := os.Create(filepath.Join(t.TempDir(), "screen"))
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	p := ShowPrinted(&o, screen)
	defer p.Close()
	io.WriteString(o.Stdout, "a loss\n")
	io.WriteString(o.Stderr, "an error\n")
	if got, err := os.ReadFile(screen.Name()); string(got) != "a loss\nan error\n" {
		t.Errorf("shown: %q, %v", got, err)
	}
	if said := p.Explain(&out); said != "an error\n" || out.Len() > 0 {
		t.Errorf("%q, and shown again: %q", said, out.String())
	}
	io.WriteString(o.Stderr, strings.Repeat("x", 2*printedShown))
	if said := p.Explain(&out); len(said) != printedShown {
		t.Errorf("%d bytes are kept", len(said))
	}
}
