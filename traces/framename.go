package traces

import (
	"strconv"
	"strings"
)

// SplitFrameName splits torch.profiler's name of a Python frame, "file(line): function". Snapshots made from
// a profile (torch.cuda._memory_viz.profile_to_snapshot) have such names too, with the file name "none". Any
// other name is returned as the function, without the address at the end of a built-in's name, which changes
// from run to run.
func SplitFrameName(s string) (fn, file string, line int) {
	if i := strings.Index(s, "): "); i >= 0 {
		if open := strings.LastIndexByte(s[:i], '('); open > 0 {
			if n, err := strconv.ParseInt(s[open+1:i], 10, 32); err == nil && n >= 0 {
				return s[i+3:], s[:open], int(n)
			}
		}
	}
	if i := strings.LastIndex(s, " at 0x"); i >= 0 && strings.HasSuffix(s, ">") {
		s = s[:i] + ">"
	}
	return s, "", 0
}
