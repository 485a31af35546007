package perfetto

import (
	"bufio"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
)

// The part of Perfetto's schema (protos/perfetto/trace/trace_packet.proto, track_event/*.proto) that this
// writer needs. Two dozen fields do not justify generated code and its runtime: protowire writes each.
const (
	fieldPacket = 1 // Trace

	packetTimestamp  = 8
	packetSequence   = 10
	packetTrackEvent = 11
	packetInterned   = 12
	packetFlags      = 13
	packetDescriptor = 60

	trackUUID     = 1
	trackName     = 2
	trackProcess  = 3
	trackParent   = 5
	trackCounter  = 8
	trackOrdering = 11 // 1 by name, 3 by rank
	trackRank     = 12

	processPID  = 1
	processName = 6

	counterUnit = 3
	unitBytes   = 3

	eventAnnotation = 4
	eventType       = 9
	eventNameID     = 10
	eventTrack      = 11
	eventCounter    = 30

	typeBegin   = 1
	typeEnd     = 2
	typeInstant = 3
	typeCounter = 4

	annotationName     = 10
	annotationInt      = 4
	annotationPointer  = 7
	annotationStringID = 17

	internedNames   = 2
	internedStrings = 29
	entryID         = 1
	entryText       = 2

	flagCleared = 1
	flagNeeds   = 2
)

// message is a protobuf message being built.
type message []byte

func (m *message) uint(field protowire.Number, v uint64) {
	*m = protowire.AppendVarint(protowire.AppendTag(*m, field, protowire.VarintType), v)
}

func (m *message) int(field protowire.Number, v int64) { m.uint(field, uint64(v)) }

func (m *message) bytes(field protowire.Number, p []byte) {
	*m = protowire.AppendBytes(protowire.AppendTag(*m, field, protowire.BytesType), p)
}

func (m *message) text(field protowire.Number, s string) {
	*m = protowire.AppendString(protowire.AppendTag(*m, field, protowire.BytesType), s)
}

// stream writes packets. It reuses its scratch messages for each packet, and keeps the first error.
type stream struct {
	w               *bufio.Writer
	err             error
	packet, inner   message
	interned, entry message
	length          []byte
	names, strings  map[string]uint64 // interned so far
	begun           bool
	tracks          uint64
}

func newStream(w io.Writer) *stream {
	return &stream{w: bufio.NewWriterSize(w, 256<<10), names: map[string]uint64{},
		strings: map[string]uint64{}}
}

// send writes one packet: rest fills its fields, and send adds the sequence's. All packets are in one
// sequence, whose incremental state, the interned texts, begins with the first.
func (s *stream) send() {
	if s.err != nil {
		return
	}
	s.packet.uint(packetSequence, 1)
	flags := uint64(flagNeeds)
	if !s.begun {
		flags, s.begun = flagCleared, true
	}
	s.packet.uint(packetFlags, flags)
	if len(s.interned) > 0 {
		s.packet.bytes(packetInterned, s.interned)
		s.interned = s.interned[:0]
	}
	s.length = protowire.AppendTag(s.length[:0], fieldPacket, protowire.BytesType)
	s.length = protowire.AppendVarint(s.length, uint64(len(s.packet)))
	if _, s.err = s.w.Write(s.length); s.err == nil {
		_, s.err = s.w.Write(s.packet)
	}
	s.packet = s.packet[:0]
}

// intern returns the id of a text in one of the sequence's tables, and defines a new one in the packet being
// built.
func (s *stream) intern(table map[string]uint64, field protowire.Number, text string) uint64 {
	if id, ok := table[text]; ok {
		return id
	}
	id := uint64(len(table) + 1)
	table[text] = id
	s.entry = s.entry[:0]
	s.entry.uint(entryID, id)
	s.entry.text(entryText, text)
	s.interned.bytes(field, s.entry)
	return id
}

// track is a row of the screen.
type track uint64

// trackKind says what a track shows.
type trackKind uint8

const (
	plainTrack trackKind = iota
	bytesTrack           // a counter of bytes
	groupTrack           // a group whose tracks are in the order in which they were made
)

// newTrack describes a track under parent; 0 has none.
func (s *stream) newTrack(parent track, name string, kind trackKind) track {
	s.tracks++
	id := s.tracks
	d := &s.inner
	*d = (*d)[:0]
	d.uint(trackUUID, id)
	d.text(trackName, name)
	if parent != 0 {
		d.uint(trackParent, uint64(parent))
	}
	d.uint(trackRank, id)
	switch kind {
	case bytesTrack:
		s.entry = s.entry[:0]
		s.entry.uint(counterUnit, unitBytes)
		d.bytes(trackCounter, s.entry)
	case groupTrack:
		d.uint(trackOrdering, 3)
	}
	s.packet.bytes(packetDescriptor, *d)
	s.send()
	return track(id)
}

// newProcess describes the process, the parent of all other tracks.
func (s *stream) newProcess(pid int64, name string) track {
	s.tracks++
	d := &s.inner
	*d = (*d)[:0]
	d.uint(trackUUID, s.tracks)
	s.entry = s.entry[:0]
	s.entry.int(processPID, pid)
	s.entry.text(processName, name)
	d.bytes(trackProcess, s.entry)
	d.uint(trackOrdering, 3)
	s.packet.bytes(packetDescriptor, *d)
	s.send()
	return track(s.tracks)
}

// note is a key of a slice's details: an interned text, a text, or else a number.
type note struct {
	key     string
	id      uint64
	text    string
	number  int64
	pointer bool
}

func (s *stream) event(on track, at int64, kind uint64, name string, notes ...note) {
	e := &s.inner
	*e = (*e)[:0]
	e.uint(eventType, kind)
	e.uint(eventTrack, uint64(on))
	if name != "" {
		e.uint(eventNameID, s.intern(s.names, internedNames, name))
	}
	for _, n := range notes {
		id := n.id
		if n.text != "" {
			id = s.intern(s.strings, internedStrings, n.text)
		}
		a := &s.entry
		*a = (*a)[:0]
		a.text(annotationName, n.key)
		switch {
		case id != 0:
			a.uint(annotationStringID, id)
		case n.pointer:
			a.int(annotationPointer, n.number)
		default:
			a.int(annotationInt, n.number)
		}
		e.bytes(eventAnnotation, *a)
	}
	s.packet.uint(packetTimestamp, uint64(max(at, 0)))
	s.packet.bytes(packetTrackEvent, *e)
	s.send()
}

func (s *stream) count(on track, at, value int64) {
	e := &s.inner
	*e = (*e)[:0]
	e.uint(eventType, typeCounter)
	e.uint(eventTrack, uint64(on))
	e.int(eventCounter, value)
	s.packet.uint(packetTimestamp, uint64(max(at, 0)))
	s.packet.bytes(packetTrackEvent, *e)
	s.send()
}

func (s *stream) close() error {
	if s.err != nil {
		return s.err
	}
	return s.w.Flush()
}
