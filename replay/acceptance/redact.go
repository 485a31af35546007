package acceptance

import (
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The problem: the message at the end of a check comes from gmemtop, Python or the driver, and may name
// files, people and machines. It goes into a file that strangers read.
//
// The solution: a message is cut into words, and only words of known kinds stay: plain words, short numbers,
// numbers with a unit, versions, and names of functions and settings of the libraries involved. Anything else
// becomes a placeholder that says what it looked like. Names of this machine and its user are removed first,
// everywhere. Linear in the message, whose length is limited.
//
// Rejected: patterns for what to remove. Each new kind of message would be a new leak.

// redactor removes from messages everything that says who ran a program, where, and on which machine. It is
// safe for concurrent use.
type redactor struct {
	names []string        // lower case, at least four bytes each, longest first: replaced wherever they stand
	short map[string]bool // lower case, shorter than that: replaced where they are whole words
}

const (
	longestMessage = 300  // bytes that are kept
	longestRaw     = 8192 // bytes that are read
	shortName      = 4    // bytes below which a name is only looked for as a whole word
)

// newRedactor returns a redactor that knows these names: of people, machines and folders.
func newRedactor(names ...string) *redactor {
	r := &redactor{short: map[string]bool{}}
	for _, n := range names {
		n = lower(spaced(n))
		switch {
		case n == "":
		case len(n) < shortName:
			r.short[n] = true
		default:
			r.names = append(r.names, n)
		}
	}
	slices.SortFunc(r.names, func(a, b string) int { return len(b) - len(a) })
	return r
}

// namesHere returns the names of this machine and of who uses it.
func namesHere() []string {
	var names []string
	if host, err := os.Hostname(); err == nil {
		short, _, _ := strings.Cut(host, ".")
		names = append(names, host, short)
	}
	if u, err := user.Current(); err == nil {
		names = append(names, u.Username, u.HomeDir, filepath.Base(u.HomeDir))
		names = append(names, strings.Fields(u.Name)...)
	}
	for _, variable := range []string{"USER", "LOGNAME", "SUDO_USER", "HOME", "HOSTNAME", "SLURM_JOB_NAME",
		"SLURM_JOB_USER", "SLURM_JOB_ACCOUNT"} {
		names = append(names, os.Getenv(variable))
	}
	if dir, err := os.Getwd(); err == nil {
		names = append(names, dir)
	}
	return names
}

const (
	hidden    = '\x00' // stands where a name was
	isName    = "<name>"
	isPath    = "<path>"
	isText    = "<text>"
	isNumber  = "<number>"
	opening   = "([{<"
	closing   = ")]}>,.;:!?"
	quotation = "\"`'"
)

var (
	plainWord  = regexp.MustCompile(`^[A-Za-z]+(?:['-][A-Za-z]+)*$`)
	smallValue = regexp.MustCompile(`^[+-]?[0-9]{1,2}(?:\.[0-9]{1,3})?$`)
	value      = regexp.MustCompile(`^[+-]?[0-9]{1,13}(?:\.[0-9]{1,3})?$`)
	code       = regexp.MustCompile(`^[0-9]{3}$`)
	versioned  = regexp.MustCompile(`^[0-9]{1,4}(?:\.[0-9]{1,3}){1,2}(?:\+cu[0-9]{3})?$`)
	libraryOwn = regexp.MustCompile(
		`^(?:torch(?:\.[A-Za-z_]+)*|(?:cuda|nvml|cudnn|cublas|nccl)[A-Za-z]*|cu[A-Z][A-Za-z]*(?:_v[0-9])?|` +
			`(?:CUDA|NVML|CUDNN|CUBLAS|NCCL|PYTORCH)[A-Z_]*|` +
			`lib(?:cuda|cudart|nvidia-ml|c10_cuda|torch_cuda|cudnn|cublas|nccl)\.so(?:\.[0-9]{1,2})?|` +
			`cuda:[0-9]{1,2})$`)
	ownFlag = regexp.MustCompile(`^--[a-z]+(?:-[a-z]+)*$`)
	signal  = regexp.MustCompile(`^SIG[A-Z]{2,5}$`)
	units   = map[string]bool{"B": true, "KiB": true, "MiB": true, "GiB": true, "TiB": true, "KB": true,
		"MB": true, "GB": true, "bytes": true, "byte": true, "ns": true, "us": true, "ms": true, "s": true,
		"%": true, "GB/s": true}
	beforeNow = map[string]bool{"error": true, "code": true, "exit": true, "status": true, "signal": true}
)

// redact returns the message on one line, without anything that could name a person, a machine, a file or a
// process, and no longer than 300 bytes.
func (r *redactor) redact(message string) string {
	message = spaced(clip(message, longestRaw))
	folded := lower(message)
	for _, name := range r.names {
		message, folded = hide(message, folded, name)
	}
	words := strings.Fields(unquote(message))
	var b strings.Builder
	before := ""
	for i, w := range words {
		next := ""
		if i+1 < len(words) {
			next = strings.TrimRight(words[i+1], closing)
		}
		w = r.word(w, before, next)
		if b.Len() > 0 {
			if b.Len()+1+len(w) > longestMessage {
				break
			}
			b.WriteByte(' ')
		}
		b.WriteString(clip(w, longestMessage))
		before = strings.ToLower(strings.Trim(w, opening+closing))
	}
	return b.String()
}

// word returns a word in the form in which it may stay, with the punctuation around it. A number may stay
// because of the word before or after it.
func (r *redactor) word(w, before, next string) string {
	core := strings.TrimLeft(w, opening)
	head := w[:len(w)-len(core)]
	trimmed := strings.TrimRight(core, closing)
	tail := core[len(trimmed):]
	core = trimmed
	if !r.hasShort(core) && (w == "%" || units[core]) || core == "" && len(w) <= 3 {
		return w
	}
	return head + r.core(core, before, next) + tail
}

func (r *redactor) core(w, before, next string) string {
	switch {
	case w == "":
		return isText
	case w == isText, w == isName:
		return w
	case strings.ContainsRune(w, hidden), r.hasShort(w):
		return isName
	case strings.ContainsAny(w, `/\`):
		return isPath
	case plainWord.MatchString(w) && len(w) <= 24, libraryOwn.MatchString(w), ownFlag.MatchString(w),
		signal.MatchString(w), smallValue.MatchString(w), versioned.MatchString(w), value.MatchString(w) &&
			units[next], code.MatchString(w) && beforeNow[before]:
		return w
	case strings.HasSuffix(w, "%") && value.MatchString(w[:len(w)-1]):
		return w
	case value.MatchString(w):
		return isNumber
	}
	return isText
}

// hasShort reports whether a short name is one of the parts of a word.
func (r *redactor) hasShort(w string) bool {
	if len(r.short) == 0 {
		return false
	}
	parts := strings.FieldsFunc(w, func(c rune) bool { return !unicode.IsLetter(c) && !unicode.IsDigit(c) })
	for _, p := range append(parts, w) {
		if r.short[lower(p)] {
			return true
		}
	}
	return false
}

// unquote replaces each quotation with a placeholder, since it is somebody's text. One without an end goes on
// to the end.
func unquote(s string) string {
	var b strings.Builder
	for s != "" {
		at := openingQuote(s)
		if at < 0 {
			b.WriteString(s)
			break
		}
		quote := s[at]
		rest := s[at+1:]
		end := strings.IndexByte(rest, quote)
		inside := rest
		if end >= 0 {
			inside, rest = rest[:end], rest[end+1:]
		} else {
			rest = ""
		}
		b.WriteString(s[:at])
		if libraryOwn.MatchString(inside) {
			b.WriteString(inside)
		} else {
			b.WriteString(" " + isText)
		}
		if rest != "" && !strings.ContainsAny(rest[:1], closing+" ") {
			b.WriteByte(' ')
		}
		s = rest
	}
	return b.String()
}

// openingQuote returns where a quotation begins, -1 for nowhere. An apostrophe within a word does not begin
// one.
func openingQuote(s string) int {
	for i := 0; i < len(s); i++ {
		if !strings.ContainsRune(quotation, rune(s[i])) {
			continue
		}
		if s[i] == '\'' && i > 0 && isLetter(s[i-1]) && i+1 < len(s) && isLetter(s[i+1]) {
			continue
		}
		return i
	}
	return -1
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// hide replaces a name in a message by one character that no message has. folded is the message in lower
// case.
func hide(message, folded, name string) (string, string) {
	var m, f strings.Builder
	for {
		at := strings.Index(folded, name)
		if at < 0 {
			break
		}
		m.WriteString(message[:at])
		f.WriteString(folded[:at])
		m.WriteByte(hidden)
		f.WriteByte(hidden)
		message, folded = message[at+len(name):], folded[at+len(name):]
	}
	return m.String() + message, f.String() + folded
}

// spaced makes a text one line with single spaces, without control characters and invalid bytes.
func spaced(s string) string {
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, " "),
		func(c rune) bool { return unicode.IsSpace(c) || !unicode.IsPrint(c) }), " ")
}

// lower folds only ASCII, so that no byte moves.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// clip cuts a text to at most n bytes, between characters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
