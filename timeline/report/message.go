package report

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Message holds the figures of PyTorch's out-of-memory message, in the wording of any release since 1.0. In
// bytes; nil if this release does not print the figure. Other messages of memory that ran out have hardly
// any figures.
type Message struct {
	SchemaVersion int  `json:"schema_version"`
	Found         bool `json:"found"`
	// Kind says whose message it is: "pytorch", or one that names other memory, such as "host" or "driver".
	Kind string `json:"kind"`
	// Device is the GPU's number as the process counts, unknown if the message has none.
	Device DeviceNumber `json:"device"`
	Tried  *int64       `json:"tried_bytes"`
	Total  *int64       `json:"capacity_bytes"`
	Free   *int64       `json:"free_bytes"`
	// Allowed is the share that set_per_process_memory_fraction leaves to the process.
	Allowed *int64 `json:"allowed_bytes"`
	// InUse is what the process holds on the device, including its context and libraries; Others is what
	// other processes hold.
	InUse       *int64 `json:"process_bytes"`
	Others      *int64 `json:"other_processes_bytes"`
	Allocated   *int64 `json:"allocated_bytes"`
	PoolsIdle   *int64 `json:"private_pools_bytes"`
	Unallocated *int64 `json:"unallocated_bytes"`
	Reserved    *int64 `json:"reserved_bytes"`
	// RaisedAt is the line of the job's code at which memory ran out ("forward model.py:41"), from the
	// traceback before the message, and RaisedCode its text; "" if the log shows none.
	RaisedAt   string `json:"raised_at"`
	RaisedCode string `json:"raised_code"`

	old bool // of torch 2.0 or older, which has no expandable segments
	// elsewhere is what the message is if it is not PyTorch's own.
	elsewhere *elsewhere
}

// DeviceNumber is the number of a device, which may be unknown. JSON has -1 then.
type DeviceNumber struct{ maybe.Int }

// MarshalJSON writes the number, or -1 if it is unknown.
func (n DeviceNumber) MarshalJSON() ([]byte, error) { return strconv.AppendInt(nil, n.Or(-1), 10), nil }

// UnmarshalJSON reads what MarshalJSON writes.
func (n *DeviceNumber) UnmarshalJSON(text []byte) error {
	number, err := strconv.ParseInt(string(text), 10, 32)
	if err != nil {
		return fmt.Errorf("the number of a device: %w", err)
	}
	n.Int = maybe.NonNegative(number)
	return nil
}

// The wordings of the message's figures: "cached" up to 1.3, "reserved in total by PyTorch" from 1.4, whole
// sentences from 2.1, with "capacty" misspelt until 2.2.
const amount = `([0-9]+(?:\.[0-9]+)?) (bytes|[KMGT]iB)`

var (
	messageStart  = regexp.MustCompile(`out of memory\. +Tried to allocate ` + amount)
	messageDevice = regexp.MustCompile(`\bGPU ([0-9]{1,3})(?:;| has)`)
	messageOther  = regexp.MustCompile(`Process [0-9]+ has ` + amount + ` memory in use`)
	messageParts  = []struct {
		find *regexp.Regexp
		into func(*Message) **int64
	}{
		{messageStart, func(m *Message) **int64 { return &m.Tried }},
		{regexp.MustCompile(`total capaci?ty of ` + amount), func(m *Message) **int64 { return &m.Total }},
		{regexp.MustCompile(amount + ` total capacity`), func(m *Message) **int64 { return &m.Total }},
		{regexp.MustCompile(`of which ` + amount + ` is free`), func(m *Message) **int64 { return &m.Free }},
		{regexp.MustCompile(amount + ` free;`), func(m *Message) **int64 { return &m.Free }},
		{regexp.MustCompile(amount + ` allowed;`), func(m *Message) **int64 { return &m.Allowed }},
		{regexp.MustCompile(`this process has ` + amount), func(m *Message) **int64 { return &m.InUse }},
		{regexp.MustCompile(`memory ` + amount + ` is allocated by PyTorch`),
			func(m *Message) **int64 { return &m.Allocated }},
		{regexp.MustCompile(amount + ` already allocated`), func(m *Message) **int64 { return &m.Allocated }},
		{regexp.MustCompile(`with ` + amount + ` allocated in private pools`),
			func(m *Message) **int64 { return &m.PoolsIdle }},
		{regexp.MustCompile(amount + ` is reserved by PyTorch but unallocated`),
			func(m *Message) **int64 { return &m.Unallocated }},
		// Up to torch 1.3: what is reserved beyond what is allocated.
		{regexp.MustCompile(amount + ` cached`), func(m *Message) **int64 { return &m.Unallocated }},
		{regexp.MustCompile(amount + ` reserved in total by PyTorch`),
			func(m *Message) **int64 { return &m.Reserved }},
	}
)

