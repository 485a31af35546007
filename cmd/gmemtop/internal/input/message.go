package input

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/load"
)

// pipedLog is how much of standard input is searched for a message before it is read as a trace.
const pipedLog = 4 << 20

// Message returns the out-of-memory message from a log, which is not a trace.
func Message(path string) (m report.Message, ok bool) {
	if path == "-" {
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

// noTrace explains the error of reading a trace from path, if the file is a log with a message.
func noTrace(path string, err error) error {
	if !load.IsNoTrace(err) {
		return err
	}
	if _, ok := Message(path); !ok {
		return err
	}
	return fmt.Errorf("%s: %w", load.Name(path), &traces.FormatError{Offset: -1,
		Reason: "this is a log with an out-of-memory message, not a trace",
		Advice: "gmemtop oom " + path + " explains the message"})
}

// NoMessage explains the error of reading a trace from path, where a log without a message was read too.
func NoMessage(path string, err error) error {
	if !load.IsUnknown(err) {
		return err
	}
	return fmt.Errorf("%s: %w", load.Name(path), &traces.FormatError{Offset: -1,
		Reason: "this is not a trace, and no line in it says that memory ran out",
		Advice: "give oom a memory snapshot, or the log of the program with its error message"})
}

// MessagePiped looks for the message at the beginning of in. whole is all of in, with what was looked at.
func MessagePiped(in io.Reader) (m report.Message, ok bool, whole io.Reader) {
	b := bufio.NewReaderSize(in, pipedLog)
	head, _ := b.Peek(pipedLog) // may be shorter
	if len(head) == 0 || head[0] >= 0x7f || head[0] < '\t' || head[0] == '{' || head[0] == 0x1f {
		return m, false, b
	}
	m, ok, _ = report.ReadMessage(bytes.NewReader(head))
	return m, ok, b
}
