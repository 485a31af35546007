// Package build describes which build of gmemtop this is.
package build

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/gmemtop/gmemtop/timeline/report"
)

// Build is the build information that the Go toolchain embeds in the binary.
type Build struct {
	SchemaVersion int    `json:"schema_version"`
	Version       string `json:"version"`
	Revision      string `json:"revision"`
	Time          string `json:"time"`
	Modified      bool   `json:"modified"`
	Go            string `json:"go"`
	OS            string `json:"os"`
	Arch          string `json:"arch"`
	Cgo           bool   `json:"cgo"`
}

// version is a release's version, set by the linker (see the Makefile). Other builds have the version that Go
// stamps: go install takes it from the module, go build from git.
var version string

// This returns the running build.
func This() Build {
	b := Build{SchemaVersion: report.SchemaVersion, Version: "unknown", Go: runtime.Version(),
		OS:   runtime.GOOS,
		Arch: runtime.GOARCH}
	if version != "" {
		b.Version = version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if version == "" && info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		case "CGO_ENABLED":
			b.Cgo = s.Value == "1"
		}
	}
	return b
}

// String returns the build as one line.
func (b Build) String() string {
	s := fmt.Sprintf("gmemtop %s, %s, %s/%s", b.Version, b.Go, b.OS, b.Arch)
	if b.Revision != "" {
		s += ", revision " + b.Revision[:min(len(b.Revision), 12)]
		if b.Modified {
			s += " with changes"
		}
	}
	return s
}
