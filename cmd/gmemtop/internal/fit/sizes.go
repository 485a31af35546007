package fit

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/managers/batch"
)

// Placeholders in the command that each size of --batch and --sequence replaces.
const (
	batchPlace    = "{batch}"
	sequencePlace = "{sequence}"
)

// Sizes are the sizes to run a command at.
type Sizes struct {
	Batches, Sequences []int
}

// Size is one of them: a batch and a sequence, 0 for the command's own.
type Size struct {
	Batch, Sequence int
}

// All returns each batch at each sequence.
func (s *Sizes) All() []Size {
	batches, sequences := s.Batches, s.Sequences
	if len(batches) == 0 {
		batches = []int{0}
	}
	if len(sequences) == 0 {
		sequences = []int{0}
	}
	var all []Size
	for _, b := range batches {
		for _, n := range sequences {
			all = append(all, Size{b, n})
		}
	}
	return all
}

// Check returns an error if sizes and the placeholders in a command do not match; maxBatch means that the
// largest batch is wanted too.
func (s *Sizes) Check(argv []string, maxBatch bool) error {
	command := strings.Join(argv, " ")
	switch {
	case slices.ContainsFunc(slices.Concat(s.Batches, s.Sequences),
		func(n int) bool { return n < 1 || n > batch.Limit }):
		return fmt.Errorf("a size of --batch or --sequence is not between 1 and %d", batch.Limit)
	case strings.Contains(command, batchPlace) && len(s.Batches) == 0:
		return errors.New("the command has a place for {batch}: say which, --batch 8 or --batch 8,16")
	case strings.Contains(command, sequencePlace) && len(s.Sequences) == 0:
		return errors.New("the command has a place for {sequence}: say which, --sequence 512")
	case !strings.Contains(command, batchPlace) && len(s.Batches) > 1:
		return errors.New("several sizes of --batch need their place in the command: -- python train.py " +
			"--batch-size {batch}")
	case !strings.Contains(command, sequencePlace) && len(s.Sequences) > 0:
		return errors.New("--sequence needs its place in the command: -- python train.py --length {sequence}")
	case maxBatch && len(s.Batches) == 0:
		return errors.New("--max-batch needs --batch: the size that the script has, or one for {batch} in " +
			"the command")
	case maxBatch && len(s.Sequences) > 1:
		return errors.New("--max-batch takes one --sequence")
	}
	return nil
}

// command returns argv with a size substituted.
func (s Size) command(argv []string) []string {
	places := strings.NewReplacer(batchPlace, strconv.Itoa(s.Batch), sequencePlace, strconv.Itoa(s.Sequence))
	var words []string
	for _, word := range argv {
		words = append(words, places.Replace(word))
	}
	return words
}

// String returns the size in words, "" if the command itself fixes it.
func (s Size) String() string {
	var words []string
	if s.Batch > 0 {
		words = append(words, "batch "+strconv.Itoa(s.Batch))
	}
	if s.Sequence > 0 {
		words = append(words, "sequence "+strconv.Itoa(s.Sequence))
	}
	return strings.Join(words, ", ")
}
