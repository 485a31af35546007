//go:build !packed || !linux || !amd64

package standin

// packed is the stand-in that this program does not carry.
var packed []byte
