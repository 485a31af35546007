package timeline

import (
	"context"
	"testing"
)

func BenchmarkAutopsyOfAMillionEvents(b *testing.B) {
	tl, err := Build(context.Background(), unmarkedTrace(1_000_000), nil)
	if err != nil {
		b.Fatal(err)
	}
	d := tl.Main()
	for b.Loop() {
		if _, err := d.Autopsy(context.Background(), IEC); err != nil {
			b.Fatal(err)
		}
	}
}
