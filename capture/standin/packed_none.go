//go:build !packed || !linux || !amd64

package standin

// packed is empty: this program does not contain the stand-in.
var packed []byte
