package traces

// Redaction makes a trace that can be shown to a stranger.
//
// Problem: a recording holds home paths, user and host names, and the names of a model that is not public, in
// frames, annotations, notes, settings and keys that this version does not even know. Its structure, sizes
// and times are what a colleague needs to help.
//
// Solution: every string that came from the user's program is replaced by a short keyed hash, equal names by
// equal hashes, so that call sites can still be distinguished and compared. What is public anyway stays
// readable, because categories, iterations and modules are inferred from it: frames of well-known packages
// below site-packages, of Python's own library and of PyTorch's C++, function names that every program has
// (forward, step, __init__), the annotations of torch.profiler and of PyTorch's optimizers, op names. The
// string table is rebuilt from the strings that are still used; all others are gone.
//
// The key is random for each call unless the caller gives one, since a plain hash of "/home/alice/train.py"
// can be found by trying names.
//
// Rejected: keeping directories and hashing parts of paths (depth and common prefixes reveal too much), and a
// deny-list of names (it lets unknown names through).

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Redact returns a copy of t without the user's names and paths: frames outside well-known packages,
// annotations, notes, host and file names, and strings of settings and unknown keys become hashes keyed by
// key (random where it is empty). Events, sizes, times, line numbers and everything inferred from public
// frames stay. t is not changed and shares its columns with the copy.
func Redact(t *Trace, key []byte) *Trace {
	if len(key) == 0 {
		key = make([]byte, 32)
		rand.Read(key) // never fails: crypto/rand crashes the program instead
	}
	r := &redactor{from: t, key: key, ids: map[string]StringID{"": 0}, done: map[redactKey]StringID{}}
	out := *t
	r.to = &out
	out.Strings = []string{""}
	if t.Process.Host != "" {
		out.Process.Host = r.hash("host", t.Process.Host)
	}
	out.Source.Path = r.sourcePath(t.Source.Path)
	r.frames()
	r.details()
	r.work()
	r.state()
	out.Settings = r.settings(t.Settings)
	out.Extra = r.settings(t.Extra)
	return &out
}

// role says what a string means where it is used: the same string can be a file in one place and an
// annotation in another.
type role uint8

const (
	roleFile role = iota
	roleFunc
	rolePublic
	roleNote
	roleMark
	roleOp
	roleJSON
)

type redactKey struct {
	id   StringID
	role role
}

type redactor struct {
	from, to *Trace
	key      []byte
	ids      map[string]StringID
	done     map[redactKey]StringID
}

// hash returns prefix_ and ten hexadecimal digits.
func (r *redactor) hash(prefix, s string) string {
	h := hmac.New(sha256.New, r.key)
	h.Write([]byte(s))
	return prefix + "_" + hex.EncodeToString(h.Sum(nil)[:5])
}

// string interns s in the new table.
func (r *redactor) string(s string) StringID {
	id, ok := r.ids[s]
	if !ok {
		id = StringID(len(r.to.Strings))
		r.to.Strings = append(r.to.Strings, s)
		r.ids[s] = id
	}
	return id
}

// id returns the new id of an old string in a role.
func (r *redactor) id(id StringID, as role) StringID {
	k := redactKey{id, as}
	if to, ok := r.done[k]; ok {
		return to
	}
	to := r.string(r.redact(r.from.Text(id), as))
	r.done[k] = to
	return to
}

func (r *redactor) redact(s string, as role) string {
	if s == "" {
		return ""
	}
	switch as {
	case rolePublic:
		return s
	case roleFile:
		return r.file(s)
	case roleFunc:
		if publicFunction(s) {
			return s
		}
		return r.hash("fn", s)
	case roleMark:
		return r.annotation(s)
	case roleOp:
		if publicOp(s) {
			return s
		}
		return r.hash("op", s)
	case roleJSON:
		return r.json(s)
	}
	return r.hash("note", s)
}

// publicPackages are packages below site-packages whose file and function names are public.
var publicPackages = map[string]bool{
	"torch": true, "torchvision": true, "torchaudio": true, "torchtext": true, "torchtitan": true,
	"triton": true, "numpy": true, "transformers": true, "accelerate": true, "diffusers": true, "peft": true,
	"trl": true, "datasets": true, "timm": true, "deepspeed": true, "megatron": true, "apex": true,
	"flash_attn": true, "xformers": true, "bitsandbytes": true, "lightning": true, "pytorch_lightning": true,
	"lightning_fabric": true, "fairscale": true, "einops": true, "vllm": true, "jax": true,
	"flax": true, "optax": true, "tqdm": true, "IPython": true, "ipykernel": true,
}

