package pytorch

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// marker is the file by which later viewers find an agent.
type marker struct {
	Version int    `json:"version"`
	PID     int    `json:"pid"`
	Start   int64  `json:"start"`
	Socket  string `json:"socket"`
}

// findMarker returns the marker of the agent in process pid. The error wraps errNoAgent if there is none, and
// errReused if the marker is from an earlier process with that number.
func findMarker(pid int) (m marker, err error) {
	uid, _ := userOf(pid)
	name := strconv.Itoa(innerPID(pid)) + ".json"
	for _, dir := range folders(pid, uid) {
		p, closed := placeAt(pid, dir, false)
		if closed != nil {
			continue
		}
		b, unread := p.read(name)
		over := false
		if unread == nil && json.Unmarshal(b, &m) == nil && m.Socket != "" {
			if over = !alive(pid, m.Start); over {
				p.remove(name)
			}
		} else {
			m = marker{}
		}
		p.close()
		switch {
		case m.Socket == "":
			continue
		case over:
			return m, fmt.Errorf("process %d: %w: the training that had this number has ended",
				pid, errReused)
		case m.Version != protocolVersion:
			return m, otherVersion(pid, m.Version)
		}
		return m, nil
	}
	return marker{}, fmt.Errorf("process %d: %w lives in it", pid, errNoAgent)
}

// Lives reports whether process pid has an agent: Attach then needs no permission to trace it.
func Lives(pid int) bool {
	_, err := findMarker(pid)
	return err == nil
}

// OtherVersion returns an error that wraps ErrVersion where an agent of another version lives in process pid,
// nil if none does.
func OtherVersion(pid int) error {
	if _, err := findMarker(pid); errors.Is(err, ErrVersion) {
		return err
	}
	return nil
}
