package traces

// Axis is where a rank stands along one way of splitting a training over ranks, such as the third of four
// pipeline stages. JSON is its form on the wire.
type Axis struct {
	// Name is one of the names below or, of a mesh that the program has made, the program's own.
	Name string `json:"name"`
	// At counts from 0; Of is how many there are.
	At int64 `json:"at"`
	Of int64 `json:"of"`
}

// The usual axes, in the order in which they are shown: ranks of different stages differ by design, ranks
// along the others should not.
const (
	Pipeline = "pipeline"
	Expert   = "expert"
	Data     = "data"
	Context  = "context"
	Tensor   = "tensor"
)

// Bounds of what a process may say of its axes.
const (
	maxAxes     = 8
	maxAxisName = 24
	maxAxis     = 1 << 20
)

// Valid reports whether there can be such an axis.
func (a Axis) Valid() bool {
	return a.Name != "" && len(a.Name) <= maxAxisName && 0 <= a.At && a.At < a.Of && a.Of <= maxAxis
}

// SoundAxes returns the valid ones of what a process says, as many as are kept.
func SoundAxes(said []Axis) []Axis {
	var list []Axis
	for _, a := range said {
		if a.Valid() && len(list) < maxAxes {
			list = append(list, a)
		}
	}
	return list
}
