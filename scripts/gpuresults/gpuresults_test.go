package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/replay/acceptance"
)

const root = "../.."

// generated is the page that this program writes: it needs no claims.
const generated = "docs/gpu-results.md"

func claims(t *testing.T) *list {
	t.Helper()
	l, err := readClaims(filepath.Join(root, "docs", "gpu-claims.json"))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// pages returns README and all pages of docs, by their path below the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d pages, %v", len(files), err)
	}
	out := map[string]string{}
	for _, file := range append(files, filepath.Join(root, "README.md")) {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.ToSlash(name)] = string(b)
	}
	return out
}

func TestThePageIsCurrent(t *testing.T) {
	var b bytes.Buffer
	if err := write(&b, root); err != nil {
		t.Fatal(err)
	}
	if have := pages(t)[generated]; have != b.String() {
		t.Errorf("%s is stale: run scripts/generate.sh and commit it", generated)
	}
}

func TestEveryQuoteIsOnItsPage(t *testing.T) {
	l, all := claims(t), pages(t)
	check := func(id, page, quote string) {
		text, ok := all[page]
		switch {
		case !ok:
			t.Errorf("%s: no page %s", id, page)
		case quote == "":
			t.Errorf("%s: an empty quotation of %s", id, page)
		case !strings.Contains(spaced(text), spaced(quote)):
			t.Errorf("%s: %s does not say %q: quote what it says now, or remove the claim", id, page, quote)
		}
	}
	for _, c := range l.Claims {
		if len(c.Stands) == 0 {
			t.Errorf("%s quotes no page", c.ID)
		}
		for _, s := range c.Stands {
			check(c.ID, s.Page, s.Quote)
		}
	}
	for _, n := range l.None {
		if n.Why == "" {
			t.Errorf("%s, %q: say why it is not a claim", n.Page, n.Quote)
		}
		if n.Quote != "*" {
			check("not_claims", n.Page, n.Quote)
		}
	}
}

func TestEverySentenceAboutGPUsIsQuoted(t *testing.T) {
	l, found := claims(t), 0
	for page, text := range pages(t) {
		if page == generated {
			continue
		}
		for _, s := range sentences(text) {
			if !about.MatchString(s) {
				continue
			}
			found++
			if !l.quotes(page, s) {
				t.Errorf("%s mentions GPUs, but docs/gpu-claims.json has neither a claim nor a reason why "+
					"it is not one:\n\t%s", page, s)
			}
		}
	}
	if found < 60 {
		t.Errorf("only %d sentences about GPUs were found", found)
	}
}

// quotes reports whether a sentence of a page is quoted, as a whole or in part.
func (l *list) quotes(page, sentence string) bool {
	in := func(p, q string) bool {
		return p == page && (q == "*" || strings.Contains(sentence, spaced(q)) ||
			strings.Contains(spaced(q), sentence))
	}
	return slices.ContainsFunc(l.None, func(n none) bool { return in(n.Page, n.Quote) }) ||
		slices.ContainsFunc(l.Claims, func(c claim) bool {
			return slices.ContainsFunc(c.Stands,
				func(s quotation) bool { return s.Quote != "*" && in(s.Page, s.Quote) })
		})
}

// A claim names only checks and tests that exist, and the tests run on the stand-in.
func TestEveryClaimNamesOnlyChecksAndTestsThatExist(t *testing.T) {
	seen, named := map[string]bool{}, map[string]bool{}
	for _, c := range claims(t).Claims {
		if c.ID == "" || c.Claim == "" || seen[c.ID] {
			t.Errorf("%+v: a claim needs a unique id and a text", c)
		}
		seen[c.ID] = true
		for _, name := range c.Checks {
			named[name] = true
			if _, ok := acceptance.Find(name); !ok {
				t.Errorf("%s: no check %q", c.ID, name)
			}
		}
		for _, test := range c.Tests {
			folder, name, ok := strings.Cut(test, " ")
			if !ok || !strings.HasPrefix(name, "Test") {
				t.Errorf("%s: %q is not a folder and a test", c.ID, test)
				continue
			}
			if err := onStandIn(folder, name); err != "" {
				t.Errorf("%s: %s %s", c.ID, test, err)
			}
		}
	}
	for _, c := range []string{"attach", "snapshot", "oom", "estimate", "calibrate", "overhead", "history",
		"probes", "ranks", "doctor"} {
		if !named[c] {
			t.Errorf("check %s bears on no claim", c)
		}
	}
}

