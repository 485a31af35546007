// Package bus carries messages between the nodes of a training that runs on several machines and those who
// look at it. Nothing in a training process uses it.
//
// A run has one [Hub], which keeps the newest messages in bounded streams. Each node has a [Ring] that sends
// to it, and viewers read from it through a [Conn]. The hub is a NATS server with JetStream in this process,
// or a site's own NATS servers. That is known here and nowhere else: no type of NATS leaves this package, and
// the build tag nobus leaves all of it out.
//
// # Who may do what
//
// Each run has its own certificate and three keys ([Keys]). A node's key can publish to its run, a viewer's
// key can read it, and an operator's key can also send orders. Orders are a closed list ([Verb]) and are
// signed with the operator's key, so that a node obeys nobody else, whatever the server lets through. The
// keys are in a file that only its owner can read ([Join]), never on a command line.
package bus

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Kind is the kind of a message. Each has a stream of its own in the hub.
type Kind string

// The kinds of messages.
const (
	// Hello says what a node is: the newest one of each node is kept.
	Hello Kind = "hello"
	// Step is a batch of steps of a node's ranks.
	Step Kind = "step"
	// Roll sums up the steps of a node's ranks, a minute of each.
	Roll Kind = "roll"
	// Trace is a part of a captured trace, on its way to the operator who asked for it.
	Trace Kind = "trace"
)

// kinds are all kinds.
var kinds = []Kind{Hello, Step, Roll, Trace}

// maxMessage is the largest message that a hub takes.
const maxMessage = 256 << 10

// limits are the bounds of a kind's stream. The oldest messages go first.
type limits struct {
	bytes int64
	// each is how many messages of a node are kept, 0 for as many as the bytes allow.
	each int64
	// age is how long a message is kept, 0 for no limit.
	age time.Duration
	// part divides the room that the disk has for a stream; 0 is 1.
	part int64
}

var streamLimits = map[Kind]limits{
	Hello: {bytes: 16 << 20, each: 1},
	Step:  {bytes: 256 << 20},
	Roll:  {bytes: 256 << 20, part: 2},
	// Its reader takes the parts of a trace while they arrive.
	Trace: {bytes: 512 << 20, age: 10 * time.Minute, part: 4},
}

// repeated is how long the hub recognises a message that was sent again. A node stores it once even if the
// answer to the first attempt was lost.
const repeated = 2 * time.Minute

// Message is a message as a reader gets it.
type Message struct {
	// Node is the node that sent it.
	Node string
	Kind Kind
	Data []byte
	// Stored is when the hub received it, by the hub's clock, and Age how long the hub had it when it was
	// read.
	Stored time.Time
	Age    time.Duration
}

// Outage is a time in which a hub could store nothing, usually because its disk was full. Nodes keep what
// they can meanwhile.
type Outage struct {
	// Store is the hub's folder, and Why what failed there.
	Store string
	Why   error
	Begun time.Time
	// Ended is the zero time while it lasts.
	Ended time.Time
	// Lost is how many messages are gone that the hub had said to have stored.
	Lost int64
}

// Errors that callers distinguish.
var (
	// errRefused means that the hub does not accept our key.
	errRefused = errors.New("the hub refused the key")
	// ErrNoHub means that nothing answers at any of the hub's addresses.
	ErrNoHub = errors.New("no hub answers")
)

// Token writes any text as one word of a subject. Letters, digits and hyphens stay; every other byte becomes
// an underscore and two hexadecimal digits, since a dot, a star or a space means something in a subject.
func Token(text string) string {
	var b strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "_%02x", c)
		}
	}
	return b.String()
}

// Untoken is the inverse of Token. ok is false for text that Token does not write.
func Untoken(word string) (text string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(word); i++ {
		if word[i] != '_' {
			b.WriteByte(word[i])
			continue
		}
		var c byte
		if len(word) < i+3 {
			return "", false
		}
		if _, err := fmt.Sscanf(word[i+1:i+3], "%02x", &c); err != nil {
			return "", false
		}
		b.WriteByte(c)
		i += 2
	}
	return b.String(), word != "" && Token(b.String()) == word
}

// names are the subjects and streams of a run.
type names struct{ run string }

func namesOf(run string) names { return names{Token(run)} }

// subject is where a node publishes messages of a kind.
func (n names) subject(node string, k Kind) string {
	return "gmt.v1." + n.run + ".agent." + Token(node) + "." + string(k)
}

// published is every subject that a node may publish to.
func (n names) published() string { return "gmt.v1." + n.run + ".agent.>" }

// orders is where nodes get their orders; all of them end with a verb.
func (n names) orders(v Verb) string { return "gmt.v1." + n.run + ".ctl." + string(v) }

func (n names) allOrders() string { return "gmt.v1." + n.run + ".ctl.>" }

// inbox is the prefix of the subjects at which a role gets answers. Each role has its own, so that no role
// reads another's answers.
func (n names) inbox(r Role) string { return "_GMT." + n.run + "." + string(r) }

func (n names) stream(k Kind) string { return "GMT-" + n.run + "-" + strings.ToUpper(string(k)) }

// streamSubject is what a stream stores.
func (n names) streamSubject(k Kind) string { return "gmt.v1." + n.run + ".agent.*." + string(k) }

// nodeOf returns the node that publishes to a subject of the run.
func (n names) nodeOf(subject string) (node string, ok bool) {
	rest, ok := strings.CutPrefix(subject, "gmt.v1."+n.run+".agent.")
	if !ok {
		return "", false
	}
	word, _, ok := strings.Cut(rest, ".")
	if !ok {
		return "", false
	}
	return Untoken(word)
}
