package main

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

var (
	reference = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	named     = regexp.MustCompile(` id="([^"]*)"`)
)

// TestEveryLinkOfTheSiteLeadsSomewhere builds the site of this repository and follows its links.
func TestEveryLinkOfTheSiteLeadsSomewhere(t *testing.T) {
	out := t.TempDir()
	if err := build(os.DirFS("../.."), out); err != nil {
		t.Fatal(err)
	}
	files := os.DirFS(out)
	pages := 0
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".html" {
			return err
		}
		pages++
		for _, m := range reference.FindAllStringSubmatch(string(read(t, files, name)), -1) {
			link := strings.ReplaceAll(m[1], "&amp;", "&")
			if strings.Contains(link, "://") {
				continue
			}
			to, anchor, _ := strings.Cut(link, "#")
			target := name
			if to != "" {
				target = path.Join(path.Dir(name), to)
			}
			if _, err := fs.Stat(files, target); err != nil {
				t.Errorf("%s: %s is not there", name, link)
				continue
			}
			if anchor != "" && !hasAnchor(read(t, files, target), anchor) {
				t.Errorf("%s: %s has no such heading", name, link)
			}
		}
		return nil
	})
	if err != nil || pages < 20 {
		t.Errorf("%d pages, %v", pages, err)
	}
}

func hasAnchor(html []byte, anchor string) bool {
	for _, m := range named.FindAllStringSubmatch(string(html), -1) {
		if m[1] == anchor {
			return true
		}
	}
	return false
}

func read(t *testing.T, files fs.FS, name string) []byte {
	t.Helper()
	data, err := fs.ReadFile(files, name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestLinksAreRewritten(t *testing.T) {
	out := t.TempDir()
	err := build(fstest.MapFS{
		"README.md": {Data: []byte("# Here\n[a](docs/a.md#two-words) [f](packaging) " +
			"[w](https://example.org/x.md)\n")},
		"docs/a.md": {Data: []byte("# A\n[back](../README.md)\n\n![p](screens/p.svg)\n\n" +
			"## Two words!\n\n## Two words\n<script>alert(1)</script>\n")},
		"docs/screens/p.svg": {Data: []byte("<svg/>")}, "packaging/x": {},
	}, out)
	if err != nil {
		t.Fatal(err)
	}
	files := os.DirFS(out)
	for name, want := range map[string][]string{
		"index.html": {`<a href="docs/a.html#two-words">a</a> f <a href="https://example.org/x.md">w</a>`},
		"docs/a.html": {`<a href="../index.html">back</a>`, `<img src="../docs/screens/p.svg" alt="p">`,
			`<h2 id="two-words">`, `<h2 id="two-words-1">`},
		"docs/screens/p.svg": {"<svg/>"},
	} {
		text := string(read(t, files, name))
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s lacks %s:\n%s", name, w, text)
			}
		}
		if strings.Contains(text, "<script>") {
			t.Errorf("%s has a script", name)
		}
	}
	if err := build(fstest.MapFS{"README.md": {Data: []byte("# A\n[b](b.md)\n")}}, t.TempDir()); err == nil {
		t.Error("a link to nothing is no error")
	}
	if err := build(fstest.MapFS{}, t.TempDir()); err == nil {
		t.Error("a site without pages is no error")
	}
}
