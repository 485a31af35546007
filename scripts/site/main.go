// Command site writes the Markdown pages of this repository as a small web site that needs no network: one
// page for each file, with the pages on the left, and the pictures beside them.
//
//	go run ./scripts/site -o dist/site
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	out := flag.String("o", "dist/site", "the folder to write")
	flag.Parse()
	if err := build(os.DirFS("."), *out); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

// build writes the site of a repository into a folder.
func build(repository fs.FS, out string) error {
	s := site{files: repository, assets: map[string]bool{}}
	for _, pattern := range []string{
		"README.md", "docs/tutorials/*.md", "docs/*.md", "CONTRIBUTING.md", "CHANGELOG.md",
	} {
		found, err := fs.Glob(repository, pattern)
		if err != nil {
			return err
		}
		for _, name := range found {
			if err := s.read(name); err != nil {
				return err
			}
		}
	}
	if len(s.pages) == 0 {
		return errors.New("there are no pages here: run it in the root of the repository")
	}
	for i := range s.pages {
		html, err := s.render(&s.pages[i])
		if err != nil {
			return err
		}
		if err := write(out, s.pages[i].target(), html); err != nil {
			return err
		}
	}
	for name := range s.assets {
		data, err := fs.ReadFile(repository, name)
		if err != nil {
			return err
		}
		if err := write(out, name, data); err != nil {
			return err
		}
	}
	return nil
}

func write(out, name string, data []byte) error {
	to := filepath.Join(out, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

// page is one Markdown file.
type page struct {
	name, title string
	text        []byte
}

// target is the name of the page's file in the site.
func (p *page) target() string {
	if p.name == "README.md" {
		return "index.html"
	}
	return strings.TrimSuffix(p.name, ".md") + ".html"
}

// site is all pages, and the files that they show or link to.
type site struct {
	files  fs.FS
	pages  []page
	assets map[string]bool
}

func (s *site) read(name string) error {
	text, err := fs.ReadFile(s.files, name)
	if err != nil {
		return err
	}
	title, _, _ := strings.Cut(string(text), "\n")
	title = strings.ReplaceAll(strings.TrimSpace(strings.TrimLeft(title, "# ")), "`", "")
	s.pages = append(s.pages, page{name: name, title: title, text: text})
	return nil
}

// page returns the page of a file, nil if it is none.
func (s *site) page(name string) *page {
	i := slices.IndexFunc(s.pages, func(p page) bool { return p.name == name })
	if i < 0 {
		return nil
	}
	return &s.pages[i]
}

// resolve turns a link of a page into one of the site. ok is false for something of the repository that the
// site does not have, such as a folder; the error is about what does not exist.
func (s *site) resolve(from *page, link string) (to string, ok bool, err error) {
	if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") || strings.HasPrefix(link, "#") {
		return link, true, nil
	}
	name, anchor, _ := strings.Cut(link, "#")
	name = path.Join(path.Dir(from.name), name)
	if anchor != "" {
		anchor = "#" + anchor
	}
	if p := s.page(name); p != nil {
		return up(from) + p.target() + anchor, true, nil
	}
	info, err := fs.Stat(s.files, name)
	if err != nil {
		return "", false, fmt.Errorf("%s links to %s, which is not there", from.name, link)
	}
	if !info.Mode().IsRegular() || !strings.HasPrefix(name, "docs/") {
		return "", false, nil
	}
	s.assets[name] = true
	return up(from) + name + anchor, true, nil
}

// up leads from a page to the root of the site.
func up(p *page) string { return strings.Repeat("../", strings.Count(p.target(), "/")) }
