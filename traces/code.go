package traces

// Code reads the files of a recorded program, as they are on this machine.
type Code interface {
	// File returns the text of a file that stacks name. It is false if there is none, if it may not be read,
	// or if it is known to have changed since the recording.
	File(path string) (text string, ok bool)
}
