package main

import (
	"regexp"
	"strings"
)

// about matches words that a sentence about GPUs has.
var about = regexp.MustCompile(
	`(?i)\b(?:gpus?|cuda|nvml|nccl|cudnn|cublas|nvidia|nvlink|tensor ?cores?|h100|a100|v100)\b|` +
		`libcuda|libc10_cuda|torch\.cuda|\bdriver's?\b|pinned`)

// sentences splits a page of Markdown into the parts that can be quoted: sentences of paragraphs and list
// items, rows of tables, lines of code, and headings, each with single spaces.
func sentences(page string) []string {
	var out, paragraph []string
	flush := func() {
		text := strings.Join(paragraph, " ")
		paragraph = nil
		for text != "" {
			at := end.FindStringIndex(text)
			if at == nil {
				out = append(out, text)
				return
			}
			out = append(out, text[:at[0]+1])
			text = strings.TrimSpace(text[at[0]+1:])
		}
	}
	code := false
	for line := range strings.Lines(page) {
		trimmed := strings.Join(strings.Fields(line), " ")
		switch {
		case strings.HasPrefix(trimmed, "```"):
			flush()
			code = !code
		case code, strings.HasPrefix(trimmed, "#"), strings.HasPrefix(trimmed, "|"):
			flush()
			if trimmed != "" {
				out = append(out, trimmed)
			}
		case trimmed == "":
			flush()
		case strings.HasPrefix(trimmed, "- "):
			flush()
			paragraph = append(paragraph, trimmed)
		default:
			paragraph = append(paragraph, trimmed)
		}
	}
	flush()
	return out
}

// end finds the end of a sentence: a full stop before a space and a capital letter, or before markup that
// begins one.
var end = regexp.MustCompile("[.!?] +[A-Z`*\\[(]")

// spaced replaces all white space with single spaces.
func spaced(s string) string { return strings.Join(strings.Fields(s), " ") }
