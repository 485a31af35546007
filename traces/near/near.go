// Package near finds the word that was meant by one that is misspelled.
package near

import "strings"

// Wrong is how many letters may be wrong in the longest words.
const Wrong = 3

// Most returns how many letters may be wrong in a word that was typed.
func Most(typed string) int { return max(1, min(Wrong, len(typed)/4)) }

// Word returns the word that is most like what was typed, whatever the case of its letters, "" if none is
// like it.
func Word(typed string, words []string) string {
	best, least := "", Wrong+1
	typed = strings.ToLower(typed)
	for _, word := range words {
		// a word of which every letter is wrong is not alike
		if d := Distance(typed, strings.ToLower(word), Most(typed)); d < least && d < len(typed) {
			best, least = word, d
		}
	}
	return best
}

// Hint ends an error about a word that there is not: it asks for the one that is most like it, and is "" if
// none is.
func Hint(typed string, words []string) string {
	if word := Word(typed, words); word != "" {
		return ": did you mean " + word + "?"
	}
	return ""
}

// Distance counts the letters to insert, remove, replace or exchange with the next one that make a of b,
// Wrong+1 if there are more than most.
func Distance(a, b string, most int) int {
	if len(a)-len(b) > most || len(b)-len(a) > most {
		return Wrong + 1
	}
	row, before, earlier := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range before {
		before[j] = j
	}
	for i := range len(a) {
		// further from the diagonal than most, more is wrong than that
		from, to := max(0, i-most), min(len(b), i+1+most)
		row[from] = i + 1
		for j := from; j < to; j++ {
			least := before[j]
			if a[i] != b[j] {
				least++
			}
			least = min(least, row[j]+1)
			if j+1 < i+1+most {
				least = min(least, before[j+1]+1)
			}
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				least = min(least, earlier[j-1]+1)
			}
			row[j+1] = least
		}
		row, before, earlier = earlier, row, before
	}
	if before[len(b)] > most {
		return Wrong + 1
	}
	return before[len(b)]
}
