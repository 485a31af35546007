package torchsnapshot

import (
	"context"
	"io"
)

// A window slides over the input. A second goroutine reads ahead, so that copying (or inflating) the next
// block costs the decoder nothing if there is a second core. Blocks are small enough to stay in a core's
// cache.
const (
	blockSize  = 256 << 10
	blockCount = 4
	// firstBlock keeps small files cheap.
	firstBlock = 16 << 10
	// headroom is the space before a block for the unread tail of the previous block. A refill happens only
	// when fewer bytes than that are left.
	headroom = 64
	// padding is the number of zero bytes after the last byte of the input, so that an opcode's fixed
	// argument can be read without checking each byte. Zero is not an opcode, and reading beyond the end is
	// noticed afterwards.
	padding = 64
)

type block struct {
	data []byte // the whole buffer, headroom and padding included
	n    int    // bytes read into data[headroom:]
	err  error  // what ended the input, io.EOF included
}

// window is the decoder's view of the input: buf[pos:end] is unread and buf has padding bytes more.
type window struct {
	buf      []byte
	pos, end int
	base     int64 // offset in the input of buf[0]
	atEnd    bool  // buf holds the input's last byte
	err      error // the reader's error, nil for a plain end

	ctx      context.Context
	progress func(int64)
	blocks   chan block
	free     chan []byte
	stop     chan struct{}
	current  []byte
}

func newWindow(ctx context.Context, r io.Reader, progress func(int64)) *window {
	w := &window{
		ctx: ctx, progress: progress,
		blocks: make(chan block, blockCount), free: make(chan []byte, blockCount), stop: make(chan struct{}),
	}
	go w.readAhead(r)
	w.refill()
	return w
}

// readAhead fills blocks until the input ends or the window is closed; it closes w.blocks after its last
// read.
func (w *window) readAhead(r io.Reader) {
	defer close(w.blocks)
	for made := 0; ; made++ {
		var data []byte
		switch {
		case made == 0:
			data = make([]byte, headroom+firstBlock+padding)
		case made < blockCount:
			data = make([]byte, headroom+blockSize+padding)
		default:
			select {
			case data = <-w.free:
			case <-w.stop:
				return
			}
		}
		n, err := io.ReadFull(r, data[headroom:len(data)-padding])
		if err == io.ErrUnexpectedEOF {
			err = io.EOF
		}
		select {
		case w.blocks <- block{data, n, err}:
		case <-w.stop:
			return
		}
		if err != nil {
			return
		}
	}
}

// close ends the reading ahead. It waits for a read in progress, so that the caller may then close its
// reader, unless the context was cancelled: then the read may never return.
func (w *window) close() {
	close(w.stop)
	if w.ctx.Err() != nil {
		return
	}
	for range w.blocks { // drained until readAhead closes it
	}
}

// offset returns the place in the input of buf[pos].
func (w *window) offset() int64 { return w.base + int64(w.pos) }

// refill moves on to the next block, keeping the unread bytes (at most headroom of them) in front. It reports
// whether there are new bytes. A cancelled context ends the input.
func (w *window) refill() bool {
	if w.atEnd {
		return false
	}
	if w.progress != nil && w.current != nil {
		w.progress(w.offset())
	}
	var b block
	select {
	case <-w.ctx.Done():
		w.finish(w.ctx.Err())
		return false
	case b = <-w.blocks:
	}
	rest := w.buf[w.pos:w.end]
	start := headroom - len(rest)
	copy(b.data[start:], rest)
	at := w.offset()
	if w.current != nil {
		w.free <- w.current // never blocks: there are blockCount buffers
	}
	w.current = b.data
	w.buf, w.pos, w.end = b.data, start, headroom+b.n
	w.base = at - int64(start)
	if b.err != nil {
		clear(b.data[w.end : w.end+padding])
		w.atEnd = true
		if b.err != io.EOF {
			w.err = b.err
		}
	}
	return b.n > 0
}

// finish makes the content of the window the end of the input.
func (w *window) finish(err error) {
	w.atEnd = true
	w.err = err
	if w.current == nil {
		w.buf = make([]byte, padding)
		return
	}
	clear(w.buf[w.end:min(w.end+padding, len(w.buf))])
}

// take returns the next n bytes, which are valid until the next call. It allocates at most twice the bytes
// that the input has, and returns fewer than n bytes if the input ends.
func (w *window) take(n int, scratch *[]byte) []byte {
	if w.end-w.pos >= n {
		p := w.buf[w.pos : w.pos+n]
		w.pos += n
		return p
	}
	*scratch = (*scratch)[:0]
	for n > 0 && w.pos <= w.end {
		if w.pos == w.end && !w.refill() {
			break
		}
		m := min(n, w.end-w.pos)
		*scratch = append(*scratch, w.buf[w.pos:w.pos+m]...)
		w.pos += m
		n -= m
	}
	return *scratch
}
