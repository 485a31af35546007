package cuda

import "github.com/gmemtop/gmemtop/managers/plan"

// Values.
//
// Problem: which bytes must a block hold when an op touches it? The recording does not say what they were,
// but it says which op wrote them. So every value gets a name, and a pattern made from the name replaces the
// bytes.
//
// Solution: the recorded order of ops numbers the values of each buffer; an op finds one number and leaves
// another. A buffer that lives within an iteration has values of that iteration; for one that persists, or is
// carried into the next, the numbers go on: number v of iteration k is v + k x (values in an iteration). The
// pattern's seed is a hash of buffer, number and iteration. The numbers come only from the problem, never
// from the plan: if a plan forgets a copy, or puts two blocks in one place, an op finds the wrong pattern.
//
// This numbering shares no code with plan.Validate's, so that each checks the other.

// values are the numbers of the values in one iteration.
type values struct {
	before, after []int32 // by access
	birth         []int32 // by buffer: what its instance holds at first
	last          []int32 // by buffer: what it holds when the iteration ends
}

func numbered(p *plan.Problem) *values {
	v := &values{before: make([]int32, len(p.Accesses)), after: make([]int32, len(p.Accesses)),
		birth: make([]int32, len(p.Buffers)), last: make([]int32, len(p.Buffers))}
	reborn := make([]bool, len(p.Buffers))
	again := func(b plan.BufferID) {
		// the next iteration's instance of a carried buffer has a value of its own
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
