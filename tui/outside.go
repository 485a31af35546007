package tui

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// copy puts text into the clipboard of the user's own machine, through the terminal (OSC 52).
func (x *sharing) copy(text, what string) tea.Cmd {
	x.copied = text
	x.say("copied "+what, false)
	return tea.SetClipboard(text)
}

// copyOf copies what a view offers, else the selected block, else the line under the cursor.
func copyOf(v leaf.View, s *leaf.State) tea.Msg {
	if c, ok := v.(leaf.Copier); ok {
		if text, what := c.Copy(s); text != "" {
			return leaf.CopyMsg{Text: text, What: what}
		}
	}
	if s.Selected != timeline.NoAlloc && s.Device != nil {
		text := blockText(s.Device, s.Selected, s.Units)
		return leaf.CopyMsg{Text: text, What: s.Device.BlockName(s.Selected) + " and its stack"}
	}
	if text := v.Status(s); text != "" {
		return leaf.CopyMsg{Text: text, What: "the line under the cursor"}
	}
	return leaf.ToastMsg{Text: "nothing is selected"}
}

// blockText is a block as text: its name, size, and stack, innermost frame first.
func blockText(d *timeline.Device, a timeline.AllocID, u timeline.Units) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s (%d bytes, %d requested)  %s\n", d.UniqueName(a), u.Bytes(d.Allocs.Rounded[a]),
		d.Allocs.Rounded[a], d.Allocs.Size[a], d.Allocs.Category[a])
	funcs, files, lines := leaf.Frames(d, d.Origin(a), 1<<10)
	for i := range funcs {
		fmt.Fprintf(&b, "  %s  %s:%d\n", funcs[i], files[i], lines[i])
	}
	return b.String()
}

// sourceOf returns the source line that o opens in a view; file is "" for none.
func sourceOf(v leaf.View, s *leaf.State) (file string, line int) {
	if src, ok := v.(leaf.Sourcer); ok {
		if file, line := src.Source(s); file != "" {
			return file, line
		}
	}
	if s.Selected == timeline.NoAlloc {
		return "", 0
	}
	return leaf.UserFrame(s.Device, s.Device.Origin(s.Selected))
}

// open opens a source line in the user's editor, which takes over the terminal until it exits. If the file is
// not on this machine, its path is copied.
func (x *sharing) open(file string, line int) tea.Cmd {
	if _, err := os.Stat(file); err != nil {
		place := fmt.Sprintf("%s:%d", file, line)
		x.copied = place
		x.say(fmt.Sprintf("%s is not on this machine; its path was copied", leaf.Base(file)), true)
		return tea.SetClipboard(place)
	}
	words := strings.Fields(x.editor)
	if len(words) == 0 {
		x.say("no editor is set: set $EDITOR, for example to vim", true)
		return nil
	}
	cmd := exec.Command(words[0], append(words[1:], editorArgs(words[0], file, line)...)...)
	return tea.ExecProcess(cmd, func(err error) tea.Msg { return followedMsg{err} })
}

// editorArgs passes the line to an editor in its own syntax.
func editorArgs(editor, file string, line int) []string {
	switch leaf.Base(editor) {
	case "code", "codium", "cursor", "zed":
		return []string{"--goto", fmt.Sprintf("%s:%d", file, line)}
	case "subl", "hx":
		return []string{fmt.Sprintf("%s:%d", file, line)}
	}
	return []string{fmt.Sprintf("+%d", max(line, 1)), file}
}
