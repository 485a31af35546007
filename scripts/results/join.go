package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// joinPages makes a whole page of pages that were each made with some of the sections. Where several of them
// have a section, the last counts.
func joinPages(files []string, p *page) error {
	found := map[string]string{}
	from := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, s := range split(string(text)) {
			if s.heading == defects {
				return fmt.Errorf("%s lists defects: mend them and make its sections again", file)
			}
			found[s.heading], from[s.heading] = s.text, file
		}
	}
	for _, s := range sections {
		text, ok := found[s.heading]
		if !ok {
			return fmt.Errorf("none of %s holds the section %q: make it with -only %s",
				strings.Join(files, ", "), s.heading, s.name)
		}
		p.text.WriteString("\n" + text)
		delete(found, s.heading)
	}
	for heading := range found {
		return fmt.Errorf("%s holds %q, which is no section of the page", from[heading], heading)
	}
	return nil
}

// opened returns a page with its opening, which needs the text of all sections.
func (b *bench) opened(body *page) *page {
	p, text := &page{}, body.text.String()
	p.opening(summary(text), b.files.folder == "" && !b.joined)
	p.text.WriteString("\n" + strings.TrimLeft(text, "\n"))
	return p
}

// chooseSections returns the sections with the given names, all if there is none.
func chooseSections(only string) ([]section, error) {
	if only == "" {
		return sections, nil
	}
	var chosen []section
	for word := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(sections, func(s section) bool { return s.name == strings.TrimSpace(word) })
		if i < 0 {
			return nil, fmt.Errorf("there is no section %q; there are %s",
				word, strings.Join(sectionNames(), ", "))
		}
		chosen = append(chosen, sections[i])
	}
	return chosen, nil
}

// sectionNames lists the names of all sections.
func sectionNames() (names []string) {
	for _, s := range sections {
		names = append(names, s.name)
	}
	return names
}
