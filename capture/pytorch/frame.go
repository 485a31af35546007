package pytorch

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// kind is the type of a frame. Numbers never change meaning; a reader skips those it does not know.
type kind uint8

const (
	frameHello  kind = 1  // hello
	frameSteps  kind = 2  // rows of integers, one a step
	frameWindow kind = 3  // windowHead: a window begins
	frameData   kind = 4  // a piece of the window's zlib stream
	frameWhole  kind = 5  // windowTail: the window is whole
	frameNotice kind = 6  // notice
	frameLost   kind = 7  // lost
	frameBye    kind = 8  // bye: nothing follows
	frameOutput kind = 9  // from a Relay alone: bytes that the command wrote
	frameAnswer kind = 10 // answer

	frameWelcome kind = 64 // welcome
	frameDetach  kind = 68 // {}
	frameOrder   kind = 70 // capture.Order; 65 to 67 and 69 were the orders of version 1

	frameWho     kind = 96 // from another viewer: who listens here?
	frameWatched kind = 97 // watched
	frameLook    kind = 98 // look: from another viewer
)

// Limits on what is accepted from a socket.
const (
	maxFrame  = 64 << 20
	maxHello  = 1 << 20
	maxOrder  = 32 << 20 // a guest's order, at most a plan
	maxWindow = 1 << 30  // bytes of a window's text, decompressed
	maxPacked = 256 << 20
	maxRing   = 1 << 20 // bytes of the ring that comes with a connection
)

// encodingGMT is the encoding of a window that a Relay passes on: a native stream of traces/gmt. An agent's
// own windows name none.
const encodingGMT = "gmt"

type hello struct {
	Version   int      `json:"version"`
	PID       int      `json:"pid"`
	Start     int64    `json:"start"`
	Host      string   `json:"host"`
	Argv      []string `json:"argv"`
	Python    string   `json:"python"`
	Torch     string   `json:"torch"`
	Device    string   `json:"device"`
	Rank      int64    `json:"rank"` // -1 where unknown, as are the next two
	LocalRank int64    `json:"local_rank"`
	WorldSize int64    `json:"world_size"`
	// Axes are where the process stands along each way of splitting the training over ranks.
	Axes         []traces.Axis `json:"axes,omitempty"`
	Capabilities []string      `json:"capabilities"`
	Waiting      string        `json:"waiting"`
	// Says is Waiting as a sentence of the catalogue, like all fields of this name below.
	Says     say.Told `json:"says,omitzero"`
	Depth    string   `json:"depth"`
	Offloads bool     `json:"offloads,omitempty"`
	Room     int64    `json:"room"` // 0 where unknown
	// Devices are the GPUs that the process sees.
	Devices []gpu `json:"devices,omitempty"`
	// Viewer is the process of the Relay that sends this.
	Viewer int `json:"viewer,omitempty"`
}

type windowHead struct {
	First   int64      `json:"first"`
	Last    int64      `json:"last"`
	How     string     `json:"how"`
	Partial bool       `json:"partial"`
	Steps   [][2]int64 `json:"steps"` // nanoseconds of Unix time
	// Orders are those that asked for the window.
	Orders []capture.OrderID `json:"orders,omitempty"`
	// Encoding is what the pieces are: "" for a zlib stream of what an agent writes, or encodingGMT.
	Encoding string `json:"encoding,omitempty"`
}

// gpu is a GPU as its driver describes it.
type gpu struct {
	Ordinal int    `json:"ordinal"`
	Name    string `json:"name"`
	Bytes   int64  `json:"bytes"` // of memory
}

type windowTail struct {
	Cost int64 `json:"cost"`
	Lost int64 `json:"lost"`
}

type notice struct {
	Key  string   `json:"key"`
	Text string   `json:"text"`
	Says say.Told `json:"says,omitzero"`
	// State says that the text is what the agent waits for or does now.
	State bool `json:"state,omitempty"`
}

type lost struct {
	Name   string   `json:"name"`
	N      int64    `json:"n"`
	Detail string   `json:"detail"`
	Says   say.Told `json:"says,omitzero"`
}

type answer struct {
	capture.Answer
	Says say.Told `json:"says,omitzero"`
}

type bye struct {
	Version int      `json:"version"`
	PID     int      `json:"pid"`
	Reason  string   `json:"reason"`
	Detail  string   `json:"detail"`
	Says    say.Told `json:"says,omitzero"`
	// Left is what could not be undone; LeftSays is the same as sentences.
	Left     []string   `json:"left"`
	LeftSays []say.Told `json:"left_says,omitempty"`
	// Refusal distinguishes refusals: refusalLives, or "" for any other.
	Refusal string `json:"refusal,omitempty"`
	// Code, OutOfMemory and Recovered are what a Relay knows of an end with the reason capture.Exited.
	Code        maybe.Int `json:"code,omitzero"`
	OutOfMemory bool      `json:"out_of_memory,omitempty"`
	Recovered   maybe.Int `json:"recovered,omitzero"`
}

// refusalLives is how an agent refuses when it finds another in its process.
const refusalLives = "agent_lives"

type welcome struct {
	Version int `json:"version"`
}

type watched struct {
	PID   int    `json:"pid"`
	Since string `json:"since"`
	// Looks is the version of look that this viewer answers.
	Looks int `json:"looks"`
	// Attaching says that it waits for the agent, or has just met it, and will show what it sees.
	Attaching bool `json:"attaching,omitempty"`
}

// lookVersion is the version of the protocol between viewers.
const lookVersion = 2

