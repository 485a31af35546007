package main

import (
	"errors"
	"io"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/console"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/output"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// write calls body with a writer to the file that -o names, or to standard output. Text is stripped of
// terminal control sequences.
func (a *app) write(body func(w io.Writer) error) error { return a.writeTo(a.flags.output, body) }

// writeTo is write to another path, "" or - for standard output.
func (a *app) writeTo(path string, body func(w io.Writer) error) error {
	return a.writeRaw(path, output.Clean(body))
}

// writeBinary writes what is no use on a terminal, as it is.
func (a *app) writeBinary(path string, body func(w io.Writer) error) error {
	if isStdout(path) && console.IsTerminal(a.Out) {
		return errTerminal
	}
	return a.writeRaw(path, body)
}

func (a *app) writeRaw(path string, body func(w io.Writer) error) error {
	if isStdout(path) {
		return output.Stream(a.Out, body)
	}
	if err := a.mayWrite(path); err != nil {
		return err
	}
	return a.files.Write(path, body)
}

// isStdout reports whether a path stands for standard output.
func isStdout(path string) bool { return path == "" || path == "-" }

// errTerminal is returned when binary output would go to a terminal.
var errTerminal = exit.Mistakef("this format is not text: name a file with -o")

// mayWrite refuses to overwrite a file without -f, before any work is done.
func (a *app) mayWrite(path string) error {
	if isStdout(path) {
		return nil
	}
	a.files.Force = a.flags.force
	err := a.files.MayWrite(path)
	if errors.Is(err, output.ErrFolder) {
		return exit.AsMistake(err)
	}
	return err
}

// text writes a text report, its first paragraph in bold where standard output shows colours. On a terminal
// that is not as high as the report, that paragraph also stands at the end: it is the answer, and would have
// scrolled away. With --quiet it is all that standard output gets.
func (a *app) text(body func(w io.Writer) error) error {
	height, bold := a.Height(), a.colored()
	switch {
	case a.flags.quiet && a.flags.output == "":
		return a.writeRaw("", output.Answer(body))
	case a.flags.output != "" || !bold && height == 0:
		return a.write(body)
	}
	return a.writeRaw("", output.Emphasised(body, height, bold))
}

// answer writes v as JSON with --json, or else as text.
func (a *app) answer(v any, text func(w io.Writer) error) error {
	if a.flags.json {
		text = func(w io.Writer) error { return report.WriteJSON(w, v) }
	}
	return a.write(text)
}

// printReport writes a report in the format that was asked for: v as JSON, Markdown, or text as [app.text]
// does. markdown is nil for a report without --format.
func (a *app) printReport(v any, markdown, text func(w io.Writer) error) error {
	switch {
	case a.flags.json:
		return a.answer(v, nil)
	case a.flags.format == "markdown":
		return a.write(markdown)
	}
	return a.text(text)
}

// reportOptions says how a text report is printed where it goes.
func (a *app) reportOptions() report.Options {
	o := a.flags.report
	o.Width = a.width()
	return o
}

// width is the width of the terminal that the report goes to, 0 if it goes anywhere else.
func (a *app) width() int {
	if a.flags.output != "" {
		return 0
	}
	return a.Width()
}
