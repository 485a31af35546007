package output

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// TestCleanRemovesControlSequences tries the text in pieces of every size.
func TestCleanRemovesControlSequences(t *testing.T) {
	const text = "a\x1b[31mb\x07\n\tc\u009bd\u202ee\r\x7f\x9b 3.2 µs · é 漢\xff\xe6\xbc"
	const want = "a [31mb \n\tc d e  � 3.2 µs · é 漢���"
	for size := 1; size <= len(text); size++ {
		var b strings.Builder
		err := Clean(func(w io.Writer) error {
			for at := 0; at < len(text); at += size {
				piece := text[at:min(at+size, len(text))]
				if n, err := io.WriteString(w, piece); n != len(piece) || err != nil {
					return fmt.Errorf("%d of %d: %w", n, len(piece), err)
				}
			}
			return nil
		})(&b)
		if err != nil {
			t.Fatal(err)
		}
		if b.String() != want {
			t.Fatalf("in pieces of %d: %q, want %q", size, b.String(), want)
		}
	}
}
