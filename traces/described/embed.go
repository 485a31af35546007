package described

import _ "embed"

// Recorder is describe.py, which a training script imports to record steps in this format.
//
//go:embed describe.py
var Recorder []byte
