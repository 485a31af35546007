package sweep

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
)

// A journal is lines of JSON: a header for each time that a sweep began or went on, and a line for each unit
// that was finished. A unit is appended with one write, so a program that is killed leaves at most one line
// unfinished, at the end. A unit's key is a hash of all that its rows depend on, so a line is valid whichever
// sweep wrote it.

// journalVersion is the version of the lines. It is part of every unit's key.
const journalVersion = 1

// mostLine bounds a line: the header of the largest sweep fits.
const mostLine = 64 << 20

// header says what a journal is of.
type header struct {
	Sweep   string   `json:"sweep"`
	Version int      `json:"version"`
	Shard   int      `json:"shard,omitempty"`
	Shards  int      `json:"shards,omitempty"`
	Units   []string `json:"units"` // the keys of this shard's units, in their order
	All     int      `json:"all"`   // how many units all shards have together
}

// line is one line: a header or a finished unit.
type line struct {
	header
	Done
}

// Journal keeps finished units in a file. Its methods are safe for concurrent use.
type Journal struct {
	mu   sync.Mutex
	file *os.File
	done map[string]Done
	err  error
}

// errBusy means that another program writes to a journal.
var errBusy = errors.New("another gmemtop sweep writes to it: wait for it, or end it")

// OpenJournal opens the journal at path for a sweep, or begins one. An unfinished line at its end is removed.
func OpenJournal(path string, s *Sweep) (_ *Journal, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	// Some network file systems have no locks: there the user sees to it that one program writes.
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("%s: %w", path, errBusy)
	}
	_, done, sound, err := readJournal(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := f.Truncate(sound); err != nil {
		return nil, err
	}
	j := &Journal{file: f, done: done}
	keys := make([]string, len(s.units))
	for i, u := range s.units {
		keys[i] = u.key
	}
	return j, j.append(header{Sweep: s.ID, Version: journalVersion, Shard: s.options.Shard,
		Shards: s.options.Shards, Units: keys, All: len(s.all)})
}

// readJournal reads a journal's newest header and its units. sound is where its last whole line ends.
func readJournal(r io.Reader) (newest header, done map[string]Done, sound int64, err error) {
	done = map[string]Done{}
	in := bufio.NewReaderSize(r, 1<<16)
	for {
		text, err := readLine(in)
		if errors.Is(err, io.EOF) {
			return newest, done, sound, nil
		}
		var l line
		if err == nil {
			err = json.Unmarshal(text, &l)
		}
		switch {
		case err != nil:
			return newest, done, sound, fmt.Errorf("damaged at byte %d: %w; remove the file to start over",
				sound,
				err)
		case l.Version > journalVersion:
			return newest, done, sound, fmt.Errorf("a later gmemtop wrote it (version %d): update this one",
				l.Version)
		case l.Sweep != "":
			newest = l.header
		case l.Key != "":
			done[l.Key] = l.Done
		}
		sound += int64(len(text))
	}
}

// readLine returns a line with its end. A last line without one is as if it were not there.
func readLine(in *bufio.Reader) ([]byte, error) {
	var all []byte
	for {
		part, err := in.ReadSlice('\n')
		all = append(all, part...)
		switch {
		case err == nil:
			return all, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(all) > mostLine:
			return nil, errors.New("a line does not end")
		}
	}
}

// append writes a line with one write.
func (j *Journal) append(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = j.file.Write(append(text, '\n'))
	return err
}

// put keeps a finished unit. The first error stays.
func (j *Journal) put(d Done) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		if j.err = j.append(d); j.err != nil {
			j.err = fmt.Errorf("cannot keep a result: %w; the same command continues from here", j.err)
		}
	}
	if j.err == nil {
		j.done[d.Key] = d
	}
	return j.err
}

// get returns a finished unit.
func (j *Journal) get(key string) (d Done, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	d, ok = j.done[key]
	return d, ok
}

// Close releases the file.
func (j *Journal) Close() error { return j.file.Close() }

// journalName is the name of a shard's journal.
func journalName(shard, shards int) string {
	return fmt.Sprintf("%0*d-of-%d.part", len(fmt.Sprint(shards)), shard, shards)
}

// Incomplete says what a merge lacks.
type Incomplete struct {
	Units, All int
	Missing    []string
}

func (e *Incomplete) Error() string {
	text := fmt.Sprintf("%d of %d plans are done", e.Units, e.All)
	for i, m := range e.Missing {
		if i == 5 && len(e.Missing) > 6 {
			return fmt.Sprintf("%s; and %d more shards", text, len(e.Missing)-i)
		}
		text += "; " + m
	}
	return text
}

// Merge joins the journals of shards in a folder, in the order that a sweep without shards has. If units are
// missing it returns the rest with an [*Incomplete].
func Merge(dir string) ([]Done, error) {
	paths, err := filepath.Glob(filepath.Join(escaped(dir), "*.part"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s has no parts of a sweep: gmemtop sweep --shard 1/8 --parts %s writes them",
			dir,
			dir)
	}
	var first header
	var from string
	var order []*Done
	here := map[int]bool{}
	var short Incomplete
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		h, done, _, err := readJournal(f)
		_ = f.Close()
		name := filepath.Base(path)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", path, err)
		case h.Sweep == "" && len(done) == 0: // it had just begun when its shard was killed
			continue
		case h.Shard < 1 || h.Shard > h.Shards || h.Shards > mostUnits || h.All < 0 || h.All > mostUnits:
			return nil, fmt.Errorf("%s is not part of a sweep with shards", path)
		case from == "":
			first, from, order = h, name, make([]*Done, h.All)
		case h.Sweep != first.Sweep || h.Shards != first.Shards || h.All != first.All:
			return nil,
				fmt.Errorf("%s and %s are of different sweeps: merge shards that ran the same command with "+
					"the same gmemtop, and on nodes with different GPUs with the same --hardware", from, name)
		case here[h.Shard]:
			return nil, fmt.Errorf("shard %d is there twice, once as %s: remove one of them", h.Shard, name)
		}
		here[h.Shard] = true
		got := 0
		for i, k := range h.Units {
			at := i*h.Shards + h.Shard - 1
			if at >= len(order) {
				return nil, fmt.Errorf("%s lists more plans than the sweep has", path)
			}
			if d, ok := done[k]; ok {
				order[at] = &d
				got++
			}
		}
		if got < len(h.Units) {
			short.Missing = append(short.Missing, fmt.Sprintf("shard %d has %d of %d", h.Shard, got,
				len(h.Units)))
		}
	}
	for i := 1; i <= first.Shards; i++ {
		if !here[i] {
			short.Missing = append(short.Missing, fmt.Sprintf("shard %d is not there", i))
		}
	}
	var all []Done
	for _, d := range order {
		if d != nil {
			all = append(all, *d)
		}
	}
	if len(all) < len(order) || from == "" {
		short.Units, short.All = len(all), len(order)
		return all, &short
	}
	return all, nil
}

// escaped is a folder's path as a pattern that matches only it.
func escaped(dir string) string {
	var b bytes.Buffer
	for _, c := range []byte(dir) {
		if slices.Contains([]byte(`*?[\`), c) {
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
	return b.String()
}
