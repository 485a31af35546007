package autopsy

// Certainty is how far a recording shows a cause.
type Certainty string

// The certainties.
const (
	// Certain: the recording shows it, and nothing else that is known looks like it.
	Certain Certainty = "certain"
	// Likely: the pattern fits. The reason names what else looks like it.
	Likely Certainty = "likely"
	// Possible: it fits, and so does something common.
	Possible Certainty = "possible"
)

// sure sets how certain a cause is, and why no more or less.
func (c *Cause) sure(how Certainty, why string) { c.Certainty, c.Reason = how, why }

// ownFigures is the reason for what follows from the allocator's figures alone.
const ownFigures = "these are the allocator's own figures"

// graded gives causes of the allocator their certainty.
func graded(all []Cause) {
	for i := range all {
		c := &all[i]
		switch {
		case c.Certainty != "":
		case c.Kind == "limit":
			c.sure(Likely, "a fraction that the program set and a process that has ended would look the same")
		case !c.Bytes.IsKnown() && c.Kind != "capacity":
			c.sure(Possible, "the recording does not show it")
		default:
			c.sure(Certain, ownFigures)
		}
	}
}
