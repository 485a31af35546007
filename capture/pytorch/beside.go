package pytorch

import (
	"fmt"
	"net"
	"time"
)

// lookAlong asks the viewer that listens at path to show it process pid. The error wraps ErrWatched if that
// viewer does not share, and ErrVersion if it has another version. Any other error means that it did not
// answer.
func lookAlong(pid int, path string) (*Session, error) {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return nil, err
	}
	s, err := lookOver(conn, pid)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return s, nil
}

func lookOver(conn net.Conn, pid int) (*Session, error) {
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	b, err := frame(frameLook, look{Version: lookVersion, PID: pid})
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(b); err != nil {
		return nil, err
	}
	k, payload, err := readFrame(conn, maxHello)
	if err != nil {
		return nil, err
	}
	switch k {
	case frameWatched:
		w, err := read[watched](payload)
		if err != nil {
			return nil, err
		}
		if w.Looks != lookVersion {
			return nil, fmt.Errorf("process %d: %w: process %d watches it and speaks version %d, while "+
				"this gmemtop speaks %d; use the gmemtop that watches it",
				pid, ErrVersion, w.PID, w.Looks, lookVersion)
		}
		if w.Attaching {
			return nil, fmt.Errorf("%w by process %d", errAttaching, w.PID)
		}
		return nil, fmt.Errorf("%w by process %d", ErrWatched, w.PID)
	case frameHello:
	default:
		return nil, fmt.Errorf("%w: a viewer answers with a frame of type %d", errProtocol, k)
	}
	h, err := read[hello](payload)
	if err != nil {
		return nil, err
	}
	if h.Version != protocolVersion {
		return nil, otherVersion(pid, h.Version)
	}
	s := newSession(conn, h)
	if s.host = peer(conn); s.host <= 0 {
		s.host = max(h.Viewer, 1)
	}
	s.asked, s.info.PID = pid, h.PID
	_ = conn.SetDeadline(time.Time{})
	return s, nil
}
