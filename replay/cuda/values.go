package cuda

import "github.com/gmemtop/gmemtop/managers/plan"

// Values.
//
// Problem: which bytes must a block hold when an op touches it? Whatever they were in the recording, they are
// not known here. What is known is which op wrote them: so every value gets a name, and the name's pattern
// stands in for the bytes.
//
// Solution: the recorded order of ops numbers the values of each buffer; an op finds one number and leaves
// another. What lives within an iteration has values of that iteration; what persists, or is carried into the
// next, has a number that goes on: number v of iteration k is v + k x (values an iteration). The pattern's
// seed is a hash of buffer, number and iteration. The numbers come from the problem alone, never from the
// plan: a plan that forgets a copy, or puts two blocks in one place, makes an op find another pattern than
// the one that it must find.
//
// The numbering is written again here and shares nothing with plan.Validate's, so that each is a check of the
// other.

// values are the numbers of the values in one iteration.
type values struct {
	before, after []int32 // by access
	birth         []int32 // by buffer: what its instance holds when it comes into being
	last          []int32 // by buffer: what it holds when the iteration ends
}

func numbered(p *plan.Problem) *values {
	v := &values{before: make([]int32, len(p.Accesses)), after: make([]int32, len(p.Accesses)),
		birth: make([]int32, len(p.Buffers)), last: make([]int32, len(p.Buffers))}
	reborn := make([]bool, len(p.Buffers))
	again := func(b plan.BufferID) { // the next iteration's instance of a carried buffer has a value of its own
		reborn[b] = true
		v.last[b]++
		v.birth[b] = v.last[b]
	}
	for i := range p.Ops {
		op := &p.Ops[i]
		for k := op.First; k < op.End; k++ {
			b := p.Accesses[k].Buffer
			if p.Buffers[b].Life == plan.Carried && !reborn[b] && plan.OpID(i) >= p.Buffers[b].Start {
				again(b)
			}
			v.before[k] = v.last[b]
		}
		for k := op.First; k < op.End; k++ {
			if b := p.Accesses[k].Buffer; p.Accesses[k].Mode.Writes() {
				v.last[b] = v.before[k] + 1 // twice by one op is once
			}
		}
		for k := op.First; k < op.End; k++ {
			v.after[k] = v.last[p.Accesses[k].Buffer]
		}
	}
	for b := range p.Buffers {
		if p.Buffers[b].Life == plan.Carried && !reborn[b] {
			again(plan.BufferID(b))
		}
	}
	return v
}

// seed names the pattern of a buffer's value in iteration k.
func (v *values) seed(p *plan.Problem, b plan.BufferID, version int32, k int) uint64 {
	n, in := uint64(version), uint64(k)
	if p.Buffers[b].Life != plan.Inside {
		n, in = uint64(int64(version)+int64(k)*int64(v.last[b])), 0
	}
	x := mix(uint64(b) + 0x9e3779b97f4a7c15)
	return mix(mix(x^n) + in)
}

// scratch names the pattern of a workspace while op i uses it in iteration k.
func scratch(i plan.OpID, k int) uint64 { return mix(mix(uint64(i)^0xd1b54a32d192ed03) + uint64(k)) }

// mix spreads a number's bits (the finisher of SplitMix64, Steele et al., OOPSLA 2014).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