var (
	packagePath = regexp.MustCompile(`(?:site|dist)-packages/(([A-Za-z0-9_]+)(?:/.*)?)$`)
	libraryPath = regexp.MustCompile(`/lib/python3\.[0-9]+/((?:[a-z_]+/)*[a-z_0-9]+\.py)$`)
	builtInFile = regexp.MustCompile(`^(\?\?|<(string|stdin|frozen [a-z_.]+|` +
		`built-in[a-z ]*|eval_with_key>\.[0-9]+|ipython-input[-0-9a-f]*)>?)$`)
)

// publicFile returns the public part of a path, and false if there is none.
func publicFile(s string) (string, bool) {
	s = strings.ReplaceAll(s, "\\", "/")
	if m := packagePath.FindStringSubmatch(s); m != nil && publicPackages[m[2]] {
		return "site-packages/" + m[1], true
	}
	if !strings.Contains(s, "-packages/") {
		if m := libraryPath.FindStringSubmatch(s); m != nil {
			return "python/" + m[1], true
		}
	}
	return s, builtInFile.MatchString(s)
}

// publicExtensions say what language a file is in, which may be known.
var publicExtensions = []string{".py", ".pyx", ".cpp", ".cc", ".c", ".cu", ".cuh", ".h", ".hpp", ".so",
	".ipynb", ".rs", ".go"}

func (r *redactor) file(s string) string {
	if p, ok := publicFile(s); ok {
		return p
	}
	ext := path.Ext(strings.ReplaceAll(s, "\\", "/"))
	if !slices.Contains(publicExtensions, ext) {
		ext = ""
	}
	return r.hash("file", s) + ext
}

// publicFunctions are names that every training program has.
var publicFunctions = map[string]bool{
	"forward": true, "backward": true, "step": true, "zero_grad": true, "train": true, "eval": true,
	"main": true, "wrapper": true, "inner": true, "<module>": true, "<lambda>": true, "<listcomp>": true,
	"<genexpr>": true, "<dictcomp>": true, "training_step": true,
}

var (
	dunder    = regexp.MustCompile(`^__[a-z]+__$`)
	publicCpp = regexp.MustCompile(
		`^(?:void |bool |int |auto )?(?:at|c10|torch|caffe2|std|cublas|cudnn|nccl|` +
			`thrust|cub|cutlass|gloo|c10d)::|` +
			`^(?:_?Py|cuda[A-Z]|cu[A-Z]|cublas|cudnn|nccl[A-Z]|THP|__libc_|_start$|clone$|start_thread$)`)
	profileStep = regexp.MustCompile(`^ProfilerStep#[0-9]+$`)
	optimizer   = regexp.MustCompile(
		`^(Optimizer\.(?:step|zero_grad)#)([A-Za-z0-9_]+)(\.(?:step|zero_grad))?$`)
	publicMark = regexp.MustCompile(`^(?:#+ ?)?(?:forward|backward|optimizer|step|iteration|train|training|` +
		`eval|validation|loss|zero_grad|warmup)(?:[ _#:]*[0-9]*)?(?: ?#+)?$`)
	opName = regexp.MustCompile(
		`^(?:aten|prim|prims|c10d|c10d_functional|_c10d_functional|nccl|torchvision|cuda|` +
			`autograd|triton_[a-z]+)(?:::|:)[A-Za-z0-9_.]+$|` +
			`^[A-Z][A-Za-z]+Backward[0-9]*$|^autograd::engine::evaluate_function: ` +
			`[A-Z][A-Za-z]+Backward[0-9]*$|` +
			`^torch::autograd::[A-Za-z]+$`)
	optimizers = map[string]bool{
		"SGD": true, "Adam": true, "AdamW": true, "Adamax": true, "NAdam": true, "RAdam": true,
		"Adagrad": true, "Adadelta": true, "Adafactor": true, "RMSprop": true, "Rprop": true, "ASGD": true,
		"LBFGS": true, "SparseAdam": true, "Muon": true,
	}
)

func publicFunction(s string) bool {
	return publicFunctions[s] || dunder.MatchString(s) || publicCpp.MatchString(s)
}

func publicOp(s string) bool { return opName.MatchString(s) || profileStep.MatchString(s) }

// annotation keeps the names of ranges that mark iterations and phases.
func (r *redactor) annotation(s string) string {
	if profileStep.MatchString(s) || publicMark.MatchString(strings.ToLower(s)) {
		return s
	}
	if m := optimizer.FindStringSubmatch(s); m != nil {
		if optimizers[m[2]] {
			return s
		}
		return m[1] + r.hash("optimizer", m[2]) + m[3]
	}
	return r.hash("note", s)
}

func (r *redactor) sourcePath(s string) string {
	if s == "" || s == "-" {
		return s
	}
	return r.hash("trace", s)
}