// bytesOf returns the bytes of a matched amount.
func bytesOf(number, unit string) int64 {
	n, err := strconv.ParseFloat(number, 64)
	shift := map[string]float64{"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
		"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30} // as MPS's allocator counted before it wrote GiB
	if n *= shift[unit]; err != nil || n > 1<<60 {
		return 1 << 60
	}
	return int64(n)
}

// ParseMessage finds PyTorch's message in a line of text; ok is false if there is none.
func ParseMessage(line string) (m Message, ok bool) {
	at := messageStart.FindStringIndex(line)
	if at == nil {
		return m, false
	}
	m = Message{SchemaVersion: SchemaVersion, Found: true, Kind: "pytorch"}
	line = line[at[0]:]
	for _, p := range messageParts {
		if f := p.find.FindStringSubmatch(line); f != nil && *p.into(&m) == nil {
			*p.into(&m) = known(bytesOf(f[1], f[2]))
		}
	}
	if f := messageDevice.FindStringSubmatch(line); f != nil {
		number, _ := strconv.ParseInt(f[1], 10, 64) // three digits at most
		m.Device.Int = maybe.Known(number)
	}
	var processes []int64
	for _, f := range messageOther.FindAllStringSubmatch(line, -1) {
		processes = append(processes, bytesOf(f[1], f[2]))
	}
	m.count(processes)
	m.old = strings.Contains(line, "already allocated;")
	if m.Unallocated == nil && m.Reserved != nil && m.Allocated != nil {
		m.Unallocated = known(max(*m.Reserved-*m.Allocated, 0))
	}
	return m, true
}

// count records what the listed processes hold. In a container the driver knows the process that ran out by
// another number, so PyTorch lists it among the others and does not say "this process has". It is the one
// that holds what PyTorch reserved, if that and all listed processes together are more than the GPU has.
func (m *Message) count(processes []int64) {
	if len(processes) == 0 {
		return
	}
	var sum int64
	for _, n := range processes {
		sum += n
	}
	if m.InUse == nil && m.Allocated != nil && m.Unallocated != nil && m.Total != nil {
		reserved := *m.Allocated + *m.Unallocated
		own := int64(-1)
		for _, n := range processes {
			if n >= reserved && (own < 0 || n < own) {
				own = n
			}
		}
		if own >= 0 && sum+reserved > *m.Total {
			m.InUse = known(own)
			if sum -= own; len(processes) == 1 {
				return
			}
		}
	}
	m.Others = known(sum)
}

// longestLine is how much of a log line is read.
const longestLine = 64 << 10

// ReadMessage returns the last of PyTorch's out-of-memory messages in a log, or if there is none the last one
// of memory that ran out elsewhere; ok is false if there is neither or the input is not text. The error is
// the reader's.
func ReadMessage(r io.Reader) (m Message, ok bool, err error) {
	b := bufio.NewReaderSize(r, longestLine)
	var traces tracebacks
	for {
		line, err := b.ReadSlice('\n')
		if !utf8.Valid(line) && strings.ContainsRune(string(line), 0) {
			return m, ok, nil
		}
		found, is := ParseMessage(string(line))
		if !is && (!ok || m.elsewhere != nil) {
			found, is = parseElsewhere(string(line))
			is = is && !(ok && found.Kind == "killed") // which launchers do to the other ranks
		}
		if is {
			raised := traces.end(string(line))
			found.RaisedAt, found.RaisedCode = raised.place, raised.code
			if again := ok && found.elsewhere != nil && found.Kind == m.Kind; !again || raised.place != "" {
				m, ok = found, true // a second line of one message has no traceback before it
			}
		} else {
			traces.line(string(line))
		}
		if err == io.EOF {
			return m, ok, nil
		}
		if err != nil && err != bufio.ErrBufferFull {
			return m, ok, err
		}
	}
}

// Sentences return the cause, as far as the message shows it, and what to do.
func (m *Message) Sentences(u timeline.Units) (cause, fix string) {
	if m.elsewhere != nil {
		return m.elsewhere.sentences(m, u)
	}
	cause = "Out of memory"
	if m.RaisedAt != "" {
		cause += " in " + m.RaisedAt
	}
	cause += ": PyTorch asked for " + u.Bytes(*m.Tried)
	if m.Free != nil && m.Total != nil && m.Allowed == nil && *m.Free >= *m.Tried {
		return cause + fmt.Sprintf(", and the driver refused although %s of the GPU's %s were free.",
				u.Bytes(*m.Free), u.Bytes(*m.Total)),
			"Run it again and watch nvidia-smi -l 1: another process may have held the memory for a " +
				"moment. If not, check the host's memory: on Windows and WSL the driver also needs as much " +
				"RAM or page file."
	}
	if m.Free != nil && m.Total != nil {
		cause += fmt.Sprintf(", and the GPU had %s free of %s", u.Bytes(*m.Free), u.Bytes(*m.Total))
	}
	switch {
	case m.Allowed != nil && m.Free != nil && *m.Free >= *m.Tried:
		return cause + fmt.Sprintf("; set_per_process_memory_fraction allows %s.", u.Bytes(*m.Allowed)),
			"Allow this process more, or find out what it holds."
	case m.Others != nil && m.Free != nil && *m.Others+*m.Free >= *m.Tried && *m.Others > *m.Tried:
		return cause + fmt.Sprintf("; other processes hold %s of this GPU.", u.Bytes(*m.Others)),
			"End the other processes on this GPU (nvidia-smi lists them), or use another one."
	case m.Unallocated != nil && *m.Unallocated >= *m.Tried:
		cause += fmt.Sprintf("; %s that PyTorch had reserved were unused, but not in one piece",
			u.Bytes(*m.Unallocated))
		if m.Allocated != nil {
			cause += fmt.Sprintf(", and tensors hold %s", u.Bytes(*m.Allocated))
		}
		return cause + ".", m.expandable()
	case m.Unallocated != nil && m.Free != nil && *m.Unallocated+*m.Free >= *m.Tried:
		return cause + fmt.Sprintf("; together with the %s that PyTorch had reserved and not used, it is "+
			"enough, but not in one piece.", u.Bytes(*m.Unallocated)), m.expandable()
	case m.Allocated != nil && m.Total != nil && *m.Allocated > *m.Total:
		return cause + fmt.Sprintf("; tensors hold %s, more than the GPU has: the driver keeps the rest in "+
				"the host's memory, as on Windows, which is slow.", u.Bytes(*m.Allocated)),
			"The message does not say which tensors: that takes a recording."
	case m.Allocated != nil:
		return cause + fmt.Sprintf("; tensors hold %s.", u.Bytes(*m.Allocated)),
			"The message does not say which tensors: that takes a recording."
	}
	return cause + ".", "The message does not say what held the memory: that takes a recording."
}

// expandable is the advice for memory that is unused in pieces.
func (m *Message) expandable() string {
	if m.old {
		return "Update torch to 2.1 or newer, and try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True first."
	}
	return "Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True first."
}

// outside returns what the process holds beside PyTorch's allocator, in bytes; nil if the message does not
// show that.
func (m *Message) outside() *int64 {
	if m.InUse == nil || m.Allocated == nil || m.Unallocated == nil {
		return nil
	}
	n := *m.InUse - *m.Allocated - *m.Unallocated
	if m.PoolsIdle != nil {
		n -= *m.PoolsIdle
	}
	if n <= 0 {
		return nil
	}
	return known(n)
}

// RecordNext and then ReadNext find out what a message does not say.
const (
	RecordNext = "gmemtop record -o oom.gmt --trigger oom --depth history --every 1 -- python train.py"
	ReadNext   = "gmemtop oom oom.gmt"
)

// WriteText explains each figure of the message.
func (m *Message) WriteText(w io.Writer, o Options) error {
	p := newPrinter(o)
	m.print(p, o)
	return p.flush(w)
}

func (m *Message) print(p *printer, o Options) {
	if m.elsewhere != nil {
		m.elsewhere.print(m, p, o)
		return
	}
	cause, fix := m.Sentences(o.Units)
	p.line("%s %s", cause, fix)
	p.line("")
	p.line("what the message says")
	var rows []row
	add := func(n *int64, text string) {
		if n != nil {
			rows = append(rows, row{right(o.Units.Bytes(*n)), text})
		}
	}
	add(m.Tried, "requested from the driver: the tensor's size, rounded up to a segment")
	add(m.Total, "the GPU's memory")
	add(m.Free, "free: held neither by this process nor by another")
	add(m.Allowed, "allowed to this process by set_per_process_memory_fraction")
	add(m.Others, "held by other processes on the same GPU")
	add(m.InUse, "held by this process: all of the following")
	add(m.Allocated, "held by tensors: what has to shrink, unless one of the others is the cause")
	add(m.PoolsIdle, "in private pools, of CUDA graphs for instance: nothing else can use them")
	add(m.Reserved, "reserved by PyTorch's allocator, in use or not")
	add(m.Unallocated, "reserved but unused: in pieces, none of which was large enough")
	add(m.outside(), "outside of the allocator: CUDA's context, libraries such as NCCL and cuBLAS")
	p.table("  ", rows)
	if m.RaisedCode != "" {
		p.line("")
		p.line("the line that asked for it, %s", m.RaisedAt)
		p.command("  ", m.RaisedCode)
	}
	p.line("")
	p.line("what to record next")
	p.command("  ", RecordNext)
	p.command("  ", ReadNext)
}
