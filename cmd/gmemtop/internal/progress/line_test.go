package progress

import (
	"bytes"
	"testing"
	"time"
)

// clock is a line on a buffer with a clock that only move advances.
func clock(b *bytes.Buffer) (l *Line, move func(time.Duration)) {
	now := time.Unix(0, 0)
	return &Line{w: b, begun: now, now: func() time.Time { return now }},
		func(d time.Duration) { now = now.Add(d) }
}

func TestProgressComesLateAndSparselyAndGoesAway(t *testing.T) {
	var b bytes.Buffer
	l, move := clock(&b)
	l.Tell("reading", 10, 100)
	if b.Len() > 0 {
		t.Errorf("after no time: %q", b.String())
	}
	move(quietFor)
	l.Tell("reading", 50, 100)
	l.Tell("reading", 51, 100)
	move(redrawEvery)
	l.Tell("matching", 5, 0)
	l.Done()
	l.Done()
	if want := "\r\x1b[Kreading 50 %\r\x1b[Kmatching 5 B\r\x1b[K"; b.String() != want {
		t.Errorf("got  %q\nwant %q", b.String(), want)
	}
}

func TestFileNamesCannotControlTheTerminal(t *testing.T) {
	var b bytes.Buffer
	l, move := clock(&b)
	move(quietFor)
	l.Tell("reading a\x1b[31m\nb\u202e", 1, 2)
	if got := bytes.TrimPrefix(b.Bytes(), []byte("\r\x1b[K")); bytes.ContainsAny(got, "\x1b\n\u202e") {
		t.Errorf("printed %q", got)
	}
}

func TestElapsedIsSaidFromASecondOn(t *testing.T) {
	began := time.Unix(0, 0)
	for after, want := range map[time.Duration]string{0: "", 999 * time.Millisecond: "", time.Second: ", 1 s",
		61500 * time.Millisecond: ", 61 s"} {
		if got := elapsed(began, began.Add(after)); got != want {
			t.Errorf("after %v: %q, want %q", after, got, want)
		}
	}
}

// A pipe or a log of CI gets whole lines, and few of them.
func TestALogGetsALineEveryFewSeconds(t *testing.T) {
	var b bytes.Buffer
	l, move := clock(&b)
	l.log = true
	for range 9 { // seconds
		l.Say("3 of 9 planned")
		move(time.Second)
	}
	l.Done()
	if want := "gmemtop: 3 of 9 planned\ngmemtop: 3 of 9 planned\n"; b.String() != want {
		t.Errorf("got  %q\nwant %q", b.String(), want)
	}
}