func (r *redactor) frames() {
	r.to.Frames = make([]Frame, len(r.from.Frames))
	for i, f := range r.from.Frames {
		fn := roleFunc
		if p, ok := publicFile(r.from.Text(f.File)); ok && !builtInFile.MatchString(p) {
			fn = rolePublic
		}
		r.to.Frames[i] = Frame{File: r.id(f.File, roleFile), Func: r.id(f.Func, fn), Line: f.Line,
			Extra: r.id(f.Extra, roleJSON)}
	}
}

func (r *redactor) details() {
	r.to.Details = slices.Clone(r.from.Details)
	for i := range r.to.Details {
		d := &r.to.Details[i]
		d.Action, d.Category = r.id(d.Action, rolePublic), r.id(d.Category, rolePublic)
		d.CompileContext, d.UserMetadata = r.id(d.CompileContext, roleNote), r.id(d.UserMetadata, roleNote)
		d.Op, d.Extra = r.id(d.Op, roleOp), r.id(d.Extra, roleJSON)
	}
}

func (r *redactor) work() {
	r.to.Ops = slices.Clone(r.from.Ops)
	for i := range r.to.Ops {
		o := &r.to.Ops[i]
		o.Name, o.Module = r.id(o.Name, roleOp), r.id(o.Module, roleNote)
	}
	r.to.Marks = slices.Clone(r.from.Marks)
	for i := range r.to.Marks {
		r.to.Marks[i].Name = r.id(r.to.Marks[i].Name, roleMark)
	}
	r.to.Counters = slices.Clone(r.from.Counters)
	for i := range r.to.Counters {
		c := &r.to.Counters[i]
		switch r.from.Text(c.Name) {
		case CounterAllocated, CounterReserved:
			c.Name = r.id(c.Name, rolePublic)
		default:
			c.Name = r.id(c.Name, roleNote)
		}
	}
}

func (r *redactor) state() {
	s := &r.to.Final
	s.Segments = slices.Clone(s.Segments)
	for i := range s.Segments {
		s.Segments[i].Extra = r.id(s.Segments[i].Extra, roleJSON)
	}
	s.Blocks = slices.Clone(s.Blocks)
	for i := range s.Blocks {
		s.Blocks[i].Extra = r.id(s.Blocks[i].Extra, roleJSON)
	}
}

func (r *redactor) settings(list []Setting) []Setting {
	out := make([]Setting, len(list))
	for i, s := range list {
		out[i] = Setting{s.Key, r.json(s.Value)}
	}
	return out
}

var plainSetting = regexp.MustCompile(
	`^[A-Za-z_]+(?::[A-Za-z0-9_.:\[\]>]+)?(?:,[A-Za-z_]+(?::[A-Za-z0-9_.:\[\]>]+)?)*$`)

// knownSettings are the words of PYTORCH_CUDA_ALLOC_CONF: a value that consists of them is not a secret.
var knownSettings = map[string]bool{
	"expandable_segments": true, "max_split_size_mb": true, "garbage_collection_threshold": true,
	"roundup_power2_divisions": true, "backend": true, "pinned_use_cuda_host_register": true,
	"pinned_num_register_threads": true, "release_lock_on_cudamalloc": true,
	"graph_capture_record_stream_reuse": true, "pinned_reserve_segment_size_mb": true,
	"per_process_memory_fraction": true,
}

// json hashes every string in a JSON value, and the whole text if it is not JSON. It hashes keys of objects
// too, which may hold unknown data.
func (r *redactor) json(s string) string {
	dec := json.NewDecoder(strings.NewReader(s))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil || dec.More() {
		if s == "" {
			return ""
		}
		return `"` + r.hash("value", s) + `"`
	}
	b, err := json.Marshal(r.value(v))
	if err != nil {
		return `"` + r.hash("value", s) + `"`
	}
	return string(b)
}

func (r *redactor) value(v any) any {
	switch v := v.(type) {
	case string:
		if v == "" || publicSetting(v) {
			return v
		}
		return r.hash("value", v)
	case []any:
		for i := range v {
			v[i] = r.value(v[i])
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			if !publicKey.MatchString(k) {
				k = r.hash("key", k)
			}
			out[k] = r.value(e)
		}
		return out
	}
	return v
}

// publicKey is the form of PyTorch's own keys: snake case or a number.
var publicKey = regexp.MustCompile(`^[a-z][a-z0-9_]*$|^[0-9]+$`)

func publicSetting(s string) bool {
	if !plainSetting.MatchString(s) {
		return false
	}
	for _, part := range strings.Split(s, ",") {
		name, _, _ := strings.Cut(part, ":")
		if !knownSettings[name] {
			return false
		}
	}
	return true
}