// look asks a viewer to be shown process PID as well.
type look struct {
	Version int `json:"version"`
	PID     int `json:"pid"`
}

// readFrame reads one frame of at most limit bytes. It returns io.EOF where the stream ends between two
// frames.
func readFrame(r io.Reader, limit int) (kind, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:4]); err != nil {
		return 0, nil, err
	}
	n := int64(binary.LittleEndian.Uint32(head[:4]))
	if n < 1 || n > int64(limit) {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes", errProtocol, n)
	}
	if _, err := io.ReadFull(r, head[4:]); err != nil {
		return 0, nil, cut(err)
	}
	// grows with what really comes, whatever the length says
	payload, err := io.ReadAll(io.LimitReader(r, n-1))
	if err == nil && int64(len(payload)) < n-1 {
		err = io.ErrUnexpectedEOF
	}
	return kind(head[4]), payload, cut(err)
}

func cut(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// frame returns a whole frame of v as JSON.
func frame(k kind, v any) ([]byte, error) {
	payload, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return plainFrame(k, payload), nil
}

// plainFrame returns a whole frame of a payload as it is.
func plainFrame(k kind, payload []byte) []byte {
	out := binary.LittleEndian.AppendUint32(make([]byte, 0, len(payload)+5), uint32(len(payload)+1))
	return append(append(out, byte(k)), payload...)
}

// read decodes a payload.
func read[T any](payload []byte) (T, error) {
	var v T
	if err := json.Unmarshal(payload, &v); err != nil {
		return v, fmt.Errorf("%w: %w", errProtocol, err)
	}
	return v, nil
}

// A step's row grew with the agent: by what carrying out a plan did, by two figures of the allocator, by two
// more, and by the training thread's processor time.
const (
	stepColumns    = 18
	carriedColumns = 25
	activeColumns  = 27
	finerColumns   = 29
	allColumns     = 32
)

// steps decodes the rows of a frameSteps. Rows that are too short are an error; further columns are skipped.
func steps(payload []byte) ([]capture.Step, error) {
	rows, err := read[[][]int64](payload)
	if err != nil {
		return nil, err
	}
	out := make([]capture.Step, 0, len(rows))
	for _, r := range rows {
		step, err := StepOf(r)
		if err != nil {
			return nil, err
		}
		out = append(out, step)
	}
	return out, nil
}

// StepOf decodes the row of one step. A row that is too short is an error; further columns are skipped.
func StepOf(r []int64) (capture.Step, error) {
	if len(r) < stepColumns {
		return capture.Step{}, fmt.Errorf("%w: a step of %d columns", errProtocol, len(r))
	}
	if r[0] < 0 || r[1] < 0 || r[2] < r[1] {
		return capture.Step{}, fmt.Errorf("%w: step %d lasts from %d to %d", errProtocol, r[0], r[1], r[2])
	}
	figure := func(column int) maybe.Int { return maybe.NonNegative(r[column]) }
	step := capture.Step{
		Index: r[0], Start: r[1], End: r[2], Forward: figure(3), Backward: figure(4), Optimizer: figure(5),
		Allocated: figure(6), Reserved: figure(7), PeakAllocated: figure(8), PeakReserved: figure(9),
		RSS: figure(10), Retries: figure(11), OOMs: figure(12),
		Parameters: figure(13), Gradients: figure(14), OptimizerState: figure(15),
		Cost: time.Duration(r[16]), Skipped: r[17] != 0,
	}
	if len(r) >= carriedColumns {
		step.Carried = capture.Carried{Plan: r[18], Out: r[19], In: r[20], Again: time.Duration(r[21]),
			Missed: r[22], Checked: r[23], Differ: r[24]}
	}
	if len(r) >= activeColumns {
		step.Requested, step.Active = figure(25), figure(26)
	}
	if len(r) >= finerColumns {
		step.PoolsFree, step.PoolsAt = figure(27), figure(28)
	}
	if len(r) >= allColumns {
		step.Work = figure(29)
		step.Carried.OutTime, step.Carried.InTime = time.Duration(r[30]), time.Duration(r[31])
	}
	return step, nil
}

// rows is the inverse of steps.
func rows(list []capture.Step) [][allColumns]int64 {
	out := make([][allColumns]int64, len(list))
	for i, s := range list {
		out[i] = RowOf(s)
	}
	return out
}

// RowOf is the inverse of StepOf. On the wire, -1 is a figure that is unknown.
func RowOf(s capture.Step) [allColumns]int64 {
	skipped := int64(0)
	if s.Skipped {
		skipped = 1
	}
	return [allColumns]int64{
		s.Index, s.Start, s.End, s.Forward.Or(-1), s.Backward.Or(-1), s.Optimizer.Or(-1),
		s.Allocated.Or(-1), s.Reserved.Or(-1), s.PeakAllocated.Or(-1), s.PeakReserved.Or(-1),
		s.RSS.Or(-1), s.Retries.Or(-1), s.OOMs.Or(-1),
		s.Parameters.Or(-1), s.Gradients.Or(-1), s.OptimizerState.Or(-1), int64(s.Cost), skipped,
		s.Carried.Plan, s.Carried.Out, s.Carried.In, int64(s.Carried.Again), s.Carried.Missed,
		s.Carried.Checked,
		s.Carried.Differ,
		s.Requested.Or(-1), s.Active.Or(-1), s.PoolsFree.Or(-1), s.PoolsAt.Or(-1),
		s.Work.Or(-1), int64(s.Carried.OutTime), int64(s.Carried.InTime),
	}
}
