package usdt

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/capture/say"
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
	what = say.ProbesOn.Text(strings.Join(parts, ", and on "))
	if len(slow) > 0 {
		what += "; " + say.ProbesSlow.Text(strings.Join(slow, " or "))
	}
	kind := say.ProbesDriver
	if watches(sites, blockAlloc) {
		kind = say.ProbesTorch
	}
	return what, say.ProbesUnseen.Text() + "; " + kind.Text()
}
