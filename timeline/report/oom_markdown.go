package report

import (
	"io"

	"github.com/gmemtop/gmemtop/timeline"
)

// mostInIssue is how many holders and levers an issue report shows.
const mostInIssue = 5

// WriteMarkdown prints the autopsy for an issue report: the sentence, who held the memory and the outcome of
// the levers, with tables fenced as on a terminal. Places are a file's name and line, without its folders.
func (r *OOM) WriteMarkdown(w io.Writer, o Options) error {
	p := &printer{ascii: o.ASCII}
	for i := range r.Devices {
		d := &r.Devices[i]
		if r.Found && !d.OOM && !d.Inferred {
			continue
		}
		p.line("**%s**", EscapeMarkdown(d.Sentence))
		p.line("")
		p.line("```")
		d.printStats(p, o)
		d.printCauses(p, o)
		d.printHolders(p, Options{Units: o.Units, Top: mostInIssue})
		d.issueLevers(p, o.Units)
		p.line("```")
	}
	if r.Message != nil {
		cause, fix := r.Message.Sentences(o.Units)
		p.line("**%s** %s", EscapeMarkdown(cause), EscapeMarkdown(fix))
	}
	return p.flush(w)
}

// issueLevers prints a line for each lever.
func (d *OOMDevice) issueLevers(p *printer, u timeline.Units) {
	if len(d.Levers) == 0 {
		return
	}
	p.line("")
	p.line("what would help")
	var rows []row
	for _, l := range first(d.Levers, mostInIssue) {
		came := "not tried"
		switch {
		case l.Tried != nil && l.Tried.Outcome != NotTried:
			came = l.Tried.text(u)
		case l.Saves != nil:
			came += ", saves " + estimate(l.Exactness) + u.Bytes(*l.Saves)
		}
		rows = append(rows, row{l.Words(), came})
	}
	p.table("  ", rows)
}
