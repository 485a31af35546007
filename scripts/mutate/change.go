package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/cover"
)

// change is one place in a file and what replaces it.
type change struct {
	path       string // of the file
	source     []byte
	start, end int // offsets
	text       string
	rel, fn    string // the file within its module, and the function
	line       int
}

// apply returns the file with the change made.
func (c *change) apply() []byte {
	return slices.Concat(c.source[:c.start], []byte(c.text), c.source[c.end:])
}

// String names the change by its lines and what they become. It has no line number, so that the name stays
// when code above it moves.
func (c *change) String() string {
	first := bytes.LastIndexByte(c.source[:c.start], '\n') + 1
	last := c.end + max(0, bytes.IndexByte(c.source[c.end:], '\n'))
	was := oneLine(c.source[first:last])
	is := oneLine(slices.Concat(c.source[first:c.start], []byte(c.text), c.source[c.end:last]))
	return fmt.Sprintf("%s %s: %s -> %s", c.rel, c.fn, was, is)
}

func oneLine(text []byte) string { return strings.Join(strings.Fields(string(text)), " ") }

// changes returns all changes to places that tests reach.
func changes(p pkg, reached map[string][]cover.ProfileBlock) ([]change, error) {
	var all []change
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		source, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		of, err := changesOf(path, filepath.ToSlash(filepath.Join(p.rel(), name)), source)
		if err != nil {
			return nil, err
		}
		for _, c := range of {
			if slices.ContainsFunc(reached[name], func(b cover.ProfileBlock) bool {
				return b.Count > 0 && b.StartLine <= c.line && c.line <= b.EndLine
			}) {
				all = append(all, c)
			}
		}
	}
	return all, nil
}

// swaps says which operator replaces another: the nearest one with another meaning.
var swaps = map[token.Token]string{
	token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">", token.EQL: "!=", token.NEQ: "==",
	token.ADD: "-", token.SUB: "+", token.MUL: "/", token.QUO: "*", token.REM: "*",
	token.ADD_ASSIGN: "-=", token.SUB_ASSIGN: "+=", token.MUL_ASSIGN: "/=", token.QUO_ASSIGN: "*=",
	token.INC: "--", token.DEC: "++", token.SHL: ">>", token.SHR: "<<",
	token.BREAK: "continue", token.CONTINUE: "break",
}

// changesOf returns every change of a file: an operator swapped, half of a condition or one of two bounds
// removed, a number doubled, a negation removed.
func changesOf(path, rel string, source []byte) ([]change, error) {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var all []change
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		offset := func(p token.Pos) int { return files.Position(p).Offset }
		text := func(n ast.Node) string { return string(source[offset(n.Pos()):offset(n.End())]) }
		put := func(from, to token.Pos, text string) {
			all = append(all, change{path: path, rel: rel, fn: fn.Name.Name, source: source,
				start: offset(from), end: offset(to), text: text, line: files.Position(from).Line})
		}
		operator := func(at token.Pos, op token.Token) {
			if other, ok := swaps[op]; ok {
				put(at, at+token.Pos(len(op.String())), other)
			}
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				operator(n.OpPos, n.Op)
				if n.Op == token.LAND || n.Op == token.LOR {
					put(n.Pos(), n.End(), text(n.X))
					put(n.Pos(), n.End(), text(n.Y))
				}
			case *ast.AssignStmt:
				operator(n.TokPos, n.Tok)
			case *ast.IncDecStmt:
				operator(n.TokPos, n.Tok)
			case *ast.BranchStmt:
				operator(n.TokPos, n.Tok)
			case *ast.UnaryExpr:
				if n.Op == token.NOT || n.Op == token.SUB {
					put(n.OpPos, n.X.Pos(), "")
				}
			case *ast.CallExpr:
				if id, ok := n.Fun.(*ast.Ident); ok && (id.Name == "min" || id.Name == "max") {
					for _, one := range n.Args {
						put(n.Pos(), n.End(), text(one))
					}
				}
			case *ast.BasicLit:
				if (n.Kind == token.INT || n.Kind == token.FLOAT) && n.Value != "0" {
					put(n.Pos(), n.End(), "(2*"+n.Value+")")
				}
			}
			return true
		})
	}
	slices.SortStableFunc(all, func(a, b change) int { return cmp.Compare(a.start, b.start) })
	return all, nil
}
