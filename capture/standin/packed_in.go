//go:build packed && linux && amd64

package standin

import _ "embed"

// packed is the stand-in without stubs, compressed; scripts/packstandin makes the file.
//
//go:embed packed/libstandin.so.gz
var packed []byte
