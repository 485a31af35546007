package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

//go:embed page.html
var layoutText string

var (
	layout   = template.Must(template.New("page").Parse(layoutText))
	markdown = goldmark.New(goldmark.WithExtensions(extension.GFM),
		goldmark.WithParserOptions(parser.WithAutoHeadingID()))
)

// entry is a page in the list on the left.
type entry struct {
	Title, Link string
	Here        bool
}

// render returns a page as HTML.
func (s *site) render(p *page) ([]byte, error) {
	doc := markdown.Parser().Parse(text.NewReader(p.text),
		parser.WithContext(parser.NewContext(parser.WithIDs(&anchors{used: map[string]int{}}))))
	if err := s.relink(p, doc); err != nil {
		return nil, err
	}
	var body, out bytes.Buffer
	if err := markdown.Renderer().Render(&body, p.text, doc); err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	var list []entry
	for i := range s.pages {
		q := &s.pages[i]
		list = append(list, entry{q.title, up(p) + q.target(), q == p})
	}
	err := layout.Execute(&out, map[string]any{
		"Title": p.title, "Pages": list, "Body": template.HTML(body.String()),
	})
	return out.Bytes(), err
}

// relink points the links of a page to the site's files. A link to something that the site does not have
// leaves its text.
func (s *site) relink(p *page, doc ast.Node) error {
	var dead []ast.Node
	err := ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		var link *[]byte
		switch n := n.(type) {
		case *ast.Link:
			link = &n.Destination
		case *ast.Image:
			link = &n.Destination
		}
		if link == nil || !entering {
			return ast.WalkContinue, nil
		}
		to, ok, err := s.resolve(p, string(*link))
		if !ok {
			dead = append(dead, n)
			return ast.WalkContinue, err
		}
		*link = []byte(to)
		return ast.WalkContinue, nil
	})
	for _, n := range dead {
		for c := n.FirstChild(); c != nil; c = n.FirstChild() {
			n.Parent().InsertBefore(n.Parent(), n, c)
		}
		n.Parent().RemoveChild(n.Parent(), n)
	}
	return err
}

// anchors names headings as GitHub does, so that a link with an anchor works on both.
type anchors struct{ used map[string]int }

// Generate implements parser.IDs.
func (a *anchors) Generate(heading []byte, _ ast.NodeKind) []byte {
	var b strings.Builder
	for _, r := range strings.ToLower(string(heading)) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			b.WriteRune(r)
		}
	}
	id := b.String()
	n := a.used[id]
	if a.used[id]++; n > 0 {
		id = fmt.Sprintf("%s-%d", id, n)
	}
	return []byte(id)
}

// Put implements parser.IDs.
func (a *anchors) Put(id []byte) { a.used[string(id)]++ }
