// Command messages writes docs/messages.md: every sentence of the catalogue, from the source of package
// capture/say, and what views, reports and commands say besides, from theirs.
//
// Usage: go run ./scripts/messages > docs/messages.md
package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

//go:generate sh -c "go run . ../../capture/say > messages.tmp && mv messages.tmp ../../docs/messages.md"

func main() {
	folder := "capture/say"
	if len(os.Args) > 1 {
		folder = os.Args[1]
	}
	page, err := write(folder)
	if err != nil {
		fmt.Fprintln(os.Stderr, "messages:", err)
		os.Exit(1)
	}
	fmt.Print(page)
}

const head = `# Messages

Everything that gmemtop says, to be read from top to bottom. It is written from the source by
` + "`go run ./scripts/messages > docs/messages.md`" + `. First comes the catalogue (package capture/say),
sentences about a watched job that the screen, printed output and recordings share, with what varies in
*italics*. Then come the [agent](#messages-of-the-agent), the [views](#messages-of-the-screen),
[reports](#messages-of-reports), [plans](#messages-about-plans), [commands](#messages-of-commands) and
[the way to a job](#messages-about-watching-a-job).

`

const agentHead = `# Messages of the agent

The agent in the training process sends a code and values. Here … stands for a value.

`

// write returns the page for the package in a folder.
func write(folder string) (string, error) {
	files := token.NewFileSet()
	sentences, err := parser.ParseFile(files, folder+"/say.go", nil, parser.ParseComments)
	if err != nil {
		return "", err
	}
	agent, err := parser.ParseFile(files, folder+"/agent.go", nil, parser.ParseComments)
	if err != nil {
		return "", err
	}
	texts, err := table(sentences, "catalogue", func(v ast.Expr) (string, error) {
		c, ok := v.(*ast.CompositeLit)
		if !ok || len(c.Elts) != 2 {
			return "", errors.New("an entry of the catalogue is not a key and a text")
		}
		return text(c.Elts[1])
	})
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(head)
	named := map[string]string{}
	for _, t := range texts {
		named[t.key] = t.text
	}
	for _, block := range constants(sentences) {
		for _, c := range block {
			b.WriteString(heading(c.group))
			filled, err := fill(named[c.name], c.gaps)
			if err != nil {
				return "", fmt.Errorf("%s: %w", c.name, err)
			}
			fmt.Fprintf(&b, "- %s\n", filled)
			if c.last {
				b.WriteByte('\n')
			}
		}
	}
	b.WriteString(agentHead)
	told, err := table(agent, "agent", text)
	if err != nil {
		return "", err
	}
	for i, t := range told {
		if t.group != "" && i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(heading(t.group))
		fmt.Fprintf(&b, "- %s\n", strings.ReplaceAll(t.text, "%s", "…"))
	}
	for _, c := range chapters {
		if err := c.write(&b, filepath.Join(folder, "..", "..")); err != nil {
			return "", err
		}
	}
	return strings.TrimSuffix(strings.ReplaceAll(b.String(), "\n\n\n", "\n\n"), "\n"), nil
}

// heading returns the heading of a group, "" for none: its comment's first sentence, with the rest below.
func heading(group string) string {
	if group == "" {
		return ""
	}
	first, rest, more := strings.Cut(group, ". ")
	if more {
		return fmt.Sprintf("## %s\n\n%s\n\n", first, rest)
	}
	return fmt.Sprintf("## %s\n\n", strings.TrimSuffix(first, "."))
}

// constant is a sentence's name, what fills its gaps, and the comment above it if it begins a group.
type constant struct {
	name, group string
	gaps        []string
	last        bool // of its group
}

// constants returns the exported names of each block of constants that has no values of its own but iota.
func constants(f *ast.File) (blocks [][]constant) {
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		var block []constant
		for _, s := range g.Specs {
			spec := s.(*ast.ValueSpec)
			if !spec.Names[0].IsExported() || spec.Values != nil && !isIota(spec.Values[0]) {
				continue
			}
			c := constant{name: spec.Names[0].Name, last: true}
			if spec.Doc != nil {
				c.group = line(spec.Doc)
			} else if len(block) > 0 {
				block[len(block)-1].last = false
			}
			if gaps := line(spec.Comment); gaps != "" {
				c.gaps = strings.Split(gaps, ", ")
			}
			block = append(block, c)
		}
		blocks = append(blocks, block)
	}
	return blocks
}

func isIota(x ast.Expr) bool {
	id, ok := x.(*ast.Ident)
	return ok && id.Name == "iota"
}

// line returns the text of a comment as one line.
func line(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }

// entry is an element of a table: its key, its text, and the comment above it if it begins a group.
type entry struct{ key, text, group string }

// table returns the elements of the composite literal that a variable is initialised with.
func table(f *ast.File, name string, of func(ast.Expr) (string, error)) (list []entry, err error) {
	var lit *ast.CompositeLit
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && v.Names[0].Name == name && len(v.Values) == 1 {
			lit, _ = v.Values[0].(*ast.CompositeLit)
		}
		return lit == nil
	})
	if lit == nil {
		return nil, fmt.Errorf("no table %s", name)
	}
	from := lit.Lbrace
	for _, e := range lit.Elts {
		pair, ok := e.(*ast.KeyValueExpr)
		if !ok {
			return nil, fmt.Errorf("%s has an element without a key", name)
		}
		x := entry{}
		switch key := pair.Key.(type) {
		case *ast.Ident:
			x.key = key.Name
		case *ast.BasicLit:
			x.key = key.Value
		}
		if x.text, err = of(pair.Value); err != nil {
			return nil, fmt.Errorf("%s: %w", x.key, err)
		}
		for _, c := range f.Comments {
			if from < c.Pos() && c.End() < pair.Pos() {
				x.group = line(c)
			}
		}
		from = pair.End()
		list = append(list, x)
	}
	return list, nil
}

// text returns the value of a string, which may be written in parts.
func text(x ast.Expr) (string, error) {
	switch x := x.(type) {
	case *ast.BasicLit:
		return strconv.Unquote(x.Value)
	case *ast.BinaryExpr:
		left, err := text(x.X)
		if err != nil {
			return "", err
		}
		right, err := text(x.Y)
		return left + right, err
	}
	return "", errors.New("not a string")
}

// gap matches a verb of fmt, with the number of the value it takes if that is given.
var gap = regexp.MustCompile(`%(?:\[([0-9])\])?[a-z]`)

// fill puts the names of what fills the gaps of a sentence in their place.
func fill(sentence string, names []string) (string, error) {
	if sentence == "" {
		return "", errors.New("it has no text")
	}
	next := 0
	var err error
	out := gap.ReplaceAllStringFunc(sentence, func(verb string) string {
		at := next
		if n := gap.FindStringSubmatch(verb)[1]; n != "" {
			at = int(n[0] - '1')
		}
		if next = max(next, at+1); at < 0 || at >= len(names) {
			err = errors.New("the comment beside it names fewer values than it has gaps")
			return verb
		}
		return "*" + names[at] + "*"
	})
	if err == nil && next != len(names) {
		err = fmt.Errorf("it has %d gaps, and the comment beside it names %d values", next, len(names))
	}
	return strings.ReplaceAll(out, "%%", "%"), err
}
