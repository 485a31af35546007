package plan

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestEveryByteRemembersItsLastStep: what the tree answers is what an array of bytes does.
func TestEveryByteRemembersItsLastStep(t *testing.T) {
	const queues = 3
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 11))
		instances := make([]Instance, 1+r.IntN(40))
		for i := range instances {
			instances[i].Offset, instances[i].Size = r.Int64N(100), r.Int64N(20)
		}
		tree := newRangeMax(instances, queues)
		var bytes [120][queues]int32
		for i := range bytes {
			bytes[i] = [queues]int32{-1, -1, -1}
		}
		for step := range int32(200) {
			x := &instances[r.IntN(len(instances))]
			if r.IntN(2) == 0 {
				steps := []int32{-1, -1, -1}
				steps[r.IntN(queues)] = step
				tree.touch(x, steps)
				for at := x.Offset; at < x.Offset+x.Size; at++ {
					raise(bytes[at][:], steps)
				}
				continue
			}
			got, want := []int32{-1, -1, -1}, []int32{-1, -1, -1}
			tree.ask(x, got)
			for at := x.Offset; at < x.Offset+x.Size; at++ {
				raise(want, bytes[at][:])
			}
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d, step %d: %v, want %v", seed, step, got, want)
			}
		}
	}
}
