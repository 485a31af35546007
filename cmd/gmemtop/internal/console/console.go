// Package console describes the streams of this process and what their terminal can show.
package console

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"

	"github.com/gmemtop/gmemtop/timeline/report"
)

// Console is the streams and the environment of one invocation.
type Console struct {
	In, Out, Err *os.File
	Environ      []string
}

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(f.Fd()) }

// IsPiped reports whether f is a pipe or a file: something that a shell put there, unlike a terminal or
// /dev/null.
func IsPiped(f *os.File) bool {
	if f == nil {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice == 0
}

// IsFile reports whether f is a file with content, as after gmemtop <FILE. What comes through a pipe is not
// known before it is there.
func IsFile(f *os.File) bool {
	if f == nil {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode().IsRegular() && info.Size() > 0
}

// Env returns the value of an environment variable, "" if it is not set.
func (c *Console) Env(name string) string {
	for i := len(c.Environ) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(c.Environ[i], name+"="); ok {
			return v
		}
	}
	return ""
}

// Redraws reports whether f is a terminal with a movable cursor.
func (c *Console) Redraws(f *os.File) bool { return IsTerminal(f) && c.Env("TERM") != "dumb" }

// HasScreen reports whether standard output can show the screen.
func (c *Console) HasScreen() bool { return c.Redraws(c.Out) }

// Colored reports whether standard output may get escape sequences. when is the value of --color, which
// decides unless it is auto; then NO_COLOR, CLICOLOR_FORCE, TERM and whether standard output is a terminal
// decide (https://no-color.org, https://bixense.com/clicolors).
func (c *Console) Colored(when string) bool {
	switch {
	case when == "always":
		return true
	case when == "never", c.Env("NO_COLOR") != "":
		return false
	case c.Env("CLICOLOR_FORCE") != "" && c.Env("CLICOLOR_FORCE") != "0":
		return true
	case c.Env("TERM") == "dumb":
		return false
	}
	return IsTerminal(c.Out)
}

// OnlyASCII reports whether the terminal can show only ASCII: its locale names a character set other than
// UTF-8, or it is the Linux console, whose fonts lack chart characters. Without a locale it is assumed to
// show everything.
func (c *Console) OnlyASCII() bool {
	locale := cmp.Or(c.Env("LC_ALL"), c.Env("LC_CTYPE"), c.Env("LANG"))
	utf8 := strings.Contains(strings.ToLower(strings.ReplaceAll(locale, "-", "")), "utf8")
	return locale != "" && !utf8 || c.Env("TERM") == "linux"
}

// Tell writes a message for the user on standard error. On a terminal its lines break between words.
func (c *Console) Tell(message string) {
	message = "gmemtop: " + message
	if IsTerminal(c.Err) {
		if w, _, err := term.GetSize(c.Err.Fd()); err == nil && w > 0 {
			message = fold(message, w)
		}
	}
	fmt.Fprintln(c.Err, message)
}

// fold breaks the lines of a text that are wider than w cells between words.
func fold(text string, w int) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if ansi.StringWidth(line) > w {
			lines[i] = report.Wrap(line, w)
		}
	}
	return strings.Join(lines, "\n")
}

// Width is the width of the terminal on standard output, 0 if there is none.
func (c *Console) Width() int {
	w, _ := c.size()
	return w
}

// Height is how many lines the terminal on standard output has, 0 if there is none.
func (c *Console) Height() int {
	_, h := c.size()
	return h
}

func (c *Console) size() (w, h int) {
	if !IsTerminal(c.Out) {
		return 0, 0
	}
	w, h, err := term.GetSize(c.Out.Fd())
	if err != nil {
		return 0, 0
	}
	return w, h
}

// Keyboard returns where to read keys from: the terminal if standard input is a trace, or nil for standard
// input.
func (c *Console) Keyboard() io.Reader {
	if IsTerminal(c.In) {
		return nil
	}
	if tty, err := os.Open("/dev/tty"); err == nil {
		return tty
	}
	return nil
}
