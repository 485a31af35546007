package inject

import (
	"encoding/binary"
	"os/exec"
	"strings"
	"testing"
)

// TestTheProgramIsSilentAndNeverFails runs what PyRun_SimpleString is given, with -c, which runs it the
// same way.
func TestTheProgramIsSilentAndNeverFails(t *testing.T) {
	each(t, func(t *testing.T, p interpreter) {
		for _, source := range []string{"pass", "1/0", "raise SystemExit(3)", "def f(:",
			"raise KeyboardInterrupt", "\t\x01\x00'\"\\\n\u2026\U0001F600",
			"import __main__\nfor n in ('compile', 'exec'): setattr(__main__, n, None)"} {
			b := Bootstrap{Source: source, Name: "it's"}
			text := b.program("None", "1/0") // a report that fails
			args := []string{"-c", text}
			name := p.path
			if p.root != "" {
				name, args = "chroot", append([]string{p.root, p.path}, args...)
			}
			// KeyboardInterrupt is raised again once the program runs on, which is here at its end.
			if out, err := exec.Command(name, args...).CombinedOutput(); (len(out) > 0 || err != nil) &&
				!strings.Contains(source, "Keyboard") {
				t.Errorf("%q: %v: %s", source, err, out)
			}
		}
	})
}

func TestUnusableSourcesAreRefused(t *testing.T) {
	for _, b := range []Bootstrap{{Name: "x"}, {Source: "\xff", Name: "x"},
		{Source: strings.Repeat(" ", maxSource+1), Name: "x"}, {Source: "1", Name: "a\nb"}} {
		if b.validate() == nil {
			t.Errorf("%.20q with %q was accepted", b.Source, b.Name)
		}
	}
}

func TestTheHeaderIsRead(t *testing.T) {
	b := make([]byte, outcomeAt+outcomeMax)
	copy(b, "0123456789abcdef")
	if h := parseHeader(b); h.begun || h.done || h.outcome != "" || string(h.token[:]) != "0123456789abcdef" {
		t.Errorf("%+v", h)
	}
	binary.LittleEndian.PutUint32(b[begunAt:], 1)
	copy(b[outcomeAt:], "ok\x00rest")
	if h := parseHeader(b); !h.begun || h.done || h.outcome != "ok" {
		t.Errorf("%+v", h)
	}
	if judge(1, "ok") != nil || judge(1, "") != nil || judge(1, "KeyError: 1") == nil {
		t.Error("outcomes are judged incorrectly")
	}
}

func TestTheMemoryHasRoomForTheText(t *testing.T) {
	for _, n := range []int{0, 1, pageSize - 1, pageSize, 100_000} {
		l := layoutFor(strings.Repeat("x", n))
		l.base = 1 << 40
		if l.text()+uint64(n)+1 > l.base+l.size || l.size%pageSize != 0 || l.outcome()+outcomeMax > l.text() {
			t.Errorf("%d bytes of text: %+v", n, l)
		}
	}
}