// onStandIn says what is wrong with a test that a claim names, "" for nothing: it must exist, in a package
// whose tests use the stand-in GPU.
func onStandIn(folder, name string) string {
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*_test.go"))
	if err != nil || len(files) == 0 {
		return "is in no folder with tests"
	}
	found, uses := false, strings.HasPrefix(folder, "capture/standin")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err.Error()
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		if err != nil {
			return err.Error()
		}
		own := bytes.Contains(text, []byte(`"github.com/gmemtop/gmemtop/capture/standin`))
		tagged := bytes.HasPrefix(text, []byte("//go:build")) &&
			bytes.Contains(text[:bytes.IndexByte(text, '\n')], []byte("standin"))
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			switch {
			case !ok || fn.Recv != nil:
			case fn.Name.Name == name:
				found = true
				uses = uses || own || tagged
			case fn.Name.Name == "TestMain":
				uses = uses || own // what every test of the package runs on
			}
		}
	}
	switch {
	case !found:
		return "does not exist"
	case !uses:
		return "does not run on the stand-in"
	}
	return ""
}

func TestSentencesOfAPage(t *testing.T) {
	got := sentences("# On a GPU\n\nOne sentence. Two\nhalves of a line, e.g. this: `x`. **Bold** ends? " +
		"Yes.\n\n- an item.\n- another\n  on two lines\n\n| a | b. C |\n|---|---|\n```\ncode  line. " +
		"Still\n```\ntail")
	want := []string{"# On a GPU", "One sentence.", "Two halves of a line, e.g. this: `x`.", "**Bold** ends?",
		"Yes.", "- an item.", "- another on two lines", "| a | b. C |", "|---|---|", "code line. Still",
		"tail"}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A report file becomes a row. It confirms a claim only if all checks of the claim are ok in that report.
func TestAReportBecomesARow(t *testing.T) {
	dir := t.TempDir()
	put := func(name string, change func(*acceptance.Report)) {
		r := &acceptance.Report{SchemaVersion: acceptance.SchemaVersion, Day: "2026-11-22",
			System: acceptance.System{OS: "linux", Arch: "amd64"}, Networks: "full",
			GPU: acceptance.GPU{Name: "NVIDIA Test", Memory: 1 << 34, Count: 1}, Results: []acceptance.Result{
				{Check: "calibrate", Outcome: acceptance.OK,
					Figures: []acceptance.Figure{{Name: "to_host", Value: 24.8, Unit: "GB/s"}}},
				{Check: "oom", Outcome: acceptance.Failed, Reason: "no request"},
				{Check: "attach", Outcome: acceptance.OK},
			}}
		change(r)
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := r.Write(f); err != nil {
			t.Fatal(err)
		}
	}
	put("test.json", func(*acceptance.Report) {})
	reports, err := readReports(dir)
	if err != nil {
		t.Fatal(err)
	}
	l := &list{Claims: []claim{
		{ID: "a", Claim: "copies", Checks: []string{"calibrate"}},
		{ID: "b", Claim: "oom", Checks: []string{"oom"}},
		{ID: "c", Claim: "both", Checks: []string{"calibrate", "oom"}},
		{ID: "d", Claim: "more", Checks: []string{"attach", "probes"}},
		{ID: "e", Claim: "tested", Tests: []string{"cmd/gmemtop TestX"}},
	}}
	text := page(l, reports)
	for _, want := range []string{
		"| copies | NVIDIA Test: copies to the host 24.8 GB/s |  |  |",
		"| oom | NVIDIA Test: oom **failed**: no request |  | never |",
		"| both | NVIDIA Test: copies to the host 24.8 GB/s; oom **failed**: no request |  | never |",
		"| more | [`attach`, `probes`] |  | never |",
		"| tested |  | [TestX](../cmd/gmemtop) |  |",
		"5 claims: 1 seen on a GPU, 1 on the stand-in, 3 never.",
		"- 2026-11-22: NVIDIA Test, gmemtop , 2 of 3 checks ok, 1 failed",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	put("standin.json", func(r *acceptance.Report) { r.GPU.StandIn = true })
	if _, err := readReports(dir); err == nil || !strings.Contains(err.Error(), "stand-in") {
		t.Errorf("a report of the stand-in counts as one of a GPU: %v", err)
	}
}
