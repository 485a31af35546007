package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/input"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// pipedLog is how much of standard input is searched for the message before reading it as a trace.
const pipedLog = 4 << 20

// messageIn returns PyTorch's out-of-memory message from a log that is not a trace.
func messageIn(path string) (m report.Message, ok bool) {
	if path == "-" || input.AnyFolder([]string{path}) {
		return m, false
	}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return m, false
	}
	f, err := os.Open(path)
	if err != nil {
		return m, false
	}
	defer f.Close()
	m, ok, err = report.ReadMessage(f)
	return m, ok && err == nil
}

// messagePiped looks for the message at the beginning of standard input, without consuming it.
func (a *app) messagePiped() (m report.Message, ok bool) {
	b := bufio.NewReaderSize(a.in, pipedLog)
	a.piped = b
	head, _ := b.Peek(pipedLog) // may be shorter
	if len(head) == 0 || head[0] >= 0x7f || head[0] < '\t' || head[0] == '{' || head[0] == 0x1f {
		return m, false
	}
	m, ok, _ = report.ReadMessage(bytes.NewReader(head))
	return m, ok
}

// oomMessage explains PyTorch's message alone.
func (a *app) oomMessage(m *report.Message, format string) error {
	var err error
	switch {
	case a.flags.json:
		err = a.write(false, func(w io.Writer) error { return report.WriteJSON(w, m) })
	case format == "markdown":
		err = a.write(false, func(w io.Writer) error {
			r := &report.OOM{Message: m}
			return r.WriteMarkdown(w, a.flags.report)
		})
	default:
		err = a.text(func(w io.Writer) error { return m.WriteText(w, a.reportOptions()) })
	}
	if err != nil {
		return err
	}
	return errFinding
}

// logOr explains the message in a log that could not be read as a trace, or returns the read error.
func (a *app) logOr(path, format string, readErr error) error {
	if errors.Is(readErr, context.Canceled) {
		return readErr
	}
	if m, ok := messageIn(path); ok {
		return a.oomMessage(&m, format)
	}
	return readErr
}
