package usdt

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Explain says what probes at these sites watch, and what they cannot see: a sentence each without its full
// stop.
func Explain(sites []Site) (what, unseen string) {
	var libraries, slow []string
	names := map[string][]string{} // of each library, in the sites' order
	for _, s := range sites {
		if !slices.Contains(libraries, s.Library) {
			libraries = append(libraries, s.Library)
		}
		if !slices.Contains(names[s.Library], s.Name) {
			names[s.Library] = append(names[s.Library], s.Name)
		}
		if !s.Emulated && !slices.Contains(slow, s.Name) {
			slow = append(slow, s.Name)
		}
	}
	var parts []string
	for _, l := range libraries {
		probed := fmt.Sprintf("%d functions", len(names[l]))
		if len(names[l]) <= 3 {
			probed = strings.Join(names[l], " and ")
		}
		parts = append(parts, fmt.Sprintf("%s of %s", probed, filepath.Base(l)))
	}
	what = "probes are on " + strings.Join(parts, ", and on ")
	if len(slow) > 0 {
		what += fmt.Sprintf("; %s begin with an instruction that the kernel steps over, which costs a call tens of microseconds", strings.Join(slow, ", "))
		if len(slow) == 1 {
			what = strings.Replace(what, " begin with", " begins with", 1)
		}
	}
	unseen = "probes see what is allocated from now on: what was there before is in no figure, and its frees are only counted"
	if watches(sites, blockAlloc) {
		return what, unseen + "; sizes are as requested; there are no Python stacks, steps or tensor names"
	}
	return what, unseen + "; the driver's calls mostly do not name their device: it is shown as 0; there are no steps, stacks or tensors"
}
