package standin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Report is what a process on the stand-in writes when it ends. A process that ends by a signal or by _exit
// writes none.
type Report struct {
	PID        int      `json:"pid"`
	Command    []string `json:"command"`
	Order      int      `json:"order"`      // 0 late, 1 once, others are seeds
	Violations []string `json:"violations"` // what no program may do
	Leaks      []Leak   `json:"leaks"`      // what was left at the end, or when a context was destroyed
	Kept       []Leak   `json:"kept"`       // what PyTorch's own libraries keep until the end, by design
	// Missing are the functions that were called, or looked up by name, but that the stand-in lacks.
	Missing    []Missing    `json:"missing"`
	Uncomputed []Uncomputed `json:"uncomputed"` // ops without numbers
	Inferred   []string     `json:"inferred"`   // figures that are documented guesses
	Devices    []Held       `json:"devices"`
	// launches, copies, copied_bytes, allocations, waits, and what libraries count
	Counts map[string]uint64 `json:"counts"`
	Calls  map[string]uint64 `json:"calls"` // by function
}

// Leak counts things of one kind made by one library.
type Leak struct {
	Kind    string `json:"kind"`
	Library string `json:"library"`
	Count   uint64 `json:"count"`
	Bytes   uint64 `json:"bytes"`
}

func (l Leak) String() string {
	s := fmt.Sprintf("%d x %s", l.Count, l.Kind)
	if l.Bytes > 0 {
		s += fmt.Sprintf(" of %d bytes", l.Bytes)
	}
	if l.Library != "" {
		s += " made by " + l.Library
	}
	return s
}

// Missing is a function that the stand-in lacks.
type Missing struct {
	Function string `json:"function"`
	Calls    uint64 `json:"calls"`
}

// Uncomputed is an op whose numbers are not computed, and why.
type Uncomputed struct {
	Op    string `json:"op"`
	Why   string `json:"why"`
	Count uint64 `json:"count"`
}

// Held is what a process held on a device at its end, and the most that it held, including its context.
type Held struct {
	Device int    `json:"device"`
	Held   uint64 `json:"held"`
	Peak   uint64 `json:"peak"`
}

// ReadReports reads the reports in a folder, by process id. A missing folder holds none.
func ReadReports(dir string) ([]Report, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the stand-in GPU's reports: %w", err)
	}
	var all []Report
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".json" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read the stand-in GPU's reports: %w", err)
		}
		var r Report
		if err := json.Unmarshal(data, &r); err != nil {
			return nil, fmt.Errorf("read the stand-in GPU's report %s: %w", e.Name(), err)
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Report) int { return a.PID - b.PID })
	return all, nil
}
