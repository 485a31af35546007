package capture

import (
	"strings"

	"github.com/gmemtop/gmemtop/capture/say"
)

// Say returns a sentence as a notice, with its gaps filled.
func Say(s say.Sentence, gaps ...any) Notice {
	return Notice{Key: s.Key(), Text: s.Text(gaps...), State: s.Key() == say.KeyState}
}

// DepthWords describe one way of capturing steps.
type DepthWords struct {
	How   string // as Depth orders it
	Name  string
	Shows string // "" where people cannot choose it
}

// Depths are the ways of capturing steps.
var Depths = []DepthWords{
	{HowOps, say.ByOps.Text(), say.OpsShow.Text()},
	{HowHistory, say.ByHistory.Text(), say.HistoryShows.Text()},
	{HowProfile, say.ByProfile.Text(), say.ProfileShows.Text()},
	{HowEvents, say.ByEvents.Text(), ""},
	{HowProbes, say.ByProbes.Text(), ""},
}

// DepthName returns in words how steps were captured.
func DepthName(how string) string {
	for _, d := range Depths {
		if d.How == how {
			return d.Name
		}
	}
	return how
}

// ends has the words for reasons that need no details.
var ends = map[string]say.Sentence{
	Detached: say.EndDetached,
	Disarmed: say.EndDisarmed,
	Refused:  say.EndRefused,
}

// Sentence says how a job ended. It completes "ended: ...".
func (e End) Sentence() string {
	text := ""
	s, ok := ends[e.Reason]
	switch {
	case ok:
		text = s.Text()
	case e.Reason != Exited:
		text = e.Reason
	case e.Code.IsKnown():
		text = say.EndCode.Text(e.Code)
	case e.Detail == "":
		text = say.Exited.Text()
	}
	if e.Reason == Exited && e.OutOfMemory {
		text = strings.TrimPrefix(text+", "+say.EndMemory.Text(), ", ")
	}
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return strings.TrimPrefix(text, ": ")
}

// Stall says why a process in this state, as the kernel reports it, makes no progress; "" if the state does
// not show why.
func Stall(state byte, pid int) string {
	switch state {
	case 'T':
		return say.Stopped.Text(pid)
	case 't':
		return say.Debugged.Text()
	case 'D':
		return say.InKernel.Text()
	}
	return ""
}
