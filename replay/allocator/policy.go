package allocator

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// policy is an allocator and its abilities.
type policy struct {
	name string
	// caches says that it keeps memory and returns it to the driver under pressure.
	caches bool
	// torch says that it is PyTorch's own and takes PyTorch's settings.
	torch bool
	new   func(Config) (Allocator, error)
}

// policies are the allocators that are emulated, the default one first.
var policies = []policy{
	{"caching", true, true, func(c Config) (Allocator, error) { return wrap(NewCaching(c)) }},
	{"direct", false, false, func(c Config) (Allocator, error) { return wrap(newDirect(c)) }},
	{"arena", false, false, func(c Config) (Allocator, error) { return wrap(NewArena(c)) }},
	{"gmlake", true, false, func(c Config) (Allocator, error) { return wrap(newGMLake(c)) }},
}

// wrap keeps a nil of a concrete type from becoming a non-nil interface.
func wrap[A Allocator](a A, err error) (Allocator, error) {
	if err != nil {
		return nil, err
	}
	return a, nil
}

func policyOf(name string) *policy {
	if i := slices.IndexFunc(policies, func(p policy) bool { return p.name == name }); i >= 0 {
		return &policies[i]
	}
	return nil
}

// New returns the allocator of a policy's name: direct, caching, arena or gmlake.
func New(name string, c Config) (Allocator, error) {
	if p := policyOf(name); p != nil {
		return p.new(c)
	}
	return nil, fmt.Errorf("allocator: no policy %q: use one of %s", name, strings.Join(Policies(), ", "))
}

// Policies returns the names that New knows, the default one first.
func Policies() []string {
	var names []string
	for i := range policies {
		names = append(names, policies[i].name)
	}
	return names
}

// Caches reports whether the named allocator keeps memory that it returns under pressure, so that it can work
// with less than it holds ([SmallestCap]).
func Caches(name string) bool { p := policyOf(name); return p != nil && p.caches }

// InTorch reports whether the named allocator is PyTorch's own and takes PyTorch's settings.
func InTorch(name string) bool { p := policyOf(name); return p != nil && p.torch }

// bisections bounds the search for the smallest cap, which also stops at the driver's granularity.
const bisections = 12

// SmallestCap searches for the smallest cap, in bytes, under which an allocator serves a program: above low
// and at most high, under which it does. try reports whether it does under a cap, and how much of the cap it
// needs.
//
// Success is not proven to be monotone in the cap, so the result is a cap under which the program did
// complete. After an error of try it is the smallest cap found so far.
func SmallestCap(low, high int64, try func(limit int64) (need int64, ok bool, err error)) (int64, error) {
	for k := 0; k < bisections && high-low > torchalloc.Granularity; k++ {
		middle := low + (high-low)/2
		need, ok, err := try(middle)
		switch {
		case err != nil:
			return high, err
		case ok:
			high = min(middle, need)
		default:
			low = middle
		}
	}
	return high, nil
}
