package gmt

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/gmemtop/gmemtop/traces"
)

// encoder turns definitions and records into rows, and rows into batches of at most maxRows.
type encoder struct {
	out     *messages
	defs    rows
	records rows
	opInfos map[opInfo]int32
}

func newEncoder(w io.Writer) (*encoder, error) {
	out, err := newMessages(w)
	if err != nil {
		return nil, err
	}
	return &encoder{out: out, opInfos: map[opInfo]int32{}}, nil
}

// chunkText is the amount of text at which a batch of definitions is written even with fewer than maxRows
// rows.
const chunkText = 4 << 20

// define adds a definition.
func (e *encoder) define(x row, text string) error {
	if err := checkText(len(text)); err != nil {
		return err
	}
	if len(e.defs.text)+len(text) > chunkText {
		if err := e.out.rows(&e.defs, classDefinitions); err != nil {
			return err
		}
	}
	e.defs.add(x, text)
	if e.defs.len() == maxRows {
		return e.out.rows(&e.defs, classDefinitions)
	}
	return nil
}

// record adds a record that is not an event. Pending definitions go first.
func (e *encoder) record(x row, text string) error {
	e.records.add(x, text)
	if e.records.len() < maxRows {
		return nil
	}
	return e.flushRecords()
}

func (e *encoder) flushRecords() error {
	if err := e.out.rows(&e.defs, classDefinitions); err != nil {
		return err
	}
	return e.out.rows(&e.records, classRecords)
}

// events writes the rows [first, end) of ev in chunks. Pending definitions go first.
func (e *encoder) events(ctx context.Context, ev *traces.Events, first, end int) error {
	if err := e.out.rows(&e.defs, classDefinitions); err != nil {
		return err
	}
	for i := first; i < end; i += maxRows {
		if err := ctx.Err(); err != nil {
			return err
		}
		j := min(i+maxRows, end)
		for k, a := range ev.Action[i:j] {
			if a >= kindOp {
				return fmt.Errorf("gmt: event %d: action %d cannot be written: the file has room for 0 to 99",
					i+k, a)
			}
		}
		d := columnData{n: j - i, class: classEvents, kinds: bytesOf(ev.Action[i:j])}
		d.fixed[colTime], d.fixed[colAddress], d.fixed[colSize] = bytesOf(ev.Time[i:j]),
			bytesOf(ev.Addr[i:j]), bytesOf(ev.Size[i:j])
		d.fixed[colKind], d.fixed[colDevice], d.fixed[colStream] = d.kinds, bytesOf(ev.Device[i:j]),
			bytesOf(ev.Stream[i:j])
		d.fixed[colStack] = bytesOf(ev.Stack[i:j])
		if ev.Detail != nil {
			d.fixed[colDetail] = bytesOf(ev.Detail[i:j])
		}
		if err := e.out.batch(d); err != nil {
			return err
		}
	}
	return nil
}

// end writes what is pending and the end marker.
func (e *encoder) end() error {
	if err := e.flushRecords(); err != nil {
		return err
	}
	return e.out.write(endMarker)
}

var errTextTooLong = errors.New("gmt: a text of more than 512 MiB cannot be written; shorten it")

func checkText(n int) error {
	if n > maxText/2 {
		return errTextTooLong
	}
	return nil
}
