package torchsnapshot

import (
	"testing"
	"unicode/utf16"
	"unicode/utf8"
)

// The code units of any character, one after the other, make its UTF-8.
func TestTheUnitsOfACharacterMakeItsUTF8(t *testing.T) {
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if utf16.IsSurrogate(r) {
			continue
		}
		var got []byte
		for _, u := range utf16.Encode([]rune{r}) {
			got = appendUnit(got, rune(u))
		}
		if string(got) != string(r) {
			t.Fatalf("the units of %U make %q", r, got)
		}
	}
}
