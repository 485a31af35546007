package allocator

import (
	"fmt"
	"strconv"
	"strings"
)

// Releases of PyTorch differ in a few decisions of the caching allocator. Each difference is a rule here,
// with the release that introduced it. The rest of the package asks for a rule by name and never compares
// versions.
//
// How the differences were found: random programs ran on the real allocator of each release, over a stand-in
// GPU, and the emulation had to make the same decisions (oracle_torch_test.go). testdata/oracle/releases.txt
// lists the runs.

// Version is a release of PyTorch. The zero Version is an unknown one and follows the rules of the newest
// release.
type Version struct{ Major, Minor int }

// ParseVersion parses a torch.__version__, such as "2.15.0+cu132".
func ParseVersion(text string) (Version, error) {
	major, rest, found := strings.Cut(text, ".")
	minor, _, _ := strings.Cut(rest, ".")
	minor, _, _ = strings.Cut(minor, "+")
	minor = strings.TrimRight(minor, "abcdefghijklmnopqrstuvwxyz") // 2.15a0
	if i := strings.IndexFunc(minor, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		minor = minor[:i]
	}
	a, err1 := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	if !found || err1 != nil || err2 != nil || a < 0 || b < 0 {
		return Version{}, fmt.Errorf("%.40q is not a version of PyTorch: write it like 2.15", text)
	}
	return Version{a, b}, nil
}

// String returns the version as "2.15", or "" for an unknown one.
func (v Version) String() string {
	if v == (Version{}) {
		return ""
	}
	return fmt.Sprintf("%d.%d", v.Major, v.Minor)
}

// Before reports whether v is an older release than o. An unknown version is older than none.
func (v Version) Before(o Version) bool {
	if v == (Version{}) {
		return false
	}
	return v.Major < o.Major || v.Major == o.Major && v.Minor < o.Minor
}

// rule is a decision that differs between releases of PyTorch.
type rule int

const (
	// olderBlockFirst: of free blocks of equal size the older one is taken. A block that is split off to be
	// handed out is new; what remains, and what merges with its neighbours, keeps its age. Before, the one at
	// the lower address is taken.
	olderBlockFirst rule = iota
	// olderSegmentFirst: of free blocks of equal size the one in the older segment is taken, the lower one of
	// these.
	olderSegmentFirst
	// noRangeInVain: a request larger than a whole range of addresses fails before a range is reserved for
	// it. Before, the range was reserved and stayed, with nothing mapped.
	noRangeInVain
	// fractionOfOneIsNone: a memory fraction of 1 removes the cap. Before, the cap is the whole device, and
	// garbage collection's threshold is a share of that.
	fractionOfOneIsNone
	// roundedFraction: the share of the device's bytes is rounded to the nearest byte. Before, to the one
	// below.
	roundedFraction
	// laterDivisions: in a list of roundup_power2_divisions, > stands for the sizes above the last one
	// listed. Before, it replaced that one, too.
	laterDivisions
	ruleCount
)

// since says which release introduced each rule.
var since = [ruleCount]Version{
	olderBlockFirst:     {2, 12},
	olderSegmentFirst:   {2, 13},
	noRangeInVain:       {2, 15},
	roundedFraction:     {2, 13},
	fractionOfOneIsNone: {2, 10},
	laterDivisions:      {2, 10},
}

// follows reports whether the settings' release follows a rule.
func (s *Settings) follows(r rule) bool { return !s.Torch.Before(since[r]) }

// OrdersByAge reports whether blocks of equal size are taken by age, which snapshots lack, rather than by
// address.
func (s *Settings) OrdersByAge() bool { return s.follows(olderBlockFirst) }
