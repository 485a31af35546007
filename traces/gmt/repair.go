package gmt

import (
	"context"
	"fmt"
	"io"

	"github.com/gmemtop/gmemtop/traces"
)

// Report says what Repair found and kept.
type Report struct {
	// Sound says that the file was whole; it was copied unchanged.
	Sound bool
	// Chunks is how many chunks were kept, Damaged how many stretches of the file were not.
	Chunks, Damaged int
	// Events is how many events were kept, LostEvents how many are known to be missing, without those cut off
	// at the end.
	Events, LostEvents int64
	// Bytes is the size of the part that was kept, LostBytes that of the rest.
	Bytes, LostBytes int64
	// Losses are the losses written into the repaired file.
	Losses []traces.Loss
}

// String returns the report as one line.
func (r Report) String() string {
	if r.Sound {
		return fmt.Sprintf("the file is sound: %d chunks, %d events", r.Chunks, r.Events)
	}
	return fmt.Sprintf("chunks kept: %d, with %d events (%d bytes); damaged places left out: %d (%d "+
		"bytes), with %d events or more",
		r.Chunks, r.Events, r.Bytes, r.Damaged, r.LostBytes, r.LostEvents)
}

// Repair copies every whole chunk of the size bytes of src to dst, byte for byte, then a chunk that counts
// what was left out, then the end marker, so that the file opens without complaint here and elsewhere. A
// sound file is copied unchanged. The error is a [*traces.FormatError] if nothing is sound, and that of src,
// dst or ctx.
func Repair(ctx context.Context, src io.ReaderAt, size int64, dst io.Writer) (Report, error) {
	data, err := slurp(ctx, io.NewSectionReader(src, 0, size))
	if err != nil {
		return Report{}, err
	}
	l := scan(data)
	if len(l.chunks) == 0 && l.schema.end == 0 {
		return Report{}, firstError(l, nil, int64(len(data)))
	}
	d, err := newDecoder()
	if err != nil {
		return Report{}, fmt.Errorf("gmt: %w", err)
	}
	defer d.Close()
	rd := newReader(&decoder{data: data, zstd: d})
	if err := rd.read(ctx, l, nil); err != nil {
		return Report{}, err
	}
	t := rd.finish(l)
	rep := Report{
		Sound:  firstError(l, rd.failures, int64(len(data))) == nil,
		Events: int64(t.Events.Len()), LostEvents: rd.lost[tabEvents], Losses: rd.found,
		Damaged: len(l.damaged) + len(rd.failures),
	}
	if err := rd.copyChunks(ctx, l, dst, &rep); err != nil {
		return rep, err
	}
	rep.LostBytes = int64(len(data)) - rep.Bytes
	if l.complete {
		rep.LostBytes -= int64(len(endMarker))
	}
	return rep, nil
}

// copyChunks writes the repaired file. The encoder's own schema replaces a damaged one.
func (r *reader) copyChunks(ctx context.Context, l layout, dst io.Writer, rep *Report) error {
	e, err := newEncoder(dst)
	if err != nil {
		return err
	}
	if l.schema.end == 0 {
		err = e.out.schema("gmemtop repair")
	} else {
		err = e.out.write(r.d.data[:l.schema.end])
	}
	if err != nil {
		return err
	}
	rep.Bytes = l.schema.end
	bad := map[int64]bool{}
	for _, f := range r.failures {
		bad[f.chunk.offset] = true
	}
	for _, c := range l.chunks {
		if err := ctx.Err(); err != nil {
			return err
		}
		if c.offset >= r.stop {
			break
		}
		if bad[c.offset] {
			continue
		}
		if err := e.out.write(r.d.data[c.offset:c.end]); err != nil {
			return err
		}
		rep.Chunks++
		rep.Bytes += c.end - c.offset
	}
	e.out.before = r.have
	for _, x := range rep.Losses {
		if x.Name == lossUnknown {
			continue
		}
		if err := e.defineLoss(-1, x); err != nil {
			return err
		}
	}
	return e.end()
}
