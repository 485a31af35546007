package estimate

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Place is the progress of a process of the command.
type Place struct {
	Rank int `json:"rank"`
	// Steps is how many it has trained.
	Steps int `json:"steps"`
	// Line is the line of the script, or of a library other than torch, that its main thread is in:
	// file:line.
	Line string `json:"line"`
	// Importing says that the script's import of torch has not ended; Line means nothing then.
	Importing bool `json:"importing"`
}

// tellEvery is the time between two reports of a command's progress.
const tellEvery = 10 * time.Second

// workplace makes a folder for the command's processes and this one, and holds a lock there, by which they
// know that this process lives. done ends those that are left; so does the end of this process, for whatever
// reason.
func workplace() (folder string, done func(), err error) {
	running.Add(1)
	folder, tidy, err := newWorkplace()
	if err != nil {
		running.Done()
		return "", nil, err
	}
	return folder, func() { tidy(); running.Done() }, nil
}

// running counts the estimates that have not tidied up yet.
var running sync.WaitGroup

// tidied is how long we wait for that at most. It takes as long as the kernel takes to end the processes.
const tidied = 3 * time.Second

// Quiesce waits until the estimates that were told to end have removed what their scripts made. Call it
// before the process ends.
func Quiesce() {
	done := make(chan struct{})
	go func() { running.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(tidied):
	}
}

func newWorkplace() (folder string, done func(), err error) {
	folder, err = os.MkdirTemp("", "gmemtop-estimate-")
	if err != nil {
		return "", nil, fmt.Errorf("make a folder for the estimate: %w", err)
	}
	f, err := os.Create(filepath.Join(folder, "alive"))
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(folder))
	}
	done = func() {
		f.Close()
		os.RemoveAll(folder)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		done()
		return "", nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return folder, done, nil
}

// places reads the progress of the processes, by rank. One that has not imported torch yet reports nothing.
func places(folder string) []Place {
	files, err := filepath.Glob(filepath.Join(folder, "*.at"))
	if err != nil {
		panic(err) // the pattern is ours
	}
	var all []Place
	for _, path := range files {
		var p Place
		if b, err := os.ReadFile(path); err == nil && json.Unmarshal(b, &p) == nil {
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b Place) int { return a.Rank - b.Rank })
	return all
}

// telling calls tell with the command's progress, until stop is called.
func telling(folder string, tell func(ran time.Duration, at []Place)) (stop func()) {
	if tell == nil {
		return func() {}
	}
	began, ended, done := time.Now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(tellEvery)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				tell(time.Since(began), places(folder))
			}
		}
	}()
	return func() { close(ended); <-done }
}
