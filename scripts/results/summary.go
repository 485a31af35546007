package main

import (
	"regexp"
	"strings"
)

// The page begins with a few lines for readers who read no more. Each is taken from the text of its section,
// so that the two cannot disagree. A line whose section is not there, or lacks a recording, is left out.

// line is one of them: where pattern matches the text of a section, text is written with its groups.
type line struct {
	section string
	pattern *regexp.Regexp // of the text with single blanks for all white space
	text    string
}

// lines are the summary, the most important first.
var lines = []line{
	{
		budgetsHeading,
		regexp.MustCompile(`joint wins (\d+ of \d+) budgets; at least eight of ten on \d+ of (\d+) problems`),
		"`joint` has the fastest plan at $1 budgets, on $2 problems, or as fast a plan as any in no more " +
			"memory. Left out are managers that solve integer programs, and `portfolio`, which searches " +
			"on from more plans: its own column stands beside `joint`'s.",
	}, {
		budgetsHeading,
		regexp.MustCompile(`It is within 5 % of its own bound at (\d+ of \d+) budgets`),
		"At $1 budgets `joint`'s plan is within 5 % of the bound that no plan can beat. At the others we " +
			"do not know how much faster a plan could be: in little memory the bound is loose.",
	}, {
		poolsHeading,
		regexp.MustCompile(`The capacity is 1,048,576; exact meets it on (.+?)\. \*bound\*`),
		"`exact` fits MiniMalloc's problems into the given capacity: $1.",
	}, {
		poolsHeading,
		regexp.MustCompile(`13\.3 % is (not reached|reached) on these recordings.*?at most ([\d.]+ %) here`),
		"SmartPool, 13.3 % less than CnMem: $1. On the public recordings no placement could save more " +
			"than $2.",
	}, {
		"AutoSwap",
		regexp.MustCompile(`34\.2 % is (not reached|reached) on the public recording: its curves ` +
			`give ([\d.]+ %)`),
		"AutoSwap, 34.2 % less memory without overhead: $1. The public recording gives $2, by the authors' " +
			"own arithmetic.",
	}, {
		"vDNN",
		regexp.MustCompile(`features only: (AlexNet .*?\))\. We do not know`),
		"vDNN, memory saved on average: $1.",
	}, {
		"vDNN",
		regexp.MustCompile(`Training within 12 GiB: (not reached|reached).*?The loss of 18 % lies (\w+) ` +
			`the band of vdnn-dyn against fast algorithms, ([\d.]+ %) to ([\d.]+ %)`),
		"vDNN, VGG-16 (256) within 12 GiB: $1, with a loss of speed of $3 to $4, depending on the machine. " +
			"The paper's 18 % lies $2 that band.",
	}, {
		"tvDNN",
		regexp.MustCompile(`The smallest of these budgets in which tvdnn-heuristic fits is (\d+ GiB), ` +
			`at (\S+ %)`),
		"tvDNN, VGG-16 (256): fits in $1, with $2 of overhead. The poster gives no figure to compare.",
	}, {
		"DELTA",
		regexp.MustCompile(`\| ResNet-50 \(\d+\), 2\.04x (?:\| [^|]*){5}\| \+?(\S+ %) .*?` +
			`\| ResNet-101 \(\d+\), 2\.25x (?:\| [^|]*){5}\| \+?(\S+ %) `),
		"DELTA, batches of 2.04 and 2.25 times PyTorch's largest: both fit. A step takes $1 and $2 longer " +
			"than it would with enough memory.",
	}, {
		"HOME",
		regexp.MustCompile(`At most: ([\d.]+x) over vdnn-all .*?, ([\d.]+x) over Capuchin`),
		"HOME, throughput up to 5.7 times vDNN's and 1.3 times Capuchin's: our own version comes to $1 " +
			"and $2. The original is not public.",
	},
}

// Headings of sections that several lines are about.
const (
	poolsHeading   = "SmartPool, and packing in general"
	budgetsHeading = "joint against all others, at ten budgets"
)

// summary returns the lines for the text of a page.
func summary(text string) []string {
	sections := map[string]string{}
	for _, s := range split(text) {
		sections[s.heading] = strings.Join(strings.Fields(s.text), " ")
	}
	var found []string
	for _, l := range lines {
		in := sections[l.section]
		if m := l.pattern.FindStringSubmatchIndex(in); m != nil {
			found = append(found, string(l.pattern.ExpandString(nil, l.text, in, m)))
		}
	}
	return found
}

// part is a section of a page: its heading, and its text including the heading.
type part struct{ heading, text string }

// split returns the sections of a page, without the text before the first.
func split(text string) (parts []part) {
	for i, s := range strings.Split("\n"+text, "\n## ") {
		if i > 0 {
			heading, _, _ := strings.Cut(s, "\n")
			parts = append(parts, part{heading, "## " + strings.TrimSpace(s) + "\n"})
		}
	}
	return parts
}
